//! A sweep: results with more clients relative to those with fewer, and key results by number of clients.

use dbdyno_text::{Cell, Column, Csv, Interval, Row, Table};
use dbdyno_units::{Nanos, Qps, Ratio};

use super::{LONGEST_NAME, Output, Section, candidate, median_cell, ratio_cell};
use crate::figures::{ends, number, plus_minus, ratio};
use crate::key_results::{Finding, GroupValue};
use crate::metric::{Grouping, compared};
use crate::model::{Estimate, Metric, Report, Role, ScalingRatio, ScalingRow, Verdict};

/// Explains rows whose numbers of clients did not take turns.
const NOT_INTERLEAVED: &str = "* measured after the smaller number of clients, not in \
     turns with it: the ratio includes what changed on the machine in the meantime, which its \
     interval does not show.";

const KEY: &str = "Relative to the next smaller number of clients of the same \
     candidate: of QPS above 1, of p99 (response time) below 1 is better.";

const PLUS_MINUS: &str = "± is the farther end of the interval, in percent of the ratio.";

/// The medians of the groups, and on a page what the ratios are.
pub(crate) fn scaling(report: &Report, grouping: Grouping, output: Output) -> Section {
    let mut section = Section::new("scaling", "More clients against fewer");
    if report.scaling.is_empty() {
        return section;
    }
    if output == Output::Terminal {
        section.title = "more clients against fewer".to_owned();
        section.about = "medians of the groups".to_owned();
    }
    section.push(medians(report, grouping));
    section.note(KEY);
    if output == Output::Markdown {
        section.push(steps(report, None, output));
    }
    if output != Output::Terminal && is_any_not_interleaved(report) {
        section.note(NOT_INTERLEAVED);
    }
    section
}

fn medians(report: &Report, grouping: Grouping) -> Table {
    let numbers = report.clients();
    let pairs = numbers.windows(2).map(|pair| format!("{} : {}", pair[1], pair[0]));
    let labels = [
        Column::group("group"),
        Column::group("candidate").most(LONGEST_NAME),
        Column::group("metric"),
    ];
    let columns = labels.into_iter().chain(pairs.map(Column::number));
    let caption = "More clients against fewer";
    let mut table = Table::new(columns).class("matrix").caption(caption);
    for group in grouping.groups(&report.microbenchmarks).into_keys() {
        let label = report.group_label(group);
        for one in &report.candidates {
            for (what, metric, of) in FIGURES {
                let at = |pair: &[u32]| {
                    let rows = report.scaling.iter().filter(|row| {
                        let own = match grouping {
                            Grouping::Five => &row.group,
                            Grouping::Three => &row.three_group,
                        };
                        (own.as_str(), &row.candidate, row.clients) == (group, &one.name, pair[1])
                    });
                    // A microbenchmark without results with the smaller number is left out.
                    let ratios = rows.filter_map(|row| row.to_previous.as_ref());
                    of_group(metric, ratios.filter(|to| to.than_clients == pair[0]).map(of))
                };
                let medians: Vec<Option<(Ratio, Verdict)>> = numbers.windows(2).map(at).collect();
                if medians.iter().all(Option::is_none) {
                    continue;
                }
                let labels =
                    [Cell::text(&label), candidate(report, &one.name, one.role), Cell::text(what)];
                let cell = |(ratio, verdict)| ratio_cell(ratio, metric, verdict);
                let cells = medians.into_iter().map(|one| one.map_or_else(Cell::dash, cell));
                let row = Row::new(labels.into_iter().chain(cells));
                table.push(row.faint(one.role == Role::Control));
            }
        }
    }
    table
}

type Figure = fn(&ScalingRatio) -> (Option<Estimate>, Verdict);

/// What is compared between numbers of clients, with the metric whose sense of better it shares.
const FIGURES: [(&str, Metric, Figure); 2] = [
    ("QPS", Metric::Qps, |to| (to.relative_qps, to.verdict)),
    ("p99", Metric::Cpu, |to| (to.relative_p99, to.p99_verdict)),
];

/// Each microbenchmark relative to the next smaller number of clients, on a terminal.
pub(crate) fn all_steps(report: &Report) -> Section {
    let mut section = Section::new("steps", "");
    for rows in report.scaling.chunk_by(|a, b| a.microbenchmark == b.microbenchmark) {
        let name = &rows[0].microbenchmark;
        section.title(name, "relative to the next smaller number of clients");
        section.push(steps(report, Some(name), Output::Terminal));
    }
    if !report.scaling.is_empty() {
        section.note(PLUS_MINUS);
        if is_any_not_interleaved(report) {
            section.note(NOT_INTERLEAVED);
        }
    }
    section
}

