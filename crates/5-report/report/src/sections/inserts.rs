//! The insert benchmark: figures of each step, response times, and throughput over time.

use dbdyno_stats::{Side, interval_of_repeats, is_too_noisy, median, possible_difference};
use dbdyno_text::{
    Cell, Column, Csv, Fact, Facts, Interval, Mark, Row, Style, Table, Text, Tone, cut, decimals,
    left, plain, width,
};
use dbdyno_types::insert::{DeviceUsage, Second};
use dbdyno_units::{Bytes, Nanos, Ratio, Share};

use super::{Block, Chart, Output, Section};
use crate::assemble::inserts::{SHORTEST, throughput};
use crate::charts::{Axis, LabelStyle, Line, LineChart, Plot, Point, Scale};
use crate::figures::{compact, percent as change_size, tiny};
use crate::key_results::{change, ends_in_words, sized};
use crate::model::{
    BUCKETS, CandidateStep, INSERT_METRICS, InsertFigures, InsertMetric, InsertReport, Responses,
    Role, StepReport, StepRun, Verdict, distinct,
};
use crate::words;

/// Maximum width of a candidate's name on a terminal.
const NAME: usize = 16;

/// Ratios closer to 1 have no colour.
const CLOSE: f64 = 0.02;

/// What a reader must know before figures are compared.
pub(crate) fn introduction(report: &InsertReport, output: Output) -> Vec<Text> {
    let orders: Vec<String> =
        report.order.iter().filter(|names| names.len() > 1).map(|names| names.join(", ")).collect();
    let about = words::insert_benchmark(report);
    let texts = match output {
        Output::Page => {
            let order = match orders.is_empty() {
                true => String::new(),
                false => format!(" Order, drawn from the seed: {}.", orders.join("; then ")),
            };
            vec![format!(
                "{about}{order} Background work that an engine defers in one step therefore slows down \
                 only its own later steps."
            )]
        }
        Output::Terminal | Output::Markdown => {
            let orders =
                (1..).zip(orders).map(|(number, names)| format!("Order {number}: {names}"));
            [about].into_iter().chain(orders).collect()
        }
    };
    texts.into_iter().map(|text| Text::new(text).style(Style::Dim)).collect()
}

