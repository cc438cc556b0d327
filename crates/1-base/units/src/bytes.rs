use std::fmt;
use std::ops::Add;

use serde::{Deserialize, Serialize};

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    /// From bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// From kibibytes.
    #[must_use]
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    /// From mebibytes.
    #[must_use]
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    /// In bytes.
    #[must_use]
    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// In whole kibibytes, rounded down.
    #[must_use]
    pub const fn as_kib(self) -> u64 {
        self.0 >> 10
    }
}

impl Add for Bytes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// Formats with a binary unit: `512 B`, `64 KiB`, `1.5 GiB`.
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
        let mut value = self.0 as f64;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        let text = if unit == 0 || value >= 100.0 || value.fract() == 0.0 {
            format!("{value:.0} {}", UNITS[unit])
        } else {
            format!("{value:.1} {}", UNITS[unit])
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_formatted_with_a_binary_unit() {
        assert_eq!(Bytes::from_bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::from_kib(64).to_string(), "64 KiB");
        assert_eq!(Bytes::from_mib(1_536).to_string(), "1.5 GiB");
        assert_eq!(Bytes::from_kib(1_500).to_string(), "1.5 MiB");
    }
}
