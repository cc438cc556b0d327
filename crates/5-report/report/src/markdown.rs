//! The report as GitHub-flavoured Markdown, to paste into a pull request, an issue or a wiki: what was
//! compared, key results, groups, effects of settings, numbers of clients, microbenchmarks.

pub(crate) mod escape;
mod inserts;
mod scaling;
pub(crate) mod table;
#[cfg(test)]
pub(crate) mod tests;

use crate::candidates::{identity, summary};
use crate::figures::{ends, ratio};
use crate::key_results::{self, Finding};
use crate::metric::{Grouping, Metric, compared, missing};
use crate::model::{
    CandidateRecord, Estimate, MicrobenchmarkRows, Report, Role, RunStatus, Verdict,
};
use crate::sections::Output;
use crate::sections::effects::effects;
use crate::sections::summaries::summaries;
use crate::words::{self, CPU_FIRST, NOTHING_MEASURED};
use dbdyno_text::markdown;
use escape::{code, plain};
use table::{Align, table};

/// Differences from the baseline per candidate.
const MAX_DIFFERENCES: usize = 6;

/// Render the report, ending with a line feed.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut out = introduction(report);
    if let Some(insert) = &report.insert {
        out.push_str(&inserts::steps(insert));
    } else if report.microbenchmarks.is_empty() {
        out.push_str(&format!("\n{NOTHING_MEASURED}\n"));
    } else {
        out.push_str(&findings(report));
        let metric = Metric::leading(report);
        let groups = summaries(report, metric, Grouping::Five, Output::Markdown);
        out.push_str(&markdown(&[groups]));
        out.push_str(&markdown(&[effects(report, Output::Markdown)]));
        out.push_str(&scaling::sections(report));
        out.push_str(&microbenchmarks(report));
    }
    out.push_str(&notes(report));
    out
}

fn introduction(report: &Report) -> String {
    let status = match (report.status, report.running_pid) {
        (_, Some(pid)) => format!("**Running** (pid {pid})"),
        (RunStatus::Complete, None) => "Complete".to_owned(),
        (RunStatus::Incomplete, None) => "**Incomplete**".to_owned(),
    };
    let workload = words::workload(report).map_or_else(String::new, |text| format!(" {text}."));
    let rows = report.candidates.iter().map(|candidate| {
        let what = match (candidate.role, report.candidates.first()) {
            (Role::Baseline, _) | (_, None) => format!("baseline: {}", identity(candidate)),
            (_, Some(baseline)) => summary(candidate, baseline, MAX_DIFFERENCES),
        };
        vec![code(&candidate.name), plain(&what)]
    });
    let times = report.times().map_or_else(String::new, |(measuring, elapsed)| match elapsed {
        Some(elapsed) => format!(", measured {measuring} of {elapsed}"),
        None => format!(", measured {measuring}"),
    });
    format!(
        "## {}\n\n{status}; started {}{times} with dbdyno {}.{}\n\n{}",
        plain(&report.name),
        plain(&report.started),
        plain(&report.version),
        plain(&workload),
        table(&[("candidate", Align::Left), ("is", Align::Left)], rows)
    )
}

fn findings(report: &Report) -> String {
    let results = key_results::of(report, Grouping::Five);
    if results.is_empty() {
        return String::new();
    }
    let heading = ["candidate", "group", "result", "also", "more time"];
    let rows = results.iter().map(|result| {
        let mut findings = result.findings().into_iter().map(Finding::words);
        let (first, also) = (findings.next(), findings.next());
        vec![
            code(result.candidate),
            plain(&result.group_label(report.is_sweep())),
            format!("**{}**", plain(&first.unwrap_or_default())),
            plain(&also.unwrap_or_default()),
            plain(&result.more_time.map_or_else(String::new, |more| more.words())),
        ]
    });
    let cpu_first = results.iter().any(|result| result.finding.metric == Metric::Cpu);
    let why = if cpu_first { format!("{CPU_FIRST}\n\n") } else { String::new() };
    let baseline = code(&report.baseline);
    let table = table(&heading.map(|title| (title, Align::Left)), rows);
    format!("\n### Key results, compared with {baseline}\n\n{why}{table}")
}