/// All that is known of one step.
pub(crate) fn step(step: &StepReport, output: Output, room: usize) -> Section {
    let mut section = Section::new("step", format!("{}: {}", step.name, step.what));
    let remarks = remarks(step);
    let add_remarks = |section: &mut Section| {
        for remark in remarks {
            section.push(Text::new(remark).style(Style::Tone(Tone::Worse)));
        }
    };
    if output == Output::Page {
        section.push(values(step, output));
        section.push(Block::Chart(Chart::Lines(charts(step))));
        section.blocks.extend(response_times(step, output).map(|table| {
            let of_repeat = if step.has_repeats() { " of the last repeat" } else { "" };
            let summary =
                format!("Response times{of_repeat}: percentage in each bucket, and percentiles");
            Block::Details(summary, vec![table.into()])
        }));
    } else {
        section.push(values(step, output));
        if let Some(table) = response_times(step, output) {
            section.title("response times", if step.has_repeats() { "last repeat" } else { "" });
            section.push(table);
        }
        section.blocks.extend(bars(step, room).into_iter().map(Block::Text));
        add_remarks(&mut section);
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

pub(crate) fn name(candidate: &CandidateStep) -> Cell {
    let mark = match candidate.role {
        Role::Baseline => Mark::Baseline,
        Role::Candidate => Mark::Candidate(candidate.index),
        Role::Control => Mark::Control,
    };
    Cell::text(&candidate.candidate).mark(mark)
}

fn times(candidate: &CandidateStep) -> String {
    let times: Vec<String> = candidate.repeats.iter().map(|run| run.wall.to_string()).collect();
    times.join(", ")
}

fn values(step: &StepReport, output: Output) -> Table {
    let metrics = metrics(step, output);
    let titles = metrics.iter().map(|metric| Column::number(metric.name).what(metric.what));
    let mut columns = vec![Column::name("absolute").most(NAME)];
    columns.extend(titles);
    if !step.queries && !step.inserts {
        columns.push(Column::number("time"));
    }
    let has_time = columns.len() > metrics.len() + 1;
    let caption = format!("Values of {}", step.name);
    let mut table = Table::new(columns).class("steps").caption(caption);
    for candidate in &step.candidates {
        let mut name = name(candidate);
        if output == Output::Page {
            name = name.note(times(candidate));
        }
        if candidate.sustained() == Some(false) {
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
                Some(format!("{} – {}", ratio_text(low), ratio_text(high)))
            });
            let ends = ends.filter(|_| output == Output::Page);
            let cell = Cell::text(ratio_text(ratio))
                .interval(ends.map(|ends| Interval { ends, plus_minus: String::new() }));
            match verdict(step, candidate, metric) {
                Some(tone) => cell.tone(tone),
                None => cell,
            }
        };
        table.push(Row::new([name(candidate)].into_iter().chain(metrics.iter().map(cell))));
        if let (Some((low, high)), Output::Terminal) = (spread, output) {
            for (label, ends) in [("  least", low), ("  greatest", high)] {
                let cells = metrics
                    .iter()
                    .map(|metric| Cell::number(ends.get(metric.name).map(ratio_text)));
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
    let runs = || {
        let all = step.candidates.iter();
        all.flat_map(|one| one.repeats.iter().map(move |run| (one, run)))
    };
    let longest = runs().map(|(_, run)| whole(run).len()).max().unwrap_or(0);
    if longest < 3 {
        return Vec::new();
    }
    let names = runs().map(|(one, _)| width(&plain(&one.candidate))).max().unwrap_or(0).min(NAME);
    let rates = runs().flat_map(|(_, run)| whole(run).iter().map(|s| throughput(s, step.queries)));
    let greatest = rates.fold(0.0, f64::max);
    let per_column = longest.div_ceil(room.saturating_sub(names + 2).max(1));
    let title = format!(
        "{unit} over time: {per_column} s per column, full height {}; ! a write stall",
        compact(greatest)
    );
    let mut lines = vec![Text::new("").code(""), Text::new(title).style(Style::Dim)];
    for (candidate, run) in runs() {
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
    let mut remarks = Vec::new();
    for candidate in &step.candidates {
        for run in &candidate.repeats {
            let at = match candidate.repeats.len() {
                1 => candidate.candidate.clone(),
                _ => format!("{}, repeat {}", candidate.candidate, run.repeat),
            };
            remarks.extend(remarks_of(&at, run, step));
        }
    }
    remarks
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

/// What can stall in a step.
struct Stalls<'a> {
    /// The name of one.
    one: &'static str,
    many: &'static str,
    /// The seconds in which they stalled.
    seconds: &'a [u32],
    responses: &'a Option<Responses>,
}

fn kinds_of_stalls(run: &StepRun) -> [Stalls<'_>; 2] {
    let (seconds, responses) = (&run.stalls, &run.insert_responses);
    let inserts = Stalls { one: "insert", many: "inserts", seconds, responses };
    let (seconds, responses) = (&run.query_stalls, &run.query_responses);
    [inserts, Stalls { one: "query", many: "queries", seconds, responses }]
}

/// The ends of the interval of a candidate's ratio over the repeats.
fn interval_of(candidate: &CandidateStep, metric: &str) -> Option<(Ratio, Ratio)> {
    let (low, high) = candidate.relative_interval.as_ref()?;
    let of = |figures: &InsertFigures| figures.get(metric).map(Ratio::new);
    of(low).zip(of(high))
}

/// What was found about a candidate in a step, in words, and whether its throughput is better or worse.
pub(crate) struct StepFinding<'a> {
    pub(crate) step: &'a str,
    pub(crate) words: String,
    pub(crate) tone: Option<Tone>,
    /// The stalls, in words.
    pub(crate) stalls: String,
    /// Whether there were any.
    has_stalled: bool,
    /// The throughput alone, of the baseline its value.
    rate: String,
    /// CPU alone.
    cpu: String,
    /// What is to be said of both.
    remarks: Vec<String>,
}

impl StepFinding<'_> {
    /// `l.i1 61% more rows/s, 38% less CPU per row (under 10 s: no verdict)`. `said` are remarks on all steps.
    fn brief(&self, extent: Extent, said: &[String]) -> String {
        let with_cpu = extent != Extent::Rates && !self.cpu.is_empty();
        let cpu = if with_cpu { format!(", {}", self.cpu) } else { String::new() };
        let remarks = self.remarks.iter().filter(|one| !said.contains(one));
        let remarks: Vec<String> = remarks.cloned().collect();
        in_parentheses(&format!("{} {}{cpu}", self.step, self.rate), &remarks)
    }
}

/// How much an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// A sentence for each candidate and step, with intervals and stalls.
    Steps,
    /// A sentence for each candidate, with throughput and CPU of each step.
    Costs,
    /// The same without CPU.
    Rates,
}

/// The findings as sentences with the tone of their throughput, those of the baseline first.
pub(crate) fn conclusions(
    report: &InsertReport,
    baseline: &str,
    extent: Extent,
) -> Vec<(String, Tone)> {
    let mut sentences = Vec::new();
    for (candidate, findings) in findings(report) {
        let name = &candidate.candidate;
        let is_baseline = candidate.role == Role::Baseline;
        let against = if is_baseline { String::new() } else { format!(" against {baseline}") };
        if is_baseline || extent != Extent::Steps {
            let steps = || findings.iter().filter(|one| !one.rate.is_empty());
            let first = steps().next().map(|first| first.remarks.clone()).unwrap_or_default();
            let on_all = |remark: &String| steps().all(|one| one.remarks.contains(remark));
            let said: Vec<String> = first.into_iter().filter(on_all).collect();
            let briefs: Vec<String> = steps().map(|one| one.brief(extent, &said)).collect();
            if !briefs.is_empty() {
                let of = in_parentheses(&format!("{name}{against}"), &said);
                sentences.push((format!("{of}: {}", briefs.join("; ")), Tone::Alone));
            }
        }
        for one in findings.into_iter().filter(|_| extent == Extent::Steps) {
            let stalls = if one.has_stalled { one.stalls } else { String::new() };
            // What is said of the baseline is in its first sentence.
            let words = if is_baseline { String::new() } else { one.words };
            let parts = [words, stalls].into_iter().filter(|part| !part.is_empty());
            let words = parts.collect::<Vec<_>>().join("; ");
            if !words.is_empty() {
                let sentence = format!("{name} in {}{against}: {words}", one.step);
                sentences.push((sentence, one.tone.unwrap_or(Tone::Alone)));
            }
        }
    }
    sentences
}

/// Whether the rates of inserts were sustained; `None` without rates.
pub(crate) fn rates(report: &InsertReport) -> Option<String> {
    let steps = || report.steps.iter().filter(|step| step.rate.is_some());
    steps().next()?;
    let missed = steps().flat_map(|step| {
        let missed = step.candidates.iter().filter(|one| one.sustained() == Some(false));
        missed.map(move |one| format!("{} in {}", one.candidate, step.name))
    });
    let missed: Vec<String> = missed.collect();
    Some(match missed.is_empty() {
        true => "all rates of inserts were sustained".to_owned(),
        false => format!("not sustained: {}", missed.join(", ")),
    })
}

/// Where something stalled, and the longest insert or query of each candidate; `None` if no times are known.
pub(crate) fn stalls(report: &InsertReport) -> Option<String> {
    let all = || {
        let steps = report.steps.iter();
        steps.flat_map(|step| step.candidates.iter().map(move |one| (step, one)))
    };
    let of = |name: &str| {
        let own = all().filter(|(_, one)| one.candidate == name);
        let times = own.flat_map(|(step, one)| {
            let kinds = one.repeats.iter().flat_map(kinds_of_stalls);
            kinds.filter_map(move |kind| Some((kind.responses.as_ref()?.max, step)))
        });
        let (time, step) = times.max_by_key(|(time, _)| *time)?;
        Some(format!("{name} {time} in {}", step.name))
    };
    let names = || distinct(all().map(|(_, one)| one.candidate.as_str())).into_iter();
    let longest: Vec<String> = names().filter_map(of).collect();
    let has_stalled = |one: &CandidateStep| {
        one.repeats.iter().any(|run| !run.stalls.is_empty() || !run.query_stalls.is_empty())
    };
    let stalled_in = |name: &str| {
        let own = all().filter(|(_, one)| one.candidate == name && has_stalled(one));
        let steps: Vec<&str> = own.map(|(step, _)| step.name.as_str()).collect();
        (!steps.is_empty()).then(|| format!("{name} in {}", steps.join(" and ")))
    };
    let stalled: Vec<String> = names().filter_map(stalled_in).collect();
    let stalled = if stalled.is_empty() { "none".to_owned() } else { stalled.join(", ") };
    let text = || format!("{stalled} (longest insert or query: {})", longest.join(", "));
    (!longest.is_empty()).then(text)
}

/// What was found about each candidate in each step: throughput, CPU, and stalls.
pub(crate) fn findings(report: &InsertReport) -> Vec<(&CandidateStep, Vec<StepFinding<'_>>)> {
    let all = || report.steps.iter().flat_map(|step| &step.candidates);
    let of_candidate = |name: &str| {
        let found = report.steps.iter().filter_map(|step| {
            let own = step.candidates.iter().find(|one| one.candidate == name)?;
            let finding = found(report, step, own);
            (!finding.words.is_empty() || !finding.stalls.is_empty()).then_some(finding)
        });
        Some((all().find(|one| one.candidate == name)?, found.collect()))
    };
    distinct(all().map(|one| one.candidate.as_str())).into_iter().filter_map(of_candidate).collect()
}

/// The findings for a terminal and as Markdown; the page has its own form of them.
pub(crate) fn key_results(report: &InsertReport, output: Output) -> Section {
    let mut section = Section::new("key", "Key results");
    if output == Output::Terminal {
        section.title = "key results".to_owned();
    }
    for (candidate, findings) in findings(report) {
        if candidate.role == Role::Baseline {
            section.about = format!("compared with {}", candidate.candidate);
        }
        let fact = |StepFinding { step, words, tone, stalls, .. }| {
            let parts = [words, stalls].into_iter().filter(|part| !part.is_empty());
            Fact::new(step, parts.collect::<Vec<_>>().join("; "))
                .style(tone.map_or(Style::Plain, Style::Tone))
        };
        let facts: Vec<Fact> = findings.into_iter().map(fact).collect();
        if !facts.is_empty() {
            section.push(Text::new(&candidate.candidate));
            section.push(Facts::new(facts).indent(2));
        }
    }
    section
}

fn found<'a>(report: &InsertReport, step: &'a StepReport, own: &CandidateStep) -> StepFinding<'a> {
    let is_sustained = |one: &CandidateStep| one.sustained() != Some(false);
    let baseline = step.candidates.iter().find(|one| one.role == Role::Baseline);
    let (unit, work) = if step.queries { ("queries/s", "query") } else { ("rows/s", "row") };
    let missed = match baseline {
        _ if !is_sustained(own) => Some("the rate of inserts was not sustained"),
        Some(one) if !is_sustained(one) => Some("the baseline did not sustain the rate of inserts"),
        _ => None,
    };
    let throughput = step.throughput();
    let rate = match (missed, throughput) {
        (Some(missed), _) => Some(Difference { words: missed.to_owned(), ..Difference::default() }),
        (None, Some(metric)) => difference(own, metric, unit),
        (None, None) => difference_of_times(step, own, baseline),
    };
    let rate = rate.map(|rate| match missed {
        Some(_) => rate,
        None => Difference { remarks: caveats(report, step, own, baseline), ..rate },
    });
    let cpu = throughput.and_then(|_| difference(own, "cpupq", &format!("CPU per {work}")));
    let judged = INSERT_METRICS.iter().find(|one| Some(one.name) == throughput);
    let tone = judged.filter(|_| missed.is_none()).and_then(|metric| verdict(step, own, metric));
    let words = [&rate, &cpu].into_iter().flatten().map(Difference::words);
    let words = words.collect::<Vec<_>>().join("; ");
    let is_single = [&rate, &cpu].into_iter().flatten().any(|one| one.certainty == ONE_REPEAT);
    let cpu = cpu.map_or_else(String::new, |cpu| cpu.words);
    let (rate, remarks) = match rate {
        rate if own.role == Role::Baseline => {
            let value = throughput.and_then(|metric| own.figures.get(metric));
            let value =
                value.map_or_else(String::new, |value| format!("{} {unit}", compact(value)));
            (value, rate.into_iter().map(|missed| missed.words).collect())
        }
        Some(rate) => {
            let single = is_single.then(|| ONE_REPEAT.to_owned());
            (rate.words, single.into_iter().chain(rate.remarks).collect())
        }
        None => (String::new(), Vec::new()),
    };
    let (stalls, has_stalled) = stalls_in_words(own);
    StepFinding { step: &step.name, words, tone, stalls, has_stalled, rate, cpu, remarks }
}

