//! What a microbenchmark costs per query, its counters and its response times: absolute, then relative
//! to the baseline, and
//! the counters by group.

use dbdyno_text::{Cell, Column, Csv, Fact, Facts, Interval, Row, Table, decimals};
use dbdyno_units::{Nanos, Ratio, Share, grouped};

use super::{Output, Section, candidate, candidate_column, estimate_cell, estimated, groups, rows};
use crate::figures::{FIGURES, Figure, compact, ends, micros, number, ratio, tiny};
use crate::metric::with_clients;
use crate::model::Row as Compared;
use crate::model::{
    Absolute, CandidateRecord, CounterFigure, CounterSummary, LatencySummary, Metric,
    MicrobenchmarkRows, Percentile, Report, Role,
};

const COSTS_KEY: &str = "per operation: cpu/q is the CPU time of the system under \
     test per query in µs, with what a server does in the background between its slices; usr/q and \
     sys/q that of its slices in user mode and in the kernel; cs/q and pf/q its context \
     switches and page faults; rd/q and wr/q bytes from and to storage; client the load \
     generator's own CPU time in µs, and busy the percentage of its CPUs that it used. QPS, cpu/q \
     and cs/q are compared slice by slice, the others as a whole.";

const TIMES_KEY: &str = "response times: of an event, from sending its first statement to \
     reading its last row, over all counted slices. The intervals of their ratios are 95%, over \
     starts or parts of the run; times are recorded with a resolution of 1%.";

/// The kinds of figures, each with tables of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Throughput, and costs per query.
    Costs,
    Counters,
    ResponseTimes,
}

impl Part {
    const fn about(self, output: Output) -> &'static str {
        match (self, output) {
            (Self::Costs, Output::Terminal) => "per operation",
            (Self::Counters, Output::Terminal) => "counted",
            (Self::Costs, _) => "Per query",
            (Self::Counters, _) => "Counters per query",
            (Self::ResponseTimes, _) => "response times of events",
        }
    }

    fn write(self, value: f64, output: Output) -> String {
        match (self, output) {
            (Self::ResponseTimes, _) => Nanos::from_secs_f64(value / 1e6).to_string(),
            (Self::Costs, Output::Terminal) => compact(value),
            (Self::Counters, Output::Terminal) => tiny(value),
            (Self::Costs, _) => micros(value),
            // Large counts as whole numbers, and small ones with an exponent instead of 0.
            (Self::Counters, _) if value < 1.0 => tiny(value),
            (Self::Counters, _) => micros(value),
        }
    }
}

/// The tables of one part: one per microbenchmark, and what the short titles mean.
pub(crate) fn operations(
    report: &Report,
    part: Part,
    members: &[&MicrobenchmarkRows],
    output: Output,
) -> Section {
    let mut section = Section::new("operations", "");
    for member in members {
        let Some(table) = table(report, part, member, output) else { continue };
        let title = with_clients(&member.name, member.clients, report.is_sweep());
        section.title(title, part.about(output));
        section.push(table);
    }
    match part {
        _ if section.blocks.is_empty() => {}
        Part::Costs => section.note(COSTS_KEY),
        Part::ResponseTimes => section.note(TIMES_KEY),
        // Below the counters of groups.
        Part::Counters => {}
    }
    section
}

