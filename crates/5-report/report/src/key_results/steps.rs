//! Neighbouring numbers of clients with the same findings, joined.

use dbdyno_units::{Ratio, Share};

use super::KeyResult;
use super::finding::{Finding, Outcome};
use super::words::{QUANTITY, in_words};
use crate::metric::clients;
use crate::model::Verdict;

/// Neighbouring numbers of clients of one candidate and group.
pub(crate) struct Steps<'r, 'a>(&'r [KeyResult<'a>]);

/// The results of one candidate and group, as few steps as they allow.
pub(crate) fn steps<'r, 'a>(
    results: &'r [KeyResult<'a>],
) -> impl Iterator<Item = Steps<'r, 'a>> + use<'r, 'a> {
    let finding = |result: &KeyResult<'_>| -> Vec<_> {
        result.findings().iter().map(|one| (one.metric, one.outcome)).collect()
    };
    // Tallies of microbenchmarks cannot be joined, nor what holds only for some of the steps.
    let can_be_joined = |result: &KeyResult<'_>| {
        let joined = |one: &&Finding| {
            !matches!(one.outcome, Outcome::Mixed | Outcome::NoInterval)
                && (one.is_difference() || one.better + one.worse == 0)
                && !one.is_of_control()
                && one.without_background.is_none()
                && one.range.is_none()
                && one.part.is_none()
        };
        result.findings().iter().all(joined)
    };
    results
        .chunk_by(move |a, b| can_be_joined(a) && can_be_joined(b) && finding(a) == finding(b))
        .map(Steps)
}

impl Steps<'_, '_> {
    /// `4 to 16 clients`
    pub(crate) fn clients(&self) -> String {
        let (first, last) = (self.0[0].clients, self.0[self.0.len() - 1].clients);
        if first == last { clients(first) } else { format!("{first} to {}", clients(last)) }
    }

    /// The findings in words, the one to trust first, with the verdict that sets the colour.
    pub(crate) fn findings(&self) -> Vec<(String, Verdict)> {
        let of_each: Vec<Vec<&Finding>> = self.0.iter().map(KeyResult::findings).collect();
        (0..of_each[0].len())
            .map(|at| {
                let findings: Vec<&Finding> = of_each.iter().map(|of_one| of_one[at]).collect();
                (joined(&findings), findings[0].verdict())
            })
            .collect()
    }
}

/// Findings with the same outcome in words: `3.1% to 5.4% more QPS (2.0% to 6.1%)`, where the intervals
/// are within the parentheses.
fn joined(findings: &[&Finding]) -> String {
    let [first, _, ..] = findings else { return findings[0].words() };
    let what = first.metric.quantity();
    let low = ends(findings, |one| Some(one.interval?.0), f64::min);
    let high = ends(findings, |one| Some(one.interval?.1), f64::max);
    match first.outcome {
        Outcome::NoDifference | Outcome::TooNoisy => {
            let within = findings.iter().filter_map(|one| Some(one.within?.as_fraction()));
            let within = within.reduce(f64::max).map(Share::from_fraction);
            let too_noisy = findings.iter().map(|one| one.too_noisy).max().unwrap_or(0);
            let interval = low.zip(high);
            Finding { within, interval, too_noisy, ..(*first).clone() }.words()
        }
        Outcome::Better | Outcome::Worse => {
            let least = ends(findings, |one| one.ratio, f64::min);
            let most = ends(findings, |one| one.ratio, f64::max);
            let (Some(least), Some(most), Some(low), Some(high)) = (least, most, low, high) else {
                return first.words();
            };
            let ([least, most, low, high], word) =
                in_words(most, [least, most], (low, high), QUANTITY);
            format!("{least} to {most} {word} {what} ({low} to {high})")
        }
        _ => first.words(),
    }
}

/// The least or greatest of a ratio of several findings.
fn ends(
    findings: &[&Finding],
    of: fn(&Finding) -> Option<Ratio>,
    choose: fn(f64, f64) -> f64,
) -> Option<Ratio> {
    findings.iter().filter_map(|one| of(one)).map(Ratio::get).reduce(choose).map(Ratio::new)
}
