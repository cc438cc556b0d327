//! `[host.NAME]` and the candidates that run there.

use std::path::PathBuf;

use dbdyno_spec::experiment::{Experiment, Host};
use dbdyno_spec::parse;
use insta::assert_snapshot;

const START: &str = "name = 'x'\nbaseline = 'a'\n";
const MARIADB: &str = "[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n";

fn parsed(text: &str) -> Experiment {
    let text = format!("{START}{text}");
    parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
}

fn problems(text: &str) -> String {
    let text = format!("{START}{text}");
    parse("test.toml", &text).map_or_else(|problems| problems.to_string(), |_| "none".into())
}

#[test]
fn name_is_the_default_of_destination_and_address() {
    let experiment = parsed(&format!("[host.db1]\n{MARIADB}host = 'db1'"));
    let (name, ssh, address) = ("db1".to_owned(), "db1".to_owned(), "db1".to_owned());
    let expected = Host { name, ssh, address, cpus: None, directory: None };
    assert_eq!(experiment.hosts, [expected]);
    assert_eq!(experiment.candidates[0].system.host(), Some("db1"));
}

#[test]
fn all_keys_are_read_and_stored() {
    let experiment = parsed(&format!(
        "[host.db1]\nssh = 'bench@db1.lan'\naddress = 'fd00::2'\ncpus = '2-3'\n\
         directory = '/mnt/nvme'\n{MARIADB}host = 'db1'\n\
         [[candidate]]\nname = 'b'\nsystem = 'postgresql'"
    ));
    let expected = Host {
        name: "db1".to_owned(),
        ssh: "bench@db1.lan".to_owned(),
        address: "fd00::2".to_owned(),
        cpus: Some("2-3".to_owned()),
        directory: Some(PathBuf::from("/mnt/nvme")),
    };
    assert_eq!(experiment.hosts, [expected]);
    assert_eq!(experiment.candidates[1].system.host(), None);
    let stored = serde_json::to_string(&experiment).unwrap();
    assert_eq!(serde_json::from_str::<Experiment>(&stored).unwrap(), experiment);
}

#[test]
fn unknown_host_has_the_nearest_name() {
    assert_snapshot!(problems(&format!("[host.db1]\n{MARIADB}host = 'db2'")), @"");
    assert_snapshot!(problems(&format!("{MARIADB}host = 'db1'")), @"");
}

#[test]
fn destinations_and_addresses_are_checked() {
    let host = "[host.db1]\nssh = '-oProxyCommand=x'\naddress = '127.0.0.1'\ndirectory = 'data'\n\
                cpus = 'all'\nport = 22\n";
    assert_snapshot!(problems(&format!("{host}{MARIADB}host = 'db1'")), @"");
    let host = "[host.db1]\nssh = 'db1 rm'\naddress = '10.0.0.2:3306'\n";
    assert_snapshot!(problems(&format!("{host}{MARIADB}host = 'db1'")), @"");
}

#[test]
fn what_cannot_run_on_another_host_is_refused() {
    let candidate = |lines: &str| {
        problems(&format!("[host.db1]\n[[candidate]]\nname = 'a'\nhost = 'db1'\n{lines}"))
    };
    assert_snapshot!(candidate("system = 'sqlite'\nvariant = 'rel'"), @"");
    assert_snapshot!(candidate("system = 'mysql'"), @"");
    assert_snapshot!(candidate("system = 'mariadb'\nurl = 'mysql://me@db1'"), @"");
    assert_snapshot!(candidate("system = 'mariadb'\nrelease = '10.11'\nlive = {}"), @"");
    let inserts = format!("[host.db1]\n[insert_benchmark]\nrows = '100k'\n{MARIADB}host = 'db1'");
    assert_snapshot!(problems(&inserts), @"");
}
