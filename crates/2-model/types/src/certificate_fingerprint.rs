use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The SHA-256 fingerprint of a certificate: of its DER encoding, as `openssl x509 -noout -fingerprint -sha256`
/// prints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CertificateFingerprint([u8; Self::LENGTH]);

/// A text is not a SHA-256 fingerprint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 fingerprint has 64 hexadecimal digits")]
pub struct InvalidFingerprint;

impl CertificateFingerprint {
    const LENGTH: usize = 32;

    /// From the SHA-256 digest of a certificate.
    #[must_use]
    pub const fn from_digest(digest: [u8; Self::LENGTH]) -> Self {
        Self(digest)
    }
}

impl FromStr for CertificateFingerprint {
    type Err = InvalidFingerprint;

    /// Parses 64 hexadecimal digits, with or without colons between the bytes.
    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let digits: Vec<char> = text.chars().filter(|c| *c != ':').collect();
        if digits.len() != 2 * Self::LENGTH {
            return Err(InvalidFingerprint);
        }
        let mut bytes = [0; Self::LENGTH];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            for digit in pair {
                let value = digit.to_digit(16).ok_or(InvalidFingerprint)?;
                *byte = *byte << 4 | value as u8;
            }
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, byte) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { ":" };
            write!(f, "{separator}{byte:02X}")?;
        }
        Ok(())
    }
}

impl From<CertificateFingerprint> for String {
    fn from(fingerprint: CertificateFingerprint) -> Self {
        fingerprint.to_string()
    }
}

impl TryFrom<String> for CertificateFingerprint {
    type Error = InvalidFingerprint;

    fn try_from(text: String) -> Result<Self, InvalidFingerprint> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprint_is_read_with_and_without_colons() {
        let colons = ["0A"; 31].join(":") + ":fF";
        let expected: [u8; 32] = std::array::from_fn(|n| if n == 31 { 0xff } else { 0x0a });
        for text in [colons.clone(), colons.replace(':', "")] {
            let parsed: CertificateFingerprint = text.parse().unwrap();
            assert_eq!(parsed, CertificateFingerprint::from_digest(expected), "{text}");
            assert_eq!(parsed.to_string(), colons.to_uppercase());
        }
    }

    #[test]
    fn other_texts_are_rejected() {
        let long = "a".repeat(65);
        let sign = format!("+{}", "a".repeat(63));
        for text in ["", "AB", &long, &long[..63], &sign, &"é".repeat(32), &"g".repeat(64)] {
            assert_eq!(text.parse::<CertificateFingerprint>(), Err(InvalidFingerprint), "{text}");
        }
    }
}
