//! Fake MySQL servers.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection as _, Error, ErrorKind, Params};
use dbdyno_fuzz::measure_memory;
use dbdyno_types::server::{StatementMode, Target, Tls};
use rsa::pkcs8::{EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey};
use rustls::{ALL_VERSIONS, ServerConfig};
use sha1::Sha1;

use super::{Certificate, FakeServer, accept_tls, learned_over_tls, read_all, read_some, send};
use crate::support::{PASSWORD, assert_loss, contains_password};

const SCRAMBLE: &[u8] = b"12345678abcdefghijkl";
pub const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

/// A packet with its header.
pub fn packet(sequence: u8, payload: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
    [&[a, b, c, sequence], payload].concat()
}

/// The greeting of a server that offers TLS.
pub fn greeting(plugin: &str) -> Vec<u8> {
    let mut greeting = b"\x0a8.4.3\0\x4d\0\0\0".to_vec();
    greeting.extend(&SCRAMBLE[..8]);
    greeting.extend([0, 0xff, 0xff, 45, 2, 0, 0xff, 0x81, 21]);
    greeting.extend([0; 10]);
    greeting.extend(&SCRAMBLE[8..]);
    greeting.extend(format!("\0{plugin}\0").as_bytes());
    packet(0, &greeting)
}

/// The next packet's payload; `None` at the end of the connection.
fn read_packet(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut header = [0; 4];
    stream.read_exact(&mut header).ok()?;
    let [a, b, c, _] = header;
    let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some(payload)
}

fn connect(target: &Target) -> Result<MySqlConnection, Error> {
    MySqlConnection::connect(target, StatementMode::Prepared)
}

/// Requests the password in clear and returns what the client answers.
fn request_clear_password(stream: &mut (impl Read + Write), sequence: u8) -> Vec<u8> {
    send(stream, &packet(sequence, b"\xfemysql_clear_password\0"));
    let response = read_packet(stream).unwrap_or_default();
    send(stream, &packet(sequence + 2, b"\xff\x15\x04#28000denied"));
    response
}

/// Requests the password in clear over TLS with this certificate.
fn request_over_tls(mut stream: TcpStream, config: Arc<ServerConfig>) -> Vec<u8> {
    send(&mut stream, &greeting("caching_sha2_password"));
    if read_packet(&mut stream).is_none() {
        return Vec::new();
    }
    let Ok(mut stream) = accept_tls(config, stream) else { return Vec::new() };
    if read_packet(&mut stream).is_none() {
        return Vec::new();
    }
    request_clear_password(&mut stream, 3)
}

/// What a server with `certificate` learns, and why the login fails.
fn learned(certificate: &Certificate, tls: Tls) -> (Vec<u8>, Error) {
    learned_over_tls(certificate, tls, request_over_tls, connect)
}

#[test]
fn clear_password_is_sent_over_tls_to_a_verified_server_only() {
    let certificate = Certificate::new();
    let (received, error) = learned(&certificate, Tls::Required);
    assert_eq!(received, b"");
    for part in ["mysql_clear_password", "certificate was not verified", "tls_fingerprint"] {
        assert!(error.message.contains(part), "{error}");
    }
    let others = Certificate::new();
    for tls in [others.pinned(), others.verified(), Tls::Verified { authorities: None }] {
        let (received, error) = learned(&certificate, tls);
        assert_eq!(received, b"");
        assert!(error.message.contains("certificate"), "{error}");
        assert!(error.message.contains("tls_fingerprint"), "{error}");
    }
    for tls in [certificate.pinned(), certificate.verified()] {
        let (received, error) = learned(&certificate, tls);
        assert_eq!(received, format!("{PASSWORD}\0").as_bytes());
        assert!(error.has_number(1045), "{error}");
    }
}

#[test]
fn copied_certificate_without_its_key_is_refused() {
    for version in ALL_VERSIONS {
        let certificate = Certificate::new();
        for tls in [certificate.pinned(), certificate.verified()] {
            let config = certificate.server_config_without_key(version);
            let fake = FakeServer::start(move |stream| request_over_tls(stream, config));
            let error = connect(&fake.target(tls)).err().expect("a refusal");
            assert!(error.doing.contains("encrypting the connection"), "{error}");
            assert_eq!(fake.finish(), b"");
        }
    }
}

