//! Simulated servers: old, broken, hostile, or of another kind.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, Error, ErrorKind};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};

use crate::received::{assert_loss, try_receive};

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

fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn old_server_is_refused_with_its_version() {
    let version = message(b'S', b"server_version\x0011.22 (Debian)\0");
    let error = error(Tls::Off, &[&[OK, &version, READY].concat()]);
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains("'11.22 (Debian)'"), "{error}");
    assert!(error.message.contains("PostgreSQL 12 or later"), "{error}");
}

#[test]
fn other_protocols_are_detected() {
    for greeting in [
        &b"J\0\0\0\x0a5.5.5-10.11.19-MariaDB"[..],
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"R\0\0\0\x03",
        b"Z\0\0\0\x04",
    ] {
        let error = error(Tls::Off, &[greeting]);
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("check that it is a PostgreSQL server"), "{error}");
    }
    let error = error(Tls::Required, &[b"J"]);
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains("check that it is a PostgreSQL server"), "{error}");
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
