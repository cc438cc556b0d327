//! `[host.NAME]` and the candidates that run there.

use std::path::PathBuf;

use dbdyno_spec::experiment::{Experiment, Host};
use dbdyno_spec::parse;

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
fn existing_server_can_be_on_a_host() {
    let experiment = parsed(
        "[host.db1]\n[[candidate]]\nname = 'a'\nsystem = 'mariadb'\nurl = 'mysql://me@db1'\nhost = 'db1'",
    );
    assert_eq!(experiment.candidates[0].system.host(), Some("db1"));
}

#[test]
fn unknown_host_has_the_nearest_name() {
    assert_problems!(problems(&format!("[host.db1]\n{MARIADB}host = 'db2'")), @r"
    7:8 unknown host `db2`
    host = 'db2'
           ^^^^^ did you mean `db1`?
    ");
    assert_problems!(problems(&format!("{MARIADB}host = 'db1'")), @r"
    6:8 unknown host `db1`
    host = 'db1'
           ^^^^^ add [host.db1]
    ");
}

#[test]
fn destinations_and_addresses_are_checked() {
    let host = "[host.db1]\nssh = '-oProxyCommand=x'\naddress = '127.0.0.1'\ndirectory = 'data'\n\
                cpus = 'all'\nport = 22\n";
    assert_problems!(problems(&format!("{host}{MARIADB}host = 'db1'")), @r#"
    4:7 invalid destination `-oProxyCommand=x`
    ssh = '-oProxyCommand=x'
          ^^^^^^^^^^^^^^^^^^ write it as for ssh(1), such as "bench@db1"; options belong in ~/.ssh/config
    5:11 `127.0.0.1` is not an address of another machine
    address = '127.0.0.1'
              ^^^^^^^^^^^ use the address at which the load generator reaches the host
    6:13 the path of `directory` must be absolute
    directory = 'data'
                ^^^^^^ write the full path on the host, such as "/mnt/nvme"
    7:8 invalid CPU list `all`
    cpus = 'all'
           ^^^^^ use numbers and ascending ranges, such as "0-3,6"
    8:1 unknown key `port` in [host.db1]
    port = 22
    ^^^^
    "#);
    let host = "[host.db1]\nssh = 'db1 rm'\naddress = '10.0.0.2:3306'\n";
    assert_problems!(problems(&format!("{host}{MARIADB}host = 'db1'")), @r#"
    4:7 invalid destination `db1 rm`
    ssh = 'db1 rm'
          ^^^^^^^^ write it as for ssh(1), such as "bench@db1"; options belong in ~/.ssh/config
    5:11 invalid address `10.0.0.2:3306`
    address = '10.0.0.2:3306'
              ^^^^^^^^^^^^^^^ use an IP address or a host name, without a port
    "#);
}

#[test]
fn what_cannot_run_on_another_host_is_refused() {
    let candidate = |lines: &str| {
        problems(&format!("[host.db1]\n[[candidate]]\nname = 'a'\nhost = 'db1'\n{lines}"))
    };
    assert_problems!(candidate("system = 'sqlite'\nvariant = 'rel'"), @r"
    6:1 `host` applies to servers only
    host = 'db1'
    ^^^^ configure SQLite in `sqlite = { … }`
    ");
    assert_problems!(candidate("system = 'mariadb'\nurl = 'mysql://me@127.0.0.1'"), @r"
    8:7 `url` is an address of this machine, and the server is on another host
    url = 'mysql://me@127.0.0.1'
          ^^^^^^^^^^^^^^^^^^^^^^ write the address at which the host is reached, or remove `host`
    ");
    assert_problems!(candidate("system = 'mariadb'\ntls = 'required'"), @r#"
    8:7 unknown `tls` `required`
    tls = 'required'
          ^^^^^^^^^^ write "verified": dbdyno knows the certificate of its own server
    "#);
    let here = format!("{MARIADB}tls = 'verified'");
    assert_problems!(problems(&here), @r"
    6:1 `tls` applies to servers on a host only
    tls = 'verified'
    ^^^ remove it: nothing leaves this machine; a server with `url` has `tls` there
    ");
    let compiled = candidate(
        "system = 'postgresql'\nsource = { path = '/x' }\nvariant = 'rel'\ntls = 'verified'",
    );
    assert_problems!(compiled, @r"
    10:1 PostgreSQL that dbdyno compiles has no TLS
    tls = 'verified'
    ^^^ remove `tls`, or use an installed server or a `release`
    ");
}
