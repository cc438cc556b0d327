//! The password of connections that look one up.

use std::sync::Once;

pub const PASSWORD: &str = "a secret' with \\ signs";

/// Sets the environment variable with the password, for all tests of this process.
pub fn set_in_environment() {
    static ONCE: Once = Once::new();
    // SAFETY: everything in these tests that reads the environment does so through the standard library,
    // whose lock this takes, too.
    ONCE.call_once(|| unsafe { std::env::set_var("DBDYNO_PASSWORD", PASSWORD) });
}

/// Whether the password is in these bytes.
pub fn is_in(bytes: &[u8]) -> bool {
    bytes.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}
