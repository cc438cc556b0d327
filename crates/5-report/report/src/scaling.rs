//! A sweep's ratios between numbers of clients by group, and sentences about them.

use dbdyno_units::Ratio;

use crate::key_results::{Finding, GroupValue};
use crate::metric::{Grouping, Metric};
use crate::model::{Estimate, Report, Role, ScalingRatio, ScalingRow, Verdict};

/// Explains rows whose numbers of clients did not take turns.
pub(crate) const NOT_INTERLEAVED: &str = "* measured after the smaller number of clients, not in \
     turns with it: the ratio includes what changed on the machine in the meantime, which its \
     interval does not show.";

/// What the ratios between numbers of clients are.
pub(crate) const KEY: &str = "Relative to the next smaller number of clients of the same \
     candidate: of QPS above 1, of p99 (response time) below 1 is better.";

/// What ± is in tables of them.
pub(crate) const PLUS_MINUS: &str =
    "± is the farther end of the interval, in percent of the ratio.";

/// Medians over the microbenchmarks of a group, for one candidate and number of clients.
pub(crate) struct GroupScaling<'a> {
    pub(crate) group: &'a str,
    pub(crate) candidate: &'a str,
    pub(crate) role: Role,
    pub(crate) clients: u32,
    /// Throughput relative to the next smaller number of clients.
    pub(crate) qps: Option<(Ratio, Verdict)>,
    /// p99 relative to the next smaller number of clients.
    pub(crate) p99: Option<(Ratio, Verdict)>,
}

/// A median of a group with its verdict.
type GroupMedian = fn(&GroupScaling<'_>) -> Option<(Ratio, Verdict)>;

/// The metrics that are known of any group, with the metric whose sense of better they share. A run may lack
/// the response times of its slices.
pub(crate) fn known_metrics(
    medians: &[GroupScaling<'_>],
) -> Vec<(&'static str, Metric, GroupMedian)> {
    let all: [(_, _, GroupMedian); 2] =
        [("QPS", Metric::Qps, |one| one.qps), ("p99", Metric::Cpu, |one| one.p99)];
    all.into_iter().filter(|(.., of)| medians.iter().any(|one| of(one).is_some())).collect()
}

/// The medians of all groups, without the smallest number of clients, in the order of group,
/// candidate and number of clients.
pub(crate) fn by_group(report: &Report, grouping: Grouping) -> Vec<GroupScaling<'_>> {
    let group_of = |row: &'_ ScalingRow| match grouping {
        Grouping::Five => row.group.clone(),
        Grouping::Three => row.three_group.clone(),
    };
    let mut medians = Vec::new();
    for (group, _) in grouping.groups(&report.microbenchmarks) {
        for candidate in &report.candidates {
            for numbers in report.clients().windows(2) {
                let (than_clients, clients) = (numbers[0], numbers[1]);
                let rows = report.scaling.iter().filter(|row| {
                    (row.clients, &row.candidate) == (clients, &candidate.name)
                        && group_of(row) == group
                });
                // A microbenchmark without results with the smaller number is left out.
                let ratios: Vec<&ScalingRatio> = rows
                    .filter_map(|row| row.to_previous.as_ref())
                    .filter(|ratio| ratio.than_clients == than_clients)
                    .collect();
                if ratios.is_empty() {
                    continue;
                }
                medians.push(GroupScaling {
                    group,
                    candidate: &candidate.name,
                    role: candidate.role,
                    clients,
                    qps: of_group(
                        Metric::Qps,
                        ratios.iter().map(|one| (one.relative_qps, one.verdict)),
                    ),
                    // As for CPU time, less is better.
                    p99: of_group(
                        Metric::Cpu,
                        ratios.iter().map(|one| (one.relative_p99, one.p99_verdict)),
                    ),
                });
            }
        }
    }
    medians
}

/// The median of the ratios that have a verdict, and its verdict by the rule for all groups.
fn of_group(
    metric: Metric,
    ratios: impl Iterator<Item = (Option<Estimate>, Verdict)>,
) -> Option<(Ratio, Verdict)> {
    let used: Vec<GroupValue> = ratios
        .filter(|(_, verdict)| !matches!(verdict, Verdict::Failed | Verdict::ClientBound))
        .filter_map(|(estimate, verdict)| {
            Some(GroupValue { ratio: estimate?.median, estimate, verdict })
        })
        .collect();
    let finding = Finding::of_values(metric, &used, None);
    Some((finding.ratio?, finding.verdict()))
}

/// Whether some numbers of clients did not take turns with the next smaller one.
pub(crate) fn is_any_not_interleaved(report: &Report) -> bool {
    let mut ratios = report.scaling.iter().filter_map(|row| row.to_previous.as_ref());
    ratios.any(|ratio| !ratio.interleaved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn group_has_the_median_and_the_verdict_of_key_results() {
        let report = sample::sweep();
        let groups = by_group(&report, Grouping::Five);
        // Two groups of one microbenchmark, three candidates, seven steps after the first.
        assert_eq!(groups.len(), 2 * 3 * 7);
        let first = &groups[0];
        assert_eq!((first.candidate, first.clients), ("innodb", 2));
        let (qps, verdict) = first.qps.unwrap();
        assert!((1.5..2.0).contains(&qps.get()), "{qps}");
        assert_eq!(verdict, Verdict::Better);
        assert_eq!(first.p99.unwrap().1, Verdict::Worse);
    }

    #[test]
    fn verdicts_that_differ_are_none() {
        let estimate = |value| {
            let ratio = Ratio::new(value);
            Some(sample::interval(ratio, ratio, ratio))
        };
        let all = [(estimate(1.2), Verdict::Better), (estimate(0.8), Verdict::Worse)];
        assert_eq!(
            of_group(Metric::Qps, all.into_iter()),
            Some((Ratio::new(1.0), Verdict::WithinNoise))
        );
        let bound = [(estimate(1.2), Verdict::ClientBound)];
        assert_eq!(of_group(Metric::Qps, bound.into_iter()), None);
    }
}
