//! TLS.

use std::fs;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, ErrorKind, NonBlockingConnection as _};
use dbdyno_record::server::{Address, StatementMode, Target, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::server::Value::Int;
use crate::server::{Server, With, execute, params, value};
use crate::several::receive_all;

const LOGINS: &str = "hostssl all tester 127.0.0.1/32 trust\n";

/// An authority and a certificate that it gave to a server at 127.0.0.1; all in PEM.
struct Certificates {
    authority: String,
    server: String,
    key: String,
}

impl Certificates {
    fn new() -> Self {
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new([]).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(["127.0.0.1".to_owned()])
            .unwrap()
            .signed_by(&key, &Issuer::from_params(&authority, &authority_key))
            .unwrap();
        Self {
            authority: authority.self_signed(&authority_key).unwrap().pem(),
            server: server.pem(),
            key: key.serialize_pem(),
        }
    }

    fn server(&self) -> Server {
        Server::start_with(&With {
            settings: &[("ssl", "on")],
            logins: LOGINS,
            files: &[("server.crt", &self.server), ("server.key", &self.key)],
        })
    }
}

fn try_connect(target: &Target) -> Result<PostgresConnection, dbdyno_drivers::Error> {
    PostgresConnection::connect(target, StatementMode::Prepared)
}

fn refusal(target: &Target) -> String {
    let Err(error) = try_connect(target) else { panic!("let in: {target:?}") };
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    error.to_string()
}

#[test]
fn a_server_that_demands_encryption_gets_it_when_it_was_asked_for() {
    let certificates = Certificates::new();
    let server = certificates.server();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        Tls::Verified { authorities: Some(path) }
    };
    let right = file("right.pem", &certificates.authority);
    let wrong = file("wrong.pem", &Certificates::new().authority);

    let message = refusal(&server.tcp("tester", Tls::Off));
    assert!(message.contains("[SQLSTATE 28000]"), "{message}");
    assert!(message.contains("use TLS"), "{message}");
    let message = refusal(&server.tcp("tester", wrong));
    assert!(message.contains("certificate"), "{message}");
    let message = refusal(&server.tcp("tester", Tls::Verified { authorities: None }));
    assert!(message.contains("certificate"), "{message}");
    let mut other_name = server.tcp("tester", right.clone());
    let Address::Tcp { host, .. } = &mut other_name.address else { unreachable!() };
    *host = "localhost".to_owned();
    let message = refusal(&other_name);
    assert!(message.contains("certificate"), "{message}");

    for tls in [Tls::Required, right] {
        let mut connection = try_connect(&server.tcp("tester", tls)).unwrap();
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        assert_eq!(value(&mut connection, sql), "t");
    }
}

#[test]
fn encrypted_answers_are_the_same() {
    let server = Certificates::new().server();
    let target = server.tcp("tester", Tls::Required);
    let mut connections = [try_connect(&target).unwrap(), try_connect(&target).unwrap()];
    let sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, $1::int) n";
    let expected = execute(&mut server.connect(), sql, &[Int(10_000)]).unwrap();
    for connection in &mut connections {
        assert_eq!(execute(connection, sql, &[Int(10_000)]).unwrap(), expected);
        let statement = connection.prepare(sql).unwrap();
        connection.send(statement, &params(&[Int(10_000)])).unwrap();
    }
    assert_eq!(receive_all(&mut connections), [expected; 2]);
    let long = value(&mut connections[0], "SELECT repeat('0123456789', 2000000)");
    assert!(long == "0123456789".repeat(2_000_000));
}

#[test]
fn where_no_encryption_is_offered_none_is_made_up() {
    let server = Server::start_with(&With {
        logins: "host all tester 127.0.0.1/32 trust\n",
        ..With::default()
    });
    let message = refusal(&server.tcp("tester", Tls::Required));
    assert!(message.contains("offers no encryption; enable it"), "{message}");
    let message = refusal(&Target { tls: Tls::Required, ..server.target() });
    assert!(message.contains("no encryption on a Unix socket"), "{message}");
    try_connect(&server.tcp("tester", Tls::Off)).unwrap();
}
