//! The additional time to find a smaller difference, and the command for it.

use std::collections::BTreeMap;
use std::path::Path;

use dbdyno_stats::time_to_resolve;
use dbdyno_units::{Nanos, Share, shell_quoted};
use serde::Serialize;

use super::{Finding, KeyResult, Measured};
use crate::figures::percent;
use crate::model::{Metric, Report};

/// Differences below this, in percent, are no reason to measure longer.
const SMALL: f64 = 0.5;

/// No difference above this, in percent, is worth a time of its own.
const LARGEST: f64 = 50.0;

/// The steps of differences within a power of ten.
const STEPS: [f64; 3] = [5.0, 2.0, 1.0];

/// More time than this is not suggested.
const LONGEST: Nanos = Nanos::from_secs(24 * 3600);

/// The additional time to resolve a difference.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct MoreTime {
    pub(crate) difference: Share,
    /// The expected time, of the whole run.
    pub(crate) time: Nanos,
}

impl MoreTime {
    /// `None` if a difference was found, the interval is narrow, the noise floor and not the
    /// interval is the limit, or the time cannot be known or is too long.
    pub(super) fn of(report: &Report, finding: &Finding, members: &[Measured<'_>]) -> Option<Self> {
        let difference = smaller(finding.within?)?;
        let noise = report.noise_of(finding.metric);
        if noise.is_some_and(|noise| noise >= difference) {
            return None;
        }
        let of_each = members.iter().map(|one| needed(one, finding.metric, difference));
        let time = whole_units(of_each.sum::<Option<Nanos>>()?);
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
}

/// The largest of 1%, 2%, 5%, 0.1% and so on that is at most half of `within`; `None` if `within` is
/// small.
fn smaller(within: Share) -> Option<Share> {
    let half = (within.as_percent() / 2.0).min(LARGEST);
    if within.as_percent() <= SMALL || !within.as_fraction().is_finite() {
        return None;
    }
    let power = 10_f64.powf(half.log10().floor());
    let step = STEPS.into_iter().map(|step| step * power).find(|step| *step <= half)?;
    Some(Share::from_percent(step))
}

/// The additional time of a microbenchmark.
fn needed(one: &Measured<'_>, metric: Metric, difference: Share) -> Option<Nanos> {
    let Measured { microbenchmark, row } = one;
    time_to_resolve(&row.estimate(metric)?, difference, microbenchmark.measuring_time)
}

/// Leaves the time to only those results whose difference is the largest: a longer run first measures what has the widest
/// intervals, until they are equally wide.
pub(super) fn keep_coarsest(results: &mut [KeyResult<'_>]) {
    let differences = results.iter().filter_map(|result| Some(result.more_time?.difference));
    let coarsest = differences.map(Share::as_fraction).reduce(f64::max);
    for result in results {
        result.more_time =
            result.more_time.filter(|more| Some(more.difference.as_fraction()) == coarsest);
    }
}

/// The command that measures longer by the time of all these results; `None` if there is none. All
/// candidates are measured in the same time, so the longest of each microbenchmark counts.
pub(crate) fn command(directory: &Path, results: &[KeyResult<'_>]) -> Option<String> {
    let mut longest: BTreeMap<(&str, u32, &str), Nanos> = BTreeMap::new();
    for result in results {
        let Some(more) = result.more_time else { continue };
        for one in &result.members {
            let name = (result.group, result.clients, one.microbenchmark.name.as_str());
            let time = longest.entry(name).or_insert(Nanos::ZERO);
            let needed = needed(one, result.finding.metric, more.difference);
            *time = needed.unwrap_or(Nanos::ZERO).max(*time);
        }
    }
    let total: Nanos = longest.into_values().sum();
    let directory = shell_quoted(&directory.to_string_lossy());
    let more = argument(total);
    (total > Nanos::ZERO).then(|| format!("dbdyno run --resume {directory} --more {more}"))
}

/// A time as a value of `--more`: whole minutes, or seconds of a short one.
fn argument(time: Nanos) -> String {
    let seconds = whole_units(time).as_secs_f64() as u64;
    match seconds.is_multiple_of(60) {
        true => format!("{}min", seconds / 60),
        false => format!("{seconds}s"),
    }
}

/// The time rounded up to minutes, or to seconds if it is short.
fn whole_units(time: Nanos) -> Nanos {
    let unit: u32 = if time > Nanos::from_secs(90) { 60 } else { 1 };
    Nanos::from_secs((time.as_secs_f64() / f64::from(unit)).ceil() as u64 * u64::from(unit))
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
        assert_eq!(of(300.0).as_deref(), Some("50%"));
        assert_eq!(of(f64::INFINITY), None);
    }

    #[test]
    fn times_are_whole_minutes_or_seconds() {
        let more = |seconds| MoreTime {
            difference: Share::from_percent(2.0),
            time: Nanos::from_secs(seconds),
        };
        assert_eq!(more(840).words(), "to resolve 2%, 14 more minutes");
        assert_eq!(more(45).words(), "to resolve 2%, 45 more seconds");
        assert_eq!(more(9_000).words(), "to resolve 2%, 2.5 more hours");
        let arguments = [45, 61, 95, 840].map(|seconds| argument(Nanos::from_secs(seconds)));
        assert_eq!(arguments, ["45s", "61s", "2min", "14min"]);
    }
}
