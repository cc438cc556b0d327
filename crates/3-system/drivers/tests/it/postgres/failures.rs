//! Errors, and what they mean.

use std::thread;
use std::time::Duration;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, ErrorKind, NonBlockingConnection as _};
use dbdyno_types::server::{Address, StatementMode, Target};

use super::server::Value::Int;
use super::server::{Database, Server, With, backend_pid, execute, params, value};
use crate::received::try_receive;

/// A database with a table of three rows.
fn filled() -> Database {
    let database = Database::create();
    database
        .connect()
        .run("CREATE TABLE t (id int PRIMARY KEY, k int); INSERT INTO t VALUES (1,1),(2,2),(3,3)")
        .unwrap();
    database
}

#[test]
fn failed_statement_can_be_executed_again() {
    let database = filled();
    for mode in [StatementMode::Prepared, StatementMode::Text] {
        let mut connection = database.connect_by(mode);
        let statement =
            connection.prepare("SELECT 10 / k + $1 FROM t WHERE id = 3 OR k = $1").unwrap();
        connection.run("INSERT INTO t VALUES (4, 0)").unwrap();
        for _ in 0..2 {
            let error = connection.execute(statement, &params(&[Int(0)])).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Statement, "{error}");
            assert!(error.to_string().starts_with("executing SELECT 10 / k"), "{error}");
            let whole = error.to_string();
            assert!(whole.contains("division by zero (SQLSTATE 22012)"), "{whole}");
            assert_eq!(connection.execute(statement, &params(&[Int(1)])).unwrap().digest, 11 + 4);
        }
        connection.run("DELETE FROM t WHERE id = 4").unwrap();
    }
}

#[test]
fn rejected_statement_is_named() {
    let database = filled();
    for mode in [StatementMode::Prepared, StatementMode::Text] {
        let mut connection = database.connect_by(mode);
        for sql in ["SELEKT 1", "SELECT no FROM t", "SELECT 1; SELECT 2", "SELECT '\0'"] {
            let error = connection.prepare(sql).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Statement, "{error}");
            assert!(error.to_string().contains(&sql[..8]), "{error}");
        }
        assert_eq!(execute(&mut connection, "SELECT 3", &[]).unwrap().digest, 3);
    }
}

#[test]
fn transactions_are_committed_or_rolled_back() {
    let database = filled();
    let (mut one, mut other) = (database.connect(), database.connect());
    let update = one.prepare("UPDATE t SET k = $1 WHERE id = 1").unwrap();
    let look = other.prepare("SELECT k FROM t WHERE id = 1").unwrap();
    let mut control = |end: &str, value: i64| {
        for sql in [PostgresConnection::begin_sql(true), "update", end] {
            if sql == "update" {
                let answer = one.execute(update, &params(&[Int(value)])).unwrap();
                assert_eq!(answer.affected, 1);
                assert_ne!(other.execute(look, &params(&[])).unwrap().digest, value as u64);
            } else {
                execute(&mut one, sql, &[]).unwrap();
            }
        }
        other.execute(look, &params(&[])).unwrap().digest
    };
    assert_eq!(control("ROLLBACK", 10), 1);
    assert_eq!(control("COMMIT", 20), 20);
}

#[test]
fn duplicate_key_is_a_conflict_only_in_a_transaction() {
    let database = filled();
    let mut connection = database.connect();
    let insert = connection.prepare("INSERT INTO t VALUES ($1, 0)").unwrap();
    let error = connection.execute(insert, &params(&[Int(1)])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement, "{error}");
    assert!(error.message.contains("Key (id)=(1) already exists."), "{error}");
    connection.run("BEGIN").unwrap();
    let error = connection.execute(insert, &params(&[Int(1)])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    let error = connection.execute(insert, &params(&[Int(9)])).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement, "{error}");
    execute(&mut connection, "ROLLBACK", &[]).unwrap();
    assert_eq!(connection.execute(insert, &params(&[Int(9)])).unwrap().affected, 1);
}

#[test]
fn deadlock_is_a_conflict_for_one_transaction() {
    let database = filled();
    let (mut one, mut other) = (database.connect(), database.connect());
    let mut updates = Vec::new();
    for (connection, own) in [(&mut one, 1), (&mut other, 2)] {
        connection.run("BEGIN").unwrap();
        let update = connection.prepare("UPDATE t SET k = k + 1 WHERE id = $1").unwrap();
        connection.execute(update, &params(&[Int(own)])).unwrap();
        updates.push(update);
    }
    one.send(updates[0], &params(&[Int(2)])).unwrap();
    let others = other.execute(updates[1], &params(&[Int(1)]));
    // The one that is given up frees the other only when it rolls back by itself, as it does.
    let ones = loop {
        match try_receive(&mut one) {
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Ok(Some(answer)) => break Ok(answer),
            Err(error) => break Err(error),
        }
    };
    let (error, answer) = match (ones, others) {
        (Err(error), Ok(answer)) | (Ok(answer), Err(error)) => (error, answer),
        both => panic!("{both:?}"),
    };
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.has_sqlstate("40P01"), "{error}");
    assert_eq!(answer.affected, 1);
    for connection in [&mut one, &mut other] {
        connection.run("ROLLBACK").unwrap();
    }
}

