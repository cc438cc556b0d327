//! The tables of groups for page and Markdown: a row per microbenchmark, a column per candidate. On a
//! terminal their arrangement depends on the width of all of them, see `terminal/groups.rs`.

use dbdyno_text::{Cell, Column, Row as TableRow, Table, Text};

use super::{Block, Chart, Output, Section, candidate_column, mark, ratio_cell};
use crate::charts::{Lane, class, point_estimate};
use crate::figures::micros;
use crate::metric::{Grouping, clients, compared, missing};
use crate::model::{CandidateRecord, Estimate, Metric, MicrobenchmarkRows, Report, Row, Verdict};

/// A group's microbenchmarks with their indices in the report.
type Members<'a> = [(usize, &'a MicrobenchmarkRows)];

/// Up to this many candidates the table fits a wide window, and its head may stick to the top.
const FITTING_CANDIDATES: usize = 5;

/// A table with charts per group, for the page.
pub(crate) fn groups(report: &Report, metric: Metric, grouping: Grouping) -> Vec<Block> {
    let mut section = Section::new("", "");
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        let mut rows = members.iter().flat_map(|(_, member)| &member.rows);
        let hint = match metric {
            Metric::Qps if rows.all(|row| row.trusted_metric == Metric::Cpu) => {
                "; prefer CPU per query here"
            }
            _ => "",
        };
        let title = report.group_title(group);
        section.title(&title, format!("{}, {}{hint}", metric.title(), metric.better()));
        let fits = compared(report).len() <= FITTING_CANDIDATES;
        let frame = if fits { "compare fits" } else { "compare" };
        let table = table(report, metric, &members, Output::Page).caption(title).frame(frame);
        let lanes = members.iter().map(|(_, member)| lanes(report, metric, member));
        let noise = report.noise_of(metric).map(|noise| noise.as_fraction());
        section.push(Block::Chart(Chart::Lanes(table, lanes.collect(), noise)));
    }
    section.blocks
}

/// All microbenchmarks in a table per metric, for Markdown; that of CPU has those that trust it.
pub(crate) fn microbenchmarks(report: &Report) -> Section {
    let mut section = Section::new("microbenchmarks", "Microbenchmarks");
    for metric in [Metric::Qps, Metric::Cpu] {
        let trusted = |(_, one): &(usize, &MicrobenchmarkRows)| {
            metric == Metric::Qps || one.rows.iter().any(|row| row.trusted_metric == metric)
        };
        let members: Vec<_> = report.microbenchmarks.iter().enumerate().filter(trusted).collect();
        if !members.is_empty() {
            section.title(metric.title(), metric.better());
            section.push(table(report, metric, &members, Output::Markdown));
        }
    }
    let signs = [
        ("+", " better than the baseline, "),
        ("-", " worse, "),
        ("~", " within noise, "),
        ("?", " too noisy to tell; the 95% interval in parentheses."),
    ];
    let text = |text: Text, (sign, meaning): (&str, &str)| text.code(sign).and(meaning);
    section.push(signs.into_iter().fold(Text::default(), text));
    section
}

fn table(report: &Report, metric: Metric, members: &Members<'_>, output: Output) -> Table {
    let is_page = output == Output::Page;
    let mut columns = match is_page {
        true => vec![Column::name("Microbenchmark")],
        false => vec![Column::name("microbenchmark"), Column::text("group")],
    };
    columns.extend((!is_page && report.is_sweep()).then(|| Column::number("clients")));
    let whose = if is_page { "Baseline" } else { "baseline" };
    let figure = if metric == Metric::Qps { "QPS" } else { "CPU µs" };
    columns.push(Column::number(format!("{whose} {figure}")));
    columns.extend(compared(report).into_iter().map(|one| candidate_column(report, one)));
    let mut table = Table::new(columns);
    for (index, member) in members {
        let baseline = &member.baseline;
        let base = match metric {
            Metric::Qps => Cell::number(baseline.qps),
            Metric::Cpu if is_page => Cell::number(baseline.cpu_us_per_query.map(micros)),
            Metric::Cpu => Cell::number(baseline.cpu_us_per_query.map(|cpu| format!("{cpu:.2}"))),
        };
        let mut cells = Vec::new();
        let unit = own_unit(member, metric);
        if is_page {
            let name = Cell::text(&member.name).link(format!("m{index}"));
            let clients = report.is_sweep().then(|| clients(member.clients));
            cells.push(clients.into_iter().fold(name, Cell::note));
            cells.push(unit.into_iter().fold(base.class("base"), Cell::note));
        } else {
            let unit = unit.map_or_else(String::new, |unit| format!(" ({unit})"));
            cells.extend([Cell::text(format!("{}{unit}", member.name)), Cell::text(&member.group)]);
            cells.extend(report.is_sweep().then(|| Cell::number(Some(member.clients))));
            cells.push(base);
        }
        cells.extend(compared(report).into_iter().map(|one| cell(report, metric, member, one)));
        table.push(TableRow::new(cells));
    }
    table
}

/// The unit of throughput that does not count statements; `None` for other metrics.
pub(crate) fn own_unit(microbenchmark: &MicrobenchmarkRows, metric: Metric) -> Option<&str> {
    let unit = microbenchmark.throughput_unit.as_str();
    (metric == Metric::Qps && unit != "statements/s").then_some(unit)
}

/// A candidate's ratio, or why there is none.
fn cell(
    report: &Report,
    metric: Metric,
    member: &MicrobenchmarkRows,
    candidate: &CandidateRecord,
) -> Cell {
    let Some(row) = member.row(&candidate.name) else {
        let word = missing(report, &candidate.name);
        return Cell::text(word).class(if word == "failed" { word } else { "" });
    };
    ratio(metric, member, row).unwrap_or_else(|| {
        let is_measured = row.is_measured(metric);
        let word = if is_measured { "too few blocks" } else { "–" };
        Cell::text(word).class(class(row.verdict_of(metric).tone()))
    })
}

/// A ratio to the baseline with its interval, or that it failed; `None` if it is unknown.
pub(crate) fn ratio(metric: Metric, member: &MicrobenchmarkRows, row: &Row) -> Option<Cell> {
    let verdict = member.shown_verdict(row, metric);
    let of_value = |value| {
        ratio_cell(value, metric, verdict).interval(row.estimate(metric).map(super::interval))
    };
    let failed = (verdict == Verdict::Failed).then(|| Cell::text("failed").class("failed"));
    row.ratio(metric).map(of_value).or(failed)
}

fn lanes(report: &Report, metric: Metric, member: &MicrobenchmarkRows) -> Vec<Option<Lane>> {
    let lane = |candidate: &CandidateRecord| {
        let row = member.row(&candidate.name)?;
        let mark = mark(report, &candidate.name, candidate.role);
        let tone = member.shown_verdict(row, metric).tone();
        Some(Lane { mark, tone, estimate: drawn(metric, row)? })
    };
    compared(report).into_iter().map(lane).collect()
}

/// The ratio as it is drawn; without an interval as a point.
pub(crate) fn drawn(metric: Metric, row: &Row) -> Option<Estimate> {
    row.estimate(metric).or_else(|| row.ratio(metric).map(point_estimate))
}
