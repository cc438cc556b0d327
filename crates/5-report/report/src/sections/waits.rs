//! Where the time per query goes: CPU time and waits.

use dbdyno_text::{Cell, Column, Row, Style, Table, Text};
use dbdyno_units::{Share, grouped};

use super::profile::cost_of_profiling;
use super::{Block, Section, by_microbenchmark, csv_of_rows, tone_of_time};
use crate::figures::{duration, number, percent, signed};
use crate::model::Row as Compared;
use crate::model::{MicrobenchmarkRows, Report, Role, WaitRow, WaitsDifference};
use crate::words::joined;

/// So many stacks of a candidate are shown; the table in CSV has all.
const SHOWN: usize = 10;

const LONGEST_IN_TABLE: usize = 44;

/// Parts that do not depend on the server alone.
const NOT_OF_SERVER: [&str; 2] = ["client", "not recorded"];

pub(crate) const KEY: &str = "waits: time per query (clients × wall time / statements) of the threads that execute \
     statements. Shares are those of slices of their own, in which each switch was recorded, scaled to the time per query \
     of measured slices, so that rows add up to it. Run queue: it could run, but had no CPU. Lock: mutexes, condition \
     variables, semaphores, so also what other threads do for it. Client: until the next statement arrives, with the \
     client's own work and the way there and back. Not recorded: what no switch explains. Waits end when the thread runs \
     again. ±: over starts, with fewer than three over blocks, which is too narrow if starts differ. + less, - more time \
     than the baseline, ~ not certain: within the interval, or not larger than the control's difference of the same row.";

/// The tables of all microbenchmarks with recorded waits, of one candidate if it is named, and what they mean.
pub(crate) fn waits(report: &Report, candidate: Option<&str>) -> Section {
    by_microbenchmark(report, "waits", ("where the time per query goes", KEY), |member| {
        let rows = member.rows.iter();
        let is_shown = |row: &&Compared| match candidate {
            Some(name) => row.candidate == name,
            None => row.role != Role::Control,
        };
        rows.filter(is_shown).flat_map(|row| blocks(report, row)).collect::<Vec<Block>>()
    })
}

/// The tables of a microbenchmark on the page.
pub(crate) fn of_microbenchmark(report: &Report, member: &MicrobenchmarkRows) -> Vec<Block> {
    let rows = member.rows.iter().filter(|row| row.role != Role::Control);
    let mut all: Vec<Block> = rows.flat_map(|row| blocks(report, row)).collect();
    if !all.is_empty() {
        all.push(Text::new(KEY).style(Style::Dim).into());
    }
    all
}

/// What a candidate's time per query is in words and tables.
fn blocks(report: &Report, row: &Compared) -> Vec<Block> {
    let mut sentences = sentences(report, row).into_iter();
    let Some(first) = sentences.next() else { return Vec::new() };
    let tables = tables(report, row).into_iter().map(Block::Table);
    let others = sentences.map(|sentence| Text::new(sentence).style(Style::Dim).into());
    [Text::default().strong(first).into()].into_iter().chain(tables).chain(others).collect()
}

fn tables(report: &Report, row: &Compared) -> Vec<Table> {
    let Some(waits) = &row.waits else { return Vec::new() };
    let WaitsDifference { parts, total, background, stacks, in_intervals, .. } = waits;
    let new = |title: &str| {
        let numbers = [report.baseline.as_str(), row.candidate.as_str(), "difference"];
        let numbers = numbers.map(Column::number);
        let name = Column::name(title).most(LONGEST_IN_TABLE);
        Table::new([name].into_iter().chain(numbers))
            .class("facts operations")
            .caption(format!("{title} of {}", row.candidate))
    };
    let cells = |one: &WaitRow| {
        // What is not recorded may be a little less than nothing.
        let [base, own] =
            [one.baseline_us, one.us].map(|value| Cell::text(duration(value.max(0.0))));
        Row::new([Cell::text(&one.name), base, own, difference(one)])
    };
    let mut table = new("CPU and waits");
    if in_intervals.is_some() {
        table.part("estimated: threads were looked at every 10 ms");
    }
    parts.iter().chain([total]).for_each(|one| table.push(cells(one)));
    if !background.is_empty() {
        table.part("other threads");
        background.iter().for_each(|one| table.push(cells(one)));
    }
    let mut of_stacks = new("stack of a wait, innermost first");
    stacks.iter().take(SHOWN).for_each(|one| of_stacks.push(cells(one)));
    let mut tables = vec![table, of_stacks];
    tables.retain(|table| !table.rows.is_empty());
    tables
}

fn difference(one: &WaitRow) -> Cell {
    let cell = Cell::text(with_interval(one));
    if NOT_OF_SERVER.contains(&one.name.as_str()) {
        return cell;
    }
    let tone = tone_of_time(one.difference(), one.is_certain());
    cell.verdict(tone, if one.is_certain() { "certain" } else { "not certain" })
}

fn with_interval(one: &WaitRow) -> String {
    let interval = one.half_width_us.map(|half| format!(" ±{}", duration(half)));
    signed(one.difference(), duration) + &interval.unwrap_or_default()
}

