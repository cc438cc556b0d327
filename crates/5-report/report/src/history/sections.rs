//! The history for terminals, as a page and as CSV: each table is described once.

use dbdyno_stats::{ChangePoint, Level, Quotient};
use dbdyno_text::{
    Cell, Column, Csv, Fact, Facts, Interval, Mark, Paint, Row, Style, Table, Text, Tone,
};
use dbdyno_units::Ratio;
use maud::{Markup, html};

use super::runs::some_of;
use super::{FALSE_DISCOVERIES, Figure, FigureChange, FigureHistory, History, HistoryRun};
use crate::charts::{Plot, Scale, colour, coordinate, shape};
use crate::figures::{percent_change, plus_minus_percent, ratio};
use crate::html::document as page;
use crate::html::document::with_heading;
use crate::metric::with_clients;
use crate::model::{Metric, by_key};
use crate::profile_change::ProfileChange;
use crate::sections::Section;
use crate::words::{capitalized, joined, readable_time};

const METRICS: [Metric; 2] = [Metric::Qps, Metric::Cpu];

/// Changes that are listed on a terminal.
const LISTED: usize = 10;

/// Least width of the labels below a change.
const LABELS: usize = 10;

/// Most characters of a candidate's name in the table of groups on a terminal.
const NAMES: usize = 20;

/// What a level and its interval are.
const LEVELS: &str = "The level is the mean ratio to the baseline since the last change, with its 95% interval. A group \
     is the geometric mean of its microbenchmarks.";

/// What the functions and layers of changes are.
const PROFILES: &str = "Functions and layers: the change of CPU time per query, without what functions call, less the same \
     change of the baseline; those that certainly changed, with 5% false discoveries.";

/// The history in lines of at most `room` characters.
pub fn terminal(history: &History, room: usize, color: bool) -> String {
    let sections = [runs(history), listed_changes(history), groups(history)];
    dbdyno_text::terminal(&sections, room, Paint::new(color)).trim_start().to_owned()
}

fn runs(history: &History) -> Section {
    let title = format!("history of {}: {} runs", history.name, history.runs.len());
    let mut section = Section::new("runs", title);
    if let (Some(first), Some(last)) = (history.runs.first(), history.runs.last()) {
        let [from, to] = [first, last].map(|run| readable_time(&run.started));
        section.push(Text::new(format!("{from} to {to}, baseline {}", history.baseline)));
    }
    for note in &history.notes {
        section.push(Text::new(format!("Note: {note}")).style(Style::Tone(Tone::Worse)));
    }
    section
}

fn listed_changes(history: &History) -> Section {
    let mut section = Section::new("changes", "changes");
    for change in history.changes.iter().take(LISTED) {
        let FigureChange { figure, verdict, point, profile } = change;
        let [size, interval, p] = [size(point), interval(point), with_p(point.p_value)];
        let (what, subject) = (figure.metric.quantity(), subject(figure, history.is_sweep()));
        let text = Text::new(format!("{size} {what} ({interval}), {p}: {subject}"));
        section.push(text.style(Style::Tone(verdict.tone())));
        let place = |index: usize| {
            let run = &history.runs[index];
            let version = run.version_of(&figure.candidate);
            let version = version.map_or_else(String::new, |version| format!(", {version}"));
            Some(format!("{}{version}", run_of(run)))
        };
        let facts = [
            ("before", place(point.before)),
            ("after", place(point.after)),
            ("position", position(history, point)),
            ("baseline", baseline(history, point)),
        ];
        let profile = profile.iter().flat_map(ProfileChange::facts);
        let facts = facts
            .into_iter()
            .chain(profile.map(|(label, text)| (label, Some(text))))
            .filter_map(|(label, text)| Some(Fact::new(label, text?).label_style(Style::Dim)));
        let facts = Facts::new(facts).indent(2);
        section.push(Facts { least: LABELS, gap: 0, ..facts });
    }
    let more = match history.changes.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(" The largest {LISTED} are above, and {more} more in exports."),
    };
    add_notes(&mut section, history, &more);
    section
}