#[test]
fn clear_password_is_not_sent_over_tcp() {
    let fake = FakeServer::start(|mut stream| {
        send(&mut stream, &greeting("mysql_clear_password"));
        let login = read_packet(&mut stream).unwrap();
        [login, request_clear_password(&mut stream, 2)].concat()
    });
    let error = connect(&fake.target(Tls::Off)).err().expect("a refusal");
    assert!(error.message.contains("not encrypted"), "{error}");
    assert!(!contains_password(&fake.finish()));
}

#[test]
fn session_that_never_answers_is_an_error() {
    let fake = FakeServer::start(|mut stream| {
        send(&mut stream, &greeting("mysql_native_password"));
        read_packet(&mut stream).unwrap();
        send(&mut stream, &packet(2, OK));
        // Until the client gives up.
        read_all(&mut stream)
    });
    let mut connection = connect(&fake.target(Tls::Off)).unwrap();
    let error = connection.await_session().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains("no answer within"), "{error}");
    drop(connection);
    assert!(fake.finish().ends_with(b"SELECT 1"));
}

/// Sends its own key for full authentication, whether it is asked for or not, and returns what it receives,
/// and the password if it can decrypt it.
fn request_encrypted(mut stream: TcpStream, key: &RsaPrivateKey) -> (Vec<u8>, Vec<u8>) {
    send(&mut stream, &greeting("caching_sha2_password"));
    read_packet(&mut stream).unwrap();
    send(&mut stream, &packet(2, &[1, 4]));
    let mut response = read_packet(&mut stream).unwrap_or_default();
    if response == [2] {
        let pem = key.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        send(&mut stream, &packet(4, &[&[1], pem.as_bytes()].concat()));
        response = read_packet(&mut stream).unwrap_or_default();
    }
    send(&mut stream, &packet(6, b"\xff\x15\x04#28000denied"));
    let opened = key.decrypt(Oaep::new::<Sha1>(), &response).unwrap_or_default();
    let opened = opened.iter().zip(SCRAMBLE.iter().cycle()).map(|(byte, other)| byte ^ other);
    (response, opened.collect())
}

#[test]
fn password_is_encrypted_with_the_pinned_key_of_the_server_only() {
    let key = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, key: &RsaPrivateKey| {
        let path = directory.path().join(name);
        let pem = key.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        std::fs::write(&path, pem).unwrap();
        Some(path)
    };
    let right = file("right.pem", &key);
    let wrong = file("wrong.pem", &RsaPrivateKey::new(&mut OsRng, 1024).unwrap());
    for (pinned, sent, decrypted) in
        [(None, false, false), (wrong, true, false), (right, true, true)]
    {
        let fakes_key = key.clone();
        let fake = FakeServer::start(move |stream| request_encrypted(stream, &fakes_key));
        let target = Target { server_public_key: pinned.clone(), ..fake.target(Tls::Off) };
        let error = connect(&target).err().expect("a refusal");
        let (received, opened) = fake.finish();
        assert!(!contains_password(&received));
        assert_eq!(contains_password(&opened), decrypted, "{pinned:?}");
        assert_eq!(!received.is_empty(), sent, "{pinned:?}");
        assert_eq!(error.kind, ErrorKind::Refused, "{error}");
        assert_eq!(error.message.contains("server_public_key_path"), !sent, "{error}");
    }
}

#[test]
fn unencrypted_data_before_tls_is_not_used() {
    let certificate = Certificate::new();
    let config = certificate.server_config();
    let fake = FakeServer::start(move |mut stream| {
        // Behind the greeting, as if it came over TLS: that the user is let in.
        send(&mut stream, &[greeting("mysql_native_password"), packet(3, OK)].concat());
        read_packet(&mut stream).unwrap();
        if let Ok(mut stream) = accept_tls(config, stream) {
            read_packet(&mut stream);
        }
    });
    let error = connect(&fake.target(certificate.pinned())).err().expect("a refusal");
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(error.message.contains("unencrypted data"), "{error}");
    fake.finish();
}

