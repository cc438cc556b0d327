//! The report as text for a terminal: the order of its sections.
//!
//! The tables of groups are not part of the document: a row per microbenchmark, a column per candidate, in
//! the most detailed arrangement that fits the width, which depends on the width of all tables.

use dbdyno_text::{Fact, Facts, Tone, break_name, cut, left, plain, right, terminal, width, wrap};
use dbdyno_units::Qps;

use crate::figures::{compact, ends, plus_minus, ratio};
use crate::key_results::{self, conclusions, conclusions_of_each};
use crate::metric::{Grouping, compared, missing};
use crate::model::{
    Absolute, CandidateRecord, Estimate, InsertReport, Metric, MicrobenchmarkRows, Report, Role,
    Row, RunStatus, Verdict,
};
use crate::sections::builds::{builds, flags};
use crate::sections::engine_counters::engine_counters;
use crate::sections::inserts::Extent;
use crate::sections::key_results::{key_results as key_results_section, summaries};
use crate::sections::operations::{Part, counters, operations};
use crate::sections::overview::{
    config_diff, introduction, notes, nothing, rates_of_scripts, training,
};
use crate::sections::series::{comes_first, effects, series};
use crate::sections::statements::{largest_differences, statements};
use crate::sections::{LONGEST_NAME, Output, Section, inserts, plans, profile, sweep, waits};
use crate::words;

pub use dbdyno_text::{COLOR_CODES, Paint};

/// Where the tables by candidate are, if they are left out.
const NOT_BY_CANDIDATE: &str =
    "relative.csv and the page have every candidate relative to the baseline; --details prints it.";

/// Output options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Characters per line; 80 is enough for four candidates and the control.
    pub width: usize,
    /// Whether to use ANSI colours; signs carry the same meaning without them.
    pub color: bool,
    /// Three groups (point, range, writes) as in older reports, instead of five.
    pub three_groups: bool,
    /// Also show the cost per operation: a table per microbenchmark, absolute and relative.
    pub details: bool,
}

/// Render the report as text, ending with a line feed.
pub fn render(report: &Report, options: &TerminalOptions) -> String {
    let paint = Paint::new(options.color);
    let draw = |sections: &[Section]| terminal(sections, options.width, paint);
    let mut out = format!("{}{}", first_line(report, paint), draw(&[introduction(report)]));
    let output = Output::Terminal;
    if let Some(insert) = &report.insert {
        let mut sections = of_inserts(insert, options.width);
        sections.extend([builds(report, output), config_diff(report), notes(report, output)]);
        return out + &draw(&sections);
    }
    if report.microbenchmarks.is_empty() {
        out.push_str(&draw(&[nothing()]));
    }
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let by_series = comes_first(report) && !options.details;
    // The report with names for tables. Those of a series are shortened there.
    let short = if by_series { Vec::new() } else { short_names(report, options.width) };
    let renamed = (!short.is_empty()).then(|| renamed(report, &short));
    let (full, report) = (report, renamed.as_ref().unwrap_or(report));
    if !short.is_empty() {
        let mut legend = Section::new("names", "names in tables");
        let names = short.iter().map(|(long, short)| Fact::new(short, *long));
        legend.push(Facts::new(names).indent(2));
        out.push_str(&draw(&[legend]));
    }
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        if by_series {
            break;
        }
        for metric in metrics(report, &members) {
            let layout = Layout::choose(report, *metric, options.width);
            render_group(&mut out, report, (group, &members), &layout, paint);
        }
    }
    let mut sections = vec![sweep::all_steps(report)];
    if options.details {
        let groups = grouping.groups(&report.microbenchmarks).into_values();
        let members: Vec<_> = groups.flatten().map(|(_, member)| member).collect();
        let parts = [Part::Costs, Part::ResponseTimes, Part::Counters];
        sections.extend(parts.map(|part| operations(report, part, &members, output)));
        sections.push(counters(report, output));
        sections.push(statements(report, output));
        sections.push(engine_counters(report, output));
        sections.push(plans::plans(report));
        sections.push(profile::summary(report, output));
        sections.push(waits::waits(report, None));
    }
    if !by_series {
        sections.push(summaries(report, Metric::Qps, grouping, output));
    }
    sections.push(effects(report, output));
    sections.push(series(full, output));
    sections.push(training(report, grouping));
    if options.details && report.has(Metric::Cpu) {
        sections.push(summaries(report, Metric::Cpu, grouping, output));
    }
    sections.extend([builds(full, output), config_diff(report), notes(full, output)]);
    if by_series {
        let mut section = Section::new("note", "");
        section.note(NOT_BY_CANDIDATE);
        sections.push(section);
    } else {
        sections.push(key_results_section(full, grouping, output));
    }
    sections.push(sweep::scaling(report, grouping, output));
    sections.push(sweep::key_results(report, grouping));
    out + &draw(&sections)
}

