//! One step of an insert benchmark: figures, response times, throughput over time, and what is remarkable.

use dbdyno_text::{Cell, Column, Interval, Row, Style, Table, Text, Tone, cut, left, plain, width};
use dbdyno_types::insert::Second;
use dbdyno_units::{Nanos, Share};

use super::charts::charts;
use super::findings::{Stalls, kinds_of_stalls, verdict};
use super::{NAME, name, runs};
use crate::assemble::inserts::{SHORTEST, throughput};
use crate::figures::{compact, tiny};
use crate::model::{
    BUCKETS, CandidateStep, INSERT_METRICS, InsertMetric, Responses, StepReport, StepRun,
};
use crate::sections::{Block, Chart, Output, Section};
use crate::words::joined;

/// All that is known of one step.
pub(crate) fn step(step: &StepReport, output: Output, room: usize) -> Section {
    let mut section = Section::new("step", format!("{}: {}", step.name, step.what));
    section.push(values(step, output));
    let times = response_times(step, output);
    if output == Output::Page {
        section.push(Block::Chart(Chart::Lines(charts(step))));
        section.blocks.extend(times.map(|table| {
            let of_repeat = if step.has_repeats() { " of the last repeat" } else { "" };
            let summary =
                format!("Response times{of_repeat}: percentage in each bucket, and percentiles");
            Block::Details(summary, vec![table.into()])
        }));
        return section;
    }
    if let Some(table) = times {
        section.title("response times", if step.has_repeats() { "last repeat" } else { "" });
        section.push(table);
    }
    section.blocks.extend(bars(step, room).into_iter().map(Block::Text));
    for remark in remarks(step) {
        section.push(Text::new(remark).style(Style::Tone(Tone::Worse)));
    }
    section
}

/// The metrics that are known of any candidate; on a terminal, the most important first.
fn metrics(step: &StepReport, output: Output) -> Vec<&'static InsertMetric> {
    const FIRST: [&str; 8] = ["ips", "qps", "p50", "p99", "maxop", "cpupq", "ccpupq", "cspq"];
    let known = |metric: &&InsertMetric| {
        step.candidates.iter().any(|one| one.figures.get(metric.name).is_some())
    };
    let mut all: Vec<&InsertMetric> = INSERT_METRICS.iter().filter(known).collect();
    if output == Output::Terminal {
        let place = |name| FIRST.iter().position(|first| *first == name).unwrap_or(FIRST.len());
        all.sort_by_key(|metric| place(metric.name));
    }
    all
}

fn times(candidate: &CandidateStep) -> String {
    let times = candidate.repeats.iter().map(|run| run.wall.to_string());
    joined(times, ", ").unwrap_or_default()
}

fn values(step: &StepReport, output: Output) -> Table {
    let metrics = metrics(step, output);
    let titles = metrics.iter().map(|metric| Column::number(metric.name).what(metric.what));
    let has_time = !step.queries && !step.inserts;
    let columns = [Column::name("absolute").most(NAME)].into_iter().chain(titles);
    let columns = columns.chain(has_time.then(|| Column::number("time")));
    let caption = format!("Values of {}", step.name);
    let mut table = Table::new(columns).class("steps").caption(caption);
    for candidate in &step.candidates {
        let mut name = name(candidate);
        if output == Output::Page {
            name = name.note(times(candidate));
        }
        if candidate.misses_rate() {
            match output {
                Output::Page => name = name.note("rate not sustained"),
                _ => name.text.push_str(" !"),
            }
        }
        let figures = metrics
            .iter()
            .map(|metric| Cell::number(candidate.figures.get(metric.name).map(figure)));
        let time = has_time.then(|| Cell::text(times(candidate)));
        table.push(Row::new([name].into_iter().chain(figures).chain(time)));
    }
    let compared = step.candidates.iter().filter_map(|one| Some((one, one.relative.as_ref()?)));
    for (number, (candidate, relative)) in compared.enumerate() {
        if number == 0 {
            table.part("relative");
        }
        let spread = candidate.relative_spread.as_ref();
        let cell = |metric: &&InsertMetric| {
            let Some(ratio) = relative.get(metric.name) else { return Cell::dash() };
            let ends = spread.and_then(|(low, high)| {
                let (low, high) = (low.get(metric.name)?, high.get(metric.name)?);
                Some(format!("{} – {}", tiny(low), tiny(high)))
            });
            let ends = ends.filter(|_| output == Output::Page);
            Cell {
                tone: verdict(step, candidate, metric),
                interval: ends.map(|ends| Interval { ends, plus_minus: String::new() }),
                ..Cell::text(tiny(ratio))
            }
        };
        table.push(Row::new([name(candidate)].into_iter().chain(metrics.iter().map(cell))));
        if let (Some((low, high)), Output::Terminal) = (spread, output) {
            for (label, ends) in [("  least", low), ("  greatest", high)] {
                let cells =
                    metrics.iter().map(|metric| Cell::number(ends.get(metric.name).map(tiny)));
                table.push(Row::new([Cell::text(label)].into_iter().chain(cells)).faint(true));
            }
        }
    }
    table
}

