use std::fs::File;
use std::io::{self, Read};

/// Random bytes of a password.
const BYTES: usize = 24;

/// The password of the servers' accounts for one connection to a host. It is drawn at random, never
/// stored, and passed only to the workers that log in.
#[derive(Clone)]
pub(crate) struct Password(String);

impl Password {
    /// Draws a password.
    ///
    /// # Errors
    /// The kernel gives no random bytes.
    pub(crate) fn draw() -> io::Result<Self> {
        let mut bytes = [0; BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The password itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Password")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_differ_and_are_not_printed() {
        let (one, other) = (Password::draw().unwrap(), Password::draw().unwrap());
        assert_eq!(one.reveal().len(), 2 * BYTES);
        assert_ne!(one.reveal(), other.reveal());
        assert!(!format!("{one:?}").contains(one.reveal()));
    }
}