/// All candidates with their figures; `None` if none is known.
pub(crate) fn table(
    report: &Report,
    part: Part,
    member: &MicrobenchmarkRows,
    output: Output,
) -> Option<Table> {
    let lines = measured(report, member);
    let is_known = |figure: &&Figure| {
        figure.part == part && lines.iter().any(|(_, own, _)| (figure.of)(own).is_some())
    };
    let figures: Vec<&Figure> = FIGURES.iter().filter(is_known).collect();
    if figures.is_empty() {
        return None;
    }
    let heading = if output == Output::Terminal { "absolute" } else { part.about(output) };
    let titles = figures.iter().map(|figure| Column::number(figure.title(output)));
    let columns = [Column::name(heading)].into_iter().chain(titles);
    let mut table = Table::new(columns).class("facts operations").caption(part.about(output));
    if output != Output::Terminal {
        table.part("absolute");
    }
    let push = |table: &mut Table, one: &CandidateRecord, cells: Vec<Cell>| {
        let name = [candidate(report, &one.name, one.role)];
        table.push(Row::new(name.into_iter().chain(cells)).faint(one.role == Role::Control));
    };
    let is_shown = |own: &Absolute| part != Part::ResponseTimes || own.latency.is_some();
    for (one, own, _) in lines.iter().filter(|(_, own, _)| is_shown(own)) {
        let value = |figure: &&Figure| (figure.of)(own).map(|value| part.write(value, output));
        push(&mut table, one, figures.iter().map(|figure| Cell::number(value(figure))).collect());
    }
    let better = if part == Part::ResponseTimes { ", below 1 is better" } else { "" };
    table.part(format!("relative to {}{better}", report.baseline));
    for (one, own, row) in &lines {
        let Some(row) = row.filter(|_| is_shown(own)) else { continue };
        let cells = figures.iter().map(|figure| relative(figure, member, row, output));
        push(&mut table, one, cells.collect());
    }
    Some(table)
}

fn relative(figure: &Figure, member: &MicrobenchmarkRows, row: &Compared, output: Output) -> Cell {
    if let Some(percentile) = figure.percentile {
        let Some(one) = percentile.relative_of(row) else { return Cell::dash() };
        return match one.relative {
            Some(estimate) => estimate_cell(Some(estimate), Metric::Cpu, one.verdict),
            None => Cell::text("few").verdict(one.verdict.tone(), one.verdict.name()),
        };
    }
    let Some(value) = figure.ratio(&member.baseline, row) else { return Cell::dash() };
    let counted = figure.part == Part::Counters && output == Output::Page;
    let ends = figure.relative(row).filter(|_| counted).map(ends);
    let text = match output {
        Output::Terminal => ratio(Ratio::new(value)),
        Output::Page | Output::Markdown => format!("{value:.3}"),
    };
    Cell::text(text).interval(ends.map(|ends| Interval { ends, plus_minus: String::new() }))
}

type Measured<'a> = (&'a CandidateRecord, &'a Absolute, Option<&'a Compared>);

/// The candidates that were measured, baseline first, and their rows.
pub(crate) fn measured<'a>(
    report: &'a Report,
    member: &'a MicrobenchmarkRows,
) -> Vec<Measured<'a>> {
    let of = |candidate: &'a CandidateRecord| {
        let (own, row) = values(member, candidate)?;
        Some((candidate, own, row))
    };
    report.candidates.iter().filter_map(of).collect()
}

/// The figures of a candidate, and its row unless it is the baseline; `None` if it was not measured.
pub(crate) fn values<'a>(
    member: &'a MicrobenchmarkRows,
    candidate: &CandidateRecord,
) -> Option<(&'a Absolute, Option<&'a Compared>)> {
    if candidate.role == Role::Baseline {
        return Some((&member.baseline, None));
    }
    let row = member.row(&candidate.name)?;
    Some((&row.absolute, Some(row)))
}

/// Background work has a line of its own if it is at least this share of any CPU time.
const SHOWN_BACKGROUND: f64 = 0.03;

