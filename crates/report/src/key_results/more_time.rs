//! The additional time to find a smaller difference than the run can.

use std::path::Path;

use dbdyno_stats::time_to_resolve;
use dbdyno_units::{Nanos, Share};
use serde::Serialize;

use super::Finding;
use crate::figures::percent;
use crate::model::{Report, Row};

/// Differences below this, in percent, are no reason to measure longer.
const SMALL: f64 = 0.5;

/// The steps of differences within a power of ten.
const STEPS: [f64; 3] = [5.0, 2.0, 1.0];

/// More time than this is not suggested.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// The additional time to resolve a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct MoreTime {
    /// The difference.
    pub(crate) difference: Share,
    /// The expected time, of the whole run.
    pub(crate) time: Nanos,
}

impl MoreTime {
    /// `None` if a difference was found, the interval is narrow, the noise floor and not the
    /// interval is the limit, or the time cannot be known or is too long.
    pub(super) fn of<'a>(
        report: &Report,
        finding: &Finding,
        rows: impl Iterator<Item = (&'a Row, Nanos)>,
    ) -> Option<Self> {
        let difference = smaller(finding.within?)?;
        let noise = finding.metric.noise(report);
        if noise.is_some_and(|noise| noise >= difference) {
            return None;
        }
        let mut time = Nanos::ZERO;
        for (row, spent) in rows {
            time += time_to_resolve(&finding.metric.estimate(row)?, difference, spent)?;
        }
        // Whole minutes, or seconds of a short run.
        let unit = if time > Nanos::from_secs(90) { 60.0 } else { 1.0 };
        let time = Nanos::from_secs((time.as_secs_f64() / unit).ceil() as u64 * unit as u64);
        (time > Nanos::ZERO && time <= LONGEST).then_some(Self { difference, time })
    }

    /// `to resolve 2%, 14 more minutes`.
    pub(crate) fn words(&self) -> String {
        let seconds = self.time.as_secs_f64() as u64;
        let time = match seconds {
            1 => "1 more second".to_owned(),
            _ if !seconds.is_multiple_of(60) => format!("{seconds} more seconds"),
            60 => "1 more minute".to_owned(),
            _ if seconds < 2 * 3600 => format!("{} more minutes", seconds / 60),
            _ => format!("{:.1} more hours", seconds as f64 / 3600.0),
        };
        format!("to resolve {}, {time}", percent(self.difference))
    }

    /// The time as a value of `--more`.
    fn argument(self) -> String {
        let seconds = self.time.as_secs_f64() as u64;
        if seconds.is_multiple_of(60) {
            format!("{}min", seconds / 60)
        } else {
            format!("{seconds}s")
        }
    }
}

/// The largest of 1%, 2%, 5%, 0.1% and so on that is at most half of `within`; `None` if `within` is
/// small.
fn smaller(within: Share) -> Option<Share> {
    let half = within.as_percent() / 2.0;
    if within.as_percent() <= SMALL || !half.is_finite() {
        return None;
    }
    let power = 10_f64.powf(half.log10().floor());
    let step = STEPS.into_iter().map(|step| step * power).find(|step| *step <= half)?;
    Some(Share::from_percent(step))
}

/// The command that measures longer by the longest of these times; `None` if there is none.
pub(crate) fn command<'a>(
    directory: &Path,
    more: impl Iterator<Item = &'a MoreTime>,
) -> Option<String> {
    let longest = more.max_by_key(|more| more.time)?;
    let directory = quoted(&directory.to_string_lossy());
    Some(format!("dbdyno run --resume {directory} --more {}", longest.argument()))
}

/// A word for the shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-+=:@%,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_difference_is_at_most_half() {
        let of = |percent| smaller(Share::from_percent(percent)).map(|share| share.to_string());
        assert_eq!(of(8.8).as_deref(), Some("2%"));
        assert_eq!(of(10.0).as_deref(), Some("5%"));
        assert_eq!(of(2.0).as_deref(), Some("1%"));
        assert_eq!(of(1.5).as_deref(), Some("0.5%"));
        assert_eq!(of(45.0).as_deref(), Some("20%"));
        assert_eq!(of(0.5), None);
        assert_eq!(of(f64::INFINITY), None);
    }

    #[test]
    fn command_names_the_longest_time_and_quotes_the_directory() {
        let more = |seconds| MoreTime {
            difference: Share::from_percent(2.0),
            time: Nanos::from_secs(seconds),
        };
        let times = [more(45), more(840)];
        let command = |directory: &str| command(Path::new(directory), times.iter()).unwrap();
        assert_eq!(command("results/first"), "dbdyno run --resume results/first --more 14min");
        assert_eq!(command("my runs"), "dbdyno run --resume 'my runs' --more 14min");
        assert_eq!(more(840).words(), "to resolve 2%, 14 more minutes");
        assert_eq!(more(45).words(), "to resolve 2%, 45 more seconds");
        assert_eq!(more(45).argument(), "45s");
        assert_eq!(more(9_000).words(), "to resolve 2%, 2.5 more hours");
    }
}
