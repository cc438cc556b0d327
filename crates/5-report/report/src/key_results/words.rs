//! Findings in words: key results, joined steps of a sweep, and conclusions as sentences.

use dbdyno_units::{Ratio, Share};

use super::{Finding, KeyResult, Outcome, of};
use crate::figures::{percent, ratio};
use crate::metric::{Grouping, clients, with_clients};
use crate::model::{Metric, Report, Verdict};

/// No difference within 100% or more is no knowledge.
fn is_too_wide(within: Share) -> bool {
    within.as_fraction() >= 1.0
}

impl KeyResult<'_> {
    /// The group, with the number of clients in a sweep.
    pub(crate) fn group_label(&self, is_sweep: bool) -> String {
        with_clients(self.group, self.clients, is_sweep)
    }

    /// The findings in the order in which they are shown: by the metric to trust first, unless only
    /// throughput differs with certainty.
    pub(crate) fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> =
            [Some(&self.finding), self.throughput.as_ref()].into_iter().flatten().collect();
        findings.sort_by_key(|finding| !(finding.is_difference() || self.finding.is_difference()));
        findings
    }
}

impl Finding {
    pub(super) const fn is_difference(&self) -> bool {
        matches!(self.outcome, Outcome::Better | Outcome::Worse)
    }

    /// `2.1% more QPS (1.8% to 2.5%)`, `CPU per query: no difference found (within 8.8%)`; of a part of the
    /// group with its name.
    pub(crate) fn words(&self) -> String {
        let words = self.words_alone();
        match &self.part {
            Some(part) => format!("{part}: {words}"),
            None => words,
        }
    }