/// Everything else that is known of a microbenchmark: a line per figure, a column per candidate.
pub(crate) fn measurements(report: &Report, member: &MicrobenchmarkRows) -> Table {
    let all = measured(report, member);
    let columns = all.iter().map(|(one, ..)| candidate_column(report, one));
    let mut table = Table::new([Column::name("Measurement")].into_iter().chain(columns))
        .class("facts")
        .caption("Measurements");
    let mut push = |label: &str, cells: Vec<Option<Cell>>, baseline: Cell| {
        if cells.iter().any(Option::is_some) {
            let cells = cells.into_iter().zip(&all).map(|(cell, (.., row))| match (cell, row) {
                (Some(cell), _) => cell,
                (None, None) => baseline.clone(),
                (None, Some(_)) => Cell::dash(),
            });
            table.push(Row::new([Cell::text(label)].into_iter().chain(cells)));
        }
    };
    let absolute = |of: &dyn Fn(&Absolute) -> Option<Cell>| {
        all.iter().map(|(_, own, _)| of(own)).collect::<Vec<Option<Cell>>>()
    };
    let compared = |of: &dyn Fn(&Compared) -> Option<Cell>| {
        all.iter().map(|(.., row)| of((*row)?)).collect::<Vec<Option<Cell>>>()
    };
    let number = |count: u64| Some(Cell::text(grouped(count)));
    let (one, dash) = (|| Cell::text("1"), Cell::dash);
    for metric in [Metric::Qps, Metric::Cpu] {
        let label = format!("Relative {}", metric.quantity());
        push(&label, compared(&|row| groups::ratio(metric, member, row)), one());
    }
    push("Relative context switches", compared(&|row| row.relative_cs.map(estimated)), one());
    let label = format!("Throughput, {}", member.throughput_unit);
    push(&label, absolute(&|own| Some(Cell::number(Some(own.qps?)))), dash());
    push("Events/s (TPS)", absolute(&|own| Some(Cell::number(Some(own.tps?)))), dash());
    let middle_half = |own: &Absolute| {
        let (low, high) = own.qps_middle_half?;
        Some(Cell::text(format!("{low} – {high}")))
    };
    push("Interquartile range of the slices", absolute(&middle_half), dash());
    let shares = all.iter().filter_map(|(_, own, _)| own.background_share());
    if shares.map(Share::as_fraction).any(|share| share >= SHOWN_BACKGROUND) {
        let background = |own: &Absolute| {
            let (cpu, share) = (own.background_cpu_us_per_query?, own.background_share()?);
            Some(Cell::text(micros(cpu)).note(share.to_string()))
        };
        push("Background CPU µs per query", absolute(&background), dash());
    }
    let time = |of: &dyn Fn(&LatencySummary) -> Nanos| {
        absolute(&|own| Some(Cell::number(Some(of(own.latency.as_ref()?)))))
    };
    push("Response time, mean", time(&|times| times.mean), dash());
    for percentile in Percentile::ALL {
        let name = percentile.name();
        push(&format!("Response time, {name}"), time(&|times| percentile.of(times)), dash());
        let relative = |row: &Compared| {
            let one = percentile.relative_of(row)?;
            Some(estimated(one.relative?).verdict(one.verdict.tone(), one.verdict.name()))
        };
        push(&format!("Relative {name}"), compared(&relative), one());
    }
    push("Response time, max", time(&|times| times.max), dash());
    push("Blocks", compared(&|row| number(row.blocks)), dash());
    push("Statements", absolute(&|own| number(own.statements)), dash());
    push("Errors", absolute(&|own| number(own.errors)), dash());
    push("Lock retries", absolute(&|own| number(own.busy_retries)), dash());
    if member.rows.iter().any(|row| row.restart_medians.len() > 1) {
        let medians = |row: &Compared| {
            let medians = row.restart_medians.iter().map(|median| format!("{median:.3}"));
            Some(medians.fold(Cell::empty(), Cell::note))
        };
        push("Median of each restart", compared(&medians), dash());
    }
    table
}