/// The name of the step that creates indexes, of which the time is compared.
const INDEXES: &str = "l.x";

/// What is said of a difference without an interval.
const ONE_REPEAT: &str = "one repeat: not certain";

/// A figure compared with the baseline's.
#[derive(Default)]
struct Difference {
    /// `61% more rows/s`
    words: String,
    /// The interval, or what else is known; may be empty.
    certainty: String,
    /// What must be known about it.
    remarks: Vec<String>,
}

impl Difference {
    fn of(ratio: Ratio, interval: Option<(Ratio, Ratio)>, what: &str) -> Self {
        let (words, certainty) = match interval {
            None => (sized(ratio, None, what), ONE_REPEAT.to_owned()),
            Some((low, high)) if low > Ratio::ONE || high < Ratio::ONE => {
                (sized(ratio, None, what), ends_in_words(ratio, (low, high)))
            }
            Some((low, high)) => match possible_difference((low, high), None) {
                possible if is_too_noisy(possible) => (
                    format!("{what}: too noisy to tell"),
                    format!("{} to {}", change(low), change(high)),
                ),
                possible => (
                    format!("{what}: no difference found"),
                    format!("within {}", change_size(possible)),
                ),
            },
        };
        Self { words, certainty, remarks: Vec::new() }
    }

    /// `61% more rows/s (57% to 65%)`
    fn words(&self) -> String {
        let certainty = Some(&self.certainty).filter(|certainty| !certainty.is_empty());
        let remarks: Vec<String> = certainty.into_iter().chain(&self.remarks).cloned().collect();
        in_parentheses(&self.words, &remarks)
    }
}

