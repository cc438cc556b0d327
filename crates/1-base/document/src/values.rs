//! Numbers with units in strings.

use dbdyno_units::{Bytes, Nanos, Share};

/// The error of a string that is not a valid quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BadValue {
    /// The problem.
    pub message: String,
    /// How to fix it.
    pub help: String,
}

impl BadValue {
    fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: help.into() }
    }
}

/// A kind of quantity: its units, with their sizes in the smallest unit.
struct Kind {
    name: &'static str,
    /// The name of the quantity.
    of: &'static str,
    example: &'static str,
    units: &'static [(&'static str, f64)],
    /// The units listed in help texts, without alternative spellings.
    listed: &'static str,
    /// Units of others, with those that are probably meant.
    foreign: &'static [(&'static str, &'static str)],
}

const DURATION: Kind = Kind {
    name: "a duration",
    of: "time",
    example: "50ms",
    units: &[
        ("ns", 1.0),
        ("us", 1e3),
        ("µs", 1e3),
        // The same sign as a different Unicode character: the Greek letter.
        ("μs", 1e3),
        ("ms", 1e6),
        ("s", 1e9),
        ("min", 60e9),
        ("h", 3600e9),
    ],
    listed: "ns, us, ms, s, min and h",
    foreign: &[("m", "min"), ("sec", "s"), ("mins", "min")],
};

const SIZE: Kind = Kind {
    name: "a size",
    of: "memory",
    example: "256MiB",
    units: &[
        ("B", 1.0),
        ("KiB", 1024.0),
        ("MiB", 1_048_576.0),
        ("GiB", 1_073_741_824.0),
        ("TiB", 1_099_511_627_776.0),
    ],
    listed: "B, KiB, MiB, GiB and TiB",
    foreign: &[("K", "KiB"), ("M", "MiB"), ("G", "GiB"), ("T", "TiB")],
};

const COUNT: Kind = Kind {
    name: "a count",
    of: "a count",
    example: "100k",
    units: &[("k", 1e3), ("K", 1e3), ("M", 1e6)],
    listed: "k and M",
    foreign: &[("m", "M"), ("mio", "M")],
};

const SHARE: Kind = Kind {
    name: "a percentage",
    of: "a percentage",
    example: "0.5%",
    units: &[("%", 1.0)],
    listed: "%",
    foreign: &[],
};

/// A duration such as `50ms`, `1.5s`, `5min` or `200us`.
///
/// # Errors
/// Not a number, missing or unknown unit, or more than 584 years.
pub fn parse_duration(text: &str) -> Result<Nanos, BadValue> {
    DURATION.whole(text).map(Nanos::from_nanos)
}

/// A size such as `4KiB`, `256MiB` or `1.5GiB`. Only binary units are accepted: `MB` is ambiguous.
///
/// # Errors
/// Not a number, missing or unknown unit, or more than 2^64 bytes.
pub fn parse_size(text: &str) -> Result<Bytes, BadValue> {
    SIZE.whole(text).map(Bytes::from_bytes)
}

/// A count such as `20000`, `20_000`, `100k` or `1.5M`.
///
/// # Errors
/// Not a whole number, an unknown unit, or 2^64 and more.
pub fn parse_count(text: &str) -> Result<u64, BadValue> {
    let digits = text.replace('_', "");
    if let Ok(count) = digits.parse() {
        return Ok(count);
    }
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = if is_number { f64::INFINITY } else { COUNT.parse(&digits)? };
    if number >= u64::MAX as f64 {
        let help = format!("the most that can be counted is {}", u64::MAX);
        return Err(BadValue::new(format!("`{text}` is too much"), help));
    }
    // 1.001k is not exactly 1001.
    if (number - number.round()).abs() > 1e-9 * number {
        return Err(BadValue::new(format!("`{text}` is not a whole number"), "write it as `100k`"));
    }
    Ok(number.round() as u64)
}

/// A percentage such as `0.5%`.
///
/// # Errors
/// Not a number, or a unit other than `%`.
pub fn parse_share(text: &str) -> Result<Share, BadValue> {
    SHARE.parse(text).map(Share::from_percent)
}

