//! Key results: a line per candidate and group, in words.

use super::paint::{Paint, left, plain, width, wrap};
use crate::candidates::summary_of;
use crate::key_results::{self, Finding, KeyResult, command};
use crate::metric::{Grouping, Metric};
use crate::model::Report;
use crate::words::CPU_FIRST;

/// Differences from the baseline per candidate.
const FEW: usize = 2;

/// Renders the key results and how to measure longer; nothing for a sweep, whose results are a
/// table over the number of clients.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    let results = key_results::of(report, grouping);
    if results.is_empty() || report.is_sweep() {
        return;
    }
    let about = format!("  compared with {}", plain(&report.baseline));
    out.push_str(&format!("\n{}{}\n", paint.bold("key results"), paint.dim(&about)));
    if results.iter().any(|result| result.finding.metric == Metric::Cpu) {
        for line in wrap(CPU_FIRST, room) {
            out.push_str(&format!("{}\n", paint.dim(&line)));
        }
    }
    let groups = results.iter().map(|result| width(&plain(result.group))).max().unwrap_or(0);
    for of_candidate in results.chunk_by(|a, b| a.candidate == b.candidate) {
        let name = of_candidate[0].candidate;
        let what = summary_of(report, name, FEW).unwrap_or_default();
        let title = wrap(&plain(&format!("{name}: {what}")), room);
        out.push_str(&format!("{}\n", title.join("\n")));
        let mut before = "";
        for result in of_candidate {
            let label = if result.group == before { "" } else { result.group };
            before = result.group;
            line(out, (label, groups), result, room, paint);
        }
    }
    let more = results.iter().filter_map(|result| result.more_time.as_ref());
    if let Some(command) = command(&report.directory, more) {
        out.push_str(&format!("measure longer: {}\n", plain(&command)));
    }
}

/// The finding, and below it throughput if another metric is to be trusted.
fn line(
    out: &mut String,
    (label, columns): (&str, usize),
    result: &KeyResult<'_>,
    room: usize,
    paint: Paint,
) {
    let mut label = left(&plain(label), columns);
    let mut add = |text: &str, paint_line: &dyn Fn(&str) -> String| {
        for line in wrap(&plain(text), room.saturating_sub(columns + 4).max(30)) {
            out.push_str(&format!("  {label}  {}\n", paint_line(&line)));
            label = " ".repeat(columns);
        }
    };
    let verdict = result.finding.verdict();
    add(&result.words(), &|line| paint.verdict(verdict, line));
    if let Some(throughput) = &result.throughput {
        add(&Finding::words(throughput), &|line| paint.dim(line));
    }
}