#[test]
fn serialization_failure_is_a_conflict() {
    let database = filled();
    let (mut one, mut other) = (database.connect(), database.connect());
    one.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t").unwrap();
    other.run("UPDATE t SET k = 9 WHERE id = 1").unwrap();
    let error = execute(&mut one, "UPDATE t SET k = 8 WHERE id = 1", &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Conflict, "{error}");
    assert!(error.has_sqlstate("40001"), "{error}");
}

#[test]
fn lock_timeout_is_busy() {
    let database = filled();
    let (mut one, mut other) = (database.connect(), database.connect());
    one.run("BEGIN; UPDATE t SET k = 9 WHERE id = 1").unwrap();
    other.run("SET lock_timeout = '50ms'").unwrap();
    let error = execute(&mut other, "UPDATE t SET k = 8 WHERE id = 1", &[]).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Busy, "{error}");
}

#[test]
fn terminated_backend_is_a_lost_connection() {
    let database = filled();
    let mut master = database.connect();
    let mut terminate = |pid: &str| {
        let sql = format!("SELECT pg_terminate_backend({pid}, 10000)");
        assert_eq!(value(&mut master, &sql), "t");
    };
    let check = |error: dbdyno_drivers::Error| {
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("terminating connection"), "{error}");
    };

    let mut idle = database.connect();
    let statement = idle.prepare("SELECT 1").unwrap();
    terminate(&backend_pid(&mut idle));
    check(idle.execute(statement, &params(&[])).unwrap_err());
    for error in [
        idle.execute(statement, &params(&[])).unwrap_err(),
        idle.prepare("SELECT 1").unwrap_err(),
        idle.run("SELECT 1").unwrap_err(),
    ] {
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    }
    idle.close_statements();

    let mut idle = database.connect();
    terminate(&backend_pid(&mut idle));
    check(idle.query("SELECT 1").unwrap_err());

    let mut at_work = database.connect();
    let statement = at_work.prepare("SELECT pg_sleep(60)").unwrap();
    let pid = backend_pid(&mut at_work);
    at_work.send(statement, &params(&[])).unwrap();
    terminate(&pid);
    check(loop {
        match try_receive(&mut at_work) {
            Ok(None) => thread::sleep(Duration::from_millis(1)),
            Ok(Some(answer)) => panic!("{answer:?}"),
            Err(error) => break error,
        }
    });
}

#[test]
fn killed_server_is_a_lost_connection() {
    let mut server = Server::start_with(&With::default());
    let target = server.target();
    let mut connections: Vec<_> = (0..3).map(|_| server.connect()).collect();
    let statement = connections[0].prepare("SELECT pg_sleep(60)").unwrap();
    connections[0].send(statement, &params(&[])).unwrap();
    server.kill();
    for connection in &mut connections {
        let error = connection.run("SELECT 1").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    }
    let Err(error) = PostgresConnection::connect(&target, StatementMode::Prepared) else {
        panic!("it is dead")
    };
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
}

#[test]
fn rejected_login_is_refused() {
    let server = Server::start_with(&With {
        settings: &[("max_connections", "4"), ("superuser_reserved_connections", "0")],
        ..With::default()
    });
    let connect = |target: &Target| {
        PostgresConnection::connect(target, StatementMode::Prepared).map(drop).unwrap_err()
    };
    let error = connect(&Target { database: Some("nowhere".to_owned()), ..server.target() });
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.has_sqlstate("3D000"), "{error}");
    let error = connect(&Target { user: "nobody".to_owned(), ..server.target() });
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    let error = connect(&Target { user: "no\0body".to_owned(), ..server.target() });
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    let nowhere = Address::Socket(server.directory().join("nothing"));
    let error = connect(&Target { address: nowhere, ..server.target() });
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");

    let mut connections = Vec::new();
    let error = loop {
        match server.try_connect() {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
        assert!(connections.len() <= 4, "{}", server.log());
    };
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.has_sqlstate("53300"), "{error}");
    assert!(error.to_string().starts_with("logging in at /"), "{error}");
}
