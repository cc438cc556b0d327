//! Logins and encryption.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use std::sync::Arc;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, ErrorKind, NonBlockingConnection as _};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Value::Int;
use super::statements::receive_all;
use super::{Server, With, execute, params, value};
use crate::hostile::{Certificate, FakeServer, accept_tls, read_some, send};
use crate::shared::Shared;
use crate::support::{PASSWORD, set_password_in_environment};

const TARGET: &str = "DBDYNO_TEST_TARGET";

/// Prints the result of the login in the environment; started by `login_with`.
#[test]
#[ignore = "started by another test, in a separate process"]
fn login_of_another_process() {
    let Ok(target) = std::env::var(TARGET) else { return };
    let target: Target = serde_json::from_str(&target).unwrap();
    match PostgresConnection::connect(&target, StatementMode::Prepared) {
        Ok(mut connection) => println!("in as {}", value(&mut connection, "SELECT current_user")),
        Err(error) => println!("{:?}: {error}", error.kind),
    }
}

/// The result of a login in this environment.
fn login_with(target: &Target, home: &std::path::Path, variables: &[(&str, &str)]) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "postgres::login::login_of_another_process", "--nocapture"])
        .env_remove("DBDYNO_PASSWORD")
        .env_remove("PGPASSWORD")
        .env_remove("PGPASSFILE")
        .env("HOME", home)
        .env(TARGET, serde_json::to_string(target).unwrap())
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let output_text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{output_text}");
    output_text
}

#[test]
fn all_authentication_methods_accept_the_right_password_only() {
    let server = Server::start_with(&With {
        logins: "local all scram,md5 scram-sha-256\n\
                 local all plain password\n\
                 host all scram,md5 127.0.0.1/32 md5\n\
                 host all plain 127.0.0.1/32 password\n\
                 host all strange 127.0.0.1/32 ident\n",
        ..With::default()
    });
    server
        .connect()
        .run(
            "SET password_encryption = 'scram-sha-256';
             CREATE USER scram PASSWORD 'sécret';
             CREATE USER plain PASSWORD 'secret';
             SET password_encryption = 'md5';
             CREATE USER md5 PASSWORD 'secret'",
        )
        .unwrap();
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".pgpass");
    fs::write(&file, "*:*:*:scram:sécret\n*:*:postgres:md5:secret\n*:*:*:plain:secret\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();

    let by_socket =
        |user: &str| Target { user: user.to_owned(), password: true, ..server.target() };
    let by_tcp = |user: &str| Target { password: true, ..server.tcp(user, Tls::Off) };
    let wrong = ("PGPASSWORD", "guessed");
    for target in [by_socket("scram"), by_tcp("scram"), by_tcp("md5"), by_socket("plain")] {
        let user = &target.user;
        let output_text = login_with(&target, home.path(), &[]);
        assert!(output_text.contains(&format!("in as {user}\n")), "{output_text}");
        let output_text = login_with(&target, home.path(), &[wrong]);
        assert!(output_text.contains("Refused: logging in at "), "{output_text}");
        assert!(output_text.contains("(SQLSTATE 28P01)"), "{output_text}");
        assert!(!output_text.contains("guessed"), "{output_text}");
        let output_text = login_with(&target, home.path(), &[wrong, ("DBDYNO_PASSWORD", "secret")]);
        let right = user != "scram";
        assert_eq!(output_text.contains(&format!("in as {user}\n")), right, "{output_text}");

        let nowhere = login_with(&target, std::path::Path::new("/nowhere"), &[]);
        assert!(nowhere.contains("Refused: ") && nowhere.contains("PGPASSWORD"), "{nowhere}");
        let unasked = Target { password: false, ..target };
        let output_text = login_with(&unasked, home.path(), &[("DBDYNO_PASSWORD", "secret")]);
        assert!(
            output_text.contains("Refused: ") && output_text.contains("connection uses none"),
            "{output_text}"
        );
    }
    let output_text = login_with(&by_tcp("plain"), home.path(), &[]);
    assert!(
        output_text.contains("Refused: ") && output_text.contains("plain-text"),
        "{output_text}"
    );
    // The server finds no SCRAM secret for this user, and fails its login as any other.
    let output_text = login_with(&by_socket("md5"), home.path(), &[]);
    assert!(output_text.contains("Refused: "), "{output_text}");
}

const LOGINS: &str = "hostssl all tester 127.0.0.1/32 trust\n\
                      hostssl all bound 127.0.0.1/32 scram-sha-256\n";

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

/// Passes everything on between a client and this server, with a certificate of its own; may remove the offer to bind
/// the login to the certificate.
fn pass_on(
    mut client: TcpStream,
    own: Arc<rustls::ServerConfig>,
    (port, authority): (u16, &str),
    removes_offer: bool,
) {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    client.read_exact(&mut [0; 8]).unwrap();
    client.write_all(b"S").unwrap();
    let mut client = accept_tls(own, client).unwrap();
    let mut server = TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.write_all(&SSL_REQUEST).unwrap();
    server.read_exact(&mut [0]).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut server = StreamOwned::new(tls, server);
    loop {
        let request = read_some(&mut client);
        if request.is_empty() {
            return;
        }
        send(&mut server, &request);
        let answer = read_some(&mut server);
        let offer = b"SCRAM-SHA-256-PLUS\0";
        match answer.windows(offer.len()).position(|part| part == offer) {
            Some(at) if removes_offer => {
                let rest = [&answer[..at], &answer[at + offer.len()..]].concat();
                let length = (rest.len() as u32 - 1).to_be_bytes();
                send(&mut client, &[&rest[..1], &length, &rest[5..]].concat());
            }
            _ => send(&mut client, &answer),
        }
    }
}

#[test]
fn login_is_bound_to_the_certificate_of_the_server() {
    let (server, certificates) = tls_server();
    set_password_in_environment();
    let password = PASSWORD.replace('\'', "''");
    let created = format!(
        "SET password_encryption = 'scram-sha-256'; CREATE USER bound PASSWORD '{password}'"
    );
    server.connect().run(&created).unwrap();
    let target = Target { password: true, ..server.tcp("bound", Tls::Required) };
    try_connect(&target).unwrap();
    let Address::Tcp { port, .. } = target.address else { unreachable!() };
    for removes_offer in [false, true] {
        let own = Certificate::new().server_config();
        let authority = certificates.authority.clone();
        let between = FakeServer::start(move |client| {
            pass_on(client, own, (port, &authority), removes_offer)
        });
        let message =
            refusal(&Target { address: between.target(Tls::Off).address, ..target.clone() });
        assert!(message.contains("channel binding"), "{message}");
        between.finish();
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