fn in_parentheses(words: &str, remarks: &[String]) -> String {
    match remarks {
        [] => words.to_owned(),
        [..] => format!("{words} ({})", remarks.join("; ")),
    }
}

/// A figure of a step; `None` for the baseline.
fn difference(own: &CandidateStep, metric: &str, what: &str) -> Option<Difference> {
    let ratio = Ratio::new(own.relative.as_ref()?.get(metric)?);
    Some(Difference::of(ratio, interval_of(own, metric), what))
}

/// The time in which the indexes were created; `None` for the baseline and for other steps.
fn difference_of_times(
    step: &StepReport,
    own: &CandidateStep,
    baseline: Option<&CandidateStep>,
) -> Option<Difference> {
    let baseline = baseline.filter(|one| step.name == INDEXES && one.candidate != own.candidate)?;
    let ratio = |run: &StepRun| {
        let base = baseline.repeats.iter().find(|base| base.repeat == run.repeat)?;
        Some(Ratio::of(run.wall.as_secs_f64(), base.wall.as_secs_f64())?.get())
    };
    let ratios: Vec<f64> = own.repeats.iter().filter_map(ratio).collect();
    let ratio = Ratio::new(median(&ratios)?);
    Some(Difference::of(ratio, interval_of_repeats(&ratios), "time"))
}

/// Shorter steps have no verdict: the start of the clients, and a pause of the machine, weigh too much.
const SHORTEST_STEP: Nanos = Nanos::from_secs(10);

/// What is said of a difference in a shorter step.
const TOO_SHORT: &str = "under 10 s: no verdict";

/// From this share of waiting on, it is said.
const MOSTLY: Share = Share::from_fraction(0.5);

/// Whether a step of a candidate or of the baseline is too short for a verdict.
fn is_too_short(step: &StepReport, own: &CandidateStep) -> bool {
    let is_used =
        |one: &&CandidateStep| one.role == Role::Baseline || one.candidate == own.candidate;
    let mut runs = step.candidates.iter().filter(is_used).flat_map(|one| &one.repeats);
    runs.any(|run| run.wall < SHORTEST_STEP)
}

/// What a reader must know about a candidate's throughput in a step, relative to the baseline's.
fn caveats(
    report: &InsertReport,
    step: &StepReport,
    own: &CandidateStep,
    baseline: Option<&CandidateStep>,
) -> Vec<String> {
    let short = is_too_short(step, own).then(|| TOO_SHORT.to_owned());
    let waited = |one: &CandidateStep| {
        step.throughput()?;
        let used = one.figures.get("cpups")? / 100.0 / f64::from(report.busy_cpus?);
        Some(Share::from_fraction((1.0 - used).max(0.0)))
    };
    let waiting = waited(own).zip(baseline).and_then(|(share, baseline)| {
        let of_baseline = waited(baseline)?;
        (share >= MOSTLY || of_baseline >= MOSTLY).then(|| {
            format!(
                "waited {:.0}% of the time, {} {:.0}%",
                share.as_percent(),
                baseline.candidate,
                of_baseline.as_percent()
            )
        })
    });
    short.into_iter().chain(waiting).collect()
}

/// The stalls of all repeats: `inserts stalled in 6 of 60 seconds, the longest insert took 1.9 s; queries did not
/// stall, the longest took 12 ms`; and whether there were any.
fn stalls_in_words(own: &CandidateStep) -> (String, bool) {
    let mut has_stalled = false;
    let all: usize = own.repeats.iter().map(|run| run.seconds.len()).sum();
    let of_kind = |kind: usize| {
        let kinds = own.repeats.iter().map(|run| kinds_of_stalls(run).into_iter().nth(kind));
        let kinds: Vec<Stalls<'_>> = kinds.flatten().collect();
        let Stalls { one, many, .. } = kinds.first()?;
        let longest = kinds.iter().filter_map(|one| Some(one.responses.as_ref()?.max)).max()?;
        let stalls = kinds.iter().map(|one| one.seconds.len()).sum::<usize>();
        has_stalled |= stalls > 0 || longest >= Nanos::from_secs(1);
        Some(match stalls {
            // With fewer than two a second, none is counted.
            0 if longest >= Nanos::from_secs(1) => format!("the longest {one} took {longest}"),
            0 => format!("{many} did not stall, the longest took {longest}"),
            stalls => {
                format!(
                    "{many} stalled in {stalls} of {all} seconds, the longest {one} took {longest}"
                )
            }
        })
    };
    let words = (0..2).filter_map(of_kind).collect::<Vec<_>>().join("; ");
    (words, has_stalled)
}

const PLOT: Plot =
    Plot { width: 560.0, height: 190.0, left: 50.0, right: 538.0, top: 14.0, bottom: 160.0 };

/// Maximum number of points of a line.
const MAX_POINTS: usize = 500;

/// Steps with fewer seconds have no charts.
const MIN_SECONDS: usize = 3;

/// Throughput, the worst response time of each second, and what it costs, over time.
fn charts(step: &StepReport) -> Vec<LineChart> {
    let runs = step.candidates.iter().flat_map(|one| &one.repeats);
    if runs.map(|run| run.seconds.len()).max().is_none_or(|longest| longest < MIN_SECONDS) {
        return Vec::new();
    }
    let per_second = |amount: f64, second: &Second| amount / second.elapsed.as_secs_f64().max(1e-9);
    let millis = |time: Option<Nanos>| time.map(Nanos::as_millis_f64);
    let mut charts = Vec::new();
    let mut add = |title, logarithmic, stalls, value: &dyn Fn(&Second) -> Option<f64>| {
        charts.extend(chart(step, title, (logarithmic, stalls), value));
    };
    if step.queries {
        add("queries/s", false, false, &|s| Some(per_second(s.queries as f64, s)));
        add("worst query, ms", true, false, &|s| millis(s.query_worst));
    }
    if step.inserts {
        add("rows inserted/s", false, true, &|s| Some(per_second(s.inserts as f64, s)));
        let worst = "worst insert, ms, from the scheduled time";
        add(worst, true, true, &|s| millis(s.insert_worst));
    }
    add("CPU of the system under test, %", false, false, &|s| {
        Some(100.0 * per_second(s.system?.cpu.as_secs_f64(), s))
    });
    add("written to the device, MB/s", false, false, &|s| {
        Some(per_second(s.device?.written.as_bytes() as f64 / 1e6, s))
    });
    charts
}

