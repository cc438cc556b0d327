//! Passwords. They are looked up in the environment, so each login is done in a separate process, which
//! executes this test program again.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use dbdyno_drivers::Connection as _;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_types::server::{StatementMode, Target, Tls};

use super::server::{Server, With, value};

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
