//! The report as GitHub-flavoured Markdown, to paste into a pull request, an issue or a wiki: what was
//! compared, key results, groups, effects of settings, numbers of clients, microbenchmarks.

#[cfg(test)]
pub(crate) mod tests;

use dbdyno_text::{Cell, Column, Row, Table, Text, escape, markdown};

use crate::candidates::{identity, summary};
use crate::metric::{Grouping, Metric, compared, missing};
use crate::model::{CandidateRecord, MicrobenchmarkRows, Report, Role, RunStatus, Verdict};
use crate::sections::effects::effects;
use crate::sections::key_results::key_results;
use crate::sections::overview::notes;
use crate::sections::summaries::summaries;
use crate::sections::sweep::scaling;
use crate::sections::{Output, Section, estimate_cell, inserts, ratio_cell};
use crate::words::{self, NOTHING_MEASURED};

/// Differences from the baseline per candidate.
const MAX_DIFFERENCES: usize = 6;

/// Render the report, ending with a line feed.
#[must_use]
pub fn render(report: &Report) -> String {
    let output = Output::Markdown;
    let mut sections = vec![candidates(report)];
    if let Some(insert) = &report.insert {
        sections.push(inserts::markdown(insert));
    } else if !report.microbenchmarks.is_empty() {
        sections.push(key_results(report, Grouping::Five, output));
        sections.push(summaries(report, Metric::leading(report), Grouping::Five, output));
        sections.push(effects(report, output));
        sections.push(scaling(report, Grouping::Five, output));
        sections.push(microbenchmarks(report));
    }
    let mut last = Section::new("notes", "");
    let notes = notes(report, output);
    if !notes.rows.is_empty() {
        last.push(notes);
    }
    sections.push(last);
    format!("{}{}", introduction(report), markdown(&sections))
}

fn introduction(report: &Report) -> String {
    let status = match (report.status, report.running_pid) {
        (_, Some(pid)) => format!("**Running** (pid {pid})"),
        (RunStatus::Complete, None) => "Complete".to_owned(),
        (RunStatus::Incomplete, None) => "**Incomplete**".to_owned(),
    };
    let workload = words::workload(report).map_or_else(String::new, |text| format!(" {text}."));
    let times = report.times().map_or_else(String::new, |(measuring, elapsed)| match elapsed {
        Some(elapsed) => format!(", measured {measuring} of {elapsed}"),
        None => format!(", measured {measuring}"),
    });
    format!(
        "## {}\n\n{status}; started {}{times} with dbdyno {}.{}\n",
        escape(&report.name),
        escape(&report.started),
        escape(&report.version),
        escape(&workload),
    )
}

fn candidates(report: &Report) -> Section {
    let mut table = Table::new([Column::name("candidate"), Column::text("is")]);
    for candidate in &report.candidates {
        let what = match (candidate.role, report.candidates.first()) {
            (Role::Baseline, _) | (_, None) => format!("baseline: {}", identity(candidate)),
            (_, Some(baseline)) => summary(candidate, baseline, MAX_DIFFERENCES),
        };
        table.push(Row::new([Cell::text(&candidate.name), Cell::text(what)]));
    }
    let mut section = Section::new("candidates", "");
    section.push(table);
    if report.insert.is_none() && report.microbenchmarks.is_empty() {
        section.note(NOTHING_MEASURED);
    }
    section
}

/// All microbenchmarks, with a table per metric; that of CPU has those that trust it.
fn microbenchmarks(report: &Report) -> Section {
    let mut section = Section::new("microbenchmarks", "Microbenchmarks");
    for metric in [Metric::Qps, Metric::Cpu] {
        let trusted = |one: &&MicrobenchmarkRows| {
            metric == Metric::Qps || one.rows.iter().any(|row| row.trusted_metric == metric)
        };
        let members: Vec<&MicrobenchmarkRows> =
            report.microbenchmarks.iter().filter(trusted).collect();
        if !members.is_empty() {
            section.title(metric.title(), metric.better());
            section.push(table_of(report, metric, &members));
        }
    }
    section.push(
        Text::default()
            .code("+")
            .and(" better than the baseline, ")
            .code("-")
            .and(" worse, ")
            .code("~")
            .and(" within noise; the 95% interval in parentheses."),
    );
    section
}

fn table_of(report: &Report, metric: Metric, members: &[&MicrobenchmarkRows]) -> Table {
    let base = match metric {
        Metric::Qps => "baseline QPS",
        Metric::Cpu => "baseline CPU µs",
    };
    let mut columns = vec![Column::name("microbenchmark"), Column::text("group")];
    if report.is_sweep() {
        columns.push(Column::number("clients"));
    }
    columns.push(Column::number(base));
    columns.extend(compared(report).iter().map(|one| Column::number(&one.name)));
    let mut table = Table::new(columns);
    for member in members {
        let name = match member.throughput_unit.as_str() {
            "statements/s" => member.name.clone(),
            unit => format!("{} ({unit})", member.name),
        };
        let mut cells = vec![Cell::text(name), Cell::text(&member.group)];
        if report.is_sweep() {
            cells.push(Cell::number(Some(member.clients)));
        }
        cells.push(match metric {
            Metric::Qps => Cell::number(member.baseline.qps),
            Metric::Cpu => {
                Cell::number(member.baseline.cpu_us_per_query.map(|cpu| format!("{cpu:.2}")))
            }
        });
        cells.extend(compared(report).into_iter().map(|one| cell(report, metric, member, one)));
        table.push(Row::new(cells));
    }
    table
}

fn cell(
    report: &Report,
    metric: Metric,
    member: &MicrobenchmarkRows,
    candidate: &CandidateRecord,
) -> Cell {
    let Some(row) = member.rows.iter().find(|row| row.candidate == candidate.name) else {
        return Cell::text(missing(report, &candidate.name));
    };
    let verdict: Verdict = metric.verdict(row);
    match (metric.ratio(row), metric.estimate(row)) {
        (None, _) if !metric.is_measured(row) => Cell::dash(),
        (None, _) => Cell::text(metric.word(verdict)),
        (Some(value), None) => ratio_cell(value, metric, verdict),
        (Some(_), one) => estimate_cell(one, metric, verdict),
    }
}
