use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Nanos, grouped};

/// Statements per second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Qps(f64);

impl Qps {
    pub const fn from_per_second(per_second: f64) -> Self {
        Self(per_second)
    }

    /// `statements` per `time`; `None` if `time` is zero.
    pub fn over(statements: u64, time: Nanos) -> Option<Self> {
        (time > Nanos::ZERO).then(|| Self(statements as f64 / time.as_secs_f64()))
    }

    pub const fn per_second(self) -> f64 {
        self.0
    }

    /// This throughput divided by the baseline's; `None` if either is zero.
    pub fn relative_to(self, baseline: Self) -> Option<Ratio> {
        Ratio::of(self.0, baseline.0)
    }
}

/// Formats with two decimals below 100, one below 1000, otherwise none: `98.70`, `1,234,567`.
impl fmt::Display for Qps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 < 1000.0 || !self.0.is_finite() {
            let decimals = if self.0 >= 100.0 { 1 } else { 2 };
            return f.pad(&format!("{:.decimals$}", self.0));
        }
        f.pad(&grouped(self.0.round() as u64))
    }
}

/// The quotient of two quantities of the same kind: 1 means no difference.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ratio(f64);

impl Ratio {
    /// No difference.
    pub const ONE: Self = Self(1.0);

    pub const fn new(value: f64) -> Self {
        Self(value)
    }

    /// `numerator / denominator`; `None` unless it is positive and finite.
    pub fn of(numerator: f64, denominator: f64) -> Option<Self> {
        let value = numerator / denominator;
        (value.is_finite() && value > 0.0).then_some(Self(value))
    }

    pub const fn get(self) -> f64 {
        self.0
    }

    /// The absolute difference from 1.
    pub fn distance(self) -> f64 {
        (self.0 - 1.0).abs()
    }
}

/// Formats with four decimals unless a precision is given.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = f.precision().unwrap_or(4);
        let text = format!("{:.decimals$}", self.0);
        match f.width() {
            Some(width) => write!(f, "{text:>width$}"),
            None => f.write_str(&text),
        }
    }
}

/// A part of a whole, or a distance from 1: 0.005 is formatted as `0.5%`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(f64);

impl Share {
    /// From a fraction: 0.005 is half a percent.
    pub const fn from_fraction(fraction: f64) -> Self {
        Self(fraction)
    }

    /// From percent.
    pub fn from_percent(percent: f64) -> Self {
        Self(percent / 100.0)
    }

    /// As a fraction of 1.
    pub const fn as_fraction(self) -> f64 {
        self.0
    }

    /// In percent.
    pub fn as_percent(self) -> f64 {
        self.0 * 100.0
    }
}

/// Formats in percent with at most two decimals: `0.5%`, `12%`.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.2}", self.as_percent());
        f.pad(&format!("{}%", text.trim_end_matches('0').trim_end_matches('.')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughput_is_statements_over_time() {
        let qps = Qps::over(500, Nanos::from_millis(250)).unwrap();
        assert_eq!(qps.per_second(), 2000.0);
        assert_eq!(Qps::over(1, Nanos::ZERO), None);
    }

    #[test]
    fn ratio_with_zero_is_none() {
        assert_eq!(Ratio::of(1.0, 0.0), None);
        assert_eq!(Ratio::of(0.0, 1.0), None);
        assert_eq!(Ratio::of(3.0, 2.0), Some(Ratio::new(1.5)));
    }

    #[test]
    fn rates_are_formatted() {
        assert_eq!(Qps::from_per_second(1_234_567.4).to_string(), "1,234,567");
        assert_eq!(Qps::from_per_second(98.7).to_string(), "98.70");
        assert_eq!(Qps::from_per_second(f64::INFINITY).to_string(), "inf");
        assert_eq!(format!("{:.3}", Ratio::new(1.03849)), "1.038");
        assert_eq!(Share::from_percent(0.5).to_string(), "0.5%");
        assert_eq!(Share::from_fraction(0.12).to_string(), "12%");
    }
}
