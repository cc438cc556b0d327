//! Key results: what was found about each candidate and group, in words.

use dbdyno_text::{Cell, Column, Fact, Facts, Row, Style, Table, Text, left, plain, width};

use super::{Output, Section};
use crate::candidates::summary_of;
use crate::key_results::{self, Finding, KeyResult, command, steps};
use crate::metric::{Grouping, Metric};
use crate::model::Report;
use crate::words::CPU_FIRST;

/// Maximum number of differences listed per candidate.
const MAX_DIFFERENCES: usize = 2;

/// The key results for a terminal or as Markdown; the page has its own form of them.
pub(crate) fn key_results(report: &Report, grouping: Grouping, output: Output) -> Section {
    let results = key_results::of(report, grouping);
    let mut section = Section::new("key", "Key results");
    if output == Output::Terminal {
        section.title = "key results".to_owned();
    }
    section.about = format!("compared with {}", report.baseline);
    if results.iter().any(|result| result.finding.metric == Metric::Cpu) {
        section.note(CPU_FIRST);
    }
    if output == Output::Markdown {
        if !results.is_empty() {
            section.push(table(report, &results));
        }
        return section;
    }
    let groups = results.iter().map(|result| width(&plain(result.group))).max().unwrap_or(0);
    for of_candidate in results.chunk_by(|a, b| a.candidate == b.candidate) {
        let name = of_candidate[0].candidate;
        let what = summary_of(report, name, MAX_DIFFERENCES).unwrap_or_default();
        section.push(Text::new(format!("{name}: {what}")));
        let facts = match report.is_sweep() {
            true => of_sweep(of_candidate, groups),
            false => of_candidate.iter().flat_map(findings).collect(),
        };
        let facts = Facts::new(facts).indent(2);
        section.push(if report.is_sweep() { facts } else { Facts { least: groups, ..facts } });
    }
    if let Some(command) = command(&report.directory, &results) {
        section.push(Text::new("measure longer: ").code(command));
    }
    section
}

/// A fact per finding, the first one in its colour.
fn findings(result: &KeyResult<'_>) -> Vec<Fact> {
    let findings = result.findings().into_iter().enumerate();
    let fact = |(index, finding): (usize, &Finding)| {
        let more = result.more_time.filter(|_| index == 0);
        let more = more.map_or_else(String::new, |more| format!("; {}", more.words()));
        let tone = Style::Tone(finding.verdict().tone());
        Fact::new(result.group, format!("{}{more}", finding.words())).style(if index == 0 {
            tone
        } else {
            Style::Dim
        })
    };
    findings.map(fact).collect()
}

/// The groups of a sweep: neighbouring numbers of clients with the same finding together.
fn of_sweep(of_candidate: &[KeyResult<'_>], groups: usize) -> Vec<Fact> {
    let of_groups = || of_candidate.chunk_by(|a, b| a.group == b.group);
    let clients = of_groups().flat_map(steps).map(|one| width(&one.clients())).max().unwrap_or(0);
    let mut facts = Vec::new();
    for of_group in of_groups() {
        let mut group = of_group[0].group;
        for step in steps(of_group) {
            let mut at = step.clients();
            for (number, (words, verdict)) in step.findings().into_iter().enumerate() {
                let group = left(&plain(std::mem::take(&mut group)), groups);
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
            Cell::text(result.group_label(report.is_sweep())),
            Cell::text(first.unwrap_or_default()).class("strong"),
            Cell::text(also.unwrap_or_default()),
            Cell::text(more),
        ]));
    }
    table
}
