//! Series of candidates: throughput relative to the first, and the largest changes.

use dbdyno_text::csv;

use crate::export::ratio as exported;
use crate::model::{Report, Series, SeriesChange};

/// One line per series, microbenchmark and pair of neighbours, the largest certain change first.
pub(crate) fn changes_csv(report: &Report) -> String {
    type Line<'a> = (&'a Series, &'a SeriesChange);
    let lines =
        report.series.iter().flat_map(|series| series.changes.iter().map(move |one| (series, one)));
    csv(
        &[
            ("series", &|(series, _): &Line<'_>| series.name.clone()),
            ("microbenchmark", &|(_, one)| one.microbenchmark.clone()),
            ("group", &|(_, one)| one.group.clone()),
            ("clients", &|(_, one)| one.clients.to_string()),
            ("from", &|(_, one)| one.from.clone()),
            ("to", &|(_, one)| one.to.clone()),
            ("relative_qps", &|(_, one)| exported(Some(one.ratio))),
            ("ci_low", &|(_, one)| exported(one.relative_qps.map(|qps| qps.low))),
            ("ci_high", &|(_, one)| exported(one.relative_qps.map(|qps| qps.high))),
            ("verdict", &|(_, one)| one.verdict.name().to_owned()),
            ("blocks", &|(_, one)| one.blocks.to_string()),
        ],
        lines,
    )
}