/// What was searched, what functions and layers are, and what was left out.
fn add_notes(section: &mut Section, history: &History, listed: &str) {
    section.note(about(history) + listed);
    if history.changes.iter().any(|change| change.profile.is_some()) {
        section.note(PROFILES);
    }
    if let Some(left_out) = left_out(history) {
        section.note(left_out);
    }
}

/// The level of each group and its last change.
fn groups(history: &History) -> Section {
    let mut section = Section::new("groups", "groups");
    let levels = levels(history, &METRICS);
    if !levels.rows.is_empty() {
        section.push(levels);
        section.note(LEVELS);
    }
    section
}

/// The groups' levels of one metric, or of both.
fn levels(history: &History, metrics: &[Metric]) -> Table {
    let names = [Column::name("candidate").most(NAMES), Column::name("group")];
    let clients = history.is_sweep().then(|| Column::number("clients"));
    let metric = (metrics.len() > 1).then(|| Column::text("metric"));
    let rest = [Column::number("level"), Column::text("since"), Column::number("last change")];
    let mut table = Table::new(names.into_iter().chain(clients).chain(metric).chain(rest));
    let known = history.figures.iter().filter(|one| one.is_of_group() && !one.levels.is_empty());
    for group in known.filter(|group| metrics.contains(&group.figure.metric)) {
        let Figure { candidate, group: name, clients, metric, .. } = &group.figure;
        let last = group.points.last();
        let mut cells =
            vec![Cell::text(candidate).mark(mark(history, candidate)), Cell::text(name)];
        cells.extend(history.is_sweep().then(|| Cell::number(Some(*clients))));
        cells.extend((metrics.len() > 1).then(|| Cell::text(metric.name().to_uppercase())));
        cells.push(group.levels.last().map_or_else(Cell::empty, |level| {
            Cell::text(ratio(level.ratio.ratio)).interval(Some(around(level.ratio)))
        }));
        cells.push(Cell::number(last.map(|point| history.runs[point.after].date())));
        let without = || if group.is_too_noisy() { Cell::text("too noisy") } else { Cell::dash() };
        cells.push(last.map_or_else(without, |point| {
            let verdict = group.verdict(point);
            Cell::text(size(point))
                .verdict(verdict.tone(), verdict.word(*metric))
                .interval(Some(around(point.ratio)))
        }));
        table.push(Row::new(cells));
    }
    table.caption("Levels of groups").class("changes")
}

/// The distance to the farther end of an interval, in percent of the baseline.
fn around(of: Quotient) -> Interval {
    let Quotient { ratio, low, high } = of;
    let farther = (high.get() - ratio.get()).max(ratio.get() - low.get());
    let plus_minus = plus_minus_percent(100.0 * farther);
    Interval { ends: plus_minus.clone(), plus_minus }
}

/// The history as a self-contained page, styled like a report.
pub fn html(history: &History) -> String {
    let content = html! {
        (page::section(&changes(history)))
        (with_heading("groups", "Groups", group_charts(history)))
        (changed_microbenchmarks(history))
        (page::section(&versions(history)))
    };
    let title = format!("History of {}", history.name);
    crate::html::of_runs(&title, Some("history"), &history.notes, content)
}

fn mark(history: &History, candidate: &str) -> Mark {
    let index = history.candidates().iter().position(|name| *name == candidate);
    Mark::Candidate(index.unwrap_or(0))
}