type ResponsesOf = fn(&StepRun) -> &Option<Responses>;

const KINDS: [(&str, &str, ResponsesOf); 4] = [
    ("inserts", "inserts", |run| &run.insert_responses),
    ("service", "inserts, from when sent", |run| &run.insert_service),
    ("queries", "queries", |run| &run.query_responses),
    ("deletes", "deletes", |run| &run.delete_responses),
];

/// Classes that shade a share of the operations.
const SHADES: [&str; 11] = [
    "bucket",
    "bucket s1",
    "bucket s2",
    "bucket s3",
    "bucket s4",
    "bucket s5",
    "bucket s6",
    "bucket s7",
    "bucket s8",
    "bucket s9",
    "bucket s10",
];

/// Shares of the operations in ten buckets, of the last repeat; `None` if no times are known.
fn response_times(step: &StepReport, output: Output) -> Option<Table> {
    let is_page = output == Output::Page;
    let labels = [Column::name("response in %").most(NAME), Column::text("of")];
    let ends = BUCKETS.iter().map(|(_, end)| end.replace("us", "µs"));
    let ends = ends.map(|end| if is_page { format!("≤ {end}") } else { end });
    let percentiles: &[&str] = if is_page { &["median", "99%", "99.9%"] } else { &[] };
    let rest = ["more"].iter().chain(percentiles).chain(&["max"]);
    let columns = ends.chain(rest.map(|&title| title.to_owned())).map(Column::number);
    let columns = labels.into_iter().chain(columns);
    let caption = format!("Response times of {}", step.name);
    let mut table = Table::new(columns).class("steps").caption(caption);
    for candidate in &step.candidates {
        for (short, long, of) in KINDS {
            let Some(responses) = candidate.repeats.last().and_then(|run| of(run).as_ref()) else {
                continue;
            };
            let Responses { shares, p50, p99, p999, max, .. } = responses;
            let kind = if is_page { long } else { short };
            let shares = shares.iter().map(|share| {
                let tenths = (share.as_fraction().sqrt() * 10.0).ceil().min(10.0) as usize;
                Cell::text(percent(*share)).class(SHADES[tenths])
            });
            let times: &[&Nanos] = if is_page { &[p50, p99, p999, max] } else { &[max] };
            let times = times.iter().map(|time| Cell::text(time.to_string()));
            let labels = [name(candidate), Cell::text(kind)];
            table.push(Row::new(labels.into_iter().chain(shares).chain(times)));
        }
    }
    (!table.rows.is_empty()).then_some(table)
}

const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Throughput over time as bars, in a terminal's width.
fn bars(step: &StepReport, room: usize) -> Vec<Text> {
    let Some(unit) = step.throughput() else { return Vec::new() };
    let longest = runs(step).map(|(_, run)| whole(run).len()).max().unwrap_or(0);
    if longest < 3 {
        return Vec::new();
    }
    let names = runs(step).map(|(one, _)| width(&plain(&one.candidate)));
    let names = names.max().unwrap_or(0).min(NAME);
    let rates = runs(step).flat_map(|(_, run)| whole(run));
    let rates = rates.map(|second| throughput(second, step.queries));
    let greatest = rates.fold(0.0, f64::max);
    let per_column = longest.div_ceil(room.saturating_sub(names + 2).max(1));
    let title = format!(
        "{unit} over time: {per_column} s per column, full height {}; ! a write stall",
        compact(greatest)
    );
    let mut lines = vec![Text::new("").code(""), Text::new(title).style(Style::Dim)];
    for (candidate, run) in runs(step) {
        let seconds = whole(run);
        let name = left(&cut(&plain(&candidate.candidate), names), names);
        let bars: String = seconds
            .chunks(per_column)
            .map(|chunk| bar(chunk.iter().map(|s| throughput(s, step.queries)), greatest))
            .collect();
        lines.push(Text::default().code(format!("{name}  {bars}").trim_end()));
        if !run.stalls.is_empty() {
            let stalls = seconds.chunks(per_column).map(|chunk| {
                let stalled = chunk.iter().any(|second| run.stalls.contains(&second.number));
                if stalled { '!' } else { ' ' }
            });
            let line = format!("{:1$}{2}", "", names + 2, stalls.collect::<String>());
            lines.push(Text::default().code(line.trim_end()).style(Style::Tone(Tone::Worse)));
        }
    }
    lines
}

