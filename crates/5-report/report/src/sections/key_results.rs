//! Key results: what was found about each candidate and group, in words, and the summaries of groups.
//! A group with a single microbenchmark has no summary: it would repeat one figure.

use dbdyno_text::{
    Cell, Column, Csv, Fact, Facts, Row, Style, Table, Text, decimals, left, plain, width,
};

use super::{Output, Section, candidate, median_cell, ratio_cell, titled};
use crate::figures::ratio;
use crate::key_results::{self, Finding, KeyResult, command, steps};
use crate::metric::{Grouping, with_clients};
use crate::model::{GroupSummary, Metric, Report, Role, Verdict};
use crate::words::{CPU_FIRST, differs_in_effect, summary_of};

/// Maximum number of differences listed per candidate.
const MAX_DIFFERENCES: usize = 2;

/// The key results for a terminal or as Markdown; the page has its own form of them.
pub(crate) fn key_results(report: &Report, grouping: Grouping, output: Output) -> Section {
    let results = key_results::of(report, grouping);
    let mut section = titled(output, "key", ["key results", "Key results"]);
    section.about = format!("compared with {}", report.baseline);
    if results.iter().any(|result| result.finding.metric == Metric::Cpu) {
        section.note(CPU_FIRST);
    }
    if output == Output::Markdown {
        if !results.is_empty() {
            section.push(table(report, &results));
        }
        for candidate in &report.candidates {
            let differing = differs_in_effect(report, candidate);
            if !differing.is_empty() {
                section.push(
                    Text::default()
                        .code(&candidate.name)
                        .and(" differs in effect, which may explain its results: ")
                        .and(differing.join(" · ")),
                );
            }
        }
        return section;
    }
    let groups = results.iter().map(|one| width(&plain(&report.group_label(one.group))));
    let groups = groups.max().unwrap_or(0);
    for of_candidate in results.chunk_by(|a, b| a.candidate == b.candidate) {
        let name = of_candidate[0].candidate;
        let what = summary_of(report, name, MAX_DIFFERENCES).unwrap_or_default();
        section.push(Text::new(format!("{name}: {what}")));
        let candidate = report.candidates.iter().find(|one| one.name == name);
        let differing = candidate.map(|one| differs_in_effect(report, one)).unwrap_or_default();
        let differing = differing.into_iter().map(|one| Fact::new("differs in effect:", one));
        section.push(Facts { gap: 1, ..Facts::new(differing).indent(2) });
        let facts = match report.is_sweep() {
            true => of_sweep(report, of_candidate, groups),
            false => of_candidate.iter().flat_map(|result| findings(report, result)).collect(),
        };
        section.push(Facts { least: groups, ..Facts::new(facts).indent(2) });
    }
    if let Some(command) = command(&report.directory, &results) {
        section.push(Text::new("measure longer: ").code(command));
    }
    section
}

/// A fact per finding, the first one in its colour.
fn findings(report: &Report, result: &KeyResult<'_>) -> Vec<Fact> {
    let group = report.group_label(result.group);
    let findings = result.findings().into_iter().enumerate();
    let fact = |(index, finding): (usize, &Finding)| {
        let more = result.more_time.filter(|_| index == 0);
        let more = more.map_or_else(String::new, |more| format!("; {}", more.words()));
        let tone = Style::Tone(finding.verdict().tone());
        let style = if index == 0 { tone } else { Style::Dim };
        Fact::new(&group, format!("{}{more}", finding.words())).style(style)
    };
    findings.map(fact).collect()
}

