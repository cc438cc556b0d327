//! Answers without waiting.

use dbdyno_drivers::{Answer, Error, NonBlockingConnection, Received};

/// The answer, if all of it has arrived.
pub fn try_receive(connection: &mut impl NonBlockingConnection) -> Result<Option<Answer>, Error> {
    Ok(match connection.receive_available()? {
        Received::Answer(answer) => Some(answer),
        Received::Part | Received::Nothing => None,
    })
}
