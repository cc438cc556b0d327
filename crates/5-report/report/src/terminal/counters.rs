//! Counter values by group, and counters that are not available.

use super::paint::{Paint, plain, width, wrap};
use super::table;
use crate::figures::ratio;
use crate::metric::with_clients;
use crate::model::CounterFigure;
use crate::model::{CounterSummary, Report, Role};

/// Render the medians of ratios by group, a legend, and a line per unavailable counter.
pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    groups(out, report, room, paint);
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

fn groups(out: &mut String, report: &Report, room: usize, paint: Paint) {
    let summaries = &report.counter_groups;
    if summaries.is_empty() {
        return;
    }
    let sweep = report.is_sweep();
    let label = |one: &CounterSummary| with_clients(&plain(&one.group), one.clients, sweep);
    let about = "  medians of ratios to the baseline over the microbenchmarks of a group";
    out.push_str(&format!("\n{}{}\n", paint.bold("counted"), paint.dim(about)));
    let same = |a: &CounterSummary, b: &CounterSummary| {
        (&a.group, a.clients, &a.candidate) == (&b.group, b.clients, &b.candidate)
    };
    let mut before = String::new();
    let mut rows = Vec::new();
    let mut roles = Vec::new();
    for figures in summaries.chunk_by(same) {
        let first = &figures[0];
        let here = label(first);
        let shown = if here == before { String::new() } else { here.clone() };
        let median = |figure| {
            let found = figures.iter().find(|one| one.figure == figure);
            found.map_or_else(|| "–".to_owned(), |one| ratio(one.median))
        };
        let labels = [shown, plain(&first.candidate), first.count.to_string()];
        rows.push(labels.into_iter().chain(CounterFigure::OF_GROUPS.map(median)).collect());
        roles.push(first.role);
        before = here;
    }
    let heading = ["group", "candidate", "count", "ins/q", "cyc/q", "IPC"].map(str::to_owned);
    let mut lines = table::lines(heading.to_vec(), rows, 2, room).into_iter();
    let heading = lines.next().unwrap_or_default();
    let rule = "─".repeat(width(&heading));
    out.push_str(&format!("{heading}\n{}\n", paint.dim(&rule)));
    for (line, role) in lines.zip(roles) {
        let line = if role == Role::Control { paint.dim(&line) } else { line };
        out.push_str(&format!("{line}\n"));
    }
}

/// The legend.
const KEY: &str = "counted for the system under test in its slices, without the background: ins/q \
     and cyc/q are instructions and clock cycles per query, IPC instructions per cycle; L1i/k, \
     iTLB/k and brm/k misses of the L1 instruction cache, the instruction TLB and of branches per \
     1,000 instructions; minf/q, majf/q and migr/q minor and major page faults and moves between \
     CPUs per query; µJ/q energy of the whole package per query in microjoules. Ratios are compared \
     slice by slice; of faults and moves, where slices have none, as a whole.";

/// The legend if only software counters are available.
const OF_KERNEL: &str = "counted for the system under test in its slices, without the background: \
     minf/q, majf/q and migr/q are minor and major page faults and moves between CPUs per query. \
     Ratios are compared slice by slice, and as a whole where slices have none.";
