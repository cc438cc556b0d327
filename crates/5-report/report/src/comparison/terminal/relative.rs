//! Ratios to the baseline of each run: summaries of groups, extremes, all microbenchmarks.

use dbdyno_units::Ratio;

use super::{COLUMN, Drawn};
use crate::comparison::{Cell, RatioRow, agreement, words};
use crate::figures::ratio;
use crate::model::{GroupSummary, Verdict};
use crate::terminal::paint::{left, plain, right, width, wrap};

/// A value of a summary.
pub(super) type Figure = fn(&GroupSummary) -> Ratio;

pub(super) const FIGURES: [(&str, Figure); 4] = [
    ("median", |summary| summary.median),
    ("min", |summary| summary.min),
    ("max", |summary| summary.max),
    ("mean", |summary| summary.avg),
];

/// Most differences to list per candidate.
const LISTED: usize = 10;

impl Drawn<'_> {
    pub(super) fn groups(&self, out: &mut String, candidate: &str) {
        let rows = self.comparison.summaries_of(candidate);
        if rows.is_empty() {
            return;
        }
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
    pub(super) fn extremes(&self, out: &mut String, candidate: &str) {
        let rows = self.comparison.summaries_of(candidate);
        if rows.is_empty() {
            return;
        }
        let title = format!("{}: best and worst microbenchmark", plain(candidate));
        out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
        for row in rows {
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

    pub(super) fn ratios(&self, out: &mut String, candidate: &str) {
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
                        line.push_str(&format!(" {}", row.agreement.sign()));
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
        format!("{pad}{}", self.paint.tone(verdict.tone(), &text))
    }

    /// Numbers of microbenchmarks on which the runs agree, and the largest differences.
    pub(super) fn agreement(&self, out: &mut String, candidate: &str) {
        let comparison = self.comparison;
        out.push('\n');
        self.paragraph(out, &words::agreement(comparison, candidate));
        let mut rows: Vec<&RatioRow> = comparison
            .rows
            .iter()
            .filter(|row| row.candidate == candidate && row.agreement.is_difference())
            .collect();
        let size =
            |row: &&RatioRow| row.difference.map_or(0.0, |one| one.quotient.ratio.get().ln().abs());
        rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        for row in rows.iter().take(LISTED) {
            let Some(difference) = &row.difference else { continue };
            let text = format!(
                "{}: {}: {}",
                row.microbenchmark,
                row.agreement.words(),
                agreement::describe(difference, &comparison.columns)
            );
            for (index, line) in wrap(&plain(&text), self.room.saturating_sub(4)).iter().enumerate()
            {
                out.push_str(&format!("{}{line}\n", if index == 0 { "  " } else { "    " }));
            }
        }
        if rows.len() > LISTED {
            let more = rows.len() - LISTED;
            out.push_str(&format!("  and {more} smaller ones: see comparison.csv\n"));
        }
    }
}
