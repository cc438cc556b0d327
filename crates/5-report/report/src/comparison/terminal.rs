//! The comparison as text for a terminal.

mod absolute;
mod machines;
mod relative;

use super::facts::Fact;
use super::{Comparison, words};
use crate::terminal::paint::{Paint, break_name, left, plain, right, width, wrap};

/// Width of a cell including the space before it: ` 1.038 +`.
const COLUMN: usize = 8;

/// Render the comparison in lines of at most `room` characters, ending with a line feed. Absolute
/// figures are only rendered with `details`, or if there are no ratios to a baseline.
#[must_use]
pub fn terminal(comparison: &Comparison, room: usize, color: bool, details: bool) -> String {
    let drawn = Drawn { comparison, room, paint: Paint::new(color) };
    let mut out = drawn.header();
    drawn.facts(&mut out);
    let candidates = comparison.relative_candidates();
    if comparison.absolute.is_empty() {
        out.push_str(&format!("\n{}\n", words::NOTHING));
    }
    if !candidates.is_empty() {
        drawn.key(&mut out);
    }
    if let Some(text) = words::only_in_one(comparison) {
        out.push('\n');
        drawn.paragraph(&mut out, &text);
    }
    drawn.machines(&mut out, details);
    for candidate in &candidates {
        drawn.groups(&mut out, candidate);
        drawn.extremes(&mut out, candidate);
        drawn.ratios(&mut out, candidate);
        drawn.agreement(&mut out, candidate);
    }
    drawn.absolute(&mut out, details || comparison.rows.is_empty());
    out
}

struct Drawn<'a> {
    comparison: &'a Comparison,
    room: usize,
    paint: Paint,
}

impl Drawn<'_> {
    /// The runs and notes about them.
    fn header(&self) -> String {
        let Self { comparison, room, paint } = *self;
        let runs = comparison.runs.len();
        let mut out = format!("{}\n", paint.bold(&format!("{runs} runs side by side")));
        for column in &comparison.columns {
            let label = format!("{}  ", column.label);
            let text = plain(&comparison.describe(column));
            let lines = wrap(&text, room.saturating_sub(width(&label)));
            for (index, line) in lines.iter().enumerate() {
                let label = if index == 0 { label.clone() } else { " ".repeat(width(&label)) };
                out.push_str(&format!("{label}{line}\n"));
            }
        }
        for note in &comparison.notes {
            for line in wrap(&format!("Note: {}", plain(note)), room) {
                out.push_str(&format!("{}\n", paint.worse(&line)));
            }
        }
        out
    }

    /// What differs between the runs.
    fn facts(&self, out: &mut String) {
        let facts = &self.comparison.facts;
        let parts = [
            ("What differs", &facts.different),
            ("State of the machines at the start", &facts.momentary),
        ];
        for (title, facts) in parts {
            if !facts.is_empty() {
                out.push_str(&format!("\n{}\n", self.paint.bold(title)));
            }
            for fact in facts {
                self.fact(out, fact);
            }
        }
        if !facts.equal.is_empty() {
            out.push('\n');
            self.dim(out, &format!("Equal: {}.", facts.equal.join("; ")));
        }
        if !facts.incomplete.is_empty() {
            let runs = "Recorded by some of the runs only";
            self.dim(out, &format!("{runs}: {}.", facts.incomplete.join("; ")));
        }
    }

    /// `kernel: A 6.1.0; B 6.1.1`.
    fn fact(&self, out: &mut String, fact: &Fact) {
        let mut text = format!("{}: ", fact.what);
        let values: Vec<String> = self
            .comparison
            .runs
            .iter()
            .zip(&fact.values)
            .filter_map(|(run, value)| Some(format!("{} {}", run.label, value.as_ref()?)))
            .collect();
        text.push_str(&values.join("; "));
        let room = self.room.saturating_sub(4);
        let lines = wrap(&plain(&text), room);
        let lines = lines.iter().flat_map(|line| break_name(line, room));
        for (index, line) in lines.enumerate() {
            out.push_str(&format!("{}{line}\n", if index == 0 { "  " } else { "    " }));
        }
    }

    /// The meaning of the signs.
    fn key(&self, out: &mut String) {
        out.push('\n');
        self.dim(
            out,
            "Relative QPS, above 1 is better: + better than the baseline of the same run, - \
             worse, ~ within noise, c client-bound, · no interval, ? too few blocks, ! failed.",
        );
        self.dim(out, &format!("Last column, of the runs: {}.", words::AGREEMENT_KEY));
    }

    fn paragraph(&self, out: &mut String, text: &str) {
        for line in wrap(&plain(text), self.room) {
            out.push_str(&format!("{line}\n"));
        }
    }

    fn dim(&self, out: &mut String, text: &str) {
        for line in wrap(&plain(text), self.room) {
            out.push_str(&format!("{}\n", self.paint.dim(&line)));
        }
    }

    /// Ranges of columns that fit next to `names` characters.
    fn parts(&self, names: usize) -> Vec<std::ops::Range<usize>> {
        let fit = (self.room.saturating_sub(names) / COLUMN).max(1);
        let all = self.comparison.columns.len();
        (0..all).step_by(fit).map(|from| from..(from + fit).min(all)).collect()
    }

    fn heading(&self, out: &mut String, title: &str, names: usize, part: &std::ops::Range<usize>) {
        let mut line = left(title, names);
        for column in &self.comparison.columns[part.clone()] {
            // Aligned with the value, not with its sign.
            line.push_str(&format!("{}  ", right(&column.label, COLUMN - 2)));
        }
        out.push_str(&format!("{}\n", self.paint.dim(line.trim_end())));
    }
}
