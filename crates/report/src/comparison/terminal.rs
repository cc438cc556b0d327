//! The comparison as text for a terminal.

use dbdyno_units::Ratio;

use super::{Cell, Comparison, GroupRow, RatioRow, VerdictAgreement};
use crate::figures::ratio;
use crate::model::{GroupSummary, Verdict};
use crate::terminal::paint::{Paint, left, plain, right, width, wrap};

/// A value of a summary.
type Figure = fn(&GroupSummary) -> Ratio;

const FIGURES: [(&str, Figure); 3] = [
    ("median", |summary| summary.median),
    ("min", |summary| summary.min),
    ("max", |summary| summary.max),
];

/// Width of a cell including the space before it: ` 1.038 +`.
const COLUMN: usize = 8;

/// Render the comparison in lines of at most `room` characters, ending with a line feed.
#[must_use]
pub fn terminal(comparison: &Comparison, room: usize, color: bool) -> String {
    let drawn = Drawn { comparison, room, paint: Paint::new(color) };
    let mut out = drawn.columns();
    let mut candidates: Vec<&str> = comparison.rows.iter().map(|r| r.candidate.as_str()).collect();
    candidates.dedup();
    if candidates.is_empty() {
        out.push_str("\nNothing to compare.\n");
    }
    for candidate in candidates {
        drawn.groups(&mut out, candidate);
        drawn.extremes(&mut out, candidate);
        drawn.rows(&mut out, candidate);
        drawn.agreement(&mut out, candidate);
    }
    out
}

struct Drawn<'a> {
    comparison: &'a Comparison,
    room: usize,
    paint: Paint,
}

