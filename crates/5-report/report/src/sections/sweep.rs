//! A sweep: results with more clients relative to those with fewer.

use dbdyno_text::csv;
use dbdyno_units::{Nanos, Qps};

use crate::export::{number, ratio as exported};
use crate::model::{Report, ScalingRatio, ScalingRow};

/// One line per microbenchmark, candidate and number of clients: relative to the next smaller number, and
/// one relative to the smallest.
pub(crate) fn scaling_csv(report: &Report) -> String {
    type Line<'a> = (&'a ScalingRow, &'a ScalingRatio);
    let lines = report.scaling.iter().flat_map(|row| {
        let previous = row.to_previous.as_ref();
        let smallest = row.to_smallest.as_ref().filter(|smallest| {
            previous.is_some_and(|one| one.than_clients != smallest.than_clients)
        });
        [previous, smallest].into_iter().flatten().map(move |to| (row, to))
    });
    csv(
        &[
            ("microbenchmark", &|(row, _): &Line<'_>| row.microbenchmark.clone()),
            ("group", &|(row, _)| row.group.clone()),
            ("candidate", &|(row, _)| row.candidate.clone()),
            ("clients", &|(row, _)| row.clients.to_string()),
            ("than_clients", &|(_, to)| to.than_clients.to_string()),
            ("qps", &|(row, _)| number(row.qps.map(Qps::per_second))),
            ("relative_qps", &|(_, to)| exported(to.relative_qps.map(|qps| qps.median))),
            ("ci_low", &|(_, to)| exported(to.relative_qps.map(|qps| qps.low))),
            ("ci_high", &|(_, to)| exported(to.relative_qps.map(|qps| qps.high))),
            ("verdict", &|(_, to)| to.verdict.name().to_owned()),
            ("p99_us", &|(row, _)| number(row.p99.map(Nanos::as_micros_f64))),
            ("relative_p99", &|(_, to)| exported(to.relative_p99.map(|p99| p99.median))),
            ("p99_ci_low", &|(_, to)| exported(to.relative_p99.map(|p99| p99.low))),
            ("p99_ci_high", &|(_, to)| exported(to.relative_p99.map(|p99| p99.high))),
            ("p99_verdict", &|(_, to)| to.p99_verdict.name().to_owned()),
            ("interleaved", &|(_, to)| if to.interleaved { "yes" } else { "no" }.to_owned()),
        ],
        lines,
    )
}
