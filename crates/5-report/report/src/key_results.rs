//! Key results: what the run found about each candidate and group, with the metric to trust.
//!
//! A ratio alone misleads: "1.033" reads as 3.3% more even if its interval reaches from 0.95 to 1.12.
//! A finding therefore says whether there is a difference, and how large a difference can be that was
//! not found.

mod conclusions;
mod finding;
mod more_time;
mod words;

use serde::Serialize;

use crate::metric::{Grouping, by_clients};
use crate::model::{Metric, MicrobenchmarkRows, Report, Role, Row, RunStatus};

pub(crate) use conclusions::{conclusions, conclusions_of_each};
pub(crate) use finding::{Finding, GroupValue};
pub(crate) use more_time::{MoreTime, command};
pub(crate) use words::{change, ends_in_words, sized, steps};

/// The key result of a candidate in one group, at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct KeyResult<'a> {
    pub(crate) candidate: &'a str,
    pub(crate) group: &'a str,
    pub(crate) clients: u32,
    /// By the metric to trust.
    #[serde(flatten)]
    pub(crate) finding: Finding,
    /// Throughput of the same microbenchmarks, if the metric to trust is another one.
    pub(crate) throughput: Option<Finding>,
    /// The additional time to find a smaller difference, where none was found.
    pub(crate) more_time: Option<MoreTime>,
    /// The microbenchmark, if it is the only one of its group by this metric; `None` for those that are told apart.
    #[serde(skip)]
    only: Option<&'a str>,
    #[serde(skip)]
    members: Vec<Measured<'a>>,
}

/// The key results of all candidates except the control: by candidate in the report's order, then
/// group and number of clients.
pub(crate) fn of(report: &Report, grouping: Grouping) -> Vec<KeyResult<'_>> {
    let mut results = Vec::new();
    for candidate in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
        for (group, clients, members) in by_clients(&report.microbenchmarks, grouping) {
            let measured = members.into_iter().filter_map(|microbenchmark| {
                Some(Measured { microbenchmark, row: microbenchmark.row(&candidate.name)? })
            });
            let measured: Vec<Measured<'_>> = measured.collect();
            let place = (candidate.name.as_str(), group, clients);
            // A group of the experiment may have reads and writes.
            for metric in [Metric::Qps, Metric::Cpu] {
                results.extend(key_result(report, place, metric, &measured));
            }
        }
    }
    more_time::keep_coarsest(&mut results);
    results
}

/// A candidate's row of a microbenchmark.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) microbenchmark: &'a MicrobenchmarkRows,
    pub(crate) row: &'a Row,
}

/// The result of the rows for which this metric is to be trusted; `None` if there are none.
fn key_result<'a>(
    report: &Report,
    (candidate, group, clients): (&'a str, &'a str, u32),
    metric: Metric,
    measured: &[Measured<'a>],
) -> Option<KeyResult<'a>> {
    let trusting = measured.iter().filter(|one| one.row.trusted_metric == metric);
    let members: Vec<Measured<'a>> = trusting.copied().collect();
    let (only, part) = match &members[..] {
        [] => return None,
        [one] => (Some(one.microbenchmark.name.as_str()), one.microbenchmark.name.clone()),
        several => (None, format!("{} microbenchmarks", several.len())),
    };
    let part = (members.len() < measured.len()).then_some(part);
    let finding = |metric: Metric| {
        let finding = Finding::beside(&members, metric, report.noise_of(metric));
        let is_as_baseline = report.is_as_baseline(candidate);
        Finding { is_as_baseline, part: part.clone(), ..finding }
    };
    let throughput = (metric != Metric::Qps).then(|| finding(Metric::Qps));
    let finding = finding(metric);
    // An incomplete run is resumed first.
    let is_found = throughput.as_ref().is_some_and(Finding::is_difference);
    let can_continue = report.status == RunStatus::Complete && !report.is_imported() && !is_found;
    let more_time = if can_continue { MoreTime::of(report, &finding, &members) } else { None };
    Some(KeyResult { candidate, group, clients, finding, throughput, more_time, only, members })
}

impl KeyResult<'_> {
    /// The findings in the order in which they are shown: by the metric to trust first, unless only
    /// throughput differs with certainty.
    pub(crate) fn findings(&self) -> Vec<&Finding> {
        let mut findings: Vec<&Finding> =
            [Some(&self.finding), self.throughput.as_ref()].into_iter().flatten().collect();
        findings.sort_by_key(|finding| !(finding.is_difference() || self.finding.is_difference()));
        findings
    }
}

#[cfg(test)]
mod tests;