/// The seconds of a run, without a short one at its end.
fn whole(run: &StepRun) -> &[Second] {
    match run.seconds.split_last() {
        Some((last, before)) if last.elapsed < SHORTEST && !before.is_empty() => before,
        _ => &run.seconds,
    }
}

fn bar(values: impl Iterator<Item = f64>, greatest: f64) -> char {
    let (count, sum) = values.fold((0.0, 0.0), |(n, sum), value| (n + 1.0, sum + value));
    if greatest <= 0.0 || count == 0.0 || sum <= 0.0 {
        return BARS[0];
    }
    let share = sum / count / greatest;
    BARS[((share * 8.0).ceil() as usize).clamp(1, 8)]
}

/// What is remarkable about the runs of a step; a problem begins with `!`.
pub(crate) fn remarks(step: &StepReport) -> Vec<String> {
    let of_run = |(candidate, run): (&CandidateStep, &StepRun)| {
        let at = match candidate.repeats.len() {
            1 => candidate.candidate.clone(),
            _ => format!("{}, repeat {}", candidate.candidate, run.repeat),
        };
        remarks_of(&at, run, step)
    };
    runs(step).flat_map(of_run).collect()
}

fn remarks_of(at: &str, run: &StepRun, step: &StepReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if let (Some(false), Some(rate)) = (run.sustained, step.rate) {
        let ips = run.figures.get("ips").unwrap_or(0.0);
        remarks.push(format!(
            "! {at}: the rate was not sustained: {ips:.0} of {rate} rows/s, {} rows still due at \
             the end; its qps cannot be compared",
            run.overdue
        ));
    }
    for Stalls { one, many, seconds, responses } in kinds_of_stalls(run) {
        let longest = responses.as_ref().map_or_else(String::new, |responses| {
            format!("; the longest {one} took {}", responses.max)
        });
        let number = seconds.len();
        let seconds = if number == 1 { "second" } else { "seconds" };
        if number > 0 {
            remarks.push(format!("! {at}: {many} stalled in {number} {seconds}{longest}"));
        }
    }
    if run.lock_waits > 0 {
        let per = run.lock_waits as f64 / (run.rows.max(1)) as f64;
        remarks.push(format!(
            "{at}: clients tried {} times for a lock that another one had, {} per row inserted",
            run.lock_waits,
            compact(per)
        ));
    }
    if run.retries > 0 {
        remarks.push(format!("{at}: {} statements were tried again", run.retries));
    }
    if run.wrong > 0 {
        remarks.push(format!("! {at}: {} statements answered wrongly", run.wrong));
    }
    if run.from_copy {
        remarks.push(format!(
            "{at}: went on after an interruption, from data on storage with empty caches"
        ));
    }
    remarks
}

fn figure(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        ..0.001 => tiny(value),
        ..0.01 => format!("{value:.4}"),
        ..0.1 => format!("{value:.3}"),
        _ => compact(value),
    }
}

/// A share in at most four characters; empty for none.
fn percent(share: Share) -> String {
    match share.as_percent() {
        ..=0.0 => String::new(),
        ..0.01 => "<.01".to_owned(),
        percent @ ..0.995 => format!("{percent:.2}")[1..].to_owned(),
        percent @ ..99.95 => format!("{percent:.1}"),
        ..100.0 => "99.9".to_owned(),
        _ => "100".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_values_differ_from_zero() {
        let shares = [0.0, 0.001, 0.5, 0.994, 1.0, 12.34, 99.94, 99.99, 100.0]
            .map(|value| percent(Share::from_percent(value)));
        assert_eq!(shares, ["", "<.01", ".50", ".99", "1.0", "12.3", "99.9", "99.9", "100"]);
        let figures = [0.0, 0.000_04, 0.0042, 0.042, 4.2].map(figure);
        assert_eq!(figures, ["0", "4e-5", "0.0042", "0.042", "4.20"]);
        assert_eq!([0.0, 0.003, 0.03, 12.0].map(tiny), ["0.00", "3e-3", "0.03", "12.0"]);
        let bars: [&[f64]; 4] = [&[0.0, 0.0], &[0.1], &[8.0, 8.0], &[4.0]];
        let bars = bars.map(|values| bar(values.iter().copied(), 8.0));
        assert_eq!(bars, [' ', '▁', '█', '▄']);
    }
}
