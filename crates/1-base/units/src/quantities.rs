use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A length of time in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn from_micros(micros: u64) -> Self {
        Self(micros * 1_000)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// From seconds with a fraction; negative values and NaN become zero.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs.max(0.0) * 1e9).round() as u64)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In microseconds, with a fraction.
    pub fn as_micros_f64(self) -> f64 {
        self.0 as f64 / 1e3
    }

    /// In milliseconds, with a fraction.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In seconds, with a fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The difference, or zero if `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The product with `times`, saturating.
    pub const fn times(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl From<Duration> for Nanos {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl From<Nanos> for Duration {
    fn from(nanos: Nanos) -> Self {
        Self::from_nanos(nanos.0)
    }
}

impl Add for Nanos {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(iter: I) -> Self {
        iter.fold(Self::ZERO, Add::add)
    }
}

/// Formats with a suitable unit and at most three significant digits: `50 ms`, `1.25 s`. Two
/// minutes or more are formatted as `3 min 20 s` or `2 h 1 min`.
impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0 as f64;
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (nanos / 1e3, "µs"),
            1_000_000..1_000_000_000 => (nanos / 1e6, "ms"),
            1_000_000_000..120_000_000_000 => (nanos / 1e9, "s"),
            _ => {
                let seconds = (nanos / 1e9).round() as u64;
                let text = match seconds / 3600 {
                    0 => format!("{} min {} s", seconds / 60, seconds % 60),
                    hours => format!("{hours} h {} min", seconds % 3600 / 60),
                };
                return f.pad(&text);
            }
        };
        let decimals = if value >= 100.0 {
            0
        } else if value >= 10.0 {
            1
        } else {
            2
        };
        let mut text = format!("{value:.decimals$}");
        if text.contains('.') {
            text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
        }
        f.pad(&format!("{text} {unit}"))
    }
}

/// A number of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(u64);

impl Bytes {
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    pub const fn from_kib(kib: u64) -> Self {
        Self(kib << 10)
    }

    pub const fn from_mib(mib: u64) -> Self {
        Self(mib << 20)
    }

    pub const fn as_bytes(self) -> u64 {
        self.0
    }

    /// In whole kibibytes, rounded down.
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

/// Energy in microjoules.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Energy(u64);

impl Energy {
    pub const fn from_microjoules(microjoules: u64) -> Self {
        Self(microjoules)
    }

    pub const fn as_microjoules(self) -> u64 {
        self.0
    }
}

impl Add for Energy {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Energy {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanos_are_formatted_with_a_suitable_unit() {
        let shown = |nanos: Nanos| nanos.to_string();
        assert_eq!(shown(Nanos::from_nanos(7)), "7 ns");
        assert_eq!(shown(Nanos::from_nanos(1_540)), "1.54 µs");
        assert_eq!(shown(Nanos::from_millis(50)), "50 ms");
        assert_eq!(shown(Nanos::from_millis(1_250)), "1.25 s");
        assert_eq!(shown(Nanos::from_secs(200)), "3 min 20 s");
        assert_eq!(shown(Nanos::from_secs(7_260)), "2 h 1 min");
    }

    #[test]
    fn conversion_to_duration_is_lossless() {
        let nanos = Nanos::from_micros(50);
        assert_eq!(Nanos::from(Duration::from(nanos)), nanos);
        assert_eq!(Nanos::from_secs_f64(-1.0), Nanos::ZERO);
    }

    #[test]
    fn bytes_are_formatted_with_a_binary_unit() {
        assert_eq!(Bytes::from_bytes(512).to_string(), "512 B");
        assert_eq!(Bytes::from_kib(64).to_string(), "64 KiB");
        assert_eq!(Bytes::from_mib(1_536).to_string(), "1.5 GiB");
        assert_eq!(Bytes::from_kib(1_500).to_string(), "1.5 MiB");
    }
}