/// The lines of a screen that an answer may have, without the line of the prompt.
const SCREEN: usize = 23;

/// Where a candidate, or each, needs another CPU time than the baseline, with `details` in all layers and functions, and
/// where it waits; `None` without profiles and recorded waits of it.
pub fn why(
    report: &Report,
    candidate: Option<&str>,
    microbenchmark: Option<&str>,
    options: &TerminalOptions,
) -> Option<String> {
    let mut sections = profile::why(report, candidate, microbenchmark, options.details);
    let mut of_waits = report.clone();
    of_waits.microbenchmarks.retain(|one| microbenchmark.is_none_or(|name| one.name == name));
    let of_waits = waits::waits(&of_waits, candidate);
    if !of_waits.blocks.is_empty() {
        sections.push(of_waits);
    }
    let text = terminal(&sections, options.width, Paint::new(options.color));
    (!sections.is_empty()).then(|| text.trim_start_matches('\n').to_owned())
}

/// The answer to a question in one line, on one screen of 80 columns: a sentence per result, then what
/// a reader must know about it, then where the rest is. `None` without results.
pub fn answer(report: &Report, options: &TerminalOptions) -> Option<String> {
    let mut last = None;
    for of_each in [true, false] {
        for extent in EXTENTS {
            let (text, is_whole) = screen(report, options, extent, of_each)?;
            last = Some(text);
            if is_whole {
                return last;
            }
        }
    }
    last
}

/// How much an answer says, the most first: of an insert benchmark, how many times the least number of
/// lines a text has at most, and how many texts of a kind there are.
const EXTENTS: [(Extent, usize, usize); 7] = [
    (Extent::Steps, 4, 2),
    (Extent::Steps, 2, 2),
    (Extent::Costs, 2, 2),
    (Extent::Rates, 2, 2),
    (Extent::Rates, 2, 1),
    (Extent::Rates, 1, 1),
    (Extent::Rates, 1, 0),
];

/// More lines than this are not whole, even if they are one sentence.
const LONGEST_SENTENCE: usize = 4;

/// A text in lines, and whether this is all of it: if it has more than `most` lines, only its first sentences, or
/// clauses, that fit; the shortest if none fits.
fn whole_sentences(text: &str, columns: usize, most: usize) -> (Vec<String>, bool) {
    let lines = |text: &str| -> Vec<String> {
        wrap(text, columns).iter().flat_map(|line| break_name(line, columns)).collect()
    };
    // Longer ones cannot fit, and a text of somebody else's run may have very many.
    let longest = columns * most.max(LONGEST_SENTENCE);
    let ends = ends_of_clauses(text).into_iter().enumerate();
    let ends: Vec<usize> =
        ends.filter(|(at, end)| *at == 0 || *end <= longest).map(|(_, end)| end).collect();
    let shorter = ends
        .into_iter()
        .rev()
        .map(|end| (lines(&format!("{}; more: --details", &text[..end])), false));
    let mut forms: Vec<(Vec<String>, bool)> = vec![(lines(text), true)];
    forms.extend(shorter);
    let least = forms.iter().map(|(lines, _)| lines.len()).min().unwrap_or_default();
    let fits = |(lines, _): &(Vec<String>, bool)| lines.len() <= least.max(most);
    let (mut lines, is_whole) = forms.into_iter().find(fits).unwrap_or_default();
    if lines.len() > LONGEST_SENTENCE.max(most) {
        lines.truncate(most);
        let last = &mut lines[most - 1];
        *last = format!("{} … --details", cut(last, columns.saturating_sub(12)));
        return (lines, false);
    }
    (lines, is_whole)
}