/// One line per candidate, microbenchmark and percentile.
pub(crate) fn latency_csv(report: &Report) -> String {
    let lines = report.microbenchmarks.iter().flat_map(|of| {
        measured(report, of).into_iter().flat_map(move |(candidate, own, row)| {
            let line = move |percentile: Percentile| {
                let compared = row.and_then(|row| percentile.relative_of(row));
                Some((of, candidate, percentile, percentile.of(own.latency.as_ref()?), compared))
            };
            Percentile::ALL.into_iter().filter_map(line)
        })
    });
    Csv::of(lines)
        .column("microbenchmark", |(of, ..)| of.name.clone())
        .column("group", |(of, ..)| of.group.clone())
        .column("clients", |(of, ..)| of.clients.to_string())
        .column("candidate", |(_, candidate, ..)| candidate.name.clone())
        .column("baseline", |_| report.baseline.clone())
        .column("percentile", |(_, _, percentile, ..)| percentile.name().to_owned())
        .column("response_time_us", |(.., value, _)| number(Some(value.as_micros_f64())))
        .ratios(["relative", "ci_low", "ci_high"], |(.., compared)| compared.as_ref()?.relative)
        .column("verdict", |(.., compared)| {
            compared.map_or_else(String::new, |one| one.verdict.name().to_owned())
        })
        .text()
}

pub fn relative_csv(report: &Report) -> String {
    type Line<'a> = (&'a MicrobenchmarkRows, &'a Compared);
    let own = |(_, row): &Line<'_>, name: &str| number((Figure::named(name).of)(&row.absolute));
    Csv::of(rows(report))
        .column("microbenchmark", |(of, _)| of.name.clone())
        .column("group", |(of, _)| of.group.clone())
        .column("candidate", |(_, row)| row.candidate.clone())
        .column("baseline", |_| report.baseline.clone())
        .ratio("relative_qps", |(_, row)| row.ratio(Metric::Qps))
        .ratio("ci_low", |(_, row)| Some(row.relative_qps?.low))
        .ratio("ci_high", |(_, row)| Some(row.relative_qps?.high))
        .column("verdict", |(_, row)| row.verdict.name().to_owned())
        .column("blocks", |(_, row)| row.blocks.to_string())
        .column("qps", |line| own(line, "qps"))
        .column("baseline_qps", |(of, _)| number((Figure::named("qps").of)(&of.baseline)))
        .ratio("relative_cpu", |(_, row)| Some(row.relative_cpu?.median))
        .column("cpu_us_per_query", |line| own(line, "cpu_us_per_query"))
        .column("errors", |(_, row)| row.absolute.errors.to_string())
        .column("clients", |(of, _)| of.clients.to_string())
        .ratio("relative_cs", |(_, row)| Some(row.relative_cs?.median))
        .column("client_cpu_us_per_query", |line| own(line, "client_cpu_us_per_query"))
        .column("cs_per_query", |(_, row)| decimals(row.absolute.cs_per_query, 6))
        .column("user_us_per_query", |line| own(line, "user_us_per_query"))
        .column("system_us_per_query", |line| own(line, "system_us_per_query"))
        .ratio("relative_cpu_ci_low", |(_, row)| Some(row.relative_cpu?.low))
        .ratio("relative_cpu_ci_high", |(_, row)| Some(row.relative_cpu?.high))
        .column("cpu_verdict", |(_, row)| match row.is_measured(Metric::Cpu) {
            true => row.cpu_verdict.word(Metric::Cpu).to_owned(),
            false => String::new(),
        })
        .column("trusted_metric", |(_, row)| row.trusted_metric.name().to_owned())
        .column("tps", |line| own(line, "tps"))
        .column("baseline_tps", |(of, _)| number((Figure::named("tps").of)(&of.baseline)))
        .column("script", |(of, _)| of.script.clone().unwrap_or_default())
        .text()
}

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
            section.push(of_groups(report, output));
        }
        if counted {
            section.note(if has_groups { KEY } else { OF_KERNEL });
        }
    } else {
        section.note(OF_PAGE);
        if let Some(share) = multiplexed(report) {
            section.note(format!(
                "The CPU has fewer counters than requested, so they were multiplexed: each ran for at \
                 least {share} of the time. Their counts are estimates."
            ));
        }
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
        section.push(of_groups(report, output));
    }
    section
}

const OF_GROUPS: &str = "medians of ratios to the baseline over the microbenchmarks of a group";

