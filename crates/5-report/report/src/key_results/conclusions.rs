//! Conclusions: a sentence for each candidate and group.

use dbdyno_units::Ratio;

use super::finding::{Finding, Outcome};
use super::words::{DEPENDING, in_words};
use super::{KeyResult, Measured, key_result, of};
use crate::assemble::client_bound;
use crate::figures::{duration, percent};
use crate::metric::{Grouping, by_clients, clients, with_clients};
use crate::model::{Absolute, Metric, MicrobenchmarkRows, Report, Verdict};

/// A sentence for each candidate and group, such as `myrocks is 24% slower than innodb on point-1
/// (95%: 22% to 26%)`, with the verdict that sets its colour. A group of one microbenchmark is named
/// after it. Of a baseline alone, its figures on each microbenchmark. Empty if nothing was measured.
pub(crate) fn conclusions(report: &Report, grouping: Grouping) -> Vec<(String, Verdict)> {
    if report.is_alone() {
        return report.microbenchmarks.iter().filter_map(|one| alone(report, one)).collect();
    }
    concluded(report, &of(report, grouping))
}

/// The same with each microbenchmark of small groups of unlike ones, whose range describes none of them; unless that
/// makes too many sentences.
pub(crate) fn conclusions_of_each(report: &Report, grouping: Grouping) -> Vec<(String, Verdict)> {
    let groups = of(report, grouping).into_iter();
    let results: Vec<KeyResult<'_>> =
        groups.flat_map(|group| group.apart(report, grouping)).collect();
    match report.is_alone() || results.len() > MOST_APART {
        true => conclusions(report, grouping),
        false => concluded(report, &results),
    }
}

/// Most sentences of an answer with each microbenchmark, and most microbenchmarks of a group in it.
const MOST_APART: usize = 6;
const MOST_OF_GROUP: usize = 4;

impl<'a> KeyResult<'a> {
    /// The results of its microbenchmarks if they are few and unlike; otherwise itself.
    fn apart(self, report: &'a Report, grouping: Grouping) -> Vec<Self> {
        let is_unlike = |one: &Finding| one.range.is_some();
        let is_apart = is_unlike(&self.finding) || self.throughput.as_ref().is_some_and(is_unlike);
        if !is_apart || self.finding.count > MOST_OF_GROUP {
            return vec![self];
        }
        let (place, metric) = ((self.candidate, self.group, self.clients), self.finding.metric);
        let all = by_clients(&report.microbenchmarks, grouping).into_iter();
        let own = all.filter(|(group, clients, _)| (*group, *clients) == (place.1, place.2));
        let result = |microbenchmark: &'a MicrobenchmarkRows| {
            let row = microbenchmark.row(place.0)?;
            let mut one = key_result(report, place, metric, &[Measured { microbenchmark, row }])?;
            one.finding.part = one.only.take().map(str::to_owned);
            Some(one)
        };
        own.flat_map(|(.., members)| members).filter_map(result).collect()
    }
}

fn concluded(report: &Report, results: &[KeyResult<'_>]) -> Vec<(String, Verdict)> {
    let verdict = |result: &KeyResult<'_>| result.findings()[0].verdict();
    results.iter().map(|result| (sentence(report, result), verdict(result))).collect()
}

/// `db1 on q-1: 1,234 QPS (95%: 1,220 to 1,250), 85.2 µs CPU time per query`, or that it failed; `None` if it has no
/// throughput.
fn alone(report: &Report, member: &MicrobenchmarkRows) -> Option<(String, Verdict)> {
    let on = with_clients(&member.name, member.clients, report.is_sweep());
    let on = format!("{} on {on}", report.baseline);
    if member.baseline_failed {
        return Some((format!("{on}: failed"), Verdict::Failed));
    }
    let Absolute { qps, qps_interval, cpu_us_per_query, .. } = member.baseline;
    let unit = match member.throughput_unit.as_str() {
        "statements/s" => Metric::Qps.quantity(),
        unit => unit,
    };
    let interval = qps_interval.map(|(low, high)| format!(" (95%: {low} to {high})"));
    let cpu = cpu_us_per_query.map(|cpu| format!(", {} CPU time per query", duration(cpu)));
    let [interval, cpu] = [interval, cpu].map(Option::unwrap_or_default);
    let bound = if client_bound(&member.baseline) { "; limited by the load generator" } else { "" };
    Some((format!("{on}: {} {unit}{interval}{cpu}{bound}", qps?), Verdict::NoInterval))
}

/// The group of user-defined microbenchmarks that name none.
const OWN: &str = "own";

fn sentence(report: &Report, result: &KeyResult<'_>) -> String {
    let group = if result.group == OWN { "the user-defined microbenchmarks" } else { result.group };
    let mut on = match (result.only, &result.finding.part) {
        (Some(name), _) => name.to_owned(),
        (None, Some(part)) => format!("{part} of {group}"),
        (None, None) => match report.part_of(result.group) {
            Some((measured, all)) => format!("{measured} of {all} of {group}"),
            None => group.to_owned(),
        },
    };
    if report.is_sweep() {
        on = format!("{on} with {}", clients(result.clients));
    }
    let throughput = result.throughput.as_ref().unwrap_or(&result.finding);
    let (metric, outcome) = (result.finding.metric, result.finding.outcome);
    if throughput.outcome == Outcome::TooNoisy
        && metric == Metric::Cpu
        && matches!(outcome, Outcome::Better | Outcome::Worse | Outcome::NoDifference)
    {
        // What is known comes first.
        let [known, unknown] = [&result.finding, throughput].map(Finding::words_alone);
        return format!(
            "{} on {on} against {}: {known}; {unknown}",
            result.candidate, report.baseline
        );
    }
    let mut sentence = throughput.sentence(result.candidate, &report.baseline, &on);
    if result.finding.metric == Metric::Cpu {
        sentence.push_str(&format!("; {}", result.finding.words_alone()));
    }
    sentence
}

impl Finding {
    /// The finding about throughput, without a full stop.
    fn sentence(&self, candidate: &str, baseline: &str, on: &str) -> String {
        let speed = ["faster than", "slower than", "times as fast as"];
        let remarks = || format!("{}{}", self.exceptions(), self.caution());
        match (self.outcome, self.ratio.zip(self.interval), self.range) {
            (Outcome::Better | Outcome::Worse, Some((ratio, _)), Some((least, most)))
                if least >= Ratio::ONE || most <= Ratio::ONE =>
            {
                let ([least, most, median], word) =
                    in_words(most, [least, most], (ratio, ratio), speed);
                format!(
                    "{candidate} is {least} to {most} {word} {baseline} on {on}, {DEPENDING} (median \
                     {median}){}",
                    remarks()
                )
            }
            (Outcome::Better | Outcome::Worse, Some((ratio, interval)), None) => {
                let ([size, low, high], word) = in_words(ratio, [ratio], interval, speed);
                format!(
                    "{candidate} is {size} {word} {baseline} on {on} (95%: {low} to {high}){}",
                    remarks()
                )
            }
            (Outcome::NoDifference, ..) => {
                let within = self.within.map_or_else(String::new, percent);
                format!(
                    "no difference found between {candidate} and {baseline} on {on} (95%: within \
                     {within}){}{}",
                    self.by_chance(),
                    self.unknown()
                )
            }
            (Outcome::TooNoisy, ..) => format!(
                "too noisy to tell whether {candidate} or {baseline} is faster on {on}: QPS{}",
                self.possible()
            ),
            _ => format!("{candidate} on {on}: {}", self.words_alone()),
        }
    }
}