/// Where sentences and clauses of a text end, before the last one; not within parentheses.
fn ends_of_clauses(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '.' | ';' if depth == 0 && text[at + 1..].starts_with(' ') => ends.push(at),
            _ => {}
        }
    }
    ends
}

/// The answer of this extent, with each microbenchmark of small groups or not, and whether it fits and has all results.
fn screen(
    report: &Report,
    options: &TerminalOptions,
    (extent, times, most_of_kind): (Extent, usize, usize),
    of_each: bool,
) -> Option<(String, bool)> {
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let sentences: Vec<(String, Tone)> = match &report.insert {
        Some(insert) => inserts::conclusions(insert, &report.baseline, extent),
        None => {
            let conclude = if of_each { conclusions_of_each } else { conclusions };
            let all = conclude(report, grouping).into_iter();
            all.map(|(sentence, verdict)| (sentence, verdict.tone())).collect()
        }
    };
    if sentences.is_empty() {
        return None;
    }
    let paint = Paint::new(options.color);
    let width = options.width.min(ANSWER_WIDTH);
    let wrapped = |text: &str, indent: usize, most: usize| {
        whole_sentences(&plain(text), width - indent, most * times)
    };
    // What a reader must know, the most important first: a label, a text, and its longest form.
    let mut facts: Vec<(&str, String, usize)> = Vec::new();
    let mut several = |label, texts: Vec<String>, shown: usize, lines: usize| {
        // The number of one text would not be shorter.
        let shown = if texts.len() == 1 { 1 } else { shown };
        let rest = texts.len().saturating_sub(shown);
        facts.extend(texts.into_iter().take(shown).map(|text| (label, text, lines)));
        match (rest, shown) {
            (0, _) => {}
            (rest, 0) => facts.push((label, format!("{rest} in all: --details"), 1)),
            (rest, _) => facts.push((label, format!("and {rest} more: --details"), 1)),
        }
    };
    // What may be wrong is not only counted.
    let (remarks, doubts) = (most_of_kind, most_of_kind.max(1));
    let failures = report.failures.iter();
    let failures = failures.map(|one| format!("{} at {}: {}", one.candidate, one.at, one.reason));
    several("failed", failures.collect(), doubts, 2);
    several("bound", words::client_bound(report).into_iter().collect(), 1, 2);
    let defaults =
        report.candidates.iter().flat_map(|one| words::beside_defaults(report, one)).collect();
    several("default", defaults, doubts, 3);
    let warnings = report.warnings.iter();
    let warnings = warnings.map(|one| format!("{} {}", one.what_with_stop(), one.advice));
    several("warning", warnings.collect(), doubts, 2);
    let differing = report.candidates.iter().flat_map(|one| {
        let all = one.config_diff.iter();
        all.map(move |difference| format!("{} in effect: {difference}", one.name))
    });
    several("differs", differing.collect(), remarks, 1);
    several("flags", flags(report), remarks, 1);
    several("TPS", rates_of_scripts(report, false), remarks, 2);
    several("plan", plans::sentences(report), remarks, 2);
    several("SQL", largest_differences(report), remarks, 2);
    match &report.insert {
        Some(insert) => {
            several("rates", inserts::rates(insert).into_iter().collect(), 1, 1);
            several("stalls", inserts::stalls(insert).into_iter().collect(), 1, 1);
        }
        None => several("noise", vec![words::noise_floor(report)], 1, 1),
    }
    let measured = report.times().map(|(measuring, elapsed)| match elapsed {
        Some(elapsed) => format!("; measured {measuring} without warm-up, elapsed {elapsed}"),
        None => format!("; measured {measuring}"),
    });
    let workload = match &report.insert {
        Some(insert) => Some(words::insert_benchmark(insert).trim_end_matches('.').to_owned()),
        None => words::workload(report),
    };
    let workload = workload.map(|workload| workload + &measured.unwrap_or_default());
    several("data", workload.into_iter().collect(), 1, 1);
    let results = key_results::of(report, grouping);
    let longer = key_results::command(&report.directory, &results);
    several("longer", longer.into_iter().collect(), 1, 1);
    let directory = dbdyno_units::shell_quoted(&report.directory.to_string_lossy());
    several("all", vec![format!("dbdyno report {directory} --details")], 1, 1);
    several("charts", vec![format!("{directory}/report.html")], 1, 1);
    if !profile::explained(report, None, None).is_empty() {
        several("why", vec![format!("dbdyno why {directory}")], 1, 1);
    }

    let label = "warning".len() + 2;
    let mut below = Vec::new();
    for (name, text, most) in facts {
        let paint_label = |text: &str| match name {
            "failed" | "bound" | "warning" => paint.worse(text),
            _ => paint.dim(text),
        };
        // What is copied is whole, in a line of its own.
        let lines = match COPIED.contains(&name) {
            true => vec![plain(&text)],
            false => wrapped(&text, label, most).0,
        };
        for (number, line) in lines.into_iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            below.push(format!("{}{line}", paint_label(&left(name, label))));
        }
    }
    // The first line, and two blank ones.
    let room = SCREEN.saturating_sub(below.len() + 3).max(2);
    let mut above: Vec<String> = Vec::new();
    let mut has_all = true;
    for (number, (sentence, tone)) in sentences.iter().enumerate() {
        let (lines, is_whole) = wrapped(sentence, 2, 3);
        has_all &= is_whole;
        let left = sentences.len() - number;
        let reserved = usize::from(left > 1);
        if above.len() + lines.len() + reserved > room && number > 0 {
            let results = if left == 1 { "result" } else { "results" };
            above.push(format!("and {left} more {results}: --details"));
            has_all = false;
            break;
        }
        for (index, line) in lines.into_iter().enumerate() {
            let indent = if index == 0 { "" } else { "  " };
            above.push(format!("{indent}{}", paint.tone(*tone, &line)));
        }
    }
    let fits = has_all && above.len() + below.len() + 3 <= SCREEN;
    let (above, below) = (above.join("\n"), below.join("\n"));
    Some((format!("{}\n{above}\n\n{below}\n", first_line(report, paint)), fits))
}

