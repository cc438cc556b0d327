//! Errors of servers, real and simulated.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, Error, ErrorKind, NonBlockingConnection as _};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};

use super::Value::Int;
use super::{Database, Server, With, backend_pid, execute, params, value};
use crate::hostile::postgres::message;
use crate::support::{assert_loss, try_receive};

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
    let check = |error: Error| {
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

const OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const READY: &[u8] = b"Z\0\0\0\x05I";

/// Connects to a server that answers each message from the client with the next of `answers`, and
/// then closes the connection.
fn connect(tls: Tls, answers: &[&[u8]]) -> Result<PostgresConnection, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target {
        address: Address::Tcp {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().unwrap().port(),
        },
        user: "ann".to_owned(),
        database: None,
        tls,
        server_public_key: None,
        password: false,
    };
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        for answer in answers {
            if read_some(&mut stream) == 0 {
                return;
            }
            stream.write_all(&answer).unwrap();
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        while read_some(&mut stream) > 0 {}
    });
    let connected = PostgresConnection::connect(&target, StatementMode::Prepared);
    if connected.is_err() {
        server.join().unwrap();
    }
    connected
}

fn read_some(stream: &mut TcpStream) -> usize {
    stream.read(&mut [0; 10_000]).unwrap_or(0)
}

fn error(tls: Tls, answers: &[&[u8]]) -> Error {
    let Err(error) = connect(tls, answers) else { panic!("let in") };
    error
}

#[test]
fn old_server_is_refused_with_its_version() {
    let version = message(b'S', b"server_version\x009.6.24 (Debian)\0");
    let error = error(Tls::Off, &[&[OK, &version, READY].concat()]);
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains("'9.6.24 (Debian)'"), "{error}");
    assert!(error.message.contains("PostgreSQL 10 or later"), "{error}");
}

#[test]
fn other_protocols_are_detected() {
    for (greeting, server) in [
        (
            &b"J\0\0\0\x0a5.5.5-10.11.19-MariaDB"[..],
            "MySQL or MariaDB server, version 5.5.5-10.11.19-M",
        ),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "`HTTP/1.1 400 Bad Request`"),
    ] {
        let error = error(Tls::Off, &[greeting]);
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.message.contains(server), "{error}");
    }
    for greeting in [b"R\0\0\0\x03", b"Z\0\0\0\x04"] {
        let error = error(Tls::Off, &[greeting]);
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("check that it is a PostgreSQL server"), "{error}");
    }
    let error = error(Tls::Required, &[b"J"]);
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains("not a PostgreSQL server"), "{error}");
}

#[test]
fn closed_connection_during_login_is_lost() {
    for (tls, answers) in [(Tls::Off, &[][..]), (Tls::Required, &[]), (Tls::Off, &[OK])] {
        let error = error(tls, answers);
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("closed the connection"), "{error}");
    }
    let starting =
        message(b'E', b"SFATAL\0VFATAL\0C57P03\0Mthe database system is starting up\0\0");
    let error = error(Tls::Off, &[&starting]);
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains("starting up"), "{error}");
}

#[test]
fn plain_text_password_and_unknown_methods_are_refused() {
    // Asks for the password in clear on a connection in clear.
    let error_ = error(Tls::Off, &[b"R\0\0\0\x08\0\0\0\x03"]);
    assert_eq!(error_.kind, ErrorKind::Refused, "{error_}");
    assert!(error_.message.contains("plain-text"), "{error_}");
    // Asks in a way that we do not know.
    for (request, name) in [(7_u32, "GSSAPI"), (9, "SSPI"), (77, "method 77")] {
        let error = error(Tls::Off, &[&message(b'R', &request.to_be_bytes())]);
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert!(error.message.contains(name), "{error}");
    }
    let error_ = error(Tls::Off, &[&message(b'R', b"\0\0\0\x0aSCRAM-SHA-512\0\0")]);
    assert_eq!(error_.kind, ErrorKind::Refused, "{error_}");
    assert!(error_.message.contains("SCRAM-SHA-512"), "{error_}");
    // Continues an exchange that it never started.
    let error_ = error(Tls::Off, &[&message(b'R', b"\0\0\0\x0bx")]);
    assert_eq!(error_.kind, ErrorKind::Connection, "{error_}");
}

#[test]
fn invalid_messages_lose_the_connection() {
    let version = message(b'S', b"server_version\x0015.1\0");
    let hello = [OK, &version, READY].concat();
    for nonsense in [&b"x\0\0\0\x04"[..], b"D\xff\xff\xff\xff", b"D\0\0\0\x05x", b"Z\0\0\0\x05?"] {
        let mut connection = connect(Tls::Off, &[&hello, nonsense]).unwrap();
        let error = connection.query("SELECT 1").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("the server sent"), "{error}");
        let error = connection.query("SELECT 1").unwrap_err();
        assert!(error.message.contains("lost before"), "{error}");
    }
}

#[test]
fn session_of_a_pooler_is_another_than_at_the_login() {
    let mut direct = Database::create().connect();
    assert_eq!(direct.backend_at_login(), Some(direct.backend().unwrap()));

    let version = message(b'S', b"server_version\x0015.1\0");
    let key = message(b'K', &[0, 0, 0, 7, 0, 0, 0, 1]);
    let hello = [OK, &version, &key, READY].concat();
    let session = [&message(b'D', b"\0\x01\0\0\0\x019")[..], READY].concat();
    let mut pooled = connect(Tls::Off, &[&hello, &session]).unwrap();
    assert_eq!((pooled.backend_at_login(), pooled.backend().unwrap()), (Some(7), 9));
    let none = message(b'E', b"SFATAL\0VFATAL\0C08P01\0Mquery_wait_timeout\0\0");
    let error = connect(Tls::Off, &[&hello, &none]).unwrap().backend().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    for part in ["query_wait_timeout", "`default_pool_size`"] {
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn connection_that_is_lost_without_a_request_is_detected() {
    let version = message(b'S', b"server_version\x0015.1\0");
    let notice = message(b'N', b"SNOTICE\0VNOTICE\0C00000\0Mhello\0\0");
    let hello = [OK, &version, READY, &notice].concat();
    // Waits for a request.
    let mut connection = connect(Tls::Off, &[&hello, b""]).unwrap();
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    let stopping = message(b'E', b"SFATAL\0VFATAL\0C57P01\0Mterminating connection\0\0");
    for (last, reason) in [
        (&b""[..], "the server closed the connection"),
        (&stopping, "terminating connection"),
        (b"D\0\0\0\x04", "unexpected message 'D'"),
    ] {
        let mut connection = connect(Tls::Off, &[&[&hello, last].concat()]).unwrap();
        assert_loss(&mut connection, reason);
    }
}
