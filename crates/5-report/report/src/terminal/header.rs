//! The lines above the tables: what was measured, when, on what; what the candidates are; the signs.

use super::TerminalOptions;
use super::paint::{Paint, left, plain, wrap};
use crate::candidates::{identity, summary};
use crate::metric::client_bound_rows;
use crate::model::{Report, Role, RunStatus};
use crate::words;

/// Differences from the baseline per candidate; the page lists all.
const MAX_DIFFERENCES: usize = 4;

/// The width of the longest label.
const LABEL: usize = "candidate".len();

/// Renders the header.
pub(super) fn header(report: &Report, options: &TerminalOptions, paint: Paint) -> String {
    let status = words::status(report);
    let status = match (report.status, report.running_pid) {
        (_, Some(_)) => status,
        (RunStatus::Complete, None) => paint.better(&status),
        (RunStatus::Incomplete, None) => {
            paint.worse(&status.replacen("incomplete", "INCOMPLETE", 1))
        }
    };
    let by = paint.dim(&format!("dbdyno {}", plain(&report.version)));
    let mut out = format!("{}  {status}  {by}\n", paint.bold(&plain(&report.name)));
    let mut facts = format!("started {}", plain(&report.started));
    if let Some((measuring, elapsed)) = report.times() {
        facts.push_str(&format!(", measured {measuring}"));
        if let Some(elapsed) = elapsed {
            facts.push_str(&format!(", elapsed {elapsed}"));
        }
    }
    let mut lines = vec![("", facts)];
    if let Some(workload) = words::workload(report) {
        lines.push(("workload", workload));
    }
    if let Some(baseline) = report.candidates.first() {
        lines.push(("baseline", format!("{}: {}", baseline.name, identity(baseline))));
        let others = report.candidates.iter().filter(|one| one.role == Role::Candidate);
        for candidate in others {
            let text =
                format!("{}: {}", candidate.name, summary(candidate, baseline, MAX_DIFFERENCES));
            lines.push(("candidate", text));
        }
    }
    if report.insert.is_none() {
        let key = "+ better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed";
        lines.push(("", key.to_owned()));
    }
    if client_bound_rows(report).0 > 0 {
        lines.push(("", "c client-bound: the load generator was the limit, no verdict".to_owned()));
    }
    if report.is_imported() {
        let key = "· measured by others, too few values for an interval, no verdict";
        lines.push(("", key.to_owned()));
    }
    for (label, text) in lines {
        let indent = if label.is_empty() { 0 } else { LABEL + 1 };
        let lines = wrap(&plain(&text), options.width.saturating_sub(indent).max(20));
        for (number, line) in lines.iter().enumerate() {
            let label = if number == 0 { label } else { "" };
            out.push_str(&paint.dim(&format!("{}{line}", left(label, indent))));
            out.push('\n');
        }
    }
    out
}