/// The width of an answer, apart from commands and paths.
const ANSWER_WIDTH: usize = 80;

/// The labels of commands and paths.
const COPIED: [&str; 4] = ["longer", "all", "charts", "why"];

/// Name, status and program.
fn first_line(report: &Report, paint: Paint) -> String {
    let status = words::status(report);
    let status = match (report.status, report.running_pid) {
        (_, Some(_)) => status,
        (RunStatus::Complete, None) => paint.better(&status),
        (RunStatus::Incomplete, None) => {
            paint.worse(&status.replacen("incomplete", "INCOMPLETE", 1))
        }
    };
    let by = paint.dim(&format!("dbdyno {}", plain(&report.version)));
    format!("{}  {status}  {by}\n", paint.bold(&plain(&report.name)))
}

/// The sections of an insert benchmark.
fn of_inserts(report: &InsertReport, room: usize) -> Vec<Section> {
    if report.steps.is_empty() {
        return vec![nothing()];
    }
    let mut introduction = Section::new("inserts", "");
    for text in inserts::introduction(report, Output::Terminal) {
        introduction.push(text);
    }
    let mut key = Section::new("metrics", "metrics");
    key.note(inserts::key(report));
    let steps = report.steps.iter().map(|step| inserts::step(step, Output::Terminal, room));
    let results = inserts::key_results(report, Output::Terminal);
    [introduction].into_iter().chain(steps).chain([key, results]).collect()
}

/// A group's name and its microbenchmarks with their indices in the report.
type Group<'a> = (&'a str, &'a [(usize, &'a MicrobenchmarkRows)]);

/// The metrics of a group's tables, the one to trust first. Relative QPS is always shown, CPU per
/// query only where it is to be trusted; if that depends on the number of clients, see the details.
fn metrics(report: &Report, members: &[(usize, &MicrobenchmarkRows)]) -> &'static [Metric] {
    let rows = || members.iter().flat_map(|(_, member)| &member.rows);
    let trusts_cpu = |row: &Row| row.trusted_metric == Metric::Cpu;
    match (rows().any(trusts_cpu), rows().all(trusts_cpu)) {
        (true, true) => &[Metric::Cpu, Metric::Qps],
        (true, false) if !report.is_sweep() => &[Metric::Qps, Metric::Cpu],
        _ => &[Metric::Qps],
    }
}