/// The groups of a sweep: neighbouring numbers of clients with the same finding together.
fn of_sweep(report: &Report, of_candidate: &[KeyResult<'_>], groups: usize) -> Vec<Fact> {
    let of_groups = || of_candidate.chunk_by(|a, b| a.group == b.group);
    let clients = of_groups().flat_map(steps).map(|one| width(&one.clients())).max().unwrap_or(0);
    let mut facts = Vec::new();
    for of_group in of_groups() {
        let mut group = report.group_label(of_group[0].group);
        for step in steps(of_group) {
            let mut at = step.clients();
            for (number, (words, verdict)) in step.findings().into_iter().enumerate() {
                let group = left(&plain(&std::mem::take(&mut group)), groups);
                let label = format!("{group}  {}", left(&std::mem::take(&mut at), clients));
                let tone = Style::Tone(verdict.tone());
                let style = if number == 0 { tone } else { Style::Dim };
                facts.push(Fact::new(label, words).style(style));
            }
        }
    }
    facts
}

fn table(report: &Report, results: &[KeyResult<'_>]) -> Table {
    let mut table = Table::new([
        Column::name("candidate"),
        Column::text("group"),
        Column::text("result"),
        Column::text("also"),
        Column::text("more time"),
    ]);
    for result in results {
        let mut findings = result.findings().into_iter().map(Finding::words);
        let (first, also) = (findings.next(), findings.next());
        let more = result.more_time.map_or_else(String::new, |more| more.words());
        table.push(Row::new([
            Cell::text(result.candidate),
            Cell::text(with_clients(
                &report.group_label(result.group),
                result.clients,
                report.is_sweep(),
            )),
            Cell::text(first.unwrap_or_default()).class("strong"),
            Cell::text(also.unwrap_or_default()),
            Cell::text(more),
        ]));
    }
    table
}

/// The summaries of one metric; without blocks if no group has several microbenchmarks.
pub(crate) fn summaries(
    report: &Report,
    metric: Metric,
    grouping: Grouping,
    output: Output,
) -> Section {
    let all = report.summaries_of(metric, grouping);
    let all: Vec<&GroupSummary> = all.iter().filter(|summary| summary.count > 1).collect();
    let mut section = Section::new("groups", "Groups");
    section.about = format!("{}, {}", metric.title(), metric.better());
    if output == Output::Terminal {
        section.title = "group summaries".to_owned();
        section.about = format!("{} over the microbenchmarks of a group", metric.title());
    }
    if all.is_empty() {
        section.title.clear();
        return section;
    }
    section.push(spread(report, metric, &all, output));
    if output == Output::Terminal {
        let shown = all.iter().filter(|summary| summary.role != Role::Control);
        let shown: Vec<&GroupSummary> = shown.copied().collect();
        if !shown.is_empty() {
            section.title("best and worst microbenchmark", "");
            section.push(extremes(report, metric, &shown));
        }
    }
    section
}

fn labels(report: &Report, summary: &GroupSummary) -> [Cell; 2] {
    let group = with_clients(&summary.group, summary.clients, report.is_sweep());
    [Cell::text(group), candidate(report, &summary.candidate, summary.role)]
}

fn spread(report: &Report, metric: Metric, all: &[&GroupSummary], output: Output) -> Table {
    let mut columns = vec![Column::group("group"), Column::name("candidate")];
    columns.extend(["count", "min", "max", "avg", "stddev", "median"].map(Column::number));
    if output == Output::Page {
        columns.extend(["worst", "best"].map(Column::text));
    }
    let caption = format!("{} of each group and candidate", metric.title());
    let mut table = Table::new(columns).class("groups").frame("cards").caption(caption);
    for summary in all {
        let figures = [summary.min, summary.max, summary.avg].map(|one| Cell::text(ratio(one)));
        let stddev = Cell::number(summary.stddev.map(|value| format!("{value:.3}")));
        let mut cells = labels(report, summary).to_vec();
        let of = report.part_of(&summary.group).map(|(_, all)| format!(" of {all}"));
        cells.push(Cell::text(format!("{}{}", summary.count, of.unwrap_or_default())));
        cells.extend(figures);
        cells.extend([stddev, median_cell(report, metric, Some(summary))]);
        if output == Output::Page {
            let at = |name: &str| named(report, summary, name).class("at");
            cells.extend([at(&summary.worst), at(&summary.best)]);
        }
        table.push(Row::new(cells).faint(summary.role == Role::Control));
    }
    table
}

/// A microbenchmark's name as a link to its details.
fn named(report: &Report, summary: &GroupSummary, name: &str) -> Cell {
    let mut all = report.microbenchmarks.iter();
    let index = all.position(|one| one.name == name && one.clients == summary.clients);
    Cell::text(name).link(index.map_or_else(String::new, |index| format!("m{index}")))
}

fn extremes(report: &Report, metric: Metric, all: &[&GroupSummary]) -> Table {
    let columns = [
        Column::group("group"),
        Column::group("candidate").most(super::LONGEST_NAME),
        Column::text(""),
        Column::number("ratio"),
        Column::text("microbenchmark"),
    ];
    let mut table = Table::new(columns);
    for summary in all {
        let (most, least) = match metric {
            Metric::Qps => (summary.max, summary.min),
            Metric::Cpu => (summary.min, summary.max),
        };
        for (word, value, at) in [("best", most, &summary.best), ("worst", least, &summary.worst)] {
            let verdict = verdict(report, metric, summary, at)
                .unwrap_or_else(|| Verdict::of_ratio(metric, value, report.noise_of(metric)));
            let cells = [Cell::text(word), ratio_cell(value, metric, verdict), Cell::text(at)];
            table.push(Row::new(labels(report, summary).into_iter().chain(cells)));
        }
    }
    table
}

/// The verdict that is shown of the summary's candidate on a microbenchmark.
fn verdict(report: &Report, metric: Metric, summary: &GroupSummary, at: &str) -> Option<Verdict> {
    let member = report.microbenchmark(at, summary.clients)?;
    Some(member.shown_verdict(member.row(&summary.candidate)?, metric))
}

/// One line per group, number of clients and candidate.
pub(crate) fn summary_csv(report: &Report) -> String {
    Csv::of(&report.groups)
        .column("group", |one| one.group.clone())
        .column("candidate", |one| one.candidate.clone())
        .column("count", |one| one.count.to_string())
        .ratio("min", |one| Some(one.min))
        .ratio("max", |one| Some(one.max))
        .ratio("avg", |one| Some(one.avg))
        .ratio("median", |one| Some(one.median))
        .column("stddev", |one| decimals(one.stddev, 6))
        .column("worst", |one| one.worst.clone())
        .column("best", |one| one.best.clone())
        .column("clients", |one| one.clients.to_string())
        .text()
}
