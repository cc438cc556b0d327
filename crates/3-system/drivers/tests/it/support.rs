//! Shared by the tests: the password, answers without waiting.

use std::sync::Once;

use dbdyno_drivers::{Answer, Error, ErrorKind, NonBlockingConnection, Received};

pub const PASSWORD: &str = "a secret' with \\ signs";

/// Sets the environment variable with the password, for all tests of this process.
pub fn set_password_in_environment() {
    static ONCE: Once = Once::new();
    // SAFETY: everything in these tests that reads the environment does so through the standard library,
    // whose lock this takes, too.
    ONCE.call_once(|| unsafe { std::env::set_var("DBDYNO_PASSWORD", PASSWORD) });
}

/// Whether the password is in these bytes.
pub fn contains_password(bytes: &[u8]) -> bool {
    bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

/// The answer, if all of it has arrived.
pub fn try_receive(connection: &mut impl NonBlockingConnection) -> Result<Option<Answer>, Error> {
    Ok(match connection.receive_available()? {
        Received::Answer(answer) => Some(answer),
        Received::Part | Received::Nothing => None,
    })
}

/// Waits until a connection without a request is lost for this reason, and stays lost.
pub fn assert_loss(connection: &mut impl NonBlockingConnection, reason: &str) {
    let error = loop {
        match try_receive(connection) {
            Ok(answer) => assert_eq!(answer, None),
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Connection, "{error}");
    assert!(error.message.contains(reason), "{error}");
    let error = try_receive(connection).unwrap_err();
    assert!(error.message.contains("lost before"), "{error}");
}
