//! Problems in a server's URL; none of their messages shows a password.

use dbdyno_spec::parse;
use insta::assert_snapshot;

use super::server_problems::candidate;

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
