//! Answers without waiting.

use dbdyno_drivers::{Answer, Error, ErrorKind, NonBlockingConnection, Received};

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