fn changes(history: &History) -> Section {
    let mut section = Section::new("changes", "Changes");
    add_notes(&mut section, history, "");
    let mut table = Table::new([
        Column::group("figure"),
        Column::number("change (95% interval)"),
        Column::number("p"),
        Column::text("before"),
        Column::text("after"),
    ]);
    for FigureChange { figure, verdict, point, profile } in &history.changes {
        let place = |index: usize| {
            let run = &history.runs[index];
            let cell = Cell::text(run_of(run)).class("at");
            run.version_of(&figure.candidate).into_iter().fold(cell, Cell::note)
        };
        let remarks = [
            position(history, point).map(|position| format!("position, {position}")),
            baseline(history, point).map(|versions| format!("baseline: {versions}")),
        ];
        let profile = profile.iter().flat_map(ProfileChange::facts);
        let profile = profile.map(|(what, text)| format!("{what}: {text}"));
        let remarks = remarks.into_iter().flatten().chain(profile);
        let subject = subject(figure, history.is_sweep());
        table.push(Row::new([
            Cell::text(subject).mark(mark(history, &figure.candidate)),
            Cell::text(format!("{} {}", size(point), figure.metric.quantity()))
                .verdict(verdict.tone(), verdict.word(figure.metric))
                .interval(Some(Interval { ends: interval(point), plus_minus: String::new() }))
                .class("at"),
            Cell::text(p_value(point.p_value)),
            place(point.before),
            remarks.fold(place(point.after), Cell::note),
        ]));
    }
    if !table.rows.is_empty() {
        section.push(table.caption("Changes").class("groups").frame("cards"));
    }
    section
}

fn legend(history: &History) -> Markup {
    page::legend(history.candidates().into_iter().map(|name| (mark(history, name), name)))
}

/// A chart per group and a table of the levels, for each metric.
fn group_charts(history: &History) -> Markup {
    let groups: Vec<&FigureHistory> =
        history.figures.iter().filter(|one| one.is_of_group()).collect();
    html! {
        p.muted {
            (LEVELS) " Charts show each run with its 95% interval, the levels as lines, changes as dashed \
             lines between two runs, and single runs that were left out as hollow markers."
        }
        (legend(history))
        @for metric in METRICS {
            @let charts = charts(history, &groups, metric);
            @if !charts.0.is_empty() { (charts) (page::table(&levels(history, &[metric]))) }
        }
    }
}

/// Charts of the microbenchmarks that changed, with all candidates.
fn changed_microbenchmarks(history: &History) -> Markup {
    let key = |one: &FigureHistory| {
        let Figure { microbenchmark, clients, metric, .. } = &one.figure;
        (microbenchmark.clone(), *clients, *metric)
    };
    let changed: Vec<_> =
        history.figures.iter().filter(|one| !one.points.is_empty()).map(key).collect();
    let shown = |one: &&FigureHistory| !one.is_of_group() && changed.contains(&key(one));
    let all: Vec<&FigureHistory> = history.figures.iter().filter(shown).collect();
    if all.is_empty() {
        return Markup::default();
    }
    let content = html! {
        (legend(history))
        @for metric in METRICS { (charts(history, &all, metric)) }
    };
    with_heading("microbenchmarks", "Microbenchmarks with a change", content)
}

/// A chart per group or microbenchmark and number of clients, with a line per candidate; nothing if no
/// figure is of this metric.
fn charts(history: &History, all: &[&FigureHistory], metric: Metric) -> Markup {
    let named = all.iter().filter(|one| one.figure.metric == metric).map(|one| {
        let Figure { group, microbenchmark, clients, .. } = &one.figure;
        let name = microbenchmark.as_ref().unwrap_or(group);
        (with_clients(name, *clients, history.is_sweep()), *one)
    });
    let charts = by_key(named);
    html! {
        @if !charts.is_empty() {
            h3 { (capitalized(metric.title())) " " small { (metric.better()) } }
            div.lines { div.charts {
                @for (title, lines) in &charts { (draw_chart(history, title, lines)) }
            } }
        }
    }
}

/// The runs, with the versions of candidates where they change.
fn versions(history: &History) -> Section {
    let mut section = Section::new("runs", "Runs");
    section.note("Versions are in the first run that has them.");
    let names: Vec<&str> =
        std::iter::once(history.baseline.as_str()).chain(history.candidates()).collect();
    let start = [Column::name("run"), Column::text("started")].into_iter();
    let mut table = Table::new(start.chain(names.iter().map(|name| Column::text(*name))));
    let mut before: Option<&HistoryRun> = None;
    for run in &history.runs {
        let version = |name: &&str| {
            let version = run.version_of(name);
            match before.is_some_and(|before| before.version_of(name) == version) {
                true => Cell::empty(),
                false => Cell::number(version).class("at"),
            }
        };
        let start = [Cell::text(&run.label), Cell::text(readable_time(&run.started)).class("at")];
        table.push(Row::new(start.into_iter().chain(names.iter().map(version))));
        before = Some(run);
    }
    section.push(table.caption("Runs").class("groups").frame("cards"));
    section
}