/// `None` if all values are 0.
fn chart(
    step: &StepReport,
    title: &'static str,
    (logarithmic, with_stalls): (bool, bool),
    value: &dyn Fn(&Second) -> Option<f64>,
) -> Option<LineChart> {
    type Points = Vec<(f64, f64)>;
    let mut runs: Vec<(&CandidateStep, &StepRun, Points)> = Vec::new();
    for candidate in &step.candidates {
        for run in &candidate.repeats {
            let seconds = run.seconds.iter();
            // A second that was cut off would end every line with a drop.
            let seconds = seconds.filter(|second| second.elapsed >= SHORTEST);
            let points = seconds.filter_map(|s| Some((f64::from(s.number) + 0.5, value(s)?)));
            runs.push((candidate, run, points.collect()));
        }
    }
    runs.retain(|(.., points)| !points.is_empty());
    let values = || runs.iter().flat_map(|(.., points)| points.iter().map(|(_, value)| *value));
    if values().all(|value| value <= 0.0) {
        return None;
    }
    let ends = runs.iter().flat_map(|(.., points)| points.iter().map(|(second, _)| *second + 0.5));
    let end = ends.fold(1.0, f64::max);
    let words = runs.iter().map(|(candidate, _, points)| {
        let least = points.iter().map(|(_, v)| *v).fold(f64::INFINITY, f64::min);
        let most = points.iter().map(|(_, v)| *v).fold(0.0, f64::max);
        format!("{} between {} and {}", candidate.candidate, compact(least), compact(most))
    });
    let words: Vec<String> = words.collect();
    let point = |(second, value): (f64, f64)| Point {
        at: second / end,
        value,
        whisker: None,
        title: String::new(),
        bound: false,
    };
    let lines = runs.iter().map(|(candidate, run, points)| Line {
        mark: name(candidate).mark.unwrap_or(Mark::Baseline),
        title: format!("{}, repeat {}", candidate.candidate, run.repeat),
        points: thinned(points).into_iter().map(point).collect(),
    });
    let stalls = runs.iter().filter(|_| with_stalls).flat_map(|(candidate, run, _)| {
        run.stalls.iter().map(move |second| {
            let title = format!("{}: write stall in second {second}", candidate.candidate);
            ((f64::from(*second) + 0.5) / end, title)
        })
    });
    Some(LineChart {
        title: title.to_owned(),
        description: format!("{title} in {}: {}", step.name, words.join("; ")),
        plot: PLOT,
        margins: (0.0, 0.0),
        axis: match logarithmic {
            true => Axis::logarithmic(values()),
            false => Axis::Linear(Scale::from_zero(values())),
        },
        labels: time_ticks(end).into_iter().map(|at| (at / end, format!("{at:.0} s"))).collect(),
        style: LabelStyle::Bare,
        below: "",
        noise: None,
        lines: lines.collect(),
        stalls: stalls.collect(),
    })
}

fn time_ticks(end: f64) -> Vec<f64> {
    const STEPS: [f64; 12] =
        [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0];
    let step = STEPS.into_iter().find(|step| end / step <= 8.0).unwrap_or(end / 6.0);
    (0..=(end / step) as u32).map(|n| f64::from(n) * step).collect()
}

/// The extremes of equal parts of a line with too many points.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= MAX_POINTS {
        return points.to_vec();
    }
    let length = points.len().div_ceil(MAX_POINTS / 2);
    let by_value = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
    let mut thinned = Vec::new();
    for chunk in points.chunks(length) {
        let ends = chunk.iter().min_by(by_value).zip(chunk.iter().max_by(by_value));
        let Some((least, most)) = ends else { continue };
        let (first, second) = if least.0 <= most.0 { (least, most) } else { (most, least) };
        thinned.push(*first);
        if first != second {
            thinned.push(*second);
        }
    }
    thinned
}

pub(crate) fn key(report: &InsertReport) -> String {
    let metrics = INSERT_METRICS.iter().map(|one| format!("{}: {}. ", one.name, one.what));
    metrics.collect::<String>() + &words::insert_definitions(report)
}

/// The throughput of each step and candidate, for Markdown.
pub(crate) fn markdown(report: &InsertReport) -> Section {
    let mut section = Section::new("inserts", "Insert benchmark");
    let all = report.steps.iter().flat_map(|step| &step.candidates);
    let names = distinct(all.map(|one| one.candidate.as_str()));
    let labels = [Column::name("step"), Column::text("work"), Column::text("metric")];
    let mut table =
        Table::new(labels.into_iter().chain(names.iter().map(|one| Column::number(*one))));
    for step in &report.steps {
        for metric in ["ips", "qps", "maxop", "cpupq"] {
            let value = |name: &&str| {
                let candidate = step.candidates.iter().find(|one| one.candidate == **name)?;
                let value = compact(candidate.figures.get(metric)?);
                let ratio = candidate.relative.as_ref().and_then(|relative| relative.get(metric));
                let ratio = ratio.map_or_else(String::new, |ratio| format!(" ({ratio:.2})"));
                Some(format!("{value}{ratio}"))
            };
            let values: Vec<Option<String>> = names.iter().map(value).collect();
            if values.iter().any(Option::is_some) {
                let labels = [step.name.as_str(), &step.what, metric].map(Cell::text);
                table
                    .push(Row::new(labels.into_iter().chain(values.into_iter().map(Cell::number))));
            }
        }
    }
    section.note(words::insert_benchmark(report));
    section.push(table);
    section.note(
        "Ratios to the baseline in parentheses. ips: rows inserted per second; qps: queries per \
         second; maxop: the longest response time in seconds; cpupq: µs of CPU per query or row.",
    );
    section
}

/// Whether a figure is better or worse than the baseline's; `None` also in short steps.
fn verdict(step: &StepReport, own: &CandidateStep, metric: &InsertMetric) -> Option<Tone> {
    let ratio = own.relative.as_ref()?.get(metric.name)?;
    let interval = interval_of(own, metric.name).filter(|_| !is_too_short(step, own));
    standing(metric, ratio, interval)
}