/// The smallest share of the time in which a counter ran, if counters took turns.
fn multiplexed(report: &Report) -> Option<Share> {
    let absolutes = report.microbenchmarks.iter().flat_map(MicrobenchmarkRows::absolutes);
    let least =
        absolutes.filter_map(|own| own.counted_time).reduce(|a, b| if b < a { b } else { a });
    // Starting and stopping a counter takes a moment.
    least.filter(|share| share.as_fraction() < 0.99)
}

fn of_groups(report: &Report, output: Output) -> Table {
    let figures =
        CounterFigure::OF_GROUPS.map(|counter| Figure::named(counter.name()).title(output));
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
        let group = report.group_label(&first.group);
        let group = Cell::text(with_clients(&group, first.clients, report.is_sweep()));
        let name = candidate(report, &first.candidate, first.role);
        let labels = [group, name, Cell::number(Some(first.count))];
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
    let lines = report.microbenchmarks.iter().flat_map(|of| {
        measured(report, of).into_iter().flat_map(move |one| {
            one.1.counters.iter().map(move |(figure, value)| (of, one, *figure, *value))
        })
    });
    Csv::of(lines)
        .column("microbenchmark", |(of, ..)| of.name.clone())
        .column("group", |(of, ..)| of.group.clone())
        .column("clients", |(of, ..)| of.clients.to_string())
        .column("candidate", |(_, (candidate, ..), ..)| candidate.name.clone())
        .column("baseline", |_| report.baseline.clone())
        .column("figure", |(.., figure, _)| figure.name().to_owned())
        .column("value", |(.., value)| decimals(Some(*value), 6))
        .ratios(["relative", "ci_low", "ci_high"], |(_, (.., row), figure, _)| {
            row.as_ref()?.relative_counters.get(figure).copied()
        })
        .column("counted_time", |(_, (_, own, _), figure, _)| {
            let turns = own.counted_time.filter(|_| figure.is_of_cpu());
            decimals(turns.map(Share::as_fraction), 4)
        })
        .text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn drawn(report: &Report, part: Part) -> Option<Table> {
        table(report, part, &report.microbenchmarks[0], Output::Terminal)
    }

    fn titles(table: &Table) -> Vec<&str> {
        table.columns[1..].iter().map(|column| column.title.as_str()).collect()
    }

    #[test]
    fn only_known_figures_have_a_column() {
        let of = |report: &Report| -> Vec<String> {
            let table = drawn(report, Part::Costs).unwrap();
            titles(&table).into_iter().map(str::to_owned).collect()
        };
        assert_eq!(of(&sample::report()), ["QPS", "cpu/q", "cs/q", "pf/q"]);
        assert_eq!(
            of(&sample::servers()),
            ["QPS", "cpu/q", "usr/q", "sys/q", "cs/q", "pf/q", "rd/q", "wr/q", "client", "busy"]
        );
        assert_eq!(of(&sample::imported()), ["QPS"]);
        let few = ["scan_range=100"];
        assert_eq!(drawn(&sample::report_of(&few), Part::Counters), None);
        let kernel = drawn(&sample::only_kernel_counters(&few), Part::Counters).unwrap();
        assert_eq!(titles(&kernel), ["minf/q", "majf/q", "migr/q"]);
        // No ratio to zero.
        assert_eq!(kernel.rows.last().unwrap().cells[2], Cell::dash());
    }

    #[test]
    fn ratio_of_pairs_is_preferred_to_the_quotient() {
        let mut report = sample::servers();
        let row = &mut report.microbenchmarks[0].rows[0];
        row.relative_cpu.as_mut().unwrap().median = Ratio::new(7.0);
        row.absolute.user_us_per_query = Some(30.0);
        report.microbenchmarks[0].baseline.user_us_per_query = Some(20.0);
        let table = drawn(&report, Part::Costs).unwrap();
        let title = table.rows.iter().position(|row| row.part.is_some()).unwrap();
        let cells = &table.rows[title + 1].cells;
        assert_eq!((cells[2].text.as_str(), cells[3].text.as_str()), ("7.000", "1.500"));
    }
}