/// The numbers of clients of one microbenchmark or of all.
pub(crate) fn steps(report: &Report, name: Option<&str>, output: Output) -> Table {
    let rows =
        report.scaling.iter().filter(|row| name.is_none_or(|name| row.microbenchmark == name));
    let rows: Vec<&ScalingRow> = rows.collect();
    let is_page = output == Output::Page;
    let mut columns = match name {
        Some(_) => vec![Column::group("candidate").most(LONGEST_NAME)],
        None => vec![Column::name("microbenchmark"), Column::name("candidate")],
    };
    let [qps, p99] = match is_page {
        true => ["QPS ÷ fewer clients", "p99 ÷ fewer clients"],
        false => ["relative QPS", "relative p99"],
    };
    columns.extend(["clients", "QPS", qps].map(Column::number));
    columns.extend(is_page.then(|| Column::number("QPS ÷ fewest")));
    columns.push(Column::number("p99"));
    let mut to_previous = rows.iter().filter_map(|row| row.to_previous.as_ref());
    let with_p99 = !is_page || to_previous.any(|to| to.relative_p99.is_some());
    columns.extend(with_p99.then(|| Column::number(p99)));
    let caption = "Results with more clients relative to those with fewer";
    let mut table = Table::new(columns).class("facts by-clients").caption(caption);
    for row in rows {
        let to = row.to_previous.as_ref();
        let turns = if to.is_some_and(|to| !to.interleaved) { "*" } else { "" };
        let qps = |to: Option<&ScalingRatio>| {
            to.map_or_else(Cell::empty, |to| {
                compared_cell(to.relative_qps, Metric::Qps, to.verdict)
            })
        };
        let p99 = |to: &ScalingRatio| match row.p99 {
            Some(_) => compared_cell(to.relative_p99, Metric::Cpu, to.p99_verdict),
            None => Cell::dash(),
        };
        let mut cells = vec![candidate(report, &row.candidate, row.role)];
        if name.is_none() {
            cells.insert(0, Cell::text(&row.microbenchmark));
        }
        cells.extend([
            Cell::text(format!("{}{turns}", row.clients)),
            Cell::number(row.qps),
            qps(to),
        ]);
        cells.extend(is_page.then(|| qps(row.to_smallest.as_ref())));
        cells.push(Cell::number(row.p99));
        cells.extend(with_p99.then(|| to.map_or_else(Cell::empty, p99)));
        table.push(Row::new(cells).faint(row.role == Role::Control));
    }
    table
}

fn compared_cell(estimate: Option<Estimate>, metric: Metric, verdict: Verdict) -> Cell {
    let word = if verdict == Verdict::Failed { "fail" } else { "few" };
    let interval = |one| Interval { ends: ends(one), plus_minus: of_ratio(one) };
    Cell::text(estimate.map_or_else(|| word.to_owned(), |one| ratio(one.median)))
        .verdict(verdict.tone(), verdict.word(metric))
        .interval(estimate.map(interval))
}

/// The farther end of the interval in percent of the ratio: ratios of clients are far from 1.
fn of_ratio(estimate: Estimate) -> String {
    let share = |end: Ratio| Ratio::new(end.get() / estimate.median.get());
    let [low, high] = [share(estimate.low), share(estimate.high)];
    plus_minus(Estimate { median: Ratio::ONE, low, high, ..estimate })
}

/// The medians of a metric by group, candidate and number of clients.
pub(crate) fn by_clients(report: &Report, metric: Metric, grouping: Grouping) -> Table {
    let numbers = report.clients();
    let labels = [Column::group("group"), Column::name("candidate").most(LONGEST_NAME)];
    let titles = numbers.iter().map(|clients| Column::number(clients.to_string()));
    let caption = format!("Median {} per group and number of clients", metric.title());
    let columns = labels.into_iter().chain(titles);
    let mut table = Table::new(columns).class("matrix").caption(caption);
    let summaries = report.summaries_of(metric, grouping);
    for group in grouping.groups(&report.microbenchmarks).into_keys() {
        let label = report.group_label(group);
        for one in compared(report) {
            let cells = numbers.iter().map(|clients| {
                let found = summaries.iter().find(|summary| {
                    (summary.group.as_str(), summary.clients, &summary.candidate)
                        == (group, *clients, &one.name)
                });
                median_cell(report, metric, found)
            });
            let labels = [Cell::text(&label), candidate(report, &one.name, one.role)];
            let row = Row::new(labels.into_iter().chain(cells));
            table.push(row.faint(one.role == Role::Control));
        }
    }
    table
}

