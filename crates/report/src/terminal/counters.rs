//! What was counted, by group, and what could not be counted.

use super::paint::{Paint, left, plain, right, width, wrap};
use crate::counters::CounterFigure;
use crate::figures::ratio;
use crate::metric::clients;
use crate::model::{CounterSummary, Report, Role};

/// Room for a ratio with the space before it.
const COLUMN: usize = 8;

/// Draws the medians of ratios by group, what the headings mean, and a line per thing that was not
/// counted.
pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    groups(out, report, paint);
    let mut notes = Vec::new();
    let counted = report.microbenchmarks.iter().any(|one| !one.baseline.counters.is_empty());
    if counted {
        notes.push(if report.counter_groups.is_empty() { OF_KERNEL } else { KEY }.to_owned());
    }
    notes.extend(report.not_counted.iter().map(|one| plain(&one.line())));
    if !notes.is_empty() && report.counter_groups.is_empty() {
        out.push('\n');
    }
    for line in notes.iter().flat_map(|note| wrap(note, room)) {
        out.push_str(&format!("{}\n", paint.dim(&line)));
    }
}

fn groups(out: &mut String, report: &Report, paint: Paint) {
    let summaries = &report.counter_groups;
    if summaries.is_empty() {
        return;
    }
    let sweep = report.is_sweep();
    let label = |one: &CounterSummary| match sweep {
        false => plain(&one.group),
        true => format!("{}, {}", plain(&one.group), clients(one.clients)),
    };
    let longest = |of: &dyn Fn(&CounterSummary) -> usize, title: &str| {
        summaries.iter().map(of).max().unwrap_or(0).max(title.len())
    };
    let group = longest(&|one| width(&label(one)), "group");
    let name = longest(&|one| width(&plain(&one.candidate)), "candidate");
    let about = "  medians of ratios to the baseline over the microbenchmarks of a group";
    out.push_str(&format!("\n{}{}\n", paint.bold("counted"), paint.dim(about)));
    let mut heading = format!("{}  {}  count", left("group", group), left("candidate", name));
    for title in ["ins/q", "cyc/q", "IPC"] {
        heading.push_str(&right(title, COLUMN));
    }
    let rule = "─".repeat(width(&heading));
    out.push_str(&format!("{heading}\n{}\n", paint.dim(&rule)));
    let mut before = String::new();
    let same = |a: &CounterSummary, b: &CounterSummary| {
        (&a.group, a.clients, &a.candidate) == (&b.group, b.clients, &b.candidate)
    };
    for figures in summaries.chunk_by(same) {
        let first = &figures[0];
        let here = label(first);
        let shown = if here == before { "" } else { &here };
        let mut line = format!(
            "{}  {}{:>7}",
            left(shown, group),
            left(&plain(&first.candidate), name),
            first.count
        );
        for figure in CounterFigure::OF_GROUPS {
            let found = figures.iter().find(|one| one.figure == figure);
            let text = found.map_or_else(|| "–".to_owned(), |one| ratio(one.median));
            line.push_str(&right(&text, COLUMN));
        }
        out.push_str(&if first.role == Role::Control { paint.dim(&line) } else { line });
        out.push('\n');
        before = here;
    }
}

/// What the headings mean.
const KEY: &str = "counted for the system under test in its slices, without the background: ins/q \
     and cyc/q are instructions and clock cycles per query, IPC instructions per cycle; L1i/k, \
     iTLB/k and brm/k misses of the L1 instruction cache, the instruction TLB and of branches per \
     1,000 instructions; minf/q, majf/q and migr/q minor and major page faults and moves between \
     CPUs per query; µJ/q energy of the whole package per query in microjoules. Ratios are compared \
     slice by slice; of faults and moves, where slices have none, as a whole.";

/// The same where only the kernel counted.
const OF_KERNEL: &str = "counted for the system under test in its slices, without the background: \
     minf/q, majf/q and migr/q are minor and major page faults and moves between CPUs per query. \
     Ratios are compared slice by slice, and as a whole where slices have none.";
