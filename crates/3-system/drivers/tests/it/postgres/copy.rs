//! Loading by COPY.

use std::thread;
use std::time::Duration;

use dbdyno_drivers::{Connection as _, ErrorKind};

use super::server::{Database, backend_pid, execute, value};

#[test]
fn rows_are_copied_in() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int PRIMARY KEY, c text)").unwrap();
    let mut id = 0;
    let copied = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            for _ in 0..7 {
                id += 1;
                rows.extend_from_slice(format!("{id}\t{}\n", "x".repeat(100)).as_bytes());
            }
            id < 70_000
        })
        .unwrap();
    assert_eq!(copied, 70_000);
    let sql = "SELECT count(*) || ' ' || sum(id) || ' ' || min(c) FROM t";
    let expected = format!("70000 2450035000 {}", "x".repeat(100));
    assert_eq!(value(&mut connection, sql), expected);
    assert_eq!(connection.copy_in("COPY t FROM STDIN", &mut |_| false).unwrap(), 0);
}

#[test]
fn invalid_row_ends_only_the_copy() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int PRIMARY KEY, c text)").unwrap();
    for bad_at in [0, 50_000] {
        let mut id = 0;
        let error = connection
            .copy_in("COPY t FROM STDIN", &mut |rows| {
                let key = if id == bad_at { "one".to_owned() } else { id.to_string() };
                rows.extend_from_slice(format!("{key}\t{}\n", "x".repeat(100)).as_bytes());
                id += 1;
                // The server reports the error long before this end.
                id < 20_000_000
            })
            .unwrap_err();
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert!(error.message.contains("\"one\""), "{error}");
        assert!(id < 20_000_000);
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
    }
    let error = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            rows.extend_from_slice(b"1\ta\n1\tb\n");
            false
        })
        .unwrap_err();
    assert!(error.has_sqlstate("23505"), "{error}");
    assert_eq!(value(&mut connection, "SELECT count(*) FROM t"), "0");
}

#[test]
fn other_statements_are_rejected() {
    let database = Database::create();
    let mut connection = database.connect();
    connection.run("CREATE TABLE t (id int)").unwrap();
    for sql in ["SELECT 1", "COPY t TO STDOUT", "COPY nowhere FROM STDIN", "SELEKT", ""] {
        let error =
            connection.copy_in(sql, &mut |_| panic!("nothing to copy for '{sql}'")).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Statement, "{error}");
        assert_eq!(value(&mut connection, "SELECT 4"), "4");
    }
}

#[test]
fn connection_lost_during_copy_is_reported() {
    let database = Database::create();
    let mut connection = database.connect();
    let mut master = database.connect();
    connection.run("CREATE TABLE t (id int)").unwrap();
    let sql = format!("SELECT pg_terminate_backend({}, 10000)", backend_pid(&mut connection));
    let mut calls = 0;
    let error = connection
        .copy_in("COPY t FROM STDIN", &mut |rows| {
            rows.extend_from_slice(&b"1\n".repeat(100_000));
            calls += 1;
            if calls == 10 {
                assert_eq!(value(&mut master, &sql), "t");
                thread::sleep(Duration::from_millis(10));
            }
            true
        })
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains("terminating connection"), "{error}");
}