impl Kind {
    fn parse(&self, text: &str) -> Result<f64, BadValue> {
        let &Self { name, of, example, listed, .. } = self;
        let unit_at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(unit_at);
        let unit = unit.trim_start_matches(' ');
        let Ok(number) = number.parse::<f64>() else {
            return Err(BadValue::new(
                format!("`{text}` is not {name}"),
                format!("write it as `{example}`"),
            ));
        };
        if unit.is_empty() {
            let others =
                if self.units.len() > 1 { format!("; units are {listed}") } else { String::new() };
            return Err(BadValue::new(
                format!("`{text}` has no unit"),
                format!("write {name} as `{example}`{others}"),
            ));
        }
        if let Some((_, size)) = self.units.iter().find(|(valid, _)| *valid == unit) {
            return Ok(number * size);
        }
        let corrected = text.replacen(',', ".", 1);
        if unit.starts_with(',') && self.parse(&corrected).is_ok() {
            let message = format!("`{text}` has a decimal comma");
            return Err(BadValue::new(message, format!("write `{corrected}`")));
        }
        let help = match self.foreign.iter().find(|(foreign, _)| *foreign == unit) {
            Some((_, meant)) => {
                format!("did you mean `{}{meant}`? units are {listed}", &text[..unit_at])
            }
            None if self.units.len() > 1 => format!("units are {listed}"),
            None => format!("its unit is {listed}"),
        };
        Err(BadValue::new(format!("`{unit}` is not a unit of {of}"), help))
    }

    /// The quantity in its smallest unit, rounded.
    fn whole(&self, text: &str) -> Result<u64, BadValue> {
        let number = self.parse(text)?.round();
        if number >= u64::MAX as f64 {
            let help = format!("the most that can be counted is {} {}", u64::MAX, self.units[0].0);
            return Err(BadValue::new(format!("`{text}` is too much"), help));
        }
        Ok(number as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed() {
        for (text, nanos) in [
            ("50ms", 50_000_000),
            ("2s", 2_000_000_000),
            ("1.5s", 1_500_000_000),
            ("5min", 300_000_000_000),
            ("200us", 200_000),
            ("200µs", 200_000),
            ("200μs", 200_000),
            ("50 ms", 50_000_000),
            ("1h", 3_600_000_000_000),
            ("0.1ms", 100_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Nanos::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn sizes_and_percentages_are_parsed() {
        assert_eq!(parse_size("4KiB"), Ok(Bytes::from_kib(4)));
        assert_eq!(parse_size("256MiB"), Ok(Bytes::from_mib(256)));
        assert_eq!(parse_size("512B"), Ok(Bytes::from_bytes(512)));
        assert_eq!(parse_size("1.5GiB"), Ok(Bytes::from_mib(1536)));
        assert_eq!(parse_share("0.5%"), Ok(Share::from_percent(0.5)));
        assert_eq!(parse_share("12 %"), Ok(Share::from_percent(12.0)));
    }

    #[test]
    fn counts_are_parsed() {
        for (text, count) in [
            ("0", 0),
            ("20_000", 20_000),
            ("100k", 100_000),
            ("100K", 100_000),
            ("2M", 2_000_000),
            ("1.5M", 1_500_000),
            ("1.001k", 1_001),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_count(text), Ok(count), "{text}");
        }
        for (text, message, help) in [
            ("many", "`many` is not a count", "write it as `100k`"),
            ("-5", "`-5` is not a count", "write it as `100k`"),
            ("", "`` is not a count", "write it as `100k`"),
            ("1.5", "`1.5` has no unit", "write a count as `100k`; units are k and M"),
            ("1.0005k", "`1.0005k` is not a whole number", "write it as `100k`"),
            ("2m", "`m` is not a unit of a count", "did you mean `2M`? units are k and M"),
            ("18446744073709551616", "`18446744073709551616` is too much", "18446744073709551615"),
        ] {
            let bad = parse_count(text).unwrap_err();
            assert!(bad.message == message && bad.help.contains(help), "{bad:?}");
        }
    }

    #[test]
    fn errors_have_a_message_and_help() {
        let problem = |text| parse_duration(text).map_err(|bad| (bad.message, bad.help));
        let bad = |message: &str, help: &str| Err((message.to_owned(), help.to_owned()));
        assert_eq!(
            problem("50"),
            bad(
                "`50` has no unit",
                "write a duration as `50ms`; units are ns, us, ms, s, min and h"
            )
        );
        assert_eq!(
            problem("50secs"),
            bad("`secs` is not a unit of time", "units are ns, us, ms, s, min and h")
        );
        assert_eq!(
            problem("5m"),
            bad(
                "`m` is not a unit of time",
                "did you mean `5min`? units are ns, us, ms, s, min and h"
            )
        );
        assert_eq!(problem("0,5s"), bad("`0,5s` has a decimal comma", "write `0.5s`"));
        for text in ["", "ms", "-5ms", "1.2.3s", ".", "ever", "١ms"] {
            assert_eq!(
                problem(text),
                bad(&format!("`{text}` is not a duration"), "write it as `50ms`")
            );
        }
        let many = "9".repeat(400) + "h";
        assert!(parse_duration(&many).unwrap_err().message.ends_with("is too much"));
        assert_eq!(parse_size("4MB").unwrap_err().help, "units are B, KiB, MiB, GiB and TiB");
        assert_eq!(parse_share("0.5").unwrap_err().message, "`0.5` has no unit");
    }
}