/// One line per figure and run with a value. The columns of a change are only filled in the line of the
/// first run after it.
pub fn csv(history: &History) -> String {
    struct Line<'a> {
        of: &'a FigureHistory,
        run: usize,
        at: &'a HistoryRun,
        level: Option<Quotient>,
        point: Option<&'a ChangePoint>,
    }
    let tested = history.figures.iter().filter(|figure| figure.is_tested());
    let lines = tested.flat_map(|of| {
        let runs = history.runs.iter().enumerate().filter(|(run, _)| of.values[*run].is_some());
        runs.map(move |(run, at)| {
            let level = of.levels.iter().find(|one| (one.first..=one.last).contains(&run));
            let point = of.points.iter().find(|point| point.after == run);
            Line { of, run, at, level: level.map(|level| level.ratio), point }
        })
    });
    let directory = |one: &Line<'_>, of: fn(&ChangePoint) -> usize| {
        one.point.map_or_else(String::new, |point| history.runs[of(point)].directory.clone())
    };
    Csv::of(lines)
        .column("candidate", |one| one.of.figure.candidate.clone())
        .column("baseline", |_| history.baseline.clone())
        .column("group", |one| one.of.figure.group.clone())
        .column("microbenchmark", |one| one.of.figure.microbenchmark.clone().unwrap_or_default())
        .column("clients", |one| one.of.figure.clients.to_string())
        .column("metric", |one| one.of.figure.metric.name().to_owned())
        .column("directory", |one| one.at.directory.clone())
        .column("started", |one| one.at.started.clone())
        .column("version", |one| {
            one.at.version_of(&one.of.figure.candidate).unwrap_or_default().to_owned()
        })
        .ratio("ratio", |one| Some(one.of.values[one.run]?.ratio))
        .ratio("ci_low", |one| Some(one.of.values[one.run]?.interval?.0))
        .ratio("ci_high", |one| Some(one.of.values[one.run]?.interval?.1))
        .column("outlier", |one| {
            if one.of.outliers.contains(&one.run) { "yes" } else { "no" }.to_owned()
        })
        .ratios(["level", "level_low", "level_high"], |one| one.level)
        .ratios(["change", "change_low", "change_high"], |one| Some(one.point?.ratio))
        .column("verdict", |one| {
            let verdict = one.point.map(|point| one.of.verdict(point));
            verdict.map_or("", |verdict| verdict.word(one.of.figure.metric)).to_owned()
        })
        .column("p_value", |one| {
            one.point.map_or_else(String::new, |point| format!("{:.2e}", point.p_value))
        })
        .column("changed_after", |one| directory(one, |point| point.before))
        .column("earliest", |one| directory(one, |point| point.earliest))
        .column("latest", |one| directory(one, |point| point.latest))
        .text()
}

/// What was searched, and what chance explains.
fn about(history: &History) -> String {
    let figures = || history.figures.iter().filter(|figure| figure.is_tested());
    let tested = figures().filter(|figure| figure.p_value.is_some()).count();
    let too_noisy = figures().filter(|figure| figure.is_too_noisy()).count();
    let noisy = match too_noisy {
        0 => String::new(),
        some => format!(", {some} too noisy to tell"),
    };
    let start = match history.changes.len() {
        0 => format!("No change found in {} figures{noisy}", tested - too_noisy),
        1 => format!("1 change in {tested} figures{noisy}"),
        count => format!("{count} changes in {tested} figures{noisy}"),
    };
    let chance = match history.changes.len() {
        0 => String::new(),
        _ => format!(
            " About {:.0}% of the listed changes are expected to be chance: the limit, p ≤ {}, allows for \
             the number of figures.",
            100.0 * FALSE_DISCOVERIES,
            significance_level(history.significance_level)
        ),
    };
    format!(
        "{start}: relative QPS and CPU per query of each candidate, by microbenchmark and group. \
         Changes that the noise floor or a single run explains are not listed.{chance}"
    )
}