/// Render the group's table, split into several if there are too many candidates.
fn render_group(
    out: &mut String,
    report: &Report,
    group: Group<'_>,
    layout: &Layout,
    paint: Paint,
) {
    let candidates = compared(report);
    for part in candidates.chunks(layout.per_table) {
        Table { report, layout, paint, candidates: part }.render(out, group);
    }
    if candidates.is_empty() {
        Table { report, layout, paint, candidates: &[] }.render(out, group);
    }
}

struct Table<'a> {
    report: &'a Report,
    layout: &'a Layout,
    paint: Paint,
    candidates: &'a [&'a CandidateRecord],
}

impl Table<'_> {
    fn render(&self, out: &mut String, (group, members): Group<'_>) {
        out.push('\n');
        self.heading(out, group, members);
        let mut before = None;
        for (_, microbenchmark) in members {
            // The rows of a sweep are numbers of clients, below the microbenchmark's name.
            if self.layout.sweep && before != Some(&microbenchmark.name) {
                out.push_str(&format!("{}\n", self.paint.bold(&label(microbenchmark))));
                before = Some(&microbenchmark.name);
            }
            self.row(out, microbenchmark);
        }
    }

    fn heading(&self, out: &mut String, group: &str, members: &[(usize, &MicrobenchmarkRows)]) {
        let Layout { metric, name_columns, base_columns, gap, cell, .. } = *self.layout;
        let trust = match metric {
            Metric::Qps => "",
            Metric::Cpu if metrics(self.report, members)[0] == Metric::Cpu => "; trust this one",
            Metric::Cpu if members.iter().any(|(_, member)| member.writes) => {
                "; trust this one for writes"
            }
            Metric::Cpu => "; trust this one for client-bound rows",
        };
        let about = format!("  {}, {}{trust}", metric.title(), metric.better());
        let title = plain(&self.report.group_title(group));
        out.push_str(&format!("{}{}\n", self.paint.bold(&title), self.paint.dim(&about)));
        let names: Vec<Vec<String>> = self
            .candidates
            .iter()
            .map(|candidate| break_name(&plain(&candidate.name), cell.columns()))
            .collect();
        let lines = names.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..lines {
            let last = line + 1 == lines;
            let name = if last { self.layout.name_title() } else { String::new() };
            let base = if last { base_title(metric) } else { "" };
            let mut text = format!("{} {}", left(&name, name_columns), right(base, base_columns));
            for (name, candidate) in names.iter().zip(self.candidates) {
                // Bottom-aligned: the last part of the name is directly above the rule.
                let part = (line + name.len()).checked_sub(lines).map_or("", |at| &name[at]);
                let part = right(part, cell.columns());
                text.push_str(&" ".repeat(gap));
                text.push_str(&match candidate.role {
                    Role::Control if !part.trim().is_empty() => self.paint.dim(&part),
                    _ => part,
                });
            }
            out.push_str(text.trim_end());
            out.push('\n');
        }
        let rule = "─".repeat(self.layout.columns_of(self.candidates.len()));
        out.push_str(&format!("{}\n", self.paint.dim(&rule)));
    }

    fn row(&self, out: &mut String, microbenchmark: &MicrobenchmarkRows) {
        let layout = self.layout;
        let name = layout.name(microbenchmark);
        let base = right(&layout.base(&microbenchmark.baseline), layout.base_columns);
        let mut first = format!("{name} {base}");
        let mut second = " ".repeat(width(&first));
        for candidate in self.candidates {
            let (upper, lower) = self.cell(microbenchmark, candidate);
            for (line, text) in [(&mut first, upper), (&mut second, lower)] {
                line.push_str(&" ".repeat(layout.gap));
                line.push_str(&text);
            }
        }
        out.push_str(first.trim_end());
        out.push('\n');
        if layout.cell == Cell::TwoLines && !second.trim().is_empty() {
            out.push_str(second.trim_end());
            out.push('\n');
        }
    }

    /// The line of the cell and the line below it, both padded.
    fn cell(
        &self,
        microbenchmark: &MicrobenchmarkRows,
        candidate: &CandidateRecord,
    ) -> (String, String) {
        let Layout { metric, cell, .. } = *self.layout;
        let columns = cell.columns();
        let paint = self.paint;
        let blank = " ".repeat(columns);
        let Some(row) = microbenchmark.row(&candidate.name) else {
            let word = missing(self.report, &candidate.name);
            let verdict = if word == "failed" { Verdict::Failed } else { Verdict::Unknown };
            return (paint.tone(verdict.tone(), &right(word, columns)), blank);
        };
        let verdict = microbenchmark.shown_verdict(row, metric);
        let Some(value) = row.ratio(metric) else {
            let text = match verdict {
                Verdict::Failed => format!("fail {}", verdict.tone().sign()),
                _ if !row.is_measured(metric) => "–".to_owned(),
                _ => format!("few {}", verdict.tone().sign()),
            };
            return (paint.tone(verdict.tone(), &right(&text, columns)), blank);
        };
        let (value, sign) = (ratio(value), verdict.tone().sign());
        let interval =
            |of: fn(Estimate) -> String| row.estimate(metric).map_or_else(|| "–".to_owned(), of);
        // Padding is outside of the colours, so that it can be trimmed at the end of a line.
        let beside = |value: String, interval: String| {
            let pad = columns.saturating_sub(width(&value) + 1 + width(&interval));
            let (value, interval) = (paint.tone(verdict.tone(), &value), paint.dim(&interval));
            (format!("{value} {interval}{}", " ".repeat(pad)), String::new())
        };
        match cell {
            Cell::Ends => beside(
                format!("{value} {sign}"),
                interval(|estimate| format!("[{}]", ends(estimate))),
            ),
            Cell::PlusMinus => beside(format!("{value}{sign}"), interval(plus_minus)),
            Cell::TwoLines => (
                paint.tone(verdict.tone(), &right(&format!("{value} {sign}"), columns)),
                paint.dim(&right(&row.estimate(metric).map_or(String::new(), plus_minus), columns)),
            ),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    /// `1.038 + [1.034, 1.042]`
    Ends,
    /// `1.038+ ±0.4%`
    PlusMinus,
    /// `1.038+` with `±0.4%` on the line below.
    TwoLines,
}

impl Cell {
    const fn columns(self) -> usize {
        match self {
            Self::Ends => 22,
            Self::PlusMinus => 12,
            Self::TwoLines => 7,
        }
    }
}

/// The arrangement of one metric's tables.
struct Layout {
    metric: Metric,
    cell: Cell,
    /// Whether the baseline's figure is complete instead of abbreviated as `412k`.
    full: bool,
    /// Whether rows are numbers of clients, below the microbenchmark's name.
    sweep: bool,
    name_columns: usize,
    base_columns: usize,
    gap: usize,
    per_table: usize,
}

impl Layout {
    /// Choose a layout. Preferences in this order: all candidates in one table, both ends of the
    /// interval, one line per row, the baseline's complete figure. The table is only split if
    /// nothing else fits.
    fn choose(report: &Report, metric: Metric, room: usize) -> Self {
        let sweep = report.is_sweep();
        let names = report.microbenchmarks.iter().map(|m| width(&label(m)));
        let name_columns = match sweep {
            true => CLIENTS.len() + 2,
            false => names.max().unwrap_or(0).max(MICROBENCHMARK.len()),
        };
        let candidates = compared(report).len().max(1);
        let layout = |cell, full| {
            let bases = report.microbenchmarks.iter().map(|m| &m.baseline);
            let bases = bases.map(|base| width(&base_figure(metric, base, full)));
            let base_columns = bases.max().unwrap_or(0).max(base_title(metric).len());
            Self {
                metric,
                cell,
                full,
                sweep,
                name_columns,
                base_columns,
                gap: 1,
                per_table: candidates,
            }
        };
        let mut tightest = layout(Cell::TwoLines, false);
        for cell in [Cell::Ends, Cell::PlusMinus, Cell::TwoLines] {
            for full in [true, false] {
                let mut layout = layout(cell, full);
                if layout.columns() <= room {
                    layout.gap = if layout.columns() + candidates <= room { 2 } else { 1 };
                    return layout;
                }
            }
        }
        let rest = room.saturating_sub(tightest.name_columns + 1 + tightest.base_columns);
        tightest.per_table = (rest / (tightest.gap + tightest.cell.columns())).max(1);
        tightest
    }

    fn columns(&self) -> usize {
        self.columns_of(self.per_table)
    }

    /// The width of a table with `candidates`.
    fn columns_of(&self, candidates: usize) -> usize {
        self.name_columns + 1 + self.base_columns + candidates * (self.gap + self.cell.columns())
    }

    fn name_title(&self) -> String {
        if self.sweep { right(CLIENTS, self.name_columns) } else { MICROBENCHMARK.to_owned() }
    }

    /// The first column: the name, or the number of clients.
    fn name(&self, microbenchmark: &MicrobenchmarkRows) -> String {
        match self.sweep {
            true => right(&microbenchmark.clients.to_string(), self.name_columns),
            false => left(&label(microbenchmark), self.name_columns),
        }
    }

    fn base(&self, absolute: &Absolute) -> String {
        base_figure(self.metric, absolute, self.full)
    }
}

const MICROBENCHMARK: &str = "microbenchmark";

const CLIENTS: &str = "clients";

const fn base_title(metric: Metric) -> &'static str {
    match metric {
        Metric::Qps => "QPS",
        Metric::Cpu => "CPU µs",
    }
}