/// A table per metric; CPU per query only of microbenchmarks where it is to be trusted.
fn microbenchmarks(report: &Report) -> String {
    let mut out = String::new();
    for metric in [Metric::Qps, Metric::Cpu] {
        let trusted = |one: &&MicrobenchmarkRows| {
            metric == Metric::Qps || one.rows.iter().any(|row| row.trusted_metric == metric)
        };
        let members: Vec<&MicrobenchmarkRows> =
            report.microbenchmarks.iter().filter(trusted).collect();
        if !members.is_empty() {
            let table = table_of(report, metric, &members);
            let better = metric.better();
            out.push_str(&format!(
                "\n### Microbenchmarks: {}, {better}\n\n{table}",
                metric.title()
            ));
        }
    }
    out.push_str(
        "\n`+` better than the baseline, `-` worse, `~` within noise; the 95% interval in \
         parentheses.\n",
    );
    out
}

fn table_of(report: &Report, metric: Metric, members: &[&MicrobenchmarkRows]) -> String {
    let candidates = compared(report);
    let base = match metric {
        Metric::Qps => "baseline QPS",
        Metric::Cpu => "baseline CPU µs",
    };
    let names: Vec<String> = candidates.iter().map(|candidate| code(&candidate.name)).collect();
    let mut heading = vec![("microbenchmark", Align::Left), ("group", Align::Left)];
    if report.is_sweep() {
        heading.push(("clients", Align::Right));
    }
    heading.push((base, Align::Right));
    heading.extend(names.iter().map(|name| (name.as_str(), Align::Right)));
    let rows = members.iter().map(|member| {
        let mut row = vec![name(member), plain(&member.group)];
        if report.is_sweep() {
            row.push(member.clients.to_string());
        }
        let absolute = &member.baseline;
        let value = match metric {
            Metric::Qps => absolute.qps.map(|qps| qps.to_string()),
            Metric::Cpu => absolute.cpu_us_per_query.map(|cpu| format!("{cpu:.2}")),
        };
        row.push(value.unwrap_or_else(|| "–".to_owned()));
        row.extend(candidates.iter().map(|candidate| cell(report, metric, member, candidate)));
        row
    });
    table(&heading, rows)
}

fn name(member: &MicrobenchmarkRows) -> String {
    match member.throughput_unit.as_str() {
        "statements/s" => code(&member.name),
        unit => format!("{} ({})", code(&member.name), plain(unit)),
    }
}

/// `1.012 + (1.008, 1.014)`
fn cell(
    report: &Report,
    metric: Metric,
    member: &MicrobenchmarkRows,
    candidate: &CandidateRecord,
) -> String {
    let Some(row) = member.rows.iter().find(|row| row.candidate == candidate.name) else {
        return missing(report, &candidate.name).to_owned();
    };
    let verdict = metric.verdict(row);
    match (metric.ratio(row), metric.estimate(row)) {
        (None, _) if !metric.is_measured(row) => "–".to_owned(),
        (None, _) => metric.word(verdict).to_owned(),
        (Some(value), None) => format!("{} {}", ratio(value), sign(verdict)),
        (Some(_), Some(one)) => estimate(one, verdict),
    }
}

/// `1.012 + (1.008, 1.014)`
fn estimate(estimate: Estimate, verdict: Verdict) -> String {
    format!("{} {} ({})", ratio(estimate.median), sign(verdict), ends(estimate))
}

/// The sign as code: alone `~` and `-` could be markup.
pub(crate) fn sign(verdict: Verdict) -> String {
    format!("`{}`", verdict.sign())
}

fn notes(report: &Report) -> String {
    let mut notes = Vec::new();
    for failure in &report.failures {
        notes.push(format!("failed: {} at {}: {}", failure.candidate, failure.at, failure.reason));
    }
    if report.insert.is_none() && !report.microbenchmarks.is_empty() {
        notes.push(format!("noise floor: {}", words::noise_floor(report)));
    }
    notes.extend(words::client_bound(report));
    for warning in &report.warnings {
        notes.push(format!("warning: {}. {}", warning.what.trim_end_matches('.'), warning.advice));
    }
    let lines = notes.iter().map(|note| format!("- {}\n", plain(note)));
    let lines: String = lines.collect();
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
