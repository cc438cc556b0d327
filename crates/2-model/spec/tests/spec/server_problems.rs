//! Problems in the settings of servers, and in their URLs; none of the messages shows a password.

use dbdyno_spec::parse;
use insta::assert_snapshot;

fn shown(text: &str) -> String {
    parse("test.toml", text).map_or_else(|problems| problems.to_string(), |_| "none".into())
}

/// The problems of a candidate with these lines, which start in line 5.
fn candidate(lines: &str) -> String {
    shown(&format!("name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n{lines}"))
}

#[test]
fn injected_delay_is_rejected_for_servers() {
    assert_snapshot!(
        candidate("system = 'mariadb'\ninjected_delay = '3%'"),
        @r"
    error: `injected_delay` is for SQLite
     --> test.toml:6:1
      |
    6 | injected_delay = '3%'
      | ^^^^^^^^^^^^^^ remove `injected_delay`
    "
    );
}

#[test]
fn keys_of_other_systems_are_rejected() {
    assert_snapshot!(
        candidate(
            "system = 'mariadb'\nsource = {}\ncompiler = 'gcc'\nflags = []\nsqlite = {}\n\
             schema = 'mine'\npid = 7"
        ),
        @r"
        error: `source` is for systems that dbdyno compiles
         --> test.toml:6:1
          |
        6 | source = {}
          | ^^^^^^ add a `variant` to compile MariaDB, or remove this

        error: `compiler` is for systems that dbdyno compiles
         --> test.toml:7:1
          |
        7 | compiler = 'gcc'
          | ^^^^^^^^ add a `variant` to compile MariaDB, or remove this

        error: `flags` is for systems that dbdyno compiles
         --> test.toml:8:1
          |
        8 | flags = []
          | ^^^^^ add a `variant` to compile MariaDB, or remove this

        error: `sqlite` is for SQLite
         --> test.toml:9:1
          |
        9 | sqlite = {}
          | ^^^^^^ configure MariaDB in `configuration = { … }`

        error: `schema` is for an existing server
          --> test.toml:10:1
           |
        10 | schema = 'mine'
           | ^^^^^^ add `url`, or remove this

        error: `pid` is for an existing server
          --> test.toml:11:1
           |
        11 | pid = 7
           | ^^^ add `url`, or remove this
        "
    );
    assert_snapshot!(candidate("system = 'postgresql'\nengine = 'innodb'"), @r"
    error: `engine` is for systems with several storage engines
     --> test.toml:6:1
      |
    6 | engine = 'innodb'
      | ^^^^^^ PostgreSQL has only one
    ");
    assert_snapshot!(
        candidate(
            "system = 'sqlite'\nvariant = 'rel'\nengine = 'innodb'\nurl = 'mysql://me@h'\n\
             durability = 'strict'\nconfiguration = {}"
        ),
        @r"
        error: `engine` is for servers
         --> test.toml:7:1
          |
        7 | engine = 'innodb'
          | ^^^^^^ configure SQLite in `sqlite = { … }`

        error: `url` is for servers
         --> test.toml:8:1
          |
        8 | url = 'mysql://me@h'
          | ^^^ configure SQLite in `sqlite = { … }`

        error: `durability` is for servers
         --> test.toml:9:1
          |
        9 | durability = 'strict'
          | ^^^^^^^^^^ configure SQLite in `sqlite = { … }`

        error: `configuration` is for servers
          --> test.toml:10:1
           |
        10 | configuration = {}
           | ^^^^^^^^^^^^^ configure SQLite in `sqlite = { … }`
        "
    );
    assert_snapshot!(
        candidate(
            "system = 'mysql'\nurl = 'mysql://me@h'\nprogram = '/usr/sbin/mysqld'\n\
             configuration = { a = 1 }\ndurability = 'strict'\nrestarts_after_death = 0"
        ),
        @r"
        error: `program` is for a server that dbdyno starts
         --> test.toml:7:1
          |
        7 | program = '/usr/sbin/mysqld'
          | ^^^^^^^ dbdyno does not start or configure a server with a `url`

        error: `configuration` is for a server that dbdyno starts
         --> test.toml:8:1
          |
        8 | configuration = { a = 1 }
          | ^^^^^^^^^^^^^ dbdyno does not start or configure a server with a `url`

        error: `durability` is for a server that dbdyno starts
         --> test.toml:9:1
          |
        9 | durability = 'strict'
          | ^^^^^^^^^^ dbdyno does not start or configure a server with a `url`

        error: `restarts_after_death` is for a server that dbdyno starts
          --> test.toml:10:1
           |
        10 | restarts_after_death = 0
           | ^^^^^^^^^^^^^^^^^^^^ dbdyno does not start or configure a server with a `url`
        "
    );
}

#[test]
fn keys_of_an_unknown_system_are_not_reported() {
    assert_snapshot!(candidate("system = 'maria'\nengine = 'innodb'\nvariant = 7"), @r"
    error: unknown `system`: `maria`
     --> test.toml:5:10
      |
    5 | system = 'maria'
      |          ^^^^^^^ did you mean `mariadb`?
    ");
}

#[test]
fn invalid_server_values_are_reported() {
    assert_snapshot!(
        candidate(
            "system = 'mysql'\nengine = 'rocksdb'\nprogram = 'mysqld'\ndurability = 'full'\n\
             statements = 'binary'\nrestarts_after_death = -1\nconfigration = {}"
        ),
        @r#"
        error: unknown `engine`: `rocksdb`
         --> test.toml:6:10
          |
        6 | engine = 'rocksdb'
          |          ^^^^^^^^^ valid are `innodb`, `myrocks`

        error: the path of `program` must be absolute
         --> test.toml:7:11
          |
        7 | program = 'mysqld'
          |           ^^^^^^^^ write the full path, such as "/usr/sbin/mariadbd"

        error: unknown `durability`: `full`
         --> test.toml:8:14
          |
        8 | durability = 'full'
          |              ^^^^^^ valid are `relaxed`, `strict`

        error: unknown `statements`: `binary`
         --> test.toml:9:14
          |
        9 | statements = 'binary'
          |              ^^^^^^^^ valid are `prepared`, `text`

        error: `restarts_after_death` is out of range
          --> test.toml:10:24
           |
        10 | restarts_after_death = -1
           |                        ^^ it must be from 0 to 1000

        error: unknown key `configration` in [[candidate]]
          --> test.toml:11:1
           |
        11 | configration = {}
           | ^^^^^^^^^^^^ did you mean `configuration`?
        "#
    );
    assert_snapshot!(
        candidate("system = 'mysql'\nurl = 'mysql://me@h'\npid = 0\nschema = 'My-Data'"),
        @r"
        error: `pid` is out of range
         --> test.toml:7:7
          |
        7 | pid = 0
          |       ^ it must be from 1 to 4194304

        error: `My-Data` cannot be the name of a schema
         --> test.toml:8:10
          |
        8 | schema = 'My-Data'
          |          ^^^^^^^^^ names consist of lowercase letters, digits and _, and do not start with a digit
        "
    );
}

#[test]
fn invalid_configuration_is_reported() {
    assert_snapshot!(
        candidate(
            "system = 'mariadb'\n[candidate.configuration]\nsync-binlog = 0\nsync_binlog = 1\n\
             'x y' = 1\n-x = 1\nlist = [1]\ntext = \"1\\nuser=root\"\nnumber = inf"
        ),
        @r#"
        error: `sync_binlog` is set twice
         --> test.toml:8:1
          |
        8 | sync_binlog = 1
          | ^^^^^^^^^^^ same setting as in line 7

        error: `x y` cannot be the name of a setting
         --> test.toml:9:1
          |
        9 | 'x y' = 1
          | ^^^^^ names consist of letters, digits and _ - .

        error: `-x` cannot be the name of a setting
          --> test.toml:10:1
           |
        10 | -x = 1
           | ^^ names consist of letters, digits and _ - .

        error: `list` must be a string, a number, true or false, not an array
          --> test.toml:11:8
           |
        11 | list = [1]
           |        ^^^

        error: a setting must be one line of plain text
          --> test.toml:12:8
           |
        12 | text = "1\nuser=root"
           |        ^^^^^^^^^^^^^^ remove line breaks and tabs

        error: a setting must be a finite number
          --> test.toml:13:10
           |
        13 | number = inf
           |          ^^^ write it as a string
        "#
    );
    assert_snapshot!(
        shown(
            "name = 'x'\nbaseline = 'a'\n[postgresql]\njit = false\n[postgresql.configuration]\n\
             JIT = 1\njit = 2\n[[candidate]]\nname = 'a'\nsystem = 'postgresql'"
        ),
        @r"
        error: unknown key `jit` in [postgresql]
         --> test.toml:4:1
          |
        4 | jit = false
          | ^^^

        error: `jit` is set twice
         --> test.toml:7:1
          |
        7 | jit = 2
          | ^^^ same setting as in line 6
        "
    );
}

#[test]
fn invalid_schemas_are_reported() {
    let schema = |schema: &str| {
        candidate(&format!("system = 'mysql'\nurl = 'mysql://me@h'\nschema = '{schema}'"))
    };
    assert_snapshot!(schema("mysql"), @r"
    error: the schema `mysql` is the server's own
     --> test.toml:7:10
      |
    7 | schema = 'mysql'
      |          ^^^^^^^ dbdyno creates its own schema: choose an unused name
    ");
    assert_snapshot!(schema("pg_mine"), @r"
    error: the schema `pg_mine` is the server's own
     --> test.toml:7:10
      |
    7 | schema = 'pg_mine'
      |          ^^^^^^^^^ dbdyno creates its own schema: choose an unused name
    ");
    assert_snapshot!(schema(&"s".repeat(56)), @r"
    error: schema name `ssssssssssssssssssssssssssssssssssssssssssssssssssssssss` is too long
     --> test.toml:7:10
      |
    7 | schema = 'ssssssssssssssssssssssssssssssssssssssssssssssssssssssss'
      |          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ set `schema` to one of at most 55 characters
    ");
    assert_eq!(schema(&"s".repeat(55)), "none");
    let name = "n".repeat(49);
    assert_snapshot!(
        shown(&format!(
            "name = 'x'\nbaseline = '{name}'\n[[candidate]]\nname = '{name}'\n\
             system = 'postgresql'\nurl = 'postgres://me@h'"
        )),
        @r"
        error: schema name `dbdyno_nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` is too long
         --> test.toml:3:1
          |
        3 | [[candidate]]
          | ^^^^^^^^^^^^^ set `schema` to one of at most 55 characters
        "
    );
}

#[test]
fn shared_schemas_are_rejected() {
    let three = |second: &str, third: &str| {
        shown(&format!(
            "name = 'x'\nbaseline = 'a.b'\n\
             [[candidate]]\nname = 'a.b'\nsystem = 'mysql'\nurl = 'mysql://me@h/one'\n\
             [[candidate]]\nname = 'a-b'\nsystem = 'mysql'\nurl = '{second}'\n\
             [[candidate]]\nname = 'a_b_control'\nsystem = 'mysql'\nurl = '{third}'"
        ))
    };
    assert_eq!(three("mysql://me@g", "mysql://me@h:3307"), "none");
    assert_snapshot!(three("mysql://other@h/two", "mysql://me@h"), @r"
    error: `a.b` and `a-b` would share `dbdyno_a_b`
      --> test.toml:10:1
       |
    10 | url = 'mysql://other@h/two'
       | ^^^ set a different `schema` for one of them

    error: the control and `a_b_control` would share `dbdyno_a_b_control`
      --> test.toml:14:1
       |
    14 | url = 'mysql://me@h'
       | ^^^ set a different `schema` for one of them
    ");
    let two = |database: &str| {
        shown(&format!(
            "name = 'x'\nbaseline = 'a'\n\
             [[candidate]]\nname = 'a'\nsystem = 'postgresql'\nurl = 'postgres://me@h/one'\n\
             [[candidate]]\nname = 'b'\nsystem = 'postgresql'\nschema = 'dbdyno_a'\n\
             url = 'postgres://me@h/{database}'"
        ))
    };
    assert_eq!(two("two"), "none");
    assert!(two("one").contains("`a` and `b` would share `dbdyno_a`"));
}

#[test]
fn restarts_are_rejected_with_an_existing_server() {
    let with = |restarts: u32| {
        shown(&format!(
            "name = 'x'\nbaseline = 'a'\nschedule.restarts = {restarts}\n\
             [[candidate]]\nname = 'a'\nsystem = 'mysql'\nurl = 'mysql://me@h'"
        ))
    };
    assert_eq!(with(1), "none");
    assert_snapshot!(with(2), @r"
    error: an existing server cannot be restarted
     --> test.toml:3:21
      |
    3 | schedule.restarts = 2
      |                     ^ remove `restarts`, or the candidates with a `url`
    ");
}

#[test]
fn invalid_sweeps_are_reported() {
    let with = |clients: &str, schedule: &str| {
        shown(&format!(
            "name = 'x'\nbaseline = 'a'\n[workload]\nclients = {clients}\n[schedule]\n{schedule}\n\
             [[candidate]]\nname = 'a'\nsystem = 'mariadb'"
        ))
    };
    assert_eq!(with("[1]", "pace = 'events'"), "none");
    assert_snapshot!(with("[]", ""), @r"
    error: `clients` is empty
     --> test.toml:4:11
      |
    4 | clients = []
      |           ^^ remove `clients` for one client
    ");
    assert_snapshot!(with("[1, 2, 1]", ""), @r"
    error: duplicate number of clients 1
     --> test.toml:4:18
      |
    4 | clients = [1, 2, 1]
      |                  ^ each number is measured once
    ");
    assert_snapshot!(with("[0, 1025]", ""), @r"
    error: `clients` is out of range
     --> test.toml:4:12
      |
    4 | clients = [0, 1025]
      |            ^ it must be from 1 to 1024
    ");
    assert_snapshot!(with("'many'", ""), @r"
    error: `clients` must be an integer or an array of integers, not a string
     --> test.toml:4:11
      |
    4 | clients = 'many'
      |           ^^^^^^
    ");
    assert_snapshot!(with("[1, 2]", "pace = 'events'"), @r#"
    error: `pace = "events"` needs one client
     --> test.toml:6:8
      |
    6 | pace = 'events'
      |        ^^^^^^^^ several clients finish at different times; use "time"
    "#);
}

/// The problem of a URL, without the lines that are always the same.
fn url(system: &str, url: &str) -> String {
    let shown = candidate(&format!("system = '{system}'\nurl = '{url}'"));
    shown.lines().filter(|line| *line != "  |").collect::<Vec<_>>().join("\n")
}

#[test]
fn invalid_mysql_urls_are_reported() {
    let url = |text| url("mariadb", text);
    assert_snapshot!(url("db.example"), @r#"
    error: `url` is not a server URL
     --> test.toml:6:8
    6 | url = 'db.example'
      |        ^^^^^^^^^^ write it as "mysql://user@host:3306/"
    "#);
    assert_snapshot!(url("postgres://me@h"), @r"
    error: `url` is not for MariaDB
     --> test.toml:6:8
    6 | url = 'postgres://me@h'
      |        ^^^^^^^^ its URLs start with mysql:// or mariadb://
    ");
    assert_snapshot!(url("mysql://h/db"), @r#"
    error: `url` has no user
     --> test.toml:6:16
    6 | url = 'mysql://h/db'
      |                ^ add one before the host, such as "mysql://user@host:3306/"
    "#);
    assert_snapshot!(url("mysql://me@"), @r#"
    error: `url` names no host
     --> test.toml:6:19
    6 | url = 'mysql://me@'
      |                   ^ write it as "mysql://user@host:3306/", or name a socket
    "#);
    assert_snapshot!(url("mysql://me@h:port/"), @r#"
    error: `url` cannot be read: invalid port number
     --> test.toml:6:19
    6 | url = 'mysql://me@h:port/'
      |                   ^^^^^^ write it as "mysql://user@host:3306/"
    "#);
    assert_snapshot!(url("mysql://me@h:0/"), @r"
    error: `url` has the port 0
     --> test.toml:6:19
    6 | url = 'mysql://me@h:0/'
      |                   ^^^ it must be from 1 to 65535
    ");
    assert_snapshot!(url("mysql://me@h:99999/"), @r#"
    error: `url` cannot be read: invalid port number
     --> test.toml:6:19
    6 | url = 'mysql://me@h:99999/'
      |                   ^^^^^^^ write it as "mysql://user@host:3306/"
    "#);
    assert_snapshot!(url("mysql://me@h/a/b"), @r"
    error: `url` has more than one database name
     --> test.toml:6:20
    6 | url = 'mysql://me@h/a/b'
      |                    ^^^^ only one name is allowed between the host and the `?`
    ");
    assert_snapshot!(url("mysql://me@h/?sokcet=/x"), @r"
    error: unknown key in `url`
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?sokcet=/x'
      |                      ^^^^^^ did you mean `socket`?
    ");
    assert_snapshot!(url("mysql://me@h/?sslmode=require"), @r"
    error: unknown key in `url`
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?sslmode=require'
      |                      ^^^^^^^ use `tls` for encryption
    ");
    assert_snapshot!(url("mysql://me@h/?charset=utf8"), @r"
    error: unknown key in `url`
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?charset=utf8'
      |                      ^^^^^^^ valid are `socket`, `tls`, `tls_authorities`, `tls_fingerprint`, `server_public_key_path`
    ");
    assert_snapshot!(url("mysql://me@h/?tls=yes"), @r"
    error: unknown `tls` in `url`
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?tls=yes'
      |                      ^^^^^^^ valid are `off`, `required`, `verified`
    ");
    assert_snapshot!(url("mysql://me@h/?tls=off&tls=required"), @r"
    error: duplicate key in `url`
     --> test.toml:6:30
    6 | url = 'mysql://me@h/?tls=off&tls=required'
      |                              ^^^^^^^^^^^^ say it once
    ");
    assert_snapshot!(url("mysql://me@h/?tls_authorities=/ca.pem"), @r"
    error: `tls_authorities` verifies nothing here
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?tls_authorities=/ca.pem'
      |                      ^^^^^^^^^^^^^^^^^^^^^^^ add `tls=verified`
    ");
    assert_snapshot!(url("mysql://me@h/?tls=verified&tls_authorities=ca.pem"), @r"
    error: `tls_authorities` must be a whole path
     --> test.toml:6:35
    6 | url = 'mysql://me@h/?tls=verified&tls_authorities=ca.pem'
      |                                   ^^^^^^^^^^^^^^^^^^^^^^ write it from / on
    ");
    assert_snapshot!(url("mysql://me@h/?socket=/x"), @r"
    error: `url` has a host and a socket
     --> test.toml:6:19
    6 | url = 'mysql://me@h/?socket=/x'
      |                   ^ a socket is a local file: remove host and port
    ");
    assert_snapshot!(url("mysql://me@localhost/?socket=x"), @r"
    error: `socket` must be a whole path
     --> test.toml:6:30
    6 | url = 'mysql://me@localhost/?socket=x'
      |                              ^^^^^^^^ write it from / on
    ");
    assert_snapshot!(url("mysql://me@h/a b"), @r"
    error: `url` has ' ' in it
     --> test.toml:6:22
    6 | url = 'mysql://me@h/a b'
      |                      ^ write it as %20
    ");
    assert_snapshot!(url("mysql://me@h/a#b"), @r"
    error: `url` has '#' in it
     --> test.toml:6:22
    6 | url = 'mysql://me@h/a#b'
      |                      ^ write it as %23
    ");
    assert_snapshot!(url("mysql://me@h/a@b"), @r"
    error: `url` has '@' in it
     --> test.toml:6:22
    6 | url = 'mysql://me@h/a@b'
      |                      ^ write it as %40
    ");
    assert_snapshot!(url("mysql://me@h/%ff"), @r"
    error: `url` cannot be read
     --> test.toml:6:20
    6 | url = 'mysql://me@h/%ff'
      |                    ^^^^ what is escaped with % must be text in UTF-8
    ");
}

#[test]
fn invalid_postgresql_urls_are_reported() {
    let url = |text| url("postgresql", text);
    assert_snapshot!(url("mysql://me@h"), @r"
    error: `url` is not for PostgreSQL
     --> test.toml:6:8
    6 | url = 'mysql://me@h'
      |        ^^^^^ its URLs start with postgres:// or postgresql://
    ");
    assert_snapshot!(url("postgres:///db"), @r#"
    error: `url` has no user
     --> test.toml:6:19
    6 | url = 'postgres:///db'
      |                   ^ add one before the host, such as "postgres://user@host:5432/database"
    "#);
    assert_snapshot!(url("postgres://me@/db"), @r#"
    error: `url` names no host
     --> test.toml:6:22
    6 | url = 'postgres://me@/db'
      |                      ^ write it as "postgres://user@host:5432/database", or name a socket
    "#);
    assert_snapshot!(url("postgres://me@h/?socket=/x"), @r"
    error: unknown key in `url`
     --> test.toml:6:25
    6 | url = 'postgres://me@h/?socket=/x'
      |                         ^^^^^^ valid are `host`, `port`, `tls`, `tls_authorities`, `tls_fingerprint`
    ");
    assert_snapshot!(url("postgres://me@h/?host=/x"), @r"
    error: `url` has two hosts
     --> test.toml:6:25
    6 | url = 'postgres://me@h/?host=/x'
      |                         ^^^^^^^ say it once
    ");
    assert_snapshot!(url("postgres://me@/?host=x"), @r"
    error: `host` is not a whole path
     --> test.toml:6:24
    6 | url = 'postgres://me@/?host=x'
      |                        ^^^^^^ write a host before the database; this is for a socket's directory
    ");
    assert_snapshot!(url("postgres://me@h:1/?port=2"), @r"
    error: `url` has two ports
     --> test.toml:6:27
    6 | url = 'postgres://me@h:1/?port=2'
      |                           ^^^^^^ say it once
    ");
    assert_snapshot!(url("postgres://me@h/?port=x"), @r"
    error: `port` is not a port
     --> test.toml:6:25
    6 | url = 'postgres://me@h/?port=x'
      |                         ^^^^^^ it must be from 1 to 65535
    ");
    assert_snapshot!(url("postgres://me@/?host=/x&tls=required"), @r"
    error: PostgreSQL does not encrypt what goes through a socket
     --> test.toml:6:32
    6 | url = 'postgres://me@/?host=/x&tls=required'
      |                                ^^^^^^^^^^^^ leave `tls` out: nothing leaves this machine
    ");
}

#[test]
fn unusable_verification_is_reported() {
    let pinned = |value: &str| url("mysql", &format!("mysql://me@h/?tls_fingerprint={value}"));
    assert_snapshot!(pinned("ab"), @r"
    error: `tls_fingerprint` verifies nothing here
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?tls_fingerprint=ab'
      |                      ^^^^^^^^^^^^^^^^^^ add `tls=verified`
    ");
    assert_snapshot!(pinned("ab&tls=verified"), @r"
    error: `tls_fingerprint` is not a fingerprint
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?tls_fingerprint=ab&tls=verified'
      |                      ^^^^^^^^^^^^^^^^^^ a SHA-256 fingerprint has 64 hexadecimal digits; print it on the server with `openssl x509 -noout -fingerprint -sha256 -in FILE`
    ");
    assert_snapshot!(pinned("ab&tls=verified&tls_authorities=/ca.pem"), @r"
    error: `url` has authorities and a fingerprint
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?tls_fingerprint=ab&tls=verified&tls_authorities=/ca.pem'
      |                      ^^^^^^^^^^^^^^^^^^ remove one: with `tls_fingerprint` only that certificate is valid
    ");
    for (client_option, here) in [
        ("ssl-ca", "tls_authorities"),
        ("sslrootcert", "tls_authorities"),
        ("ssl-fp", "tls_fingerprint"),
    ] {
        let shown = url("mysql", &format!("mysql://me@h/?{client_option}=x"));
        assert!(shown.contains(&format!("use `{here}`")), "{shown}");
    }
    for value in ["verify-full", "verify-ca", "VERIFY_IDENTITY"] {
        let shown = url("postgresql", &format!("postgres://me@h/?tls={value}"));
        assert!(shown.contains("write `tls=verified`"), "{shown}");
    }
}

#[test]
fn public_key_is_for_tcp_without_tls() {
    let key = |rest: &str| url("mysql", &format!("mysql://me@{rest}server_public_key_path=/k"));
    assert_snapshot!(key("h/?"), @r"
    error: `server_public_key_path` is for TCP without TLS
     --> test.toml:6:22
    6 | url = 'mysql://me@h/?server_public_key_path=/k'
      |                      ^^^^^^^^^^^^^^^^^^^^^^^^^ add `tls=off`, or verify with `tls=verified`
    ");
    assert!(key("h/?tls=verified&").contains("passwords are safe with `tls=verified`"));
    assert!(key("localhost/?socket=/x&").contains("passwords are safe on a socket"));
    let shown = url("mysql", "mysql://me@localhost/?server_public_key_path=k");
    assert!(shown.contains("`server_public_key_path` must be a whole path"), "{shown}");
    let shown = url("postgresql", "postgres://me@h/?server_public_key_path=/k");
    assert!(shown.contains("unknown key"), "{shown}");
}

#[test]
fn passwords_are_rejected() {
    assert_snapshot!(url("mysql", "mysql://me:geheim@h/"), @r"
    error: `url` contains a password
     --> test.toml:6:19
    6 | url = 'mysql://me:******@h/'
      |                   ^^^^^^ the experiment is stored with each run: use the environment variable DBDYNO_PASSWORD or MYSQL_PWD, or ~/.my.cnf
    ");
    assert_snapshot!(url("postgresql", "postgres://me@h/?tls=off&password=geheim"), @r"
    error: `url` contains a password
     --> test.toml:6:42
    6 | url = 'postgres://me@h/?tls=off&password=******'
      |                                          ^^^^^^ the experiment is stored with each run: use the environment variable DBDYNO_PASSWORD or PGPASSWORD, or ~/.pgpass
    ");
}

/// Covers URLs with a password and any problem, in the URL or in the rest of the line.
#[test]
fn passwords_are_never_shown() {
    for secret in [
        "geheim", "ge@heim", "ge:heim", "ge/heim", "ge?heim", "ge#heim", "ge heim", "12/heim",
        "%heim",
    ] {
        for system in ["mariadb", "sqlite"] {
            for start in ["mysql://me:", "http://me:", "mysql://:"] {
                for end in ["@h/", "@", "@h:x/?y", "@h/?tls=maybe", "@[::1"] {
                    for line in [
                        format!("url = '{start}{secret}{end}'"),
                        format!("url = \"{start}{secret}{end}\""),
                        format!("url = '{start}{secret}{end}"),
                        format!("ulr = '{start}{secret}{end}'"),
                        format!("url = ['{start}{secret}{end}']"),
                        format!("configuration = {{ a = '{start}{secret}{end}', b = [] }}"),
                    ] {
                        let text = format!(
                            "name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n\
                             system = '{system}'\npid = -1\n{line}\n"
                        );
                        let problems = parse("test.toml", &text).unwrap_err();
                        for shown in [problems.to_string(), format!("{problems:?}")] {
                            assert!(!shown.contains("heim"), "{line}\n{shown}");
                        }
                    }
                }
            }
        }
    }
}

/// An apostrophe in a password does not end a URL in double quotes.
#[test]
fn passwords_with_apostrophes_are_never_shown() {
    for line in ["url = \"mysql://me:ge'heim@h/\"", "ulr = \"mysql://me:ge'heim@h/\"", "a = \"b"] {
        let url = "configuration = { a = \"mysql://me:ge'heim@h/\", b = [] }";
        let shown = candidate(&format!("system = 'mysql'\n{line}\n{url}"));
        assert!(shown.contains("error: ") && !shown.contains("heim"), "{shown}");
    }
}

/// TOML escapes in a URL do not prevent masking of its password.
#[test]
fn escaped_passwords_are_never_shown() {
    let shown =
        candidate("system = 'mysql'\nurl = \"mysql:\\u002f/me\\u003ageheim\\u0040h/\"\npid = 0");
    assert!(shown.contains("contains a password") && !shown.contains("geheim"), "{shown}");
    let shown =
        candidate("system = 'mysql'\nurl = \"\"\"mysql://me\\\n  :geheim\\\n  @h/\"\"\"\npid = 0");
    assert!(shown.contains("contains a password") && !shown.contains("geheim"), "{shown}");
}