/// Whether a ratio is better or worse; `None` if it is close to 1 or neither, or if the repeats do not
/// tell: one repeat never does.
fn standing(metric: &InsertMetric, ratio: f64, interval: Option<(Ratio, Ratio)>) -> Option<Tone> {
    let (low, high) = interval?;
    if (ratio - 1.0).abs() < CLOSE || (low <= Ratio::ONE && high >= Ratio::ONE) {
        return None;
    }
    let verdict = metric.better?.verdict(Some(Side::of(Ratio::new(ratio))));
    Some(Verdict::from(verdict).tone())
}

fn figure(value: f64) -> String {
    if value == 0.0 {
        "0".to_owned()
    } else if value < 0.001 {
        tiny(value)
    } else if value < 0.01 {
        format!("{value:.4}")
    } else if value < 0.1 {
        format!("{value:.3}")
    } else {
        compact(value)
    }
}

pub(crate) fn ratio_text(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 0.005 => tiny(ratio),
        ratio if ratio < 9.995 => format!("{ratio:.2}"),
        ratio if ratio < 99.95 => format!("{ratio:.1}"),
        ratio => compact(ratio),
    }
}

/// A share in at most four characters; empty for none.
fn percent(share: Share) -> String {
    let percent = share.as_percent();
    if percent <= 0.0 {
        String::new()
    } else if percent < 0.01 {
        "<.01".to_owned()
    } else if percent < 0.995 {
        format!("{percent:.2}")[1..].to_owned()
    } else if percent < 99.95 {
        format!("{percent:.1}")
    } else if percent < 100.0 {
        "99.9".to_owned()
    } else {
        "100".to_owned()
    }
}

struct OneRun<'a> {
    step: &'a StepReport,
    candidate: &'a CandidateStep,
    run: &'a StepRun,
}

fn lines(report: &InsertReport) -> impl Iterator<Item = OneRun<'_>> {
    report.steps.iter().flat_map(|step| {
        step.candidates.iter().flat_map(move |candidate| {
            candidate.repeats.iter().map(move |run| OneRun { step, candidate, run })
        })
    })
}

/// One line per step, candidate and repeat.
pub(crate) fn steps_csv(report: &InsertReport) -> String {
    let time = |responses: &Option<Responses>, of: fn(&Responses) -> Nanos| {
        seconds(responses.as_ref().map(of))
    };
    let mut csv = Csv::of(lines(report))
        .column("step", |line| line.step.name.clone())
        .column("candidate", |line| line.candidate.candidate.clone())
        .column("repeat", |line| line.run.repeat.to_string())
        .column("clients", |_| report.clients.to_string())
        .column("tables", |_| report.tables.to_string())
        .column("rows", |line| line.run.rows.to_string())
        .column("seconds", |line| seconds(Some(line.run.wall)));
    for metric in &INSERT_METRICS {
        csv = csv.column(metric.name, |line| decimals(line.run.figures.get(metric.name), 6));
    }
    csv.column("target_ips", |line| or_empty(line.step.rate))
        .column("sustained", |line| or_empty(line.run.sustained))
        .column("overdue_rows", |line| line.run.overdue.to_string())
        .column("stalls", |line| line.run.stalls.len().to_string())
        .column("retries", |line| line.run.retries.to_string())
        .column("lock_waits", |line| line.run.lock_waits.to_string())
        .column("wrong", |line| line.run.wrong.to_string())
        .column("from_copy", |line| line.run.from_copy.to_string())
        .column("rows_per_query", |OneRun { run, .. }| {
            let per_query = run.rows_returned as f64 / run.queries as f64;
            decimals((run.queries > 0).then_some(per_query), 3)
        })
        .column("insert_p50_s", |line| time(&line.run.insert_responses, |r| r.p50))
        .column("insert_p99_s", |line| time(&line.run.insert_responses, |r| r.p99))
        .column("insert_max_s", |line| time(&line.run.insert_responses, |r| r.max))
        .column("insert_service_p50_s", |line| time(&line.run.insert_service, |r| r.p50))
        .column("insert_service_p99_s", |line| time(&line.run.insert_service, |r| r.p99))
        .column("insert_service_max_s", |line| time(&line.run.insert_service, |r| r.max))
        .column("query_p50_s", |line| time(&line.run.query_responses, |r| r.p50))
        .column("query_p99_s", |line| time(&line.run.query_responses, |r| r.p99))
        .column("query_max_s", |line| time(&line.run.query_responses, |r| r.max))
        .column("delete_p99_s", |line| time(&line.run.delete_responses, |r| r.p99))
        .column("delete_max_s", |line| time(&line.run.delete_responses, |r| r.max))
        .column("query_stalls", |line| line.run.query_stalls.len().to_string())
        .text()
}