    /// The same without the part.
    pub(super) fn words_alone(&self) -> String {
        let what = self.metric.quantity();
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                format!("{}{}{}", self.size(), self.exceptions(), self.caution())
            }
            Outcome::NoDifference if self.within.is_some_and(is_too_wide) => {
                let high = self.interval.map_or_else(String::new, |(_, high)| ratio(high));
                format!("{what}: unknown, up to {high} times the baseline's")
            }
            Outcome::NoDifference => {
                let within = self.within.map_or_else(String::new, percent);
                format!("{what}: no difference found (within {within})")
            }
            Outcome::Mixed => format!("{what}: {}", self.tally()),
            Outcome::NoInterval => {
                let median = self.ratio.map_or_else(String::new, ratio);
                format!("{what}: {median} of the baseline's, too few values for an interval")
            }
            Outcome::ClientBound => format!("{what}: client-bound, limited by the load generator"),
            Outcome::Failed => format!("{what}: failed"),
            Outcome::TooFewBlocks => format!("{what}: too few blocks"),
        }
    }

    /// That the control, which is equal to the baseline, differs in the same way.
    pub(super) fn caution(&self) -> String {
        let Some(control) = self.control else { return String::new() };
        let difference = percent(Share::from_fraction(control.distance()));
        let word = if control > Ratio::ONE { "more" } else { "less" };
        format!("; may be noise, as the control has {difference} {word}")
    }

    /// `2.1% more QPS (1.8% to 2.5%)`; from twice the baseline's `2.31 times the QPS (2.20 to 2.40)`.
    fn size(&self) -> String {
        let what = self.metric.quantity();
        let (Some(middle), Some((low, high))) = (self.ratio, self.interval) else {
            return what.to_owned();
        };
        if middle.get() >= 2.0 {
            let times = |ratio: Ratio| format!("{:.2}", ratio.get());
            return format!(
                "{} times the {what} ({} to {})",
                times(middle),
                times(low),
                times(high)
            );
        }
        let change = |ratio: Ratio| percent(Share::from_fraction(ratio.distance()));
        let (word, least, most) = match middle > Ratio::ONE {
            true => ("more", low, high),
            false => ("less", high, low),
        };
        format!("{} {word} {what} ({} to {})", change(middle), change(least), change(most))
    }

    /// Microbenchmarks that do not have the difference of their group.
    pub(super) fn exceptions(&self) -> String {
        let all = self.better == self.count || self.worse == self.count;
        if all { String::new() } else { format!("; {}", self.tally()) }
    }

    /// `6 of 9 faster, 1 slower`.
    fn tally(&self) -> String {
        let (better, worse) = match self.metric {
            Metric::Qps => ("faster", "slower"),
            Metric::Cpu => ("with less", "with more"),
        };
        let Self { count, .. } = *self;
        match (self.better, self.worse) {
            (some, 0) => format!("{some} of {count} {better}, no difference in the others"),
            (0, some) => format!("{some} of {count} {worse}, no difference in the others"),
            (some, other) => format!("{some} of {count} {better}, {other} {worse}"),
        }
    }
}

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
                && one.control.is_none()
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
    match first.outcome {
        Outcome::NoDifference => {
            let within = findings.iter().filter_map(|one| Some(one.within?.as_fraction()));
            let within = within.reduce(f64::max).map(Share::from_fraction);
            let low = ends(findings, |one| Some(one.interval?.0), f64::min);
            let high = ends(findings, |one| Some(one.interval?.1), f64::max);
            Finding { within, interval: low.zip(high), ..(*first).clone() }.words()
        }
        Outcome::Better | Outcome::Worse => {
            let least = ends(findings, |one| one.ratio, f64::min);
            let most = ends(findings, |one| one.ratio, f64::max);
            let low = ends(findings, |one| Some(one.interval?.0), f64::min);
            let high = ends(findings, |one| Some(one.interval?.1), f64::max);
            let (Some(least), Some(most), Some(low), Some(high)) = (least, most, low, high) else {
                return first.words();
            };
            let times = |ratio: Ratio| format!("{:.2}", ratio.get());
            if most.get() >= 2.0 {
                let [least, most, low, high] = [least, most, low, high].map(times);
                return format!("{least} to {most} times the {what} ({low} to {high})");
            }
            let change = |ratio: Ratio| percent(Share::from_fraction(ratio.distance()));
            let is_more = least > Ratio::ONE;
            let (word, [least, most, low, high]) = match is_more {
                true => ("more", [least, most, low, high].map(change)),
                false => ("less", [most, least, high, low].map(change)),
            };
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

/// A sentence for each candidate and group, such as `myrocks is 24% slower than innodb on point-1
/// (95%: 22% to 26%)`. A group of one microbenchmark is named after it. Empty if nothing was compared.
pub fn conclusions(report: &Report) -> Vec<String> {
    let results = of(report, Grouping::Five);
    results.iter().map(|result| sentence(report, result)).collect()
}

fn sentence(report: &Report, result: &KeyResult<'_>) -> String {
    let mut on = match (microbenchmark(report, result), &result.finding.part) {
        (Some(name), _) => name.to_owned(),
        (None, Some(part)) => format!("{part} of {}", result.group),
        (None, None) => result.group.to_owned(),
    };
    if report.is_sweep() {
        on = format!("{on} with {}", clients(result.clients));
    }
    let throughput = result.throughput.as_ref().unwrap_or(&result.finding);
    let mut sentence = throughput.sentence(result.candidate, &report.baseline, &on);
    if result.finding.metric == Metric::Cpu {
        sentence.push_str(&format!("; {}", result.finding.words_alone()));
    }
    sentence
}

/// The name of the only microbenchmark of a result.
fn microbenchmark<'a>(report: &'a Report, result: &KeyResult<'_>) -> Option<&'a str> {
    let members = Grouping::Five.groups(&report.microbenchmarks);
    let (_, members) = members.into_iter().find(|(group, _)| *group == result.group)?;
    let mut names = members
        .iter()
        .filter(|(_, member)| {
            let row = member.row(result.candidate);
            member.clients == result.clients
                && row.is_some_and(|row| row.trusted_metric == result.finding.metric)
        })
        .map(|(_, member)| member.name.as_str());
    let only = names.next()?;
    names.next().is_none().then_some(only)
}

impl Finding {
    /// The finding about throughput, without a full stop.
    fn sentence(&self, candidate: &str, baseline: &str, on: &str) -> String {
        match self.outcome {
            Outcome::Better | Outcome::Worse => {
                let (Some(ratio), Some((low, high))) = (self.ratio, self.interval) else {
                    return format!("{candidate} on {on}: {}", self.words_alone());
                };
                let remarks = format!("{}{}", self.exceptions(), self.caution());
                if ratio.get() >= 2.0 {
                    let [ratio, low, high] =
                        [ratio, low, high].map(|ratio| format!("{:.2}", ratio.get()));
                    return format!(
                        "{candidate} is {ratio} times as fast as {baseline} on {on} (95%: {low} to \
                         {high}){remarks}"
                    );
                }
                let change = |ratio: Ratio| percent(Share::from_fraction(ratio.distance()));
                let (word, least, most) = match ratio > Ratio::ONE {
                    true => ("faster", low, high),
                    false => ("slower", high, low),
                };
                format!(
                    "{candidate} is {} {word} than {baseline} on {on} (95%: {} to {}){remarks}",
                    change(ratio),
                    change(least),
                    change(most)
                )
            }
            Outcome::NoDifference if !self.within.is_some_and(is_too_wide) => {
                let within = self.within.map_or_else(String::new, percent);
                format!(
                    "no difference found between {candidate} and {baseline} on {on} (95%: within \
                     {within})"
                )
            }
            _ => format!("{candidate} on {on}: {}", self.words_alone()),
        }
    }
}
