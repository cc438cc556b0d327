use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection as _, Error, ErrorKind};
use dbdyno_types::server::{StatementMode, Target, Tls};

use super::server::{Database, Server};
use crate::certificates::Certificates;
use crate::password::PASSWORD;

fn connect(target: &Target) -> Result<MySqlConnection, Error> {
    MySqlConnection::connect(target, StatementMode::Prepared)
}

/// The error of a login that must be refused.
fn refused(target: &Target) -> Error {
    let error = connect(target).err().expect("a refusal");
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    assert!(!error.to_string().contains(PASSWORD), "{error}");
    error
}

/// `PASSWORD` as a literal.
fn literal() -> String {
    format!("'{}'", PASSWORD.replace('\\', "\\\\").replace('\'', "''"))
}

fn who(target: &Target) -> String {
    let mut connection = connect(target).unwrap();
    connection.query("SELECT CURRENT_USER()").unwrap()[0][0].clone().unwrap()
}

#[test]
fn right_passwords_are_accepted_and_wrong_ones_refused() {
    let server = Server::start_on_tcp(&["--plugin-load-add=auth_ed25519".to_owned()]);
    let password = literal();
    server
        .connect(StatementMode::Text)
        .run(&format!(
            "CREATE USER native@'%' IDENTIFIED BY {password};
             CREATE USER modern@'%' IDENTIFIED VIA ed25519 USING PASSWORD({password});
             CREATE USER either@'%' IDENTIFIED VIA unix_socket
               OR mysql_native_password USING PASSWORD({password});
             CREATE USER other@'%' IDENTIFIED BY 'something else';
             CREATE USER other_modern@'%' IDENTIFIED VIA ed25519 USING PASSWORD('else');
             CREATE USER open@'%'"
        ))
        .unwrap();
    for user in ["native", "modern", "either"] {
        assert_eq!(who(&server.tcp_target("127.0.0.1", user)), format!("{user}@%"));
    }
    for user in ["other", "other_modern", "nobody"] {
        let error = refused(&server.tcp_target("127.0.0.1", user));
        assert!(error.has_number(1045), "{error}");
    }
    let without = Target { password: false, ..server.tcp_target("127.0.0.1", "native") };
    assert!(refused(&without).has_number(1045));
    let open = Target { password: false, ..server.tcp_target("127.0.0.1", "open") };
    assert_eq!(who(&open), "open@%");
}

#[test]
fn login_selects_the_database() {
    let target = Database::create().target();
    let rows = connect(&target).unwrap().query("SELECT DATABASE()").unwrap();
    assert_eq!(rows, [[target.database.clone()]]);
    let missing = Target { database: Some("missing".to_owned()), ..target };
    assert!(refused(&missing).has_number(1049));
}

#[test]
fn login_is_refused_with_too_many_connections() {
    let server = Server::start_on_tcp(&["--max-connections=10".to_owned()]);
    // One more connection is reserved for administrators.
    let mut connections = Vec::new();
    let error = loop {
        match connect(&server.target()) {
            Ok(connection) => connections.push(connection),
            Err(error) => break error,
        }
    };
    assert!(error.has_number(1040), "{error}");
    assert_eq!(error.kind, ErrorKind::Refused);
    assert!(connections.len() >= 10);
}

/// The server's options for TLS.
fn options(certificates: &Certificates) -> Vec<String> {
    vec![
        format!("--ssl-cert={}", certificates.path("server.pem").display()),
        format!("--ssl-key={}", certificates.path("key.pem").display()),
        format!("--ssl-ca={}", certificates.path("authority.pem").display()),
        "--require-secure-transport=ON".to_owned(),
    ]
}

#[test]
fn tls_is_used_and_verified_as_requested() {
    let certificates = Certificates::for_host("localhost");
    let server = Server::start_on_tcp(&options(&certificates));
    server
        .connect(StatementMode::Text)
        .run(&format!("CREATE USER ann@'%' IDENTIFIED BY {}", literal()))
        .unwrap();
    let with = |host, tls| Target { tls, ..server.tcp_target(host, "ann") };
    let error = refused(&with("127.0.0.1", Tls::Off));
    assert!(error.message.contains("may require TLS"), "{error}");
    for (host, tls) in [
        ("127.0.0.1", Tls::Required),
        ("127.0.0.1", certificates.pinned()),
        ("localhost", certificates.verified()),
    ] {
        let mut connection = connect(&with(host, tls)).unwrap();
        let rows = connection.query("SHOW STATUS LIKE 'Ssl_version'").unwrap();
        assert!(rows[0][1].as_deref().unwrap().starts_with("TLSv1."), "{rows:?}");
        // Rows beyond one record of TLS, and a request of more than one.
        let long = "x".repeat(300_000);
        let sql = format!("SELECT '{long}' UNION ALL SELECT REPEAT('x', 300000)");
        let rows = connection.query(&sql).unwrap();
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|row| row[0].as_deref() == Some(long.as_str())));
    }
    // The certificate is for localhost, not for its address.
    let error = refused(&with("127.0.0.1", certificates.verified()));
    assert!(error.message.contains("certificate"), "{error}");
    // Another authority.
    let stranger = Certificates::for_host("localhost");
    let error = refused(&with("localhost", stranger.verified()));
    assert!(error.message.contains("certificate"), "{error}");
    let error = refused(&with("localhost", stranger.pinned()));
    assert!(error.message.contains("tls_fingerprint"), "{error}");
    let missing = Some(certificates.path("missing.pem"));
    let error = refused(&with("localhost", Tls::Verified { authorities: missing }));
    assert!(error.message.contains("missing.pem"), "{error}");
}

#[test]
fn missing_tls_is_refused() {
    let server = Server::start_on_tcp(&["--skip-ssl".to_owned()]);
    let target = Target { tls: Tls::Required, ..server.tcp_target("127.0.0.1", "root") };
    assert!(refused(&target).message.contains("does not offer TLS"));
}
