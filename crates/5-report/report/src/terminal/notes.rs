//! Notes on the reliability of the numbers: noise, failures, warnings, method.

use super::paint::{Paint, plain, width, wrap};
use crate::model::{BlockCounts, Optimization, Report};
use crate::words;

pub(super) fn render(out: &mut String, report: &Report, room: usize, paint: Paint) {
    out.push('\n');
    let notes = Notes { room, paint };
    notes.write(out, "noise floor", &words::noise_floor(report), Paint::bold);
    if let Some(text) = words::client_bound(report) {
        notes.write(out, "client-bound", &text, Paint::worse);
    }
    for lost in &report.lost {
        let text = format!("{} {}", lost.candidate, words::lost_connections(lost));
        notes.write(out, "lost", &text, Paint::worse);
    }
    for line in optimizations(report) {
        notes.write(out, "optimized", &line, Paint::bold);
    }
    for (candidate, text) in words::refused_optimizations(report) {
        notes.write(out, "unoptimized", &format!("{candidate} {text}"), Paint::worse);
    }
    notes.failures_and_warnings(out, report);
    let method =
        format!("{} ± is the farther end of the interval.", report.interval_method.trim_end());
    notes.write(out, "intervals", &method, Paint::bold);
}

/// The notes of an insert benchmark, whose noise is the spread of its repeats.
pub(super) fn of_inserts(out: &mut String, report: &Report, room: usize, paint: Paint) {
    if !report.failures.is_empty() || !report.warnings.is_empty() {
        out.push('\n');
    }
    Notes { room, paint }.failures_and_warnings(out, report);
}

/// Optimizations by the live optimizer, one text per candidate.
fn optimizations(report: &Report) -> Vec<String> {
    let mut texts = Vec::new();
    for candidate in &report.candidates {
        let of = |one: &&Optimization| one.candidate == candidate.name && one.refused.is_none();
        let all: Vec<&Optimization> = report.optimizations.iter().filter(of).collect();
        let longest = all.iter().map(|one| one.layout.longest_pause).max();
        let (Some(last), Some(longest)) = (all.last(), longest) else { continue };
        let covered = last
            .layout
            .covered
            .map_or_else(String::new, |share| format!(" with {share} of the samples"));
        let counts = match &last.layout.counts {
            Some(BlockCounts::Counted { .. }) => ", executions counted".to_owned(),
            Some(BlockCounts::Estimated { reason }) => {
                format!(", executions estimated from samples ({reason})")
            }
            None => String::new(),
        };
        texts.push(format!(
            "{} by the live optimizer {}; the last with {}: {} functions moved{covered}{counts}, {} hot, \
             {} added; its threads stood still for {longest} at most.",
            candidate.name,
            if all.len() == 1 { "once".to_owned() } else { format!("{} times", all.len()) },
            last.trained_with,
            last.layout.functions,
            last.layout.hot,
            last.layout.added,
        ));
    }
    texts
}

struct Notes {
    room: usize,
    paint: Paint,
}

impl Notes {
    fn failures_and_warnings(&self, out: &mut String, report: &Report) {
        for failure in &report.failures {
            let text = format!("{} at {}: {}", failure.candidate, failure.at, failure.reason);
            self.write(out, "failed", &text, Paint::worse);
        }
        for warning in &report.warnings {
            let text = format!("{}. {}", warning.what.trim_end_matches('.'), warning.advice);
            self.write(out, "warning", &text, Paint::worse);
        }
    }

    /// A label followed by its text, wrapped and indented.
    fn write(&self, out: &mut String, label: &str, text: &str, paint: fn(Paint, &str) -> String) {
        const INDENT: usize = 13;
        let lines = wrap(&plain(text), self.room.saturating_sub(INDENT).max(20));
        for (index, line) in lines.iter().enumerate() {
            let label = if index == 0 { label } else { "" };
            let space = " ".repeat(INDENT - width(label));
            out.push_str(&format!("{}{space}{line}\n", paint(self.paint, label)));
        }
    }
}