/// The runs that were left out of figures; `None` if there are none.
fn left_out(history: &History) -> Option<String> {
    let count = |run: usize| {
        let tested = history.figures.iter().filter(|one| one.is_tested());
        tested.filter(|one| one.outliers.contains(&run)).count()
    };
    let runs: Vec<String> = (0..history.runs.len())
        .map(|run| (&history.runs[run].label, count(run)))
        .filter(|(_, count)| *count > 0)
        .map(|(label, count)| match count {
            1 => format!("{label} (1 figure)"),
            count => format!("{label} ({count} figures)"),
        })
        .collect();
    let what = "Left out of figures because they are far from the runs before and after";
    (!runs.is_empty()).then(|| format!("{what}: {}.", some_of(&runs)))
}

/// A figure in words: `rel, scan_range=100`.
fn subject(figure: &Figure, is_sweep: bool) -> String {
    let what = match &figure.microbenchmark {
        Some(name) => name.clone(),
        None => format!("{} as a whole", figure.group),
    };
    format!("{}, {}", figure.candidate, with_clients(&what, figure.clients, is_sweep))
}

fn size(point: &ChangePoint) -> String {
    percent_change(point.ratio.ratio)
}

/// Its interval: `+1.8% to +2.5%`.
fn interval(point: &ChangePoint) -> String {
    let Quotient { low, high, .. } = point.ratio;
    format!("{} to {}", percent_change(low), percent_change(high))
}

/// A p-value with one significant digit: `0.003`.
fn p_value(p: f64) -> String {
    match p {
        ..0.000_1 => "<0.0001".to_owned(),
        0.1.. => format!("{p:.1}"),
        _ => {
            let decimals = (-p.log10()).ceil() as usize;
            format!("{p:.decimals$}")
        }
    }
}

/// A significance level with two significant digits, rounded down: `0.00015`.
fn significance_level(level: f64) -> String {
    let decimals = (1.0 - level.log10().floor()).clamp(2.0, 17.0) as usize;
    let scale = 10_f64.powi(decimals as i32);
    // Rounding errors of the product must not change the last digit.
    let text = format!("{:.decimals$}", (level * scale * (1.0 + 1e-12)).floor() / scale);
    text.trim_end_matches('0').to_owned()
}

/// A p-value with its letter: `p < 0.0001`, `p = 0.003`.
fn with_p(p: f64) -> String {
    let text = p_value(p);
    text.strip_prefix('<').map_or_else(|| format!("p = {text}"), |limit| format!("p < {limit}"))
}

/// A run in words: its directory and its start.
fn run_of(run: &HistoryRun) -> String {
    format!("{}, {}", run.label, readable_time(&run.started))
}

/// The 95% interval of the position, unless it is exactly the two runs.
fn position(history: &History, point: &ChangePoint) -> Option<String> {
    if (point.earliest, point.latest) == (point.before, point.after) {
        return None;
    }
    let of = |index: usize| {
        let run = &history.runs[index];
        format!("{} ({})", run.label, run.date())
    };
    Some(format!(
        "95% interval: after {}, at the latest in {}",
        of(point.earliest),
        of(point.latest)
    ))
}

/// The baseline's programs around a change if it is not the same: then the change may be its.
fn baseline(history: &History, point: &ChangePoint) -> Option<String> {
    let version = |index: usize| {
        let known = history.runs[index].version_of(&history.baseline);
        known.unwrap_or("unknown").to_owned()
    };
    let (before, after) = (version(point.before), version(point.after));
    (before != after).then(|| format!("{before} → {after}; the change may be the baseline's"))
}

