//! The tables of groups: a row per microbenchmark, a column per candidate, in the most detailed arrangement that fits the
//! width, which depends on the width of all tables. They are not part of the document.

use dbdyno_text::{Paint, break_name, cut, left, plain, right, width};
use dbdyno_units::Qps;

use crate::figures::{compact, ends, plus_minus, ratio};
use crate::metric::{Grouping, compared, missing};
use crate::model::{
    Absolute, CandidateRecord, Estimate, Metric, MicrobenchmarkRows, Report, Role, Row, Verdict,
};
use crate::sections::LONGEST_NAME;
use crate::sections::groups::own_unit;

/// The tables of all groups, split into several if there are too many candidates.
pub(super) fn draw(report: &Report, grouping: Grouping, room: usize, paint: Paint) -> String {
    let mut out = String::new();
    let candidates = compared(report);
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        for metric in metrics(report, &members) {
            let layout = Layout::choose(report, *metric, room);
            let mut parts = candidates.chunks(layout.per_table);
            // A baseline alone has a table, too.
            let first = parts.next().unwrap_or_default();
            for candidates in [first].into_iter().chain(parts) {
                let table = Table { report, layout: &layout, paint, candidates };
                table.render(&mut out, group, &members);
            }
        }
    }
    out
}

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

struct Table<'a> {
    report: &'a Report,
    layout: &'a Layout,
    paint: Paint,
    candidates: &'a [&'a CandidateRecord],
}

impl Table<'_> {
    fn render(&self, out: &mut String, group: &str, members: &[(usize, &MicrobenchmarkRows)]) {
        out.push('\n');
        self.heading(out, group, members);
        let mut before = None;
        for (_, microbenchmark) in members {
            // The rows of a sweep are numbers of clients, below the microbenchmark's name.
            if self.layout.sweep && before != Some(&microbenchmark.name) {
                out.push_str(&format!(
                    "{}\n",
                    self.paint.bold(&label(microbenchmark, self.layout.metric))
                ));
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
        let broken = |one: &&CandidateRecord| break_name(&plain(&one.name), cell.columns());
        let names: Vec<Vec<String>> = self.candidates.iter().map(broken).collect();
        let lines = names.iter().map(Vec::len).max().unwrap_or(1);
        for line in 0..lines {
            let last = line + 1 == lines;
            let name = if last { self.layout.name_title() } else { String::new() };
            let base = if last { base_title(metric, cell) } else { "" };
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
            out.push_str(&format!("{}\n", text.trim_end()));
        }
        let rule = "─".repeat(self.layout.columns_of(self.candidates.len()));
        out.push_str(&format!("{}\n", self.paint.dim(&rule)));
    }

    fn row(&self, out: &mut String, microbenchmark: &MicrobenchmarkRows) {
        let layout = self.layout;
        let name = layout.name(microbenchmark);
        let base = base_figure(layout.metric, &microbenchmark.baseline, layout.full);
        let base = right(&base, layout.base_columns);
        let mut first = format!("{name} {base}");
        let mut second = " ".repeat(width(&first));
        for candidate in self.candidates {
            let (upper, lower) = self.cell(microbenchmark, candidate);
            for (line, text) in [(&mut first, upper), (&mut second, lower)] {
                line.push_str(&" ".repeat(layout.gap));
                line.push_str(&text);
            }
        }
        out.push_str(&format!("{}\n", first.trim_end()));
        if layout.cell == Cell::TwoLines && !second.trim().is_empty() {
            out.push_str(&format!("{}\n", second.trim_end()));
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
        let names = report.microbenchmarks.iter().map(|m| width(&label(m, metric)));
        let name_columns = match sweep {
            true => CLIENTS.len() + 2,
            false => names.max().unwrap_or(0).max(MICROBENCHMARK.len()),
        };
        let candidates = compared(report).len().max(1);
        let layout = |cell, full| {
            let bases = report.microbenchmarks.iter().map(|m| &m.baseline);
            let bases = bases.map(|base| width(&base_figure(metric, base, full)));
            let base_columns = bases.max().unwrap_or(0).max(width(base_title(metric, cell)));
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
                let layout = layout(cell, full);
                let columns = layout.columns_of(candidates);
                if columns <= room {
                    let gap = if columns + candidates <= room { 2 } else { 1 };
                    return Self { gap, ..layout };
                }
            }
        }
        let rest = room.saturating_sub(tightest.name_columns + 1 + tightest.base_columns);
        tightest.per_table = (rest / (tightest.gap + tightest.cell.columns())).max(1);
        tightest
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
            false => left(&label(microbenchmark, self.metric), self.name_columns),
        }
    }
}

const MICROBENCHMARK: &str = "microbenchmark";

const CLIENTS: &str = "clients";

/// The shortest where every column counts: the line above the table names the metric.
const fn base_title(metric: Metric, cell: Cell) -> &'static str {
    match (metric, cell) {
        (Metric::Qps, _) => "QPS",
        (Metric::Cpu, Cell::TwoLines) => "µs",
        (Metric::Cpu, _) => "CPU µs",
    }
}

/// A microbenchmark's name, with the unit of throughput that does not count statements.
fn label(microbenchmark: &MicrobenchmarkRows, metric: Metric) -> String {
    let name = plain(&microbenchmark.name);
    match own_unit(microbenchmark, metric) {
        Some(unit) => format!("{name} ({})", plain(unit)),
        None => name,
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
pub(super) fn short_names(report: &Report, room: usize) -> Vec<(&str, String)> {
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
pub(super) fn renamed(report: &Report, names: &[(&str, String)]) -> Report {
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
