//! Hardware and kernel counters by group, and those that are not available.

use dbdyno_text::{Cell, Column, Fact, Facts, Interval, Row, Table, csv, decimals};
use dbdyno_units::Share;

use super::{Output, Section, candidate};
use crate::export::ratio as exported;
use crate::figures::{Figure, ratio};
use crate::metric::with_clients;
use crate::model::{
    Absolute, CounterFigure, CounterSummary, MicrobenchmarkRows, Report, Role, Row as Compared,
};

const KEY: &str = "counted for the system under test in its slices, without the background: ins/q \
     and cyc/q are instructions and clock cycles per query, IPC instructions per cycle; L1i/k, \
     iTLB/k and brm/k misses of the L1 instruction cache, the instruction TLB and of branches per \
     1,000 instructions; minf/q, majf/q and migr/q minor and major page faults and moves between \
     CPUs per query; µJ/q energy of the whole package per query in microjoules. Ratios are compared \
     slice by slice; of faults and moves, where slices have none, as a whole.";

const OF_KERNEL: &str = "counted for the system under test in its slices, without the background: \
     minf/q, majf/q and migr/q are minor and major page faults and moves between CPUs per query. \
     Ratios are compared slice by slice, and as a whole where slices have none.";

const OF_PAGE: &str = "Hardware and kernel counters of the system under test during its slices, without a \
     server’s background work between slices. The counters of each microbenchmark are among its details.";

pub(crate) fn counters(report: &Report, output: Output) -> Section {
    let mut section = Section::new("counters", "Counters");
    let counted = report.microbenchmarks.iter().any(|one| !one.baseline.counters.is_empty());
    if !counted && report.not_counted.is_empty() {
        return section;
    }
    let has_groups = !report.counter_groups.is_empty();
    if output == Output::Terminal {
        section.title = if has_groups { "counted" } else { "counters" }.to_owned();
        if has_groups {
            section.about = OF_GROUPS.to_owned();
            section.push(groups(report, output));
        }
        if counted {
            section.note(if has_groups { KEY } else { OF_KERNEL });
        }
    } else {
        section.note(OF_PAGE);
        section.blocks.extend(multiplexed(report).map(|share| {
            dbdyno_text::Text::new(format!(
                "The CPU has fewer counters than requested, so they were multiplexed: each ran for at \
                 least {share} of the time. Their counts are estimates."
            ))
            .style(dbdyno_text::Style::Dim)
            .into()
        }));
    }
    for one in &report.not_counted {
        match (output, &one.advice) {
            (Output::Page, Some(advice)) => {
                section.push(Facts::new([Fact::new(one.line(), advice)]));
            }
            _ => section.note(one.line()),
        }
    }
    if output == Output::Page && has_groups {
        section.push(groups(report, output));
    }
    section
}

const OF_GROUPS: &str = "medians of ratios to the baseline over the microbenchmarks of a group";

/// The smallest share of the time in which a counter ran, if counters took turns.
fn multiplexed(report: &Report) -> Option<Share> {
    let absolutes = report.microbenchmarks.iter().flat_map(|one| {
        std::iter::once(&one.baseline).chain(one.rows.iter().map(|row| &row.absolute))
    });
    let least =
        absolutes.filter_map(|own| own.counted_time).reduce(|a, b| if b < a { b } else { a });
    // Starting and stopping a counter takes a moment.
    least.filter(|share| share.as_fraction() < 0.99)
}

fn groups(report: &Report, output: Output) -> Table {
    let figures = CounterFigure::OF_GROUPS.map(|counter| Figure::of_counter(counter).title(output));
    let columns = [Column::group("group"), Column::name("candidate"), Column::number("count")];
    let columns = columns.into_iter().chain(figures.map(Column::number));
    let mut table = Table::new(columns)
        .class("groups")
        .caption("Counters relative to the baseline, by group and candidate");
    let same = |a: &CounterSummary, b: &CounterSummary| {
        (&a.group, a.clients, &a.candidate) == (&b.group, b.clients, &b.candidate)
    };
    for figures in report.counter_groups.chunk_by(same) {
        let first = &figures[0];
        let labels = [
            Cell::text(with_clients(&first.group, first.clients, report.is_sweep())),
            candidate(report, &first.candidate, first.role),
            Cell::number(Some(first.count)),
        ];
        let median = |figure| {
            let found = figures.iter().find(|one| one.figure == figure);
            found.map_or_else(Cell::dash, |one| {
                let ends = format!("{} – {}", ratio(one.min), ratio(one.max));
                let range = Interval { ends, plus_minus: String::new() };
                Cell::text(ratio(one.median)).interval((one.count > 1).then_some(range))
            })
        };
        let cells = labels.into_iter().chain(CounterFigure::OF_GROUPS.map(median));
        table.push(Row::new(cells).faint(first.role == Role::Control));
    }
    table
}

/// One line per candidate, microbenchmark and counter figure.
pub(crate) fn counters_csv(report: &Report) -> String {
    struct Line<'a> {
        of: &'a MicrobenchmarkRows,
        candidate: &'a str,
        absolute: &'a Absolute,
        row: Option<&'a Compared>,
        figure: CounterFigure,
        value: f64,
    }
    let mut lines = Vec::new();
    for of in &report.microbenchmarks {
        let rows = of.rows.iter().map(|row| (row.candidate.as_str(), &row.absolute, Some(row)));
        for (candidate, absolute, row) in
            std::iter::once((report.baseline.as_str(), &of.baseline, None)).chain(rows)
        {
            let counters = absolute.counters.iter();
            lines.extend(counters.map(|(figure, value)| Line {
                of,
                candidate,
                absolute,
                row,
                figure: *figure,
                value: *value,
            }));
        }
    }
    let relative = |line: &Line<'_>| line.row?.relative_counters.get(&line.figure).copied();
    csv(
        &[
            ("microbenchmark", &|line: &Line<'_>| line.of.name.clone()),
            ("group", &|line| line.of.group.clone()),
            ("clients", &|line| line.of.clients.to_string()),
            ("candidate", &|line| line.candidate.to_owned()),
            ("baseline", &|_| report.baseline.clone()),
            ("figure", &|line| line.figure.name().to_owned()),
            ("value", &|line| decimals(Some(line.value), 6)),
            ("relative", &|line| exported(relative(line).map(|one| one.median))),
            ("ci_low", &|line| exported(relative(line).map(|one| one.low))),
            ("ci_high", &|line| exported(relative(line).map(|one| one.high))),
            ("counted_time", &|line| {
                let turns = line.absolute.counted_time.filter(|_| line.figure.is_of_cpu());
                decimals(turns.map(Share::as_fraction), 4)
            }),
        ],
        lines,
    )
}