/// A microbenchmark's name, with the unit if throughput does not count statements.
fn label(microbenchmark: &MicrobenchmarkRows) -> String {
    let name = plain(&microbenchmark.name);
    if microbenchmark.throughput_unit == "statements/s" {
        name
    } else {
        format!("{name} ({})", plain(&microbenchmark.throughput_unit))
    }
}

fn base_figure(metric: Metric, absolute: &Absolute, full: bool) -> String {
    let figure = match metric {
        Metric::Qps => absolute.qps.map(Qps::per_second),
        Metric::Cpu => absolute.cpu_us_per_query,
    };
    match figure {
        None => "–".to_owned(),
        Some(figure) if full => Qps::from_per_second(figure).to_string(),
        Some(figure) => compact(figure),
    }
}

/// Maximum number of lines of a name in a heading.
const LINES: usize = 3;

/// Pairs of a candidate's name and its short name in tables, in the report's order; empty if the names fit into tables
/// of this width.
fn short_names(report: &Report, room: usize) -> Vec<(&str, String)> {
    let columns = Layout::choose(report, Metric::Qps, room).cell.columns();
    let fit = |names: &[&str]| {
        let lines = |name: &&str| break_name(&plain(name), columns).len();
        let mut cuts: Vec<String> =
            names.iter().map(|name| cut(&plain(name), LONGEST_NAME)).collect();
        cuts.sort_unstable();
        let are_different = cuts.windows(2).all(|pair| pair[0] != pair[1]);
        are_different && names.iter().all(|name| lines(name) <= LINES)
    };
    let named = report.candidates.iter().filter(|one| one.role != Role::Control);
    let names: Vec<&str> = named.map(|one| one.name.as_str()).collect();
    let short = dbdyno_text::short_names(&names, fit).unwrap_or_default();
    names.into_iter().zip(short).collect()
}

/// The report with short names.
fn renamed(report: &Report, names: &[(&str, String)]) -> Report {
    let short = |name: &mut String| {
        if let Some((_, short)) = names.iter().find(|(long, _)| long == name) {
            name.clone_from(short);
        }
    };
    let mut renamed = report.clone();
    short(&mut renamed.baseline);
    renamed.candidates.iter_mut().for_each(|one| short(&mut one.name));
    let rows = renamed.microbenchmarks.iter_mut().flat_map(|one| &mut one.rows);
    rows.for_each(|one| short(&mut one.candidate));
    let groups = renamed.groups.iter_mut().chain(&mut renamed.three_groups);
    groups.for_each(|one| short(&mut one.candidate));
    renamed.counter_groups.iter_mut().for_each(|one| short(&mut one.candidate));
    renamed.scaling.iter_mut().for_each(|one| short(&mut one.candidate));
    renamed.failures.iter_mut().for_each(|one| short(&mut one.candidate));
    renamed.optimizations.iter_mut().for_each(|one| short(&mut one.candidate));
    renamed
}

#[cfg(test)]
mod tests;
