//! Effect of profiles on other microbenchmarks: trained on × measured on.

use super::paint::{Paint, cut, plain, width};
use super::{LONGEST_NAME, table};
use crate::figures::ratio;
use crate::metric::{Grouping, Metric};
use crate::model::{CandidateRecord, GroupSummary, Report, Role};

/// Render a row per candidate and a column per group with the median of relative QPS; nothing in a
/// sweep or without candidates built with a profile.
pub(super) fn render(
    out: &mut String,
    report: &Report,
    grouping: Grouping,
    room: usize,
    paint: Paint,
) {
    let trained = |candidate: &CandidateRecord| {
        candidate.build.as_ref().and_then(|build| build.trained_on.clone())
    };
    if report.is_sweep() || !report.candidates.iter().any(|one| trained(one).is_some()) {
        return;
    }
    let summaries = Metric::Qps.summaries(report, grouping);
    let mut groups: Vec<&str> = Vec::new();
    for summary in summaries.iter() {
        if !groups.contains(&summary.group.as_str()) {
            groups.push(&summary.group);
        }
    }
    let names =
        report.candidates.iter().map(|one| width(&one.name)).max().unwrap_or(0).min(LONGEST_NAME);
    // A group's column has seven characters and a space.
    let words_room = room.saturating_sub(names + 1 + 8 * groups.len()).max(12);
    let rows: Vec<(String, &CandidateRecord)> = report
        .candidates
        .iter()
        .filter(|candidate| candidate.role == Role::Candidate)
        .map(|candidate| {
            // The workload in parentheses is the same for all candidates.
            let words = trained(candidate);
            let live = report.optimizations.iter().any(|one| one.candidate == candidate.name);
            let without = if live { "no profile, live optimizer" } else { "no profile" };
            let words = plain(words.as_deref().map_or(without, words_of));
            (cut(&words, words_room), candidate)
        })
        .collect();
    let about = "  median of relative QPS, by measured group";
    out.push_str(&format!("\n{}{}\n", paint.bold("trained on × measured on"), paint.dim(about)));
    let heading = ["trained on", "candidate"].into_iter().chain(groups.iter().copied());
    let cells = |(trained_on, candidate): &(String, &CandidateRecord)| {
        let median = |group: &&str| {
            let found = summaries.iter().find(|summary: &&GroupSummary| {
                summary.group == **group && summary.candidate == candidate.name
            });
            found.map_or_else(|| "–".to_owned(), |summary| ratio(summary.median))
        };
        let labels = [trained_on.clone(), cut(&plain(&candidate.name), LONGEST_NAME)];
        labels.into_iter().chain(groups.iter().map(median)).collect()
    };
    let heading = heading.map(str::to_owned).collect();
    for line in table::lines(heading, rows.iter().map(cells).collect(), 2, room) {
        out.push_str(&format!("{line}\n"));
    }
}

/// The selection, without the workload.
fn words_of(trained_on: &str) -> &str {
    trained_on.split_once(" (").map_or(trained_on, |(words, _)| words)
}