/// What a candidate's time per query is and where the difference is, in sentences.
fn sentences(report: &Report, row: &Compared) -> Vec<String> {
    let Some(waits) = &row.waits else { return Vec::new() };
    let WaitsDifference { total, cost, recorded_us, .. } = waits;
    let mut sentences = vec![format!(
        "a query took {} with {} and {} with {}",
        duration(total.us),
        row.candidate,
        duration(total.baseline_us),
        report.baseline
    )];
    let certain = waits.parts.iter().filter(|one| one.is_certain());
    let certain = certain.map(|one| format!("{} {}", one.name, with_interval(one)));
    sentences.push(match joined(certain, ", ") {
        None => "no difference of CPU time and waits is certain".to_owned(),
        Some(certain) => format!("CPU and waits: {certain}"),
    });
    let [of_own, of_base] = cost.map(cost_of_profiling);
    let [own, base] = recorded_us.map(duration);
    sentences.push(format!(
        "recording costs time: while it was recorded, a query took {own} and {base}, with {of_own} and {of_base} times the \
         CPU time of other slices. Only shares are from recorded slices; times are scaled to measured ones"
    ));
    sentences.extend(lost(waits));
    let reason = waits.in_intervals.iter();
    sentences.extend(reason.map(|why| {
        format!("waits are estimated from a look at all threads every 10 ms, not recorded: {why}")
    }));
    sentences
}

/// Which share of the records of switches was lost.
fn lost(waits: &WaitsDifference) -> Option<String> {
    let of = waits.records.map(|records| {
        let all = records.saturating_add(waits.lost);
        let share = Share::from_fraction(waits.lost as f64 / all.max(1) as f64);
        (format!(" of {}", grouped(all)), format!(" ({})", percent(share)))
    });
    let (of, share) = of.unwrap_or_default();
    (waits.lost > 0).then(|| {
        let lost = grouped(waits.lost);
        format!(
            "{lost}{of} records of switches were lost{share}: what they are about is not recorded"
        )
    })
}

/// One line per microbenchmark, candidate and part or stack.
pub(crate) fn waits_csv(report: &Report) -> String {
    let lines = csv_of_rows(report, |row| {
        row.waits.iter().flat_map(|waits| {
            let parts = waits.parts.iter().map(|one| ("part", one));
            let others = waits.background.iter().map(|one| ("other threads", one));
            let stacks = waits.stacks.iter().map(|one| ("stack", one));
            parts.chain([("total", &waits.total)]).chain(others).chain(stacks)
        })
    });
    lines
        .column("kind", |(.., (kind, _))| (*kind).to_owned())
        .column("name", |(.., (_, one))| one.name.clone())
        .column("baseline_us_per_query", |(.., (_, one))| number(Some(one.baseline_us)))
        .column("us_per_query", |(.., (_, one))| number(Some(one.us)))
        .column("difference_us", |(.., (_, one))| number(Some(one.difference())))
        .column("half_width_us", |(.., (_, one))| number(one.half_width_us))
        .column("control_us", |(.., (_, one))| number(one.control_us))
        .text()
}

#[cfg(test)]
mod tests {
    use dbdyno_text::Tone;
    use dbdyno_units::Ratio;

    use super::*;
    use crate::model::ProfilingCost;
    use crate::sample;

    #[test]
    fn difference_is_certain_beyond_its_interval_and_the_client_is_not_judged() {
        let row = |name: &str, half_width_us| WaitRow {
            name: name.to_owned(),
            us: 4.0,
            baseline_us: 9.0,
            half_width_us,
            control_us: None,
        };
        let cell = |name: &str, half| difference(&row(name, half));
        assert_eq!(cell("lock", Some(1.5)).text, "−5 µs ±1.5 µs");
        assert_eq!(cell("lock", Some(1.5)).verdict, Some((Tone::Better, "certain")));
        assert_eq!(cell("lock", Some(6.0)).verdict, Some((Tone::Noise, "not certain")));
        assert_eq!(cell("lock", None).text, "−5 µs");
        assert_eq!(cell("lock", None).verdict, Some((Tone::Noise, "not certain")));
        assert_eq!(cell("client", Some(1.5)).verdict, None);
        let long = WaitRow { us: 11_400.0, baseline_us: 0.0, ..row("lock", None) };
        assert_eq!(difference(&long).text, "+11.4 ms");
    }

    fn without_parts() -> WaitsDifference {
        let total = WaitRow {
            us: 120.0,
            baseline_us: 100.0,
            half_width_us: None,
            control_us: None,
            name: String::new(),
        };
        WaitsDifference {
            in_intervals: None,
            lost: 12,
            records: None,
            cost: [Some(ProfilingCost { relative_cpu: Ratio::new(1.25), interval: None }), None],
            recorded_us: [150.0, 160.0],
            parts: Vec::new(),
            total,
            background: Vec::new(),
            stacks: Vec::new(),
        }
    }

    #[test]
    fn time_of_a_query_is_the_measured_one_before_the_recorded_one() {
        let mut report = sample::servers_of(&["insert_range=100"]);
        report.microbenchmarks[0].rows[0].waits = Some(without_parts());
        let sentences = sentences(&report, &report.microbenchmarks[0].rows[0]);
        assert_eq!(sentences[0], "a query took 120 µs with myrocks and 100 µs with innodb");
        let recorded = "recording costs time: while it was recorded, a query took 150 µs and 160 µs, with 1.250 and \
                        unknown times the CPU time of other slices.";
        assert!(sentences[2].starts_with(recorded), "{sentences:?}");
    }

    #[test]
    fn lost_records_are_told_with_their_share() {
        let of = |records| lost(&WaitsDifference { records, ..without_parts() }).unwrap();
        let text = of(Some(3_444));
        assert!(text.starts_with("12 of 3,456 records of switches were lost (0.3%): "), "{text}");
        assert!(of(None).starts_with("12 records of switches were lost: "), "an older run");
        assert_eq!(lost(&WaitsDifference { lost: 0, ..without_parts() }), None);
    }
}
