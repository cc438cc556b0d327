//! Shared by the tests: ports, the password, answers without waiting.

use std::net::TcpListener;
use std::sync::Once;
use std::sync::atomic::{AtomicU16, Ordering};

use dbdyno_drivers::{Answer, Error, ErrorKind, NonBlockingConnection, Received};

/// Below the ports that Linux gives to outgoing connections: nothing else takes one of these
/// between the choice and the start of the server.
const FIRST: u16 = 12_000;
const COUNT: u16 = 20_000;

/// A port of 127.0.0.1 that nothing listens on, and that this process did not return before.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Test programs that run at the same time start at different ports.
    let start = std::process::id() % u32::from(COUNT) * 97;
    for _ in 0..COUNT {
        let step = u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = FIRST + ((start + step) % u32::from(COUNT)) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {FIRST} to {}", FIRST + COUNT - 1)
}

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