/// One line per second of every step. Reads and writes of `process` are those of the system under
/// test, those of `device` include all processes.
pub(crate) fn series_csv(report: &InsertReport) -> String {
    let all = lines(report).flat_map(|OneRun { step, candidate, run }| {
        run.seconds.iter().map(move |second| (OneRun { step, candidate, run }, second))
    });
    let rate = |second: &Second, count: u64| {
        decimals(Some(count as f64 / second.elapsed.as_secs_f64()), 3)
    };
    let bytes = |bytes: Option<Bytes>| or_empty(bytes.map(Bytes::as_bytes));
    let device = |second: &Second, of: fn(DeviceUsage) -> u64| or_empty(second.device.map(of));
    Csv::of(all)
        .column("step", |(line, _)| line.step.name.clone())
        .column("candidate", |(line, _)| line.candidate.candidate.clone())
        .column("repeat", |(line, _)| line.run.repeat.to_string())
        .column("second", |(_, second)| second.number.to_string())
        .column("elapsed_s", |(_, second)| seconds(Some(second.elapsed)))
        .column("ips", |(_, second)| rate(second, second.inserts))
        .column("qps", |(_, second)| rate(second, second.queries))
        .column("dps", |(_, second)| rate(second, second.deletes))
        .column("insert_worst_s", |(_, second)| seconds(second.insert_worst))
        .column("query_worst_s", |(_, second)| seconds(second.query_worst))
        .column("delete_worst_s", |(_, second)| seconds(second.delete_worst))
        .column("cpu_s", |(_, second)| seconds(second.system.map(|used| used.cpu)))
        .column("user_s", |(_, second)| seconds(second.system.map(|used| used.user)))
        .column("system_s", |(_, second)| seconds(second.system.map(|used| used.system)))
        .column("client_cpu_s", |(_, second)| seconds(second.client_cpu))
        .column("context_switches", |(_, second)| {
            or_empty(second.system.and_then(|used| used.context_switches))
        })
        .column("process_read_bytes", |(_, second)| {
            bytes(second.system.and_then(|used| used.read_from_storage))
        })
        .column("process_written_bytes", |(_, second)| {
            bytes(second.system.and_then(|used| used.written_to_storage))
        })
        .column("device_reads", |(_, second)| device(second, |device| device.reads))
        .column("device_read_bytes", |(_, second)| device(second, |device| device.read.as_bytes()))
        .column("device_writes", |(_, second)| device(second, |device| device.writes))
        .column("device_written_bytes", |(_, second)| {
            device(second, |device| device.written.as_bytes())
        })
        .column("database_bytes", |(_, second)| bytes(second.database))
        .column("rss_bytes", |(_, second)| bytes(second.resident))
        .column("stall", |(line, second)| line.run.stalls.contains(&second.number).to_string())
        .column("query_stall", |(line, second)| {
            line.run.query_stalls.contains(&second.number).to_string()
        })
        .text()
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn seconds(time: Option<Nanos>) -> String {
    decimals(time.map(Nanos::as_secs_f64), 6)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Report;
    use crate::terminal::{TerminalOptions, render};
    use crate::{html, sample};

    #[test]
    fn small_values_differ_from_zero() {
        let shares = [0.0, 0.001, 0.5, 0.994, 1.0, 12.34, 99.94, 99.99, 100.0]
            .map(|value| percent(Share::from_percent(value)));
        assert_eq!(shares, ["", "<.01", ".50", ".99", "1.0", "12.3", "99.9", "99.9", "100"]);
        let figures = [0.0, 0.000_04, 0.0042, 0.042, 4.2].map(figure);
        assert_eq!(figures, ["0", "4e-5", "0.0042", "0.042", "4.20"]);
        assert_eq!([0.0, 0.003, 0.03, 12.0].map(ratio_text), ["0.00", "3e-3", "0.03", "12.0"]);
        let bars: [&[f64]; 4] = [&[0.0, 0.0], &[0.1], &[8.0, 8.0], &[4.0]];
        let bars = bars.map(|values| bar(values.iter().copied(), 8.0));
        assert_eq!(bars, [' ', '▁', '█', '▄']);
    }

    #[test]
    fn better_depends_on_the_metric() {
        let of = |name, ratio: f64| {
            let metric = INSERT_METRICS.iter().find(|metric| metric.name == name).unwrap();
            let ends =
                |low: f64, high: f64| Some((Ratio::new(ratio * low), Ratio::new(ratio * high)));
            assert_eq!(standing(metric, ratio, None), None, "one repeat");
            assert_eq!(standing(metric, ratio, ends(0.5, 1.5)), None);
            standing(metric, ratio, ends(0.99, 1.01))
        };
        assert_eq!(of("ips", 1.2), Some(Tone::Better));
        assert_eq!(of("cpupq", 1.2), Some(Tone::Worse));
        for of_the_device in ["rps", "rpq", "rkbpq", "wpi", "wkbpi", "wmbps"] {
            assert_eq!(of(of_the_device, 1.2), None);
        }
        assert_eq!(of("ips", 1.01), None);
    }

    #[test]
    fn thinned_line_keeps_stall_of_one_second() {
        let points: Vec<(f64, f64)> = (0..3600)
            .map(|n| (f64::from(n), if n == 1_234 { 0.0 } else { 100.0 + f64::from(n % 7) }))
            .collect();
        let thinned = thinned(&points);
        assert!(thinned.len() <= MAX_POINTS, "{}", thinned.len());
        assert!(thinned.contains(&(1_234.0, 0.0)));
        assert!(thinned.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn time_ticks_are_round() {
        assert_eq!(time_ticks(7.0), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        assert_eq!(time_ticks(60.0), [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0]);
        assert!(time_ticks(100_000.0).len() <= 15);
    }

    fn drawn(report: &Report, width: usize) -> String {
        render(
            report,
            &TerminalOptions { width, color: false, three_groups: false, details: false },
        )
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        let report = sample::inserts();
        for width in [80, 100, 132] {
            for line in drawn(&report, width).lines() {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    #[test]
    fn the_report_says_what_must_be_known_before_figures_are_compared() {
        let text = drawn(&sample::inserts(), 80);
        let words: Vec<&str> = text.split_whitespace().collect();
        let text = words.join(" ");
        for said in [
            "Candidates ran one after another",
            "Order 2: myrocks-with-a-long-name, postgresql, innodb",
            "! myrocks-with-a-long-name, repeat 1: the rate was not sustained",
            "its qps cannot be compared",
            "repeat 1: inserts stalled in 6 seconds; the longest insert took 1.9 s",
            "! myrocks-with-a-long-name, repeat 1: queries stalled in 6 seconds",
            "queries did not stall, the longest took 4 ms",
            "key results compared with innodb",
            "61.3% more rows/s (59.9% to 62.8%); 37.9% less CPU per row",
            "postgresql, repeat 2: went on after an interruption",
            "greatest",
        ] {
            assert!(text.contains(said), "`{said}` is missing in\n{text}");
        }
        // Candidates without a problem have no mark.
        assert!(!text.contains("! innodb,") && !text.contains("! postgresql,"));
    }

    /// The sentences of the answer, each of one candidate and step.
    fn sentences(insert: &InsertReport) -> Vec<(String, Tone)> {
        conclusions(insert, "innodb", Extent::Steps)
    }

    #[test]
    fn waiting_of_either_one_is_said_beside_the_throughput() {
        let mut report = sample::inserts();
        let insert = report.insert.as_mut().unwrap();
        let expected =
            "myrocks-with-a-long-name in l.i1 against innodb: 61.3% more rows/s (59.9% to 62.8%";
        let first = |insert: &InsertReport| sentences(insert)[1].clone();
        assert!(first(insert).0.starts_with(&format!("{expected}); ")), "{:?}", first(insert));
        insert.steps[0].candidates[1].figures.set("cpups", Some(12.0));
        let (words, tone) = first(insert);
        let waited = format!("{expected}; waited 88% of the time, innodb 25%); ");
        assert!(words.starts_with(&waited), "{words}");
        assert_eq!(tone, Tone::Better);
        insert.busy_cpus = None;
        assert!(!first(insert).0.contains("waited"));
    }

    #[test]
    fn short_steps_and_single_repeats_have_no_verdict() {
        let mut report = sample::inserts();
        let insert = report.insert.as_mut().unwrap();
        let of = |insert: &InsertReport, step: &str| {
            let start = format!("postgresql in {step} against innodb: ");
            let found = sentences(insert).into_iter().find(|(words, _)| words.starts_with(&start));
            let (words, tone) = found.unwrap();
            (words.strip_prefix(&start).unwrap().to_owned(), tone)
        };
        assert_eq!(of(insert, "l.i1").1, Tone::Better);
        insert.steps[0].candidates[2].repeats[1].wall = Nanos::from_secs(3);
        let (words, tone) = of(insert, "l.i1");
        let short = "24.8% more rows/s (24.2% to 25.3%; under 10 s: no verdict); ";
        assert!(words.starts_with(short), "{words}");
        assert_eq!(tone, Tone::Alone);
        // Steps that the baseline ended early are no better.
        insert.steps[2].candidates[0].repeats[0].wall = Nanos::from_secs(9);
        assert_eq!(of(insert, "q1000").1, Tone::Alone);
        for run in &mut insert.steps[1].candidates[2].repeats {
            run.wall = Nanos::from_secs(40);
        }
        assert_eq!(of(insert, "l.x").0, "2.00 times the time (2.00 to 2.00)");
        insert.steps[0].candidates[1].relative_interval = None;
        let brief = &conclusions(insert, "innodb", Extent::Costs)[1].0;
        let one = "l.i1 61.3% more rows/s, 37.9% less CPU per row (one repeat: not certain); ";
        assert!(brief.contains(one), "{brief}");
        // What holds for all steps is said once.
        for step in &mut insert.steps {
            step.candidates[1].repeats.truncate(1);
            step.candidates[1].relative_interval = None;
        }
        let brief = &conclusions(insert, "innodb", Extent::Rates)[1].0;
        let start = "myrocks-with-a-long-name against innodb (one repeat: not certain): l.i1 61.3% more rows/s; ";
        assert!(brief.starts_with(start), "{brief}");
        assert_eq!(brief.matches("one repeat").count(), 1, "{brief}");
    }

    #[test]
    fn a_table_in_80_columns() {
        let text = drawn(&sample::inserts(), 80);
        let part: Vec<&str> =
            text.lines().skip_while(|line| !line.starts_with("l.i1")).take(16).collect();
        insta::assert_snapshot!(part.join("\n"), @r#"
l.i1: each client inserts 1600000 rows, 50 per commit
absolute            ips    p50    p99  maxop  cpupq  ccpupq  cspq   rps  rmbps
──────────────────────────────────────────────────────────────────────────────
innodb            20.2k  20.2k  18.6k  0.029   37.2    2.98  0.47  14.6   0.16
myrocks-…ng-name  32.5k  33.1k    659   1.90   23.1    1.84  0.29  14.7   0.16
postgresql        25.2k  25.2k  23.6k  0.029   29.8    2.38  0.38  14.6   0.16
relative
myrocks-…ng-name   1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.01   1.00
  least            1.61   1.64   0.04   65.5   0.62    0.62  0.62  0.99   1.00
  greatest         1.61   1.64   0.04   65.5   0.62    0.62  0.62  1.02   1.00
postgresql         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
  least            1.25   1.25   1.27   1.00   0.80    0.80  0.80  0.99   1.00
  greatest         1.25   1.25   1.27   1.00   0.80    0.80  0.80  1.00   1.00
absolute           wps  wmbps   rpq   rkbpq    wpi  wkbpi   csps  cpups  dbgb
─────────────────────────────────────────────────────────────────────────────
innodb             810   36.3  7e-4  0.0081  0.040   1.80  9.51k   75.1  3.35
"#);
    }

    #[test]
    fn names_that_differ_at_the_end_are_distinct() {
        let names =
            ["postgresql-of-debian-14", "postgresql-of-debian-15", "postgresql-of-debian-18"];
        let mut report = sample::inserts();
        let steps = &mut report.insert.as_mut().unwrap().steps;
        for one in steps.iter_mut().flat_map(|step| step.candidates.iter_mut().zip(names)) {
            one.0.candidate = one.1.to_owned();
        }
        let text = drawn(&report, 80);
        let labels = |of: &dyn Fn(&&str) -> bool| -> BTreeSet<String> {
            text.lines().filter(of).map(|line| line.chars().take(16).collect()).collect()
        };
        let bars = labels(&|line| line.contains('█') || line.contains('▇'));
        assert_eq!(bars.len(), names.len(), "{bars:?}");
        for kind in [" inserts ", " queries "] {
            let shares = labels(&|line| line.contains('…') && line.contains(kind));
            assert_eq!(shares.len(), names.len(), "{shares:?} in\n{text}");
        }
    }

    #[test]
    fn exports_have_their_columns_in_every_line() {
        let report = sample::inserts();
        let insert = report.insert.unwrap();
        for (text, columns) in [(steps_csv(&insert), 49), (series_csv(&insert), 26)] {
            let mut reader = ::csv::Reader::from_reader(text.as_bytes());
            assert_eq!(reader.headers().unwrap().len(), columns);
            let lines = reader.records().map(Result::unwrap).count();
            assert!(lines >= 3 * 3 * 2, "{lines}");
        }
        let first = steps_csv(&insert);
        assert!(first.starts_with("step,candidate,repeat,clients,tables,rows,seconds,ips,qps,"));
        assert!(series_csv(&insert).starts_with("step,candidate,repeat,second,"));
    }

    #[test]
    fn page_has_a_line_per_repeat_and_a_marker_per_stall() {
        let page = html::render(&sample::inserts());
        let step = page.split("id=\"step-q1000\"").nth(1).unwrap();
        let chart = step.split("<figure>").nth(1).unwrap().split("</figure>").next().unwrap();
        assert_eq!(chart.matches("<polyline").count(), 6);
        // Two charts of inserts, with six stalls in each of two repeats, in two steps.
        assert_eq!(page.matches("class=\"stall\"").count(), 2 * 2 * 6 * 2);
        assert!(page.contains("rate not sustained"));
    }
}
