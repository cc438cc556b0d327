//! Logins and encryption.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection as _, ErrorKind, NonBlockingConnection as _};
use dbdyno_types::server::{Address, StatementMode, Target, Tls};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use super::Value::Int;
use super::statements::receive_all;
use super::{Server, With, execute, params, value};
use crate::shared::Shared;

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
