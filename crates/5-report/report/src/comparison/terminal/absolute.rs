//! Absolute figures of two columns beside each other, with their quotients.

use super::Drawn;
use crate::comparison::{AbsoluteFigure, AbsoluteRow, Figure, words};
use crate::figures::{compact, plus_minus_percent, ratio};
use crate::terminal::paint::{cut, left, plain, right, width};

/// Width of a value with its interval: `  51.2k ±0.8%`.
const VALUE: usize = 13;

/// Width of a quotient with its interval: `  1.038 + ±0.8%`.
const QUOTIENT: usize = 15;

impl Drawn<'_> {
    /// A sentence per candidate and pair of columns; with `tables` all figures.
    pub(super) fn absolute(&self, out: &mut String, tables: bool) {
        let comparison = self.comparison;
        if comparison.changes.is_empty() {
            if !comparison.absolute.is_empty() {
                out.push('\n');
                self.paragraph(out, words::NO_COUNTERPART);
            }
            return;
        }
        out.push_str(&format!("\n{}\n", self.paint.bold("Absolute figures")));
        self.paragraph(out, words::CAUTION);
        for sentence in words::drift(comparison) {
            self.paragraph(out, &sentence);
        }
        if tables {
            self.dim(out, words::CHANGE_KEY);
        }
        for candidate in comparison.absolute_candidates() {
            if tables {
                for (column, earlier) in comparison.compared_columns() {
                    for figure in AbsoluteFigure::ALL {
                        self.table(out, candidate, (column, earlier), figure);
                    }
                }
            }
            let mut first = tables;
            for change in comparison.changes.iter().filter(|one| one.candidate == candidate) {
                if std::mem::take(&mut first) {
                    out.push('\n');
                }
                self.paragraph(out, &words::change(comparison, change));
            }
        }
        if !tables {
            self.dim(out, "--details shows QPS, CPU time and p99 of every microbenchmark.");
        }
    }

    fn table(
        &self,
        out: &mut String,
        candidate: &str,
        (column, earlier): (usize, usize),
        figure: AbsoluteFigure,
    ) {
        let of = |row: &AbsoluteRow, column: usize| {
            row.cells[column].as_ref().and_then(|cell| cell.figure(figure).copied())
        };
        let rows: Vec<&AbsoluteRow> = self
            .comparison
            .absolute
            .iter()
            .filter(|row| row.candidate == candidate)
            .filter(|row| of(row, column).or(of(row, earlier)).is_some())
            .collect();
        if rows.is_empty() {
            return;
        }
        let label = |column: usize| self.comparison.columns[column].label.as_str();
        let (b, a) = (label(column), label(earlier));
        let name = |row: &AbsoluteRow| match row.throughput_unit.as_str() {
            "million rows/s" if figure == AbsoluteFigure::Qps => {
                format!("{} (M rows/s)", row.microbenchmark)
            }
            _ => row.microbenchmark.clone(),
        };
        let most = self.room.saturating_sub(2 * VALUE + QUOTIENT);
        let names = rows.iter().map(|row| width(&name(row))).max().unwrap_or(0).max(14).min(most);
        let title = format!("{}: {}, {b} beside {a}", plain(candidate), figure.title());
        out.push_str(&format!("\n{}\n", self.paint.bold(&title)));
        let heading = format!(
            "{}{}{}{}",
            left("microbenchmark", names),
            right(&format!("{a}      "), VALUE),
            right(&format!("{b}      "), VALUE),
            right(&format!("{b}/{a}        "), QUOTIENT)
        );
        out.push_str(&format!("{}\n", self.paint.dim(heading.trim_end())));
        for row in rows {
            let mut line = left(&cut(&plain(&name(row)), names), names);
            for column in [earlier, column] {
                line.push_str(&right(&value(of(row, column)), VALUE));
            }
            line.push_str(&self.quotient(of(row, column)));
            out.push_str(&format!("{}\n", line.trim_end()));
        }
    }

    fn quotient(&self, figure: Option<Figure>) -> String {
        let Some(change) = figure.and_then(|figure| figure.change) else {
            return right("–       ", QUOTIENT);
        };
        let middle = change.ratio.get();
        let half = change.quotient.map_or_else(String::new, |quotient| {
            let farther = (quotient.high.get() - middle).max(middle - quotient.low.get());
            plus_minus_percent(100.0 * farther)
        });
        let text = format!("{} {}", ratio(change.ratio), change.verdict.sign());
        let pad = " ".repeat(QUOTIENT.saturating_sub(width(&text) + 6));
        format!("{pad}{}{}", self.paint.tone(change.verdict.tone(), &text), right(&half, 6))
    }
}

/// A value with the distance to the farther end of its interval: `51.2k ±0.8%`.
fn value(figure: Option<Figure>) -> String {
    let Some(Figure { value, interval, .. }) = figure else { return "–      ".to_owned() };
    let half = interval.filter(|_| value > 0.0).map_or_else(String::new, |(low, high)| {
        plus_minus_percent(100.0 * (high - value).max(value - low) / value)
    });
    format!("{}{}", compact(value), right(&half, 6))
}
