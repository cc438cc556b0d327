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
fn existing_server_can_be_on_a_host() {
    let experiment = parsed(
        "[host.db1]\n[[candidate]]\nname = 'a'\nsystem = 'mariadb'\nurl = 'mysql://me@db1'\nhost = 'db1'",
    );
    assert_eq!(experiment.candidates[0].system.host(), Some("db1"));
}

#[test]
fn unknown_host_has_the_nearest_name() {
    assert_snapshot!(problems(&format!("[host.db1]\n{MARIADB}host = 'db2'")), @r"
    error: unknown host `db2`
     --> test.toml:7:8
      |
    7 | host = 'db2'
      |        ^^^^^ did you mean `db1`?
    ");
    assert_snapshot!(problems(&format!("{MARIADB}host = 'db1'")), @r"
    error: unknown host `db1`
     --> test.toml:6:8
      |
    6 | host = 'db1'
      |        ^^^^^ add [host.db1]
    ");
}

#[test]
fn destinations_and_addresses_are_checked() {
    let host = "[host.db1]\nssh = '-oProxyCommand=x'\naddress = '127.0.0.1'\ndirectory = 'data'\n\
                cpus = 'all'\nport = 22\n";
    assert_snapshot!(problems(&format!("{host}{MARIADB}host = 'db1'")), @r#"
    error: invalid destination `-oProxyCommand=x`
     --> test.toml:4:7
      |
    4 | ssh = '-oProxyCommand=x'
      |       ^^^^^^^^^^^^^^^^^^ write it as for ssh(1), such as "bench@db1"; options belong in ~/.ssh/config

    error: `127.0.0.1` is not an address of another machine
     --> test.toml:5:11
      |
    5 | address = '127.0.0.1'
      |           ^^^^^^^^^^^ use the address at which the load generator reaches the host

    error: the path of `directory` must be absolute
     --> test.toml:6:13
      |
    6 | directory = 'data'
      |             ^^^^^^ write the full path on the host, such as "/mnt/nvme"

    error: invalid CPU list `all`
     --> test.toml:7:8
      |
    7 | cpus = 'all'
      |        ^^^^^ use numbers and ascending ranges, such as "0-3,6"

    error: unknown key `port` in [host.db1]
     --> test.toml:8:1
      |
    8 | port = 22
      | ^^^^
    "#);
    let host = "[host.db1]\nssh = 'db1 rm'\naddress = '10.0.0.2:3306'\n";
    assert_snapshot!(problems(&format!("{host}{MARIADB}host = 'db1'")), @r#"
    error: invalid destination `db1 rm`
     --> test.toml:4:7
      |
    4 | ssh = 'db1 rm'
      |       ^^^^^^^^ write it as for ssh(1), such as "bench@db1"; options belong in ~/.ssh/config

    error: invalid address `10.0.0.2:3306`
     --> test.toml:5:11
      |
    5 | address = '10.0.0.2:3306'
      |           ^^^^^^^^^^^^^^^ use an IP address or a host name, without a port
    "#);
}

#[test]
fn what_cannot_run_on_another_host_is_refused() {
    let candidate = |lines: &str| {
        problems(&format!("[host.db1]\n[[candidate]]\nname = 'a'\nhost = 'db1'\n{lines}"))
    };
    assert_snapshot!(candidate("system = 'sqlite'\nvariant = 'rel'"), @r"
    error: `host` is for servers
     --> test.toml:6:1
      |
    6 | host = 'db1'
      | ^^^^ configure SQLite in `sqlite = { … }`
    ");
    assert_snapshot!(candidate("system = 'mariadb'\nurl = 'mysql://me@127.0.0.1'"), @r"
    error: `url` is an address of this machine, and the server is on another host
     --> test.toml:8:7
      |
    8 | url = 'mysql://me@127.0.0.1'
      |       ^^^^^^^^^^^^^^^^^^^^^^ write the address at which the host is reached, or remove `host`
    ");
    assert_snapshot!(candidate("system = 'mariadb'\ntls = 'required'"), @r#"
    error: unknown `tls` `required`
     --> test.toml:8:7
      |
    8 | tls = 'required'
      |       ^^^^^^^^^^ write "verified": dbdyno knows the certificate of its own server
    "#);
    let here = format!("{MARIADB}tls = 'verified'");
    assert_snapshot!(problems(&here), @r"
    error: `tls` is for servers on a host
     --> test.toml:6:1
      |
    6 | tls = 'verified'
      | ^^^ remove it: nothing leaves this machine; a server with `url` has `tls` there
    ");
    let compiled = candidate(
        "system = 'postgresql'\nsource = { path = '/x' }\nvariant = 'rel'\ntls = 'verified'",
    );
    assert_snapshot!(compiled, @r"
    error: PostgreSQL that dbdyno compiles has no TLS
      --> test.toml:10:1
       |
    10 | tls = 'verified'
       | ^^^ remove `tls`, or use an installed server or a `release`
    ");
}