impl Drawn<'_> {
    /// The legend of the columns.
    fn columns(&self) -> String {
        let Self { comparison, room, paint } = *self;
        let runs = comparison.columns.len();
        let mut out = format!(
            "{}\n",
            paint.bold(&format!("{runs} runs side by side, relative QPS, above 1 is better"))
        );
        for column in &comparison.columns {
            let label = format!("{}  ", column.label);
            let lines = wrap(&plain(&column.describe()), room.saturating_sub(width(&label)));
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
        let key = "+ better than the baseline, - worse, ~ within noise, c client-bound, · no \
                   interval, ? too few blocks, ! failed; last: = all agree, the label of the one \
                   that differs, or / split";
        for line in wrap(key, room) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
        out
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

    fn groups(&self, out: &mut String, candidate: &str) {
        let rows: Vec<&GroupRow> =
            self.comparison.groups.iter().filter(|row| row.candidate == candidate).collect();
        let groups = rows.iter().map(|row| width(&row.group)).max().unwrap_or(0).max(5);
        let names = groups + 8;
        for part in self.parts(names) {
            out.push_str(&format!("\n{}\n", self.paint.bold(&plain(candidate))));
            self.heading(out, "group", names, &part);
            for row in &rows {
                for (index, (title, figure)) in FIGURES.into_iter().enumerate() {
                    let group = if index == 0 { plain(&row.group) } else { String::new() };
                    let mut line = format!("{}  {}", left(&group, groups), left(title, 6));
                    for cell in &row.cells[part.clone()] {
                        let text =
                            cell.as_ref().map_or_else(|| "–".to_owned(), |s| ratio(figure(s)));
                        line.push_str(&format!("{}  ", right(&text, COLUMN - 2)));
                    }
                    out.push_str(&format!("{}\n", line.trim_end()));
                }
            }
        }
    }

    /// The best and the worst microbenchmark of every group.
    fn extremes(&self, out: &mut String, candidate: &str) {
        let title = format!("{}: best and worst microbenchmark", plain(candidate));
        out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
        for row in self.comparison.groups.iter().filter(|row| row.candidate == candidate) {
            let mut group = plain(&row.group);
            for (word, best) in [("best ", true), ("worst", false)] {
                // One line per microbenchmark, with the columns in which it is an extreme.
                let mut named: Vec<(&str, Vec<String>)> = Vec::new();
                for (column, cell) in self.comparison.columns.iter().zip(&row.cells) {
                    let Some(summary) = cell else { continue };
                    let (name, value) = if best {
                        (summary.best.as_str(), summary.max)
                    } else {
                        (summary.worst.as_str(), summary.min)
                    };
                    let text = format!("{} {}", column.label, ratio(value));
                    match named.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, columns)) => columns.push(text),
                        None => named.push((name, vec![text])),
                    }
                }
                for (name, columns) in named {
                    let start = format!("{}  {word}  ", left(&group, 8));
                    let text = format!("{} ({})", plain(name), columns.join(", "));
                    let lines = wrap(&text, self.room.saturating_sub(width(&start)).max(20));
                    for (index, line) in lines.iter().enumerate() {
                        let start =
                            if index == 0 { start.clone() } else { " ".repeat(width(&start)) };
                        out.push_str(&format!("{start}{line}\n"));
                    }
                    group.clear();
                }
            }
        }
    }

    fn rows(&self, out: &mut String, candidate: &str) {
        let rows: Vec<&RatioRow> =
            self.comparison.rows.iter().filter(|row| row.candidate == candidate).collect();
        let names = rows.iter().map(|row| width(&row.microbenchmark)).max().unwrap_or(0);
        // The agreement mark, with a space before it, follows the last column.
        let mark = self.comparison.columns.iter().map(|column| column.label.len()).max();
        for part in self.parts(names + 1 + mark.unwrap_or(1)) {
            let last = part.end == self.comparison.columns.len();
            for of_group in rows.chunk_by(|a, b| a.group == b.group) {
                let title = format!("{}: {}", plain(candidate), plain(&of_group[0].group));
                out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
                self.heading(out, "microbenchmark", names, &part);
                for row in of_group {
                    let mut line = left(&plain(&row.microbenchmark), names);
                    for cell in &row.cells[part.clone()] {
                        line.push_str(&self.cell(cell.as_ref()));
                    }
                    if last {
                        line.push_str(&format!(" {}", self.mark(row.agreement)));
                    }
                    out.push_str(&format!("{}\n", line.trim_end()));
                }
            }
        }
    }

    fn cell(&self, cell: Option<&Cell>) -> String {
        let Some(cell) = cell else { return right("–  ", COLUMN) };
        let verdict = cell.verdict;
        let value = match cell.ratio {
            Some(value) => ratio(value),
            None if verdict == Verdict::Failed => "fail".to_owned(),
            None => "few".to_owned(),
        };
        let text = format!("{value} {}", verdict.sign());
        let pad = " ".repeat(COLUMN.saturating_sub(width(&text)));
        format!("{pad}{}", self.paint.verdict(verdict, &text))
    }

    fn mark(&self, agreement: VerdictAgreement) -> String {
        match agreement {
            VerdictAgreement::Same(_) => "=".to_owned(),
            VerdictAgreement::OneDiffers { column, .. } => {
                self.comparison.columns[column].label.clone()
            }
            VerdictAgreement::Split => "/".to_owned(),
            VerdictAgreement::Unknown => String::new(),
        }
    }

    /// Numbers of microbenchmarks on which the runs agree.
    fn agreement(&self, out: &mut String, candidate: &str) {
        let rows = || self.comparison.rows.iter().filter(|row| row.candidate == candidate);
        let count = |test: &dyn Fn(VerdictAgreement) -> bool| {
            rows().filter(|row| test(row.agreement)).count()
        };
        let all = rows().count();
        let same = |verdict| count(&|agreement| agreement == VerdictAgreement::Same(verdict));
        let (faster, slower) = (same(Verdict::Better), same(Verdict::Worse));
        let noise = same(Verdict::WithinNoise);
        let one = count(&|agreement| matches!(agreement, VerdictAgreement::OneDiffers { .. }));
        let split = count(&|agreement| agreement == VerdictAgreement::Split);
        let text = format!(
            "{}: the runs agree on {} of {all} microbenchmarks ({faster} faster, {slower} slower, \
             {noise} within noise); on {one} one run differs, on {split} they are split.",
            plain(candidate),
            faster + slower + noise
        );
        out.push('\n');
        for line in wrap(&text, self.room) {
            out.push_str(&format!("{line}\n"));
        }
    }
}
