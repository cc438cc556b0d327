//! A sweep: results with more clients relative to those with fewer.

use super::escape::{code, plain};
use super::table::{Align, table};
use super::{estimate, sign};
use crate::figures::ratio;
use crate::metric::Grouping;
use crate::model::{Report, ScalingRow, Verdict};
use crate::scaling::{KEY, NOT_INTERLEAVED, by_group, is_any_not_interleaved, known_metrics};

/// The medians of the groups, then all microbenchmarks; nothing without a sweep.
pub(super) fn sections(report: &Report) -> String {
    if report.scaling.is_empty() {
        return String::new();
    }
    let turns = match is_any_not_interleaved(report) {
        true => format!("\n{}\n", plain(NOT_INTERLEAVED)),
        false => String::new(),
    };
    format!(
        "\n### More clients against fewer\n\n{KEY} Medians of the groups:\n\n{}\nEach \
         microbenchmark, with intervals:\n\n{}{turns}",
        groups(report),
        microbenchmarks(report)
    )
}

fn groups(report: &Report) -> String {
    let clients = report.clients();
    let titles: Vec<String> =
        clients.windows(2).map(|pair| format!("{} : {}", pair[1], pair[0])).collect();
    let mut heading = ["group", "candidate", "metric"].map(|title| (title, Align::Left)).to_vec();
    heading.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let medians = by_group(report, Grouping::Five);
    let mut rows = Vec::new();
    for of_one in medians.chunk_by(|a, b| (a.group, a.candidate) == (b.group, b.candidate)) {
        for (metric, _, of) in known_metrics(&medians) {
            let labels = [plain(of_one[0].group), code(of_one[0].candidate), metric.to_owned()];
            let cells = clients.iter().skip(1).map(|clients| {
                let median = of_one.iter().find(|one| one.clients == *clients).and_then(of);
                median.map_or_else(
                    || "–".to_owned(),
                    |(median, verdict)| format!("{} {}", ratio(median), sign(verdict)),
                )
            });
            rows.push(labels.into_iter().chain(cells).collect());
        }
    }
    table(&heading, rows)
}

fn microbenchmarks(report: &Report) -> String {
    let labels = ["microbenchmark", "candidate"].map(|title| (title, Align::Left));
    let figures = ["clients", "QPS", "relative QPS", "p99", "relative p99"];
    let heading: Vec<(&str, Align)> =
        labels.into_iter().chain(figures.map(|title| (title, Align::Right))).collect();
    table(&heading, report.scaling.iter().map(row))
}

fn row(row: &ScalingRow) -> Vec<String> {
    let unknown = || "–".to_owned();
    let to = row.to_previous.as_ref();
    let turns = if to.is_some_and(|to| !to.interleaved) { "\\*" } else { "" };
    let ratio = |one, verdict: Verdict| match one {
        Some(one) => estimate(one, verdict),
        None => sign(verdict),
    };
    vec![
        code(&row.microbenchmark),
        code(&row.candidate),
        format!("{}{turns}", row.clients),
        row.qps.map_or_else(unknown, |qps| qps.to_string()),
        to.map_or_else(unknown, |to| ratio(to.relative_qps, to.verdict)),
        row.p99.map_or_else(unknown, |p99| p99.to_string()),
        to.filter(|_| row.p99.is_some())
            .map_or_else(unknown, |to| ratio(to.relative_p99, to.p99_verdict)),
    ]
}
