//! Key results: a line per candidate and group, in words; in a sweep, a line per outcome.

use super::paint::{Paint, left, plain, width, wrap};
use crate::candidates::summary_of;
use crate::key_results::{self, KeyResult, command, steps};
use crate::metric::{Grouping, Metric};
use crate::model::Report;
use crate::words::CPU_FIRST;

/// Differences from the baseline per candidate.
const MAX_DIFFERENCES: usize = 2;

/// Renders the key results and how to measure longer.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    let results = key_results::of(report, grouping);
    if results.is_empty() {
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
        let what = summary_of(report, name, MAX_DIFFERENCES).unwrap_or_default();
        let title = wrap(&plain(&format!("{name}: {what}")), room);
        out.push_str(&format!("{}\n", title.join("\n")));
        if report.is_sweep() {
            of_sweep(out, of_candidate, groups, room, paint);
            continue;
        }
        let mut before = "";
        for result in of_candidate {
            let label = if result.group == before { "" } else { result.group };
            before = result.group;
            line(out, (label, groups), result, room, paint);
        }
    }
    if let Some(command) = command(&report.directory, &results) {
        out.push_str(&format!("measure longer: {}\n", plain(&command)));
    }
}

/// The findings of a candidate in each group, by numbers of clients.
fn of_sweep(
    out: &mut String,
    of_candidate: &[KeyResult<'_>],
    groups: usize,
    room: usize,
    paint: Paint,
) {
    let of_groups = || of_candidate.chunk_by(|a, b| a.group == b.group);
    let clients = of_groups().flat_map(steps).map(|one| width(&one.clients())).max().unwrap_or(0);
    let room = room.saturating_sub(groups + clients + 6).max(30);
    for of_group in of_groups() {
        let mut label = of_group[0].group;
        for step in steps(of_group) {
            let mut at = step.clients();
            for (number, (words, verdict)) in step.findings().into_iter().enumerate() {
                for line in wrap(&words, room) {
                    let line = if number == 0 {
                        paint.tone(verdict.tone(), &line)
                    } else {
                        paint.dim(&line)
                    };
                    let label = left(&plain(std::mem::take(&mut label)), groups);
                    let at = left(&std::mem::take(&mut at), clients);
                    out.push_str(&format!("  {label}  {at}  {line}\n"));
                }
            }
        }
    }
}

/// The finding to trust with the time for a smaller difference, and below it throughput if another
/// metric is to be trusted.
fn line(
    out: &mut String,
    (label, columns): (&str, usize),
    result: &KeyResult<'_>,
    room: usize,
    paint: Paint,
) {
    let room = room.saturating_sub(columns + 4).max(30);
    let mut label = left(&plain(label), columns);
    let mut add = |text: &str, paint_line: &dyn Fn(&str) -> String| {
        for line in wrap(text, room) {
            out.push_str(&format!("  {label}  {}\n", paint_line(&line)));
            label = " ".repeat(columns);
        }
    };
    for (index, finding) in result.findings().into_iter().enumerate() {
        let words = finding.words();
        let verdict = |line: &str| paint.tone(finding.verdict().tone(), line);
        match result.more_time.filter(|_| index == 0).map(|more| more.words()) {
            // Break between the two parts.
            Some(more) if width(&words) + width(&more) + 2 > room => {
                add(&format!("{words};"), &verdict);
                add(&more, &verdict);
            }
            Some(more) => add(&format!("{words}; {more}"), &verdict),
            None if index == 0 => add(&words, &verdict),
            None => add(&words, &|line| paint.dim(line)),
        }
    }
}
