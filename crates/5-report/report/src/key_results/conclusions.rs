//! Key results as sentences.

use dbdyno_units::{Ratio, Share};

use super::{Finding, KeyResult, Outcome, of};
use crate::figures::percent;
use crate::metric::{Grouping, Metric, clients};
use crate::model::Report;

/// A sentence for each candidate and group, such as `myrocks is 24% slower than innodb on point-1
/// (95%: 22% to 26%)`. A group of one microbenchmark is named after it. Empty if nothing was compared.
#[must_use]
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
            let row = member.rows.iter().find(|row| row.candidate == result.candidate);
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
            Outcome::NoDifference if !self.within.is_some_and(super::words::is_too_wide) => {
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