/// As wide as a narrow window, so that text has its size there; several fit side by side in a wide one.
const PLOT: Plot =
    Plot { width: 360.0, height: 220.0, left: 46.0, right: 352.0, top: 10.0, bottom: 196.0 };

/// Units between the markers of candidates in the same run, where there is space.
const APART: f64 = 3.0;

/// The markers of a run take up at most this share of the distance between runs, so that they are not
/// taken for those of the next one.
const SPREAD: f64 = 0.6;

/// Units between the ends of the axis and the first and the last run.
const MARGIN: f64 = 10.0;

/// Units that a date needs.
const DATE: f64 = 64.0;

fn draw_chart(history: &History, title: &str, lines: &[&FigureHistory]) -> Markup {
    let chart = Chart { history, lines, scale: scale(lines) };
    let content = html! {
        @for (value, label) in chart.scale.ticks() {
            (PLOT.horizontal(chart.scale.line_class(value), chart.y(value), &label))
        }
        (chart.dates())
        @for (number, line) in lines.iter().enumerate() {
            g.{ (colour(mark(history, &line.figure.candidate))) } {
                (chart.levels(number, line))
                @for run in 0..line.values.len() { (chart.value(number, line, run)) }
                @for point in &line.points { (chart.change(line, point)) }
            }
        }
    };
    PLOT.figure(title, &chart.describe(title), content)
}

/// An axis that covers the values except those that were left out; these and intervals may be cut off.
fn scale(lines: &[&FigureHistory]) -> Scale {
    let used = |line: &&FigureHistory| -> Vec<f64> {
        let values = line.values.iter().enumerate();
        values
            .filter(|(run, _)| !line.outliers.contains(run))
            .filter_map(|(_, value)| Some((*value)?.ratio.get()))
            .collect()
    };
    Scale::covering(lines.iter().flat_map(used))
}

/// Units between two runs.
fn distance(runs: usize) -> f64 {
    (PLOT.right - PLOT.left - 2.0 * MARGIN) / runs.saturating_sub(1).max(1) as f64
}

/// Units between the markers of `lines` candidates in the same run.
fn apart(lines: usize, runs: usize) -> f64 {
    let spread = (SPREAD * distance(runs)).min(2.0 * MARGIN);
    APART.min(spread / lines.saturating_sub(1).max(1) as f64)
}

struct Chart<'a> {
    history: &'a History,
    lines: &'a [&'a FigureHistory],
    scale: Scale,
}

