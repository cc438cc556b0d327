//! Logins, and connections that do not wait for answers.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{
    Answer, Connection as _, Error, ErrorKind, NonBlockingConnection, Params, StatementId,
};
use dbdyno_types::server::StatementMode::{Prepared, Text};
use dbdyno_types::server::{Target, Tls};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Database, Server};
use crate::shared::Certificates;
use crate::support::PASSWORD;
use crate::support::try_receive;

fn connect(target: &Target) -> Result<MySqlConnection, Error> {
    MySqlConnection::connect(target, Prepared)
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
        .connect(Text)
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
    server.connect(Text).run(&format!("CREATE USER ann@'%' IDENTIFIED BY {}", literal())).unwrap();
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

/// Waits until one of the connections is readable. Returns the complete answers with the index of their
/// connection.
fn wait(connections: &mut [(MySqlConnection, StatementId)]) -> Vec<(usize, Answer)> {
    let readable: Vec<bool> = {
        let mut fds: Vec<PollFd> =
            connections.iter().map(|(c, _)| PollFd::new(c, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        assert!(poll(&mut fds, Some(&limit)).unwrap() > 0, "nothing arrives");
        fds.iter().map(|fd| !fd.revents().is_empty()).collect()
    };
    let mut complete = Vec::new();
    for (index, (connection, _)) in connections.iter_mut().enumerate() {
        if readable[index]
            && let Some(answer) = try_receive(connection).unwrap()
        {
            complete.push((index, answer));
        }
    }
    complete
}

#[test]
fn one_thread_drives_many_connections() {
    let database = Database::create();
    database
        .connect(Text)
        .run(
            "CREATE TABLE t (id INT PRIMARY KEY, c CHAR(120));
              INSERT INTO t SELECT seq, RPAD(seq, 119, '-') FROM seq_1_to_5000",
        )
        .unwrap();
    // A range that arrives in many parts, and a point, in both modes.
    let mut connections: Vec<(MySqlConnection, StatementId)> = (0..8)
        .map(|index| {
            let mode = if index % 2 == 0 { Prepared } else { Text };
            let mut connection = database.connect(mode);
            let statement =
                connection.prepare("SELECT id, c FROM t WHERE id BETWEEN ? AND ?").unwrap();
            (connection, statement)
        })
        .collect();
    let params = |index: usize, round: i64| {
        let mut params = Params::default();
        params.push_int(round + 1);
        params.push_int(if index < 4 { 5000 } else { round + 1 });
        params
    };
    let mut expected = [const { Vec::new() }; 8];
    for (index, (connection, statement)) in connections.iter_mut().enumerate() {
        for round in 0..20 {
            expected[index].push(connection.execute(*statement, &params(index, round)).unwrap());
        }
    }
    assert_eq!(expected[0], expected[1]);
    let mut seen = [const { Vec::new() }; 8];
    for (index, (connection, statement)) in connections.iter_mut().enumerate() {
        connection.send(*statement, &params(index, 0)).unwrap();
    }
    while seen.iter().any(|answers| answers.len() < 20) {
        for (index, answer) in wait(&mut connections) {
            seen[index].push(answer);
            let round = seen[index].len();
            if round < 20 {
                let (connection, statement) = &mut connections[index];
                connection.send(*statement, &params(index, round as i64)).unwrap();
            }
        }
    }
    assert_eq!(seen, expected);
}

#[test]
fn try_receive_does_not_wait() {
    let database = Database::create();
    let mut connection = database.connect(Prepared);
    let statement = connection.prepare("SELECT SLEEP(?)").unwrap();
    let mut second = Params::default();
    second.push_int(1);
    connection.send(statement, &second).unwrap();
    // `None` shows that it did not wait for the answer.
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    // A second request is rejected and does not affect the first.
    let error = connection.send(statement, &second).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Statement);
    assert_eq!(connection.query("SELECT 1").unwrap_err().kind, ErrorKind::Statement);
    let mut connections = [(connection, statement)];
    let answers = loop {
        let answers = wait(&mut connections);
        if !answers.is_empty() {
            break answers;
        }
    };
    assert_eq!(answers, [(0, Answer { rows: 1, affected: 0, digest: 0 })]);
}

#[test]
fn killed_server_is_reported_by_try_receive() {
    let mut server = Server::start();
    let mut connection = server.connect(Prepared);
    let statement = connection.prepare("SELECT SLEEP(?)").unwrap();
    let mut params = Params::default();
    params.push_int(20);
    connection.send(statement, &params).unwrap();
    assert_eq!(try_receive(&mut connection).unwrap(), None);
    server.kill();
    let mut fds = [PollFd::new(&connection, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })).unwrap();
    let error = try_receive(&mut connection).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Connection);
}
