//! Group summaries: the distribution of the ratios, and the best and the worst microbenchmark. A group
//! with a single microbenchmark has none: it would repeat one figure.

use dbdyno_text::{Cell, Column, Row, Table, csv, decimals};
use dbdyno_units::Ratio;

use super::{Output, Section, candidate, ratio_cell};
use crate::export::ratio as exported;
use crate::figures::ratio;
use crate::metric::{Grouping, Metric, with_clients};
use crate::model::{GroupSummary, Report, Role, Verdict};

/// The summaries of one metric; without blocks if no group has several microbenchmarks.
pub(crate) fn summaries(
    report: &Report,
    metric: Metric,
    grouping: Grouping,
    output: Output,
) -> Section {
    let all = metric.summaries(report, grouping);
    let all: Vec<&GroupSummary> = all.iter().filter(|summary| summary.has_spread()).collect();
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
        let verdict = metric.verdict_of_group(report, summary);
        let mut cells = labels(report, summary).to_vec();
        cells.push(Cell::number(Some(summary.count)));
        cells.extend(figures);
        cells.extend([stddev, ratio_cell(summary.median, metric, verdict)]);
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
                .unwrap_or_else(|| metric.verdict_of(value, metric.noise(report)));
            let cells = [Cell::text(word), ratio_cell(value, metric, verdict), Cell::text(at)];
            table.push(Row::new(labels(report, summary).into_iter().chain(cells)));
        }
    }
    table
}

/// The verdict on the summary's candidate on a microbenchmark.
fn verdict(report: &Report, metric: Metric, summary: &GroupSummary, at: &str) -> Option<Verdict> {
    let mut all = report.microbenchmarks.iter();
    let microbenchmark = all.find(|m| m.name == at && m.clients == summary.clients)?;
    let row = microbenchmark.rows.iter().find(|row| row.candidate == summary.candidate)?;
    Some(metric.verdict(row))
}

/// One line per group, number of clients and candidate.
pub(crate) fn summary_csv(report: &Report) -> String {
    let ratio = |value: Ratio| exported(Some(value));
    csv(
        &[
            ("group", &|one: &&GroupSummary| one.group.clone()),
            ("candidate", &|one| one.candidate.clone()),
            ("count", &|one| one.count.to_string()),
            ("min", &|one| ratio(one.min)),
            ("max", &|one| ratio(one.max)),
            ("avg", &|one| ratio(one.avg)),
            ("median", &|one| ratio(one.median)),
            ("stddev", &|one| decimals(one.stddev, 6)),
            ("worst", &|one| one.worst.clone()),
            ("best", &|one| one.best.clone()),
            ("clients", &|one| one.clients.to_string()),
        ],
        &report.groups,
    )
}
