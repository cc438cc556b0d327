//! TLS.

use std::fs;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, ErrorKind, NonBlockingConnection as _};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::non_blocking::receive_all;
use super::server::Value::Int;
use super::server::{Server, With, execute, params, value};
use crate::at_exit::Shared;

const LOGINS: &str = "hostssl all tester 127.0.0.1/32 trust\n";

/// A certificate authority and a certificate for 127.0.0.1, in PEM.
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

    fn start_server(&self) -> Server {
        Server::start_with(&With {
            settings: &[("ssl", "on")],
            logins: LOGINS,
            files: &[("server.crt", &self.server), ("server.key", &self.key)],
        })
    }
}

/// A server with TLS, shared by the tests of this module, and its certificates.
fn tls_server() -> &'static (Server, Certificates) {
    static SERVER: Shared<(Server, Certificates)> = Shared::new();
    SERVER.get(|| {
        let certificates = Certificates::new();
        (certificates.start_server(), certificates)
    })
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
fn tls_is_used_and_verified_as_requested() {
    let (server, certificates) = tls_server();
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        Tls::Verified { authorities: Some(path) }
    };
    let right = file("right.pem", &certificates.authority);
    let wrong = file("wrong.pem", &Certificates::new().authority);

    let message = refusal(&server.tcp("tester", Tls::Off));
    assert!(message.contains("(SQLSTATE 28000)"), "{message}");
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
    let (server, _) = tls_server();
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
fn missing_tls_is_refused() {
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