#[test]
fn local_files_are_not_sent() {
    for mode in [StatementMode::Prepared, StatementMode::Text] {
        let fake = FakeServer::start(|mut stream| {
            send(&mut stream, &greeting("mysql_native_password"));
            read_packet(&mut stream).unwrap();
            send(&mut stream, &packet(2, OK));
            read_packet(&mut stream).unwrap();
            send(&mut stream, &packet(1, b"\xfb/etc/\x1bhostname"));
            read_all(&mut stream)
        });
        let mut connection = MySqlConnection::connect(&fake.target(Tls::Off), mode).unwrap();
        let error = connection.query("SELECT 1").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Connection, "{error}");
        assert!(error.message.contains("local file"), "{error}");
        assert!(error.message.contains("hostname") && !error.message.contains('\x1b'), "{error}");
        let error = connection.query("SELECT 1").unwrap_err();
        assert!(error.message.contains("lost before"), "{error}");
        drop(connection);
        assert_eq!(fake.finish(), b"", "{mode:?}");
    }
}

#[test]
fn rows_without_end_are_refused() {
    let fake = FakeServer::start(|mut stream| {
        send(&mut stream, &greeting("mysql_native_password"));
        read_packet(&mut stream).unwrap();
        send(&mut stream, &packet(2, OK));
        read_packet(&mut stream).unwrap();
        let mut definition = vec![0; 24];
        definition[18] = 0xfd;
        send(&mut stream, &[packet(1, &[1]), packet(2, &definition)].concat());
        let row = packet(3, &[&[0xfd, 0, 0, 2][..], &[b'x'; 2 << 16]].concat());
        let rows = row.repeat(8);
        while stream.write_all(&rows).is_ok() {}
        read_some(&mut stream)
    });
    let mut connection =
        MySqlConnection::connect(&fake.target(Tls::Off), StatementMode::Text).unwrap();
    let (result, memory) = measure_memory(|| connection.query("SELECT 1"));
    let error = result.unwrap_err();
    assert!(error.message.contains("more than 64 MiB"), "{error}");
    assert!(memory < 100 << 20, "{memory}");
    drop(connection);
    fake.finish();
}

#[test]
fn reason_of_the_server_is_reported_if_it_closes_the_connection_during_a_request() {
    let fake = FakeServer::start(|mut stream| {
        send(&mut stream, &greeting("mysql_native_password"));
        read_packet(&mut stream).unwrap();
        send(&mut stream, &packet(2, OK));
        stream.read_exact(&mut [0; 4]).unwrap();
        send(&mut stream, &packet(1, b"\xff\x81\x04#08S01Got a packet bigger than allowed"));
    });
    let mut connection =
        MySqlConnection::connect(&fake.target(Tls::Off), StatementMode::Text).unwrap();
    let statement = connection.prepare("INSERT INTO t VALUES (?)").unwrap();
    let mut params = Params::default();
    // Longer than the buffers of the network.
    params.push_text(&vec![b'x'; 15 << 20]);
    let error = connection.execute(statement, &params).unwrap_err();
    assert!(error.has_number(1153) && error.message.contains("bigger than allowed"), "{error}");
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    let error = connection.query("SELECT 1").unwrap_err();
    assert!(error.message.contains("lost before"), "{error}");
    drop(connection);
    fake.finish();
}

#[test]
fn connection_that_is_lost_without_a_request_is_detected() {
    let killed = packet(0, b"\xff\x87\x07#70100Connection was killed");
    for (last, reason) in
        [(&b""[..], "the server closed the connection"), (&killed, "Connection was killed")]
    {
        let last = last.to_owned();
        let fake = FakeServer::start(move |mut stream| {
            send(&mut stream, &greeting("mysql_native_password"));
            read_packet(&mut stream).unwrap();
            send(&mut stream, &packet(2, OK));
            read_packet(&mut stream).unwrap();
            send(&mut stream, &[packet(1, OK), last].concat());
        });
        let mut connection = connect(&fake.target(Tls::Off)).unwrap();
        connection.run("SET a = 1").unwrap();
        assert_loss(&mut connection, reason);
        fake.finish();
    }
}