impl Chart<'_> {
    fn y(&self, value: f64) -> f64 {
        PLOT.y(self.scale.clamped(value) / 100.0)
    }

    /// The horizontal coordinate of a run: all have the same distance.
    fn x(&self, run: f64) -> f64 {
        PLOT.left + MARGIN + run * distance(self.history.runs.len())
    }

    /// The same for the marker of a line.
    fn x_of(&self, line: usize, run: usize) -> f64 {
        let middle = (self.lines.len() - 1) as f64 / 2.0;
        let apart = apart(self.lines.len(), self.history.runs.len());
        self.x(run as f64) + apart * (line as f64 - middle)
    }

    /// The dates of the changes, and of the first and the last run, where there is space.
    fn dates(&self) -> Markup {
        let changes = self.lines.iter().flat_map(|line| &line.points).map(|point| point.after);
        let ends = [0, self.history.runs.len() - 1];
        let mut shown: Vec<(usize, f64)> = Vec::new();
        for run in changes.chain(ends) {
            let x = self.x(run as f64).clamp(PLOT.left + DATE / 2.0, PLOT.right - DATE / 2.0);
            if shown.iter().all(|(_, other)| (x - other).abs() >= DATE) {
                shown.push((run, x));
            }
        }
        html! {
            @for (run, x) in shown { (PLOT.label_below(x, 15.0, self.history.runs[run].date())) }
        }
    }

    fn levels(&self, number: usize, line: &FigureHistory) -> Markup {
        let ends = |level: &Level| {
            [self.x_of(number, level.first), self.x_of(number, level.last)].map(coordinate)
        };
        html! {
            @for level in &line.levels {
                @let ([from, to], y) = (ends(level), coordinate(self.y(level.ratio.ratio.get())));
                line.level x1=(from) x2=(to) y1=(y) y2=(y) {
                    title {
                        (line.figure.candidate) ": " (ratio(level.ratio.ratio)) " "
                        (around(level.ratio).plus_minus)
                    }
                }
            }
        }
    }

    fn value(&self, number: usize, line: &FigureHistory, run: usize) -> Markup {
        let Some(value) = line.values[run] else { return Markup::default() };
        let x = coordinate(self.x_of(number, run));
        let y = |ratio: Ratio| coordinate(self.y(ratio.get()));
        let left_out = line.outliers.contains(&run);
        let at = &self.history.runs[run];
        html! {
            g class=[left_out.then_some("bound")] {
                title {
                    (line.figure.candidate) ", " (at.label) ", " (at.date()) ": " (ratio(value.ratio))
                    @if let Some((low, high)) = value.interval {
                        " (" (ratio(low)) " to " (ratio(high)) ")"
                    }
                    @if left_out { ", left out" }
                }
                @if let Some((low, high)) = value.interval {
                    line.whisker x1=(x) x2=(x) y1=(y(low)) y2=(y(high)) {}
                }
                use href=(shape(mark(self.history, &line.figure.candidate)))
                    transform={ "translate(" (x) " " (y(value.ratio)) ") scale(.6)" } {}
            }
        }
    }

    fn change(&self, line: &FigureHistory, point: &ChangePoint) -> Markup {
        let x = coordinate(self.x((point.before + point.after) as f64 / 2.0));
        let [from, to] = [point.before, point.after].map(|run| &self.history.runs[run].label);
        html! {
            line.change x1=(x) x2=(x) y1=(PLOT.top) y2=(PLOT.bottom) {
                title {
                    (line.figure.candidate) " between " (from) " and " (to) ": "
                    (size(point)) " (" (interval(point)) "), "
                    (with_p(point.p_value))
                }
            }
        }
    }

    /// The chart in words: where each line ends, and its changes.
    fn describe(&self, title: &str) -> String {
        let line = |line: &&FigureHistory| {
            let last = line.values.iter().flatten().last()?;
            let date = |point: &ChangePoint| self.history.runs[point.after].date();
            let changes = line.points.iter();
            let changes = changes.map(|point| format!(", {} on {}", size(point), date(point)));
            let (end, changes) = (ratio(last.ratio), changes.collect::<String>());
            Some(format!("{} {end} at the end{changes}", line.figure.candidate))
        };
        let lines = joined(self.lines.iter().filter_map(line), "; ");
        format!("{title}: {}", lines.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p_values_have_one_digit() {
        let shown = [0.000_01, 0.000_12, 0.0034, 0.05, 0.2, 1.0].map(p_value);
        assert_eq!(shown, ["<0.0001", "0.0001", "0.003", "0.05", "0.2", "1.0"]);
        assert_eq!([0.000_01, 0.01].map(with_p), ["p < 0.0001", "p = 0.01"]);
    }

    #[test]
    fn significance_level_is_rounded_down_to_two_digits() {
        // Of 1222, 658 and 10 figures.
        let shown = [0.05 / 1222.0, 0.05 * 2.0 / 658.0, 0.05 / 10.0, 0.05].map(significance_level);
        assert_eq!(shown, ["0.00004", "0.00015", "0.005", "0.05"]);
        for digit in 10..100 {
            let level = f64::from(digit) / 1e4;
            assert_eq!(significance_level(level), level.to_string());
        }
    }

    #[test]
    fn markers_of_many_candidates_stay_at_their_run_and_in_the_plot() {
        for lines in [1, 2, 8, 30] {
            for runs in [2, 5, 12, 100] {
                let spread = apart(lines, runs) * (lines - 1) as f64;
                assert!(spread < distance(runs), "{lines} lines, {runs} runs");
                assert!(spread / 2.0 <= MARGIN, "{lines} lines, {runs} runs");
            }
        }
        assert_eq!(apart(3, 12), APART);
    }
}
