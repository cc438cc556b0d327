//! The table of one group: a row per microbenchmark, a column per candidate.

use super::layout::{Cell, Layout, base_title, label};
use crate::figures::{ends, plus_minus, ratio};
use crate::metric::{Metric, compared, missing};
use crate::model::{CandidateRecord, Estimate, MicrobenchmarkRows, Report, Role, Row, Verdict};
use dbdyno_text::{Paint, break_name, left, plain, right, width};

/// A group's name and its microbenchmarks with their indices in the report.
pub(super) type Group<'a> = (&'a str, &'a [(usize, &'a MicrobenchmarkRows)]);

/// The metrics of a group's tables, the one to trust first. Relative QPS is always shown, CPU per
/// query only where it is to be trusted; if that depends on the number of clients, see the details.
pub(super) fn metrics(
    report: &Report,
    members: &[(usize, &MicrobenchmarkRows)],
) -> &'static [Metric] {
    let rows = || members.iter().flat_map(|(_, member)| &member.rows);
    let trusts_cpu = |row: &Row| row.trusted_metric == Metric::Cpu;
    match (rows().any(trusts_cpu), rows().all(trusts_cpu)) {
        (true, true) => &[Metric::Cpu, Metric::Qps],
        (true, false) if !report.is_sweep() => &[Metric::Qps, Metric::Cpu],
        _ => &[Metric::Qps],
    }
}

/// Render the group's table, split into several if there are too many candidates.
pub(super) fn render(
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
        out.push_str(&format!("{}{}\n", self.paint.bold(&plain(group)), self.paint.dim(&about)));
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
        let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate.name);
        let Some(row) = row else {
            let word = missing(self.report, &candidate.name);
            let verdict = if word == "failed" { Verdict::Failed } else { Verdict::Unknown };
            return (paint.tone(verdict.tone(), &right(word, columns)), blank);
        };
        let verdict = metric.verdict(row);
        let Some(value) = metric.ratio(row) else {
            let text = match verdict {
                Verdict::Failed => format!("fail {}", verdict.sign()),
                _ if !metric.is_measured(row) => "–".to_owned(),
                _ => format!("few {}", verdict.sign()),
            };
            return (paint.tone(verdict.tone(), &right(&text, columns)), blank);
        };
        let (value, sign) = (ratio(value), verdict.sign());
        let interval =
            |of: fn(Estimate) -> String| metric.estimate(row).map_or_else(|| "–".to_owned(), of);
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
                paint.dim(&right(&metric.estimate(row).map_or(String::new(), plus_minus), columns)),
            ),
        }
    }
}
