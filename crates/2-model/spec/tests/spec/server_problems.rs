//! Problems in the settings of servers, and in their URLs; none of the messages shows a password.

use dbdyno_spec::parse;
use insta::assert_snapshot;

use super::shown;

/// The problems of a candidate with these lines, which start in line 5.
fn candidate(lines: &str) -> String {
    shown(&format!("name = 'x'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\n{lines}"))
}

#[test]
fn section_of_a_system_without_candidates_is_rejected() {
    let text = candidate("system = 'mariadb'\n[mysql]\ndurability = 'strict'");
    assert!(text.contains("[mysql] is for candidates of MySQL, and there is none"), "{text}");
    let text = candidate("system = 'mariadb'\n[sqlite]\n[mariadb]\nstatements = 'text'");
    assert!(text.contains("[sqlite] is for candidates of SQLite"), "{text}");
    assert!(!text.contains("[mariadb]"), "{text}");
    let text = candidate(
        "system = 'mysql'\nurl = 'mysql://u@h/'\n[mysql]\nstatements = 'text'\ndurability = 'strict'",
    );
    let refused = "`durability` applies to servers that dbdyno starts only\n --> test.toml:9:1\n";
    assert!(text.contains(refused), "{text}");
    assert_eq!(text.matches("applies to").count(), 1, "{text}");
}

#[test]
fn injected_delay_is_rejected_for_servers() {
    assert_problems!(
        candidate("system = 'mariadb'\ninjected_delay = '3%'"),
        @r"
    6:1 `injected_delay` applies to SQLite only
    injected_delay = '3%'
    ^^^^^^^^^^^^^^ remove `injected_delay`
    "
    );
}

#[test]
fn durability_and_the_servers_defaults_exclude_each_other() {
    assert_problems!(
        candidate("system = 'mariadb'\ndefaults = 'server'\ndurability = 'strict'"),
        @r#"
    7:1 `durability` sets dbdyno's values, and `defaults = "server"` sets none
    durability = 'strict'
    ^^^^^^^^^^ remove one of them; single settings are set in `configuration`
    "#
    );
}

