//! What a profile is worth where it was not collected: trained on × measured on.

use super::paint::{Paint, cut, left, plain, right, width};
use crate::figures::ratio;
use crate::metric::{Grouping, Metric};
use crate::model::{CandidateRecord, GroupSummary, Report, Role};

/// Columns for what a profile was trained on: with a candidate and five groups a line has 80.
const WORDS: usize = 32;

/// Draws a row per candidate and a column per group, with the median of relative QPS; nothing where
/// no candidate was made with a profile, or clients vary.
pub(super) fn render(out: &mut String, report: &Report, grouping: Grouping, paint: Paint) {
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
    let rows: Vec<(String, &CandidateRecord)> = report
        .candidates
        .iter()
        .filter(|candidate| candidate.role == Role::Candidate)
        .map(|candidate| {
            // The workload behind the words is that of all.
            let words = trained(candidate);
            let live = report.optimizations.iter().any(|one| one.candidate == candidate.name);
            let without = if live { "no profile, live optimizer" } else { "no profile" };
            let words = plain(words.as_deref().map_or(without, words_of));
            (cut(&words, WORDS), candidate)
        })
        .collect();
    let labels = |of: fn(&(String, &CandidateRecord)) -> usize, title: &str| {
        rows.iter().map(of).max().unwrap_or(0).max(title.len())
    };
    let words = labels(|(words, _)| width(words), "trained on");
    let names = labels(|(_, candidate)| width(&candidate.name), "candidate").min(24);
    let about = "  median of relative QPS by the group that was measured";
    out.push_str(&format!(
        "\n{}{}\n{}  {}",
        paint.bold("trained on × measured on"),
        paint.dim(about),
        left("trained on", words),
        left("candidate", names)
    ));
    groups.iter().for_each(|group| out.push_str(&right(group, 9)));
    out.push('\n');
    for (trained_on, candidate) in &rows {
        out.push_str(&format!("{}  {}", left(trained_on, words), left(&candidate.name, names)));
        for group in &groups {
            let found = summaries.iter().find(|summary: &&GroupSummary| {
                summary.group == *group && summary.candidate == candidate.name
            });
            let median = found.map(|summary| summary.median);
            out.push_str(&right(&median.map_or_else(|| "–".to_owned(), ratio), 9));
        }
        out.push('\n');
    }
}

/// What was selected, without the workload.
fn words_of(trained_on: &str) -> &str {
    trained_on.split_once(" (").map_or(trained_on, |(words, _)| words)
}
