//! The insert benchmark: the throughput of each step and candidate.

use super::escape::{code, plain};
use super::table::{Align, table};
use crate::figures::compact;
use crate::model::{CandidateStep, InsertReport, StepReport};
use crate::words;

pub(super) fn steps(report: &InsertReport) -> String {
    let mut names: Vec<&str> = Vec::new();
    for candidate in report.steps.iter().flat_map(|step| &step.candidates) {
        if !names.contains(&candidate.candidate.as_str()) {
            names.push(&candidate.candidate);
        }
    }
    let titles: Vec<String> = names.iter().map(|name| code(name)).collect();
    let mut heading = vec![("step", Align::Left), ("work", Align::Left), ("metric", Align::Left)];
    heading.extend(titles.iter().map(|title| (title.as_str(), Align::Right)));
    let rows = report.steps.iter().flat_map(|step| {
        ["ips", "qps", "maxop", "cpupq"].into_iter().filter_map(|metric| row(step, metric, &names))
    });
    format!(
        "\n### Insert benchmark\n\n{}\n\n{}\nRatios to the baseline in parentheses. `ips` rows \
         inserted per second, `qps` queries per second, `maxop` the longest response time in \
         seconds, `cpupq` µs of CPU per query or row.\n",
        plain(&words::insert_benchmark(report)),
        table(&heading, rows)
    )
}

/// `None` if the metric is unknown for all candidates.
fn row(step: &StepReport, metric: &str, names: &[&str]) -> Option<Vec<String>> {
    let cell = |candidate: &CandidateStep| {
        let value = compact(candidate.figures.get(metric)?);
        let ratio = candidate.relative.as_ref().and_then(|relative| relative.get(metric));
        Some(match ratio {
            Some(ratio) => format!("{value} ({ratio:.2})"),
            None => value,
        })
    };
    let cells: Vec<Option<String>> = names
        .iter()
        .map(|name| cell(step.candidates.iter().find(|one| one.candidate == **name)?))
        .collect();
    if cells.iter().all(Option::is_none) {
        return None;
    }
    let cells = cells.into_iter().map(|cell| cell.unwrap_or_else(|| "–".to_owned()));
    let labels = [code(&step.name), plain(&step.what), metric.to_owned()];
    Some(labels.into_iter().chain(cells).collect())
}