#[test]
fn keys_of_other_systems_are_rejected() {
    assert_problems!(
        candidate(
            "system = 'mariadb'\nsource = {}\ncompiler = 'gcc'\nflags = []\nsqlite = {}\n\
             schema = 'mine'\npid = 7"
        ),
        @r"
        6:1 `source` applies to systems that dbdyno compiles only
        source = {}
        ^^^^^^ add a `variant` to compile MariaDB, or remove this
        7:1 `compiler` applies to systems that dbdyno compiles only
        compiler = 'gcc'
        ^^^^^^^^ add a `variant` to compile MariaDB, or remove this
        8:1 `flags` applies to systems that dbdyno compiles only
        flags = []
        ^^^^^ add a `variant` to compile MariaDB, or remove this
        9:1 `sqlite` applies to SQLite only
        sqlite = {}
        ^^^^^^ configure MariaDB in `configuration = { … }`
        10:1 `schema` applies to existing servers only
        schema = 'mine'
        ^^^^^^ add `url`, or remove this
        11:1 `pid` applies to existing servers only
        pid = 7
        ^^^ add `url`, or remove this
        "
    );
    assert_problems!(candidate("system = 'postgresql'\nengine = 'innodb'"), @r"
    6:1 `engine` applies to systems with several storage engines only
    engine = 'innodb'
    ^^^^^^ PostgreSQL has only one
    ");
    assert_problems!(
        candidate(
            "system = 'sqlite'\nvariant = 'rel'\nengine = 'innodb'\nurl = 'mysql://me@h'\n\
             durability = 'strict'\nconfiguration = {}"
        ),
        @r"
        7:1 `engine` applies to servers only
        engine = 'innodb'
        ^^^^^^ configure SQLite in `sqlite = { … }`
        8:1 `url` applies to servers only
        url = 'mysql://me@h'
        ^^^ configure SQLite in `sqlite = { … }`
        9:1 `durability` applies to servers only
        durability = 'strict'
        ^^^^^^^^^^ configure SQLite in `sqlite = { … }`
        10:1 `configuration` applies to servers only
        configuration = {}
        ^^^^^^^^^^^^^ configure SQLite in `sqlite = { … }`
        "
    );
    assert_problems!(
        candidate(
            "system = 'mysql'\nurl = 'mysql://me@h'\nprogram = '/usr/sbin/mysqld'\n\
             configuration = { a = 1 }\ndurability = 'strict'\nrestarts_after_death = 0"
        ),
        @r"
        7:1 `program` applies to servers that dbdyno starts only
        program = '/usr/sbin/mysqld'
        ^^^^^^^ dbdyno does not start or configure a server with a `url`
        8:1 `configuration` applies to servers that dbdyno starts only
        configuration = { a = 1 }
        ^^^^^^^^^^^^^ dbdyno does not start or configure a server with a `url`
        9:1 `durability` applies to servers that dbdyno starts only
        durability = 'strict'
        ^^^^^^^^^^ dbdyno does not start or configure a server with a `url`
        10:1 `restarts_after_death` applies to servers that dbdyno starts only
        restarts_after_death = 0
        ^^^^^^^^^^^^^^^^^^^^ dbdyno does not start or configure a server with a `url`
        "
    );
}

#[test]
fn keys_of_an_unknown_system_are_not_reported() {
    assert_problems!(candidate("system = 'maria'\nengine = 'innodb'\nvariant = 7"), @r"
    5:10 unknown `system`: `maria`
    system = 'maria'
             ^^^^^^^ did you mean `mariadb`?
    ");
}

#[test]
fn invalid_server_values_are_reported() {
    assert_problems!(
        candidate(
            "system = 'mysql'\nengine = 'rocksdb'\nprogram = 'mysqld'\ndurability = 'full'\n\
             statements = 'binary'\nrestarts_after_death = -1\nconfigration = {}"
        ),
        @r#"
        6:10 unknown `engine`: `rocksdb`
        engine = 'rocksdb'
                 ^^^^^^^^^ valid are `innodb`, `myrocks`
        7:11 the path of `program` must be absolute
        program = 'mysqld'
                  ^^^^^^^^ write the full path, such as "/usr/sbin/mariadbd"
        8:14 unknown `durability`: `full`
        durability = 'full'
                     ^^^^^^ valid are `relaxed`, `strict`
        9:14 unknown `statements`: `binary`
        statements = 'binary'
                     ^^^^^^^^ valid are `prepared`, `text`
        10:24 `restarts_after_death` is out of range
        restarts_after_death = -1
                               ^^ it must be from 0 to 1000
        11:1 unknown key `configration` in [[candidate]]
        configration = {}
        ^^^^^^^^^^^^ did you mean `configuration`?
        "#
    );
    assert_problems!(
        candidate("system = 'mysql'\nurl = 'mysql://me@h'\npid = 0\nschema = 'My-Data'"),
        @r"
        7:7 `pid` is out of range
        pid = 0
              ^ it must be from 1 to 4194304
        8:10 `My-Data` cannot be the name of a schema
        schema = 'My-Data'
                 ^^^^^^^^^ names consist of lowercase letters, digits and _, and do not start with a digit
        "
    );
}

#[test]
fn invalid_configuration_is_reported() {
    assert_problems!(
        candidate(
            "system = 'mariadb'\n[candidate.configuration]\nsync-binlog = 0\nsync_binlog = 1\n\
             'x y' = 1\n-x = 1\nlist = [1]\ntext = \"1\\nuser=root\"\nnumber = inf"
        ),
        @r#"
        8:1 `sync_binlog` is set twice
        sync_binlog = 1
        ^^^^^^^^^^^ same setting as in line 7
        9:1 `x y` cannot be the name of a setting
        'x y' = 1
        ^^^^^ names consist of letters, digits and _ - .
        10:1 `-x` cannot be the name of a setting
        -x = 1
        ^^ names consist of letters, digits and _ - .
        11:8 `list` must be a string, a number, true or false, not an array
        list = [1]
               ^^^
        12:8 a setting must be one line of plain text
        text = "1\nuser=root"
               ^^^^^^^^^^^^^^ remove line breaks and tabs
        13:10 a setting must be a finite number
        number = inf
                 ^^^ write it as a string
        "#
    );
    assert_problems!(
        shown(
            "name = 'x'\nbaseline = 'a'\n[postgresql]\njit = false\n[postgresql.configuration]\n\
             JIT = 1\njit = 2\n[[candidate]]\nname = 'a'\nsystem = 'postgresql'"
        ),
        @r"
        4:1 unknown key `jit` in [postgresql]
        jit = false
        ^^^
        7:1 `jit` is set twice
        jit = 2
        ^^^ same setting as in line 6
        "
    );
}

#[test]
fn invalid_schemas_are_reported() {
    let schema = |schema: &str| {
        candidate(&format!("system = 'mysql'\nurl = 'mysql://me@h'\nschema = '{schema}'"))
    };
    assert_problems!(schema("mysql"), @r"
    7:10 the schema `mysql` is the server's own
    schema = 'mysql'
             ^^^^^^^ dbdyno creates its own schema: choose an unused name
    ");
    assert_problems!(schema("pg_mine"), @r"
    7:10 the schema `pg_mine` is the server's own
    schema = 'pg_mine'
             ^^^^^^^^^ dbdyno creates its own schema: choose an unused name
    ");
    assert_problems!(schema(&"s".repeat(48)), @r"
    7:10 schema name `ssssssssssssssssssssssssssssssssssssssssssssssss` is too long
    schema = 'ssssssssssssssssssssssssssssssssssssssssssssssss'
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^ set `schema` to one of at most 47 characters
    ");
    assert_eq!(schema(&"s".repeat(47)), "none");
    let name = "n".repeat(41);
    assert_problems!(
        shown(&format!(
            "name = 'x'\nbaseline = '{name}'\n[[candidate]]\nname = '{name}'\n\
             system = 'postgresql'\nurl = 'postgres://me@h'"
        )),
        @r"
        3:1 schema name `dbdyno_nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn` is too long
        [[candidate]]
        ^^^^^^^^^^^^^ set `schema` to one of at most 47 characters
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
    assert_problems!(three("mysql://other@h/two", "mysql://me@h"), @r"
    10:1 `a.b` and `a-b` would share `dbdyno_a_b`
    url = 'mysql://other@h/two'
    ^^^ set a different `schema` for one of them
    14:1 the control and `a_b_control` would share `dbdyno_a_b_control`
    url = 'mysql://me@h'
    ^^^ set a different `schema` for one of them
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
    assert_problems!(with(2), @r"
    3:21 an existing server cannot be restarted
    schedule.restarts = 2
                        ^ remove `restarts`, or the candidates with a `url`
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
    assert_problems!(with("[]", ""), @r"
    4:11 `clients` is empty
    clients = []
              ^^ remove `clients` for one client
    ");
    assert_problems!(with("[1, 2, 1]", ""), @r"
    4:18 duplicate number of clients 1
    clients = [1, 2, 1]
                     ^ each number is measured once
    ");
    assert_problems!(with("[0, 1025]", ""), @r"
    4:12 `clients` is out of range
    clients = [0, 1025]
               ^ it must be from 1 to 1024
    ");
    assert_problems!(with("'many'", ""), @r"
    4:11 `clients` must be an integer or an array of integers, not a string
    clients = 'many'
              ^^^^^^
    ");
    assert_problems!(with("[1, 2]", "pace = 'events'"), @r#"
    6:8 `pace = "events"` needs one client
    pace = 'events'
           ^^^^^^^^ several clients finish at different times; use "time"
    "#);
}

/// The problem of a URL.
fn url(system: &str, url: &str) -> String {
    candidate(&format!("system = '{system}'\nurl = '{url}'"))
}

/// The problems of URLs with ` | ` between them: each URL, and below it the place, the problem and the help.
fn urls_of(system: &str, urls: &str) -> String {
    let shown = |one: &str| {
        let shown = crate::brief(&url(system, one));
        let [message, line, help] = shown.lines().collect::<Vec<_>>()[..] else {
            panic!("{shown}")
        };
        let message = message.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c));
        let (carets, help) = help.split_at(help.rfind('^').unwrap() + 1);
        let key = "url = ".len();
        format!("{}\n{} {message}:{help}", &line[key..], &carets[key..])
    };
    urls.split(" | ").map(shown).collect::<Vec<_>>().join("\n")
}

#[test]
fn invalid_mysql_urls_are_reported() {
    let urls = "db.example | postgres://me@h | mysql://h/db | mysql://me@ | mysql://me@h:port/ | \
         mysql://me@h:0/ | mysql://me@h:99999/ | mysql://me@h/a/b | \
         mysql://me@h/?sokcet=/x | mysql://me@h/?sslmode=require | \
         mysql://me@h/?charset=utf8 | mysql://me@h/?tls=yes | \
         mysql://me@h/?tls=off&tls=required | mysql://me@h/?tls_authorities=/ca.pem | \
         mysql://me@h/?tls=verified&tls_authorities=ca.pem | mysql://me@h/?socket=/x | \
         mysql://me@localhost/?socket=x | mysql://me@h/a b | mysql://me@h/a#b | \
         mysql://me@h/a@b | mysql://me@h/%ff";
    assert_snapshot!(urls_of("mariadb", urls), @r#"
    'db.example'
     ^^^^^^^^^^ `url` is not a server URL: write it as "mysql://user@host:3306/"
    'postgres://me@h'
     ^^^^^^^^ `url` is not for MariaDB: its URLs start with mysql:// or mariadb://
    'mysql://h/db'
             ^ `url` has no user: add one before the host, such as "mysql://user@host:3306/"
    'mysql://me@'
                ^ `url` has no host: write it as "mysql://user@host:3306/", or name a socket
    'mysql://me@h:port/'
                ^^^^^^ `url` cannot be read: invalid port number: write it as "mysql://user@host:3306/"
    'mysql://me@h:0/'
                ^^^ `url` has the port 0: it must be from 1 to 65535
    'mysql://me@h:99999/'
                ^^^^^^^ `url` cannot be read: invalid port number: write it as "mysql://user@host:3306/"
    'mysql://me@h/a/b'
                 ^^^^ `url` has more than one database name: only one name is allowed between the host and the `?`
    'mysql://me@h/?sokcet=/x'
                   ^^^^^^ unknown key in `url`: did you mean `socket`?
    'mysql://me@h/?sslmode=require'
                   ^^^^^^^ unknown key in `url`: use `tls` for encryption
    'mysql://me@h/?charset=utf8'
                   ^^^^^^^ unknown key in `url`: valid are `socket`, `tls`, `tls_authorities`, `tls_fingerprint`, `server_public_key_path`
    'mysql://me@h/?tls=yes'
                   ^^^^^^^ unknown `tls` in `url`: valid are `off`, `required`, `verified`
    'mysql://me@h/?tls=off&tls=required'
                           ^^^^^^^^^^^^ duplicate key in `url`: remove one of them
    'mysql://me@h/?tls_authorities=/ca.pem'
                   ^^^^^^^^^^^^^^^^^^^^^^^ `tls_authorities` verifies nothing here: add `tls=verified`
    'mysql://me@h/?tls=verified&tls_authorities=ca.pem'
                                ^^^^^^^^^^^^^^^^^^^^^^ `tls_authorities` must be an absolute path: start it with /
    'mysql://me@h/?socket=/x'
                ^ `url` has a host and a socket: a socket is a local file: remove host and port
    'mysql://me@localhost/?socket=x'
                           ^^^^^^^^ `socket` must be an absolute path: start it with /
    'mysql://me@h/a b'
                   ^ `url` contains ' ': write it as %20
    'mysql://me@h/a#b'
                   ^ `url` contains '#': write it as %23
    'mysql://me@h/a@b'
                   ^ `url` contains '@': write it as %40
    'mysql://me@h/%ff'
                 ^^^^ `url` cannot be read: characters escaped with % must be UTF-8
    "#);
}

#[test]
fn invalid_postgresql_urls_are_reported() {
    let urls = "mysql://me@h | postgres:///db | postgres://me@/db | postgres://me@h/?socket=/x | \
         postgres://me@h/?host=/x | postgres://me@/?host=x | postgres://me@h:1/?port=2 | \
         postgres://me@h/?port=x | postgres://me@/?host=/x&tls=required";
    assert_snapshot!(urls_of("postgresql", urls), @r#"
    'mysql://me@h'
     ^^^^^ `url` is not for PostgreSQL: its URLs start with postgres:// or postgresql://
    'postgres:///db'
                ^ `url` has no user: add one before the host, such as "postgres://user@host:5432/database"
    'postgres://me@/db'
                   ^ `url` has no host: write it as "postgres://user@host:5432/database", or name a socket
    'postgres://me@h/?socket=/x'
                      ^^^^^^ unknown key in `url`: valid are `host`, `port`, `tls`, `tls_authorities`, `tls_fingerprint`
    'postgres://me@h/?host=/x'
                      ^^^^^^^ `url` has two hosts: remove one of them
    'postgres://me@/?host=x'
                     ^^^^^^ `host` is not an absolute path: write a host before the database; this is for a socket's directory
    'postgres://me@h:1/?port=2'
                        ^^^^^^ `url` has two ports: remove one of them
    'postgres://me@h/?port=x'
                      ^^^^^^ `port` is not a port: it must be from 1 to 65535
    'postgres://me@/?host=/x&tls=required'
                             ^^^^^^^^^^^^ PostgreSQL does not encrypt connections through a socket: leave `tls` out: nothing leaves this machine
    "#);
}

#[test]
fn unusable_verification_is_reported() {
    let pinned = |value: &str| url("mysql", &format!("mysql://me@h/?tls_fingerprint={value}"));
    assert_problems!(pinned("ab"), @r"
    6:22 `tls_fingerprint` verifies nothing here
    url = 'mysql://me@h/?tls_fingerprint=ab'
                         ^^^^^^^^^^^^^^^^^^ add `tls=verified`
    ");
    assert_problems!(pinned("ab&tls=verified"), @r"
    6:22 `tls_fingerprint` is not a fingerprint
    url = 'mysql://me@h/?tls_fingerprint=ab&tls=verified'
                         ^^^^^^^^^^^^^^^^^^ a SHA-256 fingerprint has 64 hexadecimal digits; print it on the server with `openssl x509 -noout -fingerprint -sha256 -in FILE`
    ");
    assert_problems!(pinned("ab&tls=verified&tls_authorities=/ca.pem"), @r"
    6:22 `url` has authorities and a fingerprint
    url = 'mysql://me@h/?tls_fingerprint=ab&tls=verified&tls_authorities=/ca.pem'
                         ^^^^^^^^^^^^^^^^^^ remove one: with `tls_fingerprint` only that certificate is valid
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
    assert_problems!(key("h/?"), @r"
    6:22 `server_public_key_path` applies to TCP without TLS only
    url = 'mysql://me@h/?server_public_key_path=/k'
                         ^^^^^^^^^^^^^^^^^^^^^^^^^ add `tls=off`, or verify with `tls=verified`
    ");
    assert!(key("h/?tls=verified&").contains("passwords are safe with `tls=verified`"));
    assert!(key("localhost/?socket=/x&").contains("passwords are safe on a socket"));
    let shown = url("mysql", "mysql://me@localhost/?server_public_key_path=k");
    assert!(shown.contains("`server_public_key_path` must be an absolute path"), "{shown}");
    let shown = url("postgresql", "postgres://me@h/?server_public_key_path=/k");
    assert!(shown.contains("unknown key"), "{shown}");
}

#[test]
fn passwords_are_rejected() {
    assert_problems!(url("mysql", "mysql://me:geheim@h/"), @r"
    6:19 `url` contains a password
    url = 'mysql://me:******@h/'
                      ^^^^^^ the experiment is stored with each run: use the environment variable DBDYNO_PASSWORD or MYSQL_PWD, or ~/.my.cnf
    ");
    assert_problems!(url("postgresql", "postgres://me@h/?tls=off&password=geheim"), @r"
    6:42 `url` contains a password
    url = 'postgres://me@h/?tls=off&password=******'
                                             ^^^^^^ the experiment is stored with each run: use the environment variable DBDYNO_PASSWORD or PGPASSWORD, or ~/.pgpass
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
