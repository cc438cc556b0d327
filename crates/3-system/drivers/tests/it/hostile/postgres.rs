//! Fake PostgreSQL servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, Error, ErrorKind};
use dbdyno_fuzz::measure_memory;
use dbdyno_types::server::{StatementMode, Target, Tls};
use rustls::ServerConfig;

use super::{
    Certificate, FakeServer, accept_tls, answer_with, learned_over_tls, read_all, read_some, send,
};
use crate::support::{PASSWORD, contains_password};

const REQUEST_PASSWORD: &[u8] = b"R\0\0\0\x08\0\0\0\x03";
const DENIED: &[u8] = b"E\0\0\0\x1bSFATAL\0C28P01\0Mdenied\0\0";

pub fn message(tag: u8, body: &[u8]) -> Vec<u8> {
    [&[tag][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

/// The messages of a successful login without a password.
pub fn let_in() -> Vec<u8> {
    [message(b'R', &[0; 4]), ready()].concat()
}

/// The messages after a user is accepted.
fn ready() -> Vec<u8> {
    [message(b'S', b"server_version\x0015.1\0"), message(b'Z', b"I")].concat()
}

fn connect(target: &Target) -> Result<PostgresConnection, Error> {
    PostgresConnection::connect(target, StatementMode::Prepared)
}

/// Requests the password and returns what the client answers.
fn request_password(stream: &mut (impl Read + Write)) -> Vec<u8> {
    read_some(stream);
    send(stream, REQUEST_PASSWORD);
    let response = read_some(stream);
    send(stream, DENIED);
    response
}

fn request_over_tls(mut stream: TcpStream, config: Arc<ServerConfig>) -> Vec<u8> {
    read_some(&mut stream);
    send(&mut stream, b"S");
    let Ok(mut stream) = accept_tls(config, stream) else { return Vec::new() };
    request_password(&mut stream)
}

/// What a server with `certificate` learns, and why the login fails.
fn learned(certificate: &Certificate, tls: Tls) -> (Vec<u8>, Error) {
    learned_over_tls(certificate, tls, request_over_tls, connect)
}

#[test]
fn password_is_sent_over_tls_to_a_verified_server_only() {
    let certificate = Certificate::new();
    let (received, error) = learned(&certificate, Tls::Required);
    assert!(!contains_password(&received));
    for part in ["method `password`", "certificate was not verified", "tls_fingerprint"] {
        assert!(error.message.contains(part), "{error}");
    }
    let others = Certificate::new();
    for tls in [others.pinned(), others.verified(), Tls::Verified { authorities: None }] {
        let (received, error) = learned(&certificate, tls);
        assert_eq!(received, b"");
        assert!(error.message.contains("certificate"), "{error}");
    }
    for tls in [certificate.pinned(), certificate.verified()] {
        let (received, error) = learned(&certificate, tls);
        assert_eq!(received, message(b'p', format!("{PASSWORD}\0").as_bytes()));
        assert!(error.to_string().contains("SQLSTATE 28P01"), "{error}");
    }
}

#[test]
fn password_is_not_sent_over_tcp() {
    let fake = FakeServer::start(|mut stream| request_password(&mut stream));
    let error = connect(&fake.target(Tls::Off)).err().expect("a refusal");
    assert!(error.message.contains("not encrypted"), "{error}");
    assert!(!contains_password(&fake.finish()));
}

#[test]
fn unencrypted_data_after_the_offer_of_tls_is_not_used() {
    // As if it came over TLS: that the user is let in.
    let fake = FakeServer::start(|mut stream| {
        read_some(&mut stream);
        send(&mut stream, &[b"S", &let_in()[..]].concat());
        read_all(&mut stream)
    });
    let error = connect(&fake.target(Tls::Required)).err().expect("a refusal");
    assert!(error.doing.contains("encrypting the connection"), "{error}");
    assert!(!contains_password(&fake.finish()));
}

#[test]
fn server_must_end_the_method_that_it_began() {
    let scram = message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0");
    let md5 = message(b'R', b"\0\0\0\x05salt");
    let ok = message(b'R', &[0; 4]);
    for (answers, reason) in [
        // Skips its proof.
        (vec![scram.clone(), let_in()], "proving that it knows the password"),
        (vec![scram.clone(), ready()], "proving that it knows the password"),
        // Asks again, with another method.
        (vec![scram.clone(), REQUEST_PASSWORD.to_vec()], "second authentication request"),
        (vec![scram.clone(), md5.clone()], "second authentication request"),
        (vec![md5.clone(), scram.clone()], "second authentication request"),
        (vec![[&ok[..], REQUEST_PASSWORD].concat()], "second authentication request"),
        // Lets the user in without a word.
        (vec![ready()], "end of the login"),
        (vec![md5, ready()], "end of the login"),
    ] {
        let fake = FakeServer::start(move |stream| answer_with(stream, &answers));
        let error = connect(&fake.target(Tls::Off)).err().expect("a refusal");
        assert!(error.message.contains(reason), "{error}");
        assert!(!contains_password(&fake.finish()));
    }
}

#[test]
fn nothing_is_copied_to_a_server_that_asks_for_it() {
    let fake = FakeServer::start(|stream| {
        answer_with(stream, &[let_in(), message(b'G', &[0, 0, 0]), message(b'G', &[0, 0, 0])])
    });
    let mut connection = connect(&fake.target(Tls::Off)).unwrap();
    let error = connection.query("SELECT 1").unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    drop(connection);
    let received = fake.finish();
    let fail = message(b'f', b"this call copies no data\0");
    assert!(received.ends_with(&[&fail[..], &fail].concat()), "{received:?}");
}

#[test]
fn message_without_end_is_refused() {
    let fake = FakeServer::start(|mut stream| {
        read_some(&mut stream);
        send(&mut stream, &let_in());
        read_some(&mut stream);
        send(&mut stream, b"D\x3f\xff\xff\xff");
        while stream.write_all(&[0; 1 << 16]).is_ok() {}
    });
    let mut connection = connect(&fake.target(Tls::Off)).unwrap();
    let (result, memory) = measure_memory(|| connection.query("SELECT 1"));
    let error = result.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains("over 64 MiB"), "{error}");
    assert!(memory < 100 << 20, "{memory}");
    drop(connection);
    fake.finish();
}
