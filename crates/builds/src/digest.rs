use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::Digest;

/// A SHA-256 checksum; printed and stored as 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Sha256([u8; 32]);

impl Sha256 {
    /// Of bytes in memory.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Of a file's content.
    ///
    /// # Errors
    /// When the file cannot be opened or read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = sha2::Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Self(hasher.finalize().into())),
                n => hasher.update(&buffer[..n]),
            }
        }
    }

    /// For the checksums that the build script leaves in constants.
    pub(crate) const fn from_constant(hex: &str) -> Self {
        match from_hex(hex.as_bytes()) {
            Some(bytes) => Self(bytes),
            None => panic!("a constant is not 64 lower-case hexadecimal digits"),
        }
    }

    pub(crate) fn finish(hasher: sha2::Sha256) -> Self {
        Self(hasher.finalize().into())
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Sha256 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256({self})")
    }
}

impl From<Sha256> for String {
    fn from(sha256: Sha256) -> Self {
        sha256.to_string()
    }
}

impl TryFrom<String> for Sha256 {
    type Error = NotASha256;

    fn try_from(text: String) -> Result<Self, NotASha256> {
        text.parse()
    }
}

/// A text that should be 64 lower-case hexadecimal digits and is not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a SHA-256 checksum: expected 64 lower-case hexadecimal digits")]
pub struct NotASha256(String);

impl FromStr for Sha256 {
    type Err = NotASha256;

    fn from_str(text: &str) -> Result<Self, NotASha256> {
        match from_hex(text.as_bytes()) {
            Some(bytes) => Ok(Self(bytes)),
            None => Err(NotASha256(text.to_owned())),
        }
    }
}

/// Usable in constants, where iterators are not.
const fn from_hex(digits: &[u8]) -> Option<[u8; 32]> {
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    let mut at = 0;
    while at < 64 {
        let digit = match digits[at] {
            digit @ b'0'..=b'9' => digit - b'0',
            digit @ b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        bytes[at / 2] = bytes[at / 2] << 4 | digit;
        at += 1;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn prints_and_parses_hexadecimal_digits() {
        let sha256 = Sha256::of(b"abc");
        assert_eq!(sha256.to_string(), OF_ABC);
        assert_eq!(OF_ABC.parse(), Ok(sha256));
        assert_eq!(serde_json::to_string(&sha256).unwrap(), format!("\"{OF_ABC}\""));
    }

    #[test]
    fn refuses_other_texts() {
        for text in ["", "ba78", &"g".repeat(64), &"é".repeat(32)] {
            assert!(text.parse::<Sha256>().is_err(), "{text}");
        }
    }
}