/// The key results of a sweep on a terminal: a matrix per metric.
pub(crate) fn key_results(report: &Report, grouping: Grouping) -> Section {
    let mut section = Section::new("by-clients", "");
    if report.is_sweep() {
        for metric in [Metric::Qps, Metric::Cpu].into_iter().filter(|one| report.has(*one)) {
            let about = format!("{}, {}", metric.title(), metric.better());
            section.title("key results by number of clients", about);
            section.push(by_clients(report, metric, grouping));
        }
    }
    section
}

/// One line per microbenchmark, candidate and number of clients: relative to the next smaller number, and
/// one relative to the smallest.
pub(crate) fn scaling_csv(report: &Report) -> String {
    let lines = report.scaling.iter().flat_map(|row| {
        let previous = row.to_previous.as_ref();
        let smallest = row.to_smallest.as_ref().filter(|smallest| {
            previous.is_some_and(|one| one.than_clients != smallest.than_clients)
        });
        [previous, smallest].into_iter().flatten().map(move |to| (row, to))
    });
    Csv::of(lines)
        .column("microbenchmark", |(row, _)| row.microbenchmark.clone())
        .column("group", |(row, _)| row.group.clone())
        .column("candidate", |(row, _)| row.candidate.clone())
        .column("clients", |(row, _)| row.clients.to_string())
        .column("than_clients", |(_, to)| to.than_clients.to_string())
        .column("qps", |(row, _)| number(row.qps.map(Qps::per_second)))
        .ratios(["relative_qps", "ci_low", "ci_high"], |(_, to)| to.relative_qps)
        .column("verdict", |(_, to)| to.verdict.name().to_owned())
        .column("p99_us", |(row, _)| number(row.p99.map(Nanos::as_micros_f64)))
        .ratios(["relative_p99", "p99_ci_low", "p99_ci_high"], |(_, to)| to.relative_p99)
        .column("p99_verdict", |(_, to)| to.p99_verdict.name().to_owned())
        .column("interleaved", |(_, to)| if to.interleaved { "yes" } else { "no" }.to_owned())
        .text()
}

/// The median of the ratios that have a verdict, and its verdict by the rule for all groups.
fn of_group(
    metric: Metric,
    ratios: impl Iterator<Item = (Option<Estimate>, Verdict)>,
) -> Option<(Ratio, Verdict)> {
    let used: Vec<GroupValue> = ratios
        .filter(|(_, verdict)| verdict.is_of_own_work())
        .filter_map(|(estimate, verdict)| {
            Some(GroupValue { ratio: estimate?.median, estimate, verdict })
        })
        .collect();
    let finding = Finding::of_values(metric, &used, None);
    Some((finding.ratio?, finding.verdict()))
}

/// Whether some numbers of clients did not take turns with the next smaller one.
fn is_any_not_interleaved(report: &Report) -> bool {
    let mut ratios = report.scaling.iter().filter_map(|row| row.to_previous.as_ref());
    ratios.any(|ratio| !ratio.interleaved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn group_has_the_median_and_the_verdict_of_key_results() {
        let report = sample::sweep();
        let table = medians(&report, Grouping::Five);
        // Two groups of one microbenchmark, three candidates, two figures; seven steps after the first.
        assert_eq!(table.rows.len(), 2 * 3 * 2);
        assert!(table.rows.iter().all(|row| row.cells.len() == 3 + 7));
        let first = &table.rows[0].cells;
        assert_eq!((first[1].text.as_str(), table.columns[3].title.as_str()), ("innodb", "2 : 1"));
        let qps: f64 = first[3].text.parse().unwrap();
        assert!((1.5..2.0).contains(&qps), "{qps}");
        assert_eq!(first[3].verdict.unwrap().0, Verdict::Better.tone());
        assert_eq!(table.rows[1].cells[3].verdict.unwrap().0, Verdict::Worse.tone());
    }

    #[test]
    fn verdicts_that_differ_are_none() {
        let estimate = |value| {
            let ratio = Ratio::new(value);
            Some(sample::interval(ratio, ratio, ratio))
        };
        let all = [(estimate(1.2), Verdict::Better), (estimate(0.8), Verdict::Worse)];
        assert_eq!(
            of_group(Metric::Qps, all.into_iter()),
            Some((Ratio::new(1.0), Verdict::WithinNoise))
        );
        let bound = [(estimate(1.2), Verdict::ClientBound)];
        assert_eq!(of_group(Metric::Qps, bound.into_iter()), None);
    }
}
