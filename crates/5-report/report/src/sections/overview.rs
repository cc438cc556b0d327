//! What was measured and how reliable it is: facts above the results, and notes below.

use dbdyno_text::{Cell, Column, Fact, Facts, Row, Style, Table, Text, Tone};
use dbdyno_units::grouped;

use super::{LONGEST_NAME, Output, Section, optimizations};
use crate::candidates::{identity, summary};
use crate::figures::ratio;
use crate::metric::{Grouping, Metric, client_bound_rows};
use crate::model::{CandidateRecord, GroupSummary, Report, Role, StateSnapshots};
use crate::words;

/// Maximum number of differences listed per candidate.
const MAX_DIFFERENCES: usize = 4;

/// When and on what, what the candidates are, and the signs; for a terminal.
pub(crate) fn introduction(report: &Report) -> Section {
    let mut section = Section::new("introduction", "");
    let mut started = format!("started {}", report.started);
    if let Some((measuring, elapsed)) = report.times() {
        started.push_str(&format!(", measured {measuring}"));
        if let Some(elapsed) = elapsed {
            started.push_str(&format!(", elapsed {elapsed}"));
        }
    }
    section.note(started);
    let mut facts = Vec::new();
    facts.extend(words::workload(report).map(|workload| ("workload", workload)));
    if let Some(baseline) = report.candidates.first() {
        facts.push(("baseline", format!("{}: {}", baseline.name, identity(baseline))));
        for one in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
            let what = summary(one, baseline, MAX_DIFFERENCES);
            facts.push(("candidate", format!("{}: {what}", one.name)));
        }
    }
    let fact = |(label, text)| Fact::new(label, text).label_style(Style::Dim).style(Style::Dim);
    let facts = Facts { gap: 1, repeats: true, ..Facts::new(facts.into_iter().map(fact)) };
    section.push(facts);
    if report.insert.is_none() {
        section.note(
            "+ better than the baseline, - worse, ~ within noise, ? too few blocks, ! failed",
        );
    }
    if client_bound_rows(report).0 > 0 {
        section.note("c client-bound: the load generator was the limit, no verdict");
    }
    if report.is_imported() {
        section.note("· measured by others, too few values for an interval, no verdict");
    }
    section
}

/// Noise, failures, warnings and the method. `output` is not the page, which has notes of its own.
pub(crate) fn notes(report: &Report, output: Output) -> Facts {
    let mut facts = Vec::new();
    let mut add = |label: &str, text: String, style: Style| {
        facts.push(Fact::new(label, text).label_style(style));
    };
    let (known, problem) = (Style::Strong, Style::Tone(Tone::Worse));
    let has_results = report.insert.is_none();
    if has_results && (output == Output::Terminal || !report.microbenchmarks.is_empty()) {
        add("noise floor", words::noise_floor(report), known);
        if let Some(text) = words::client_bound(report) {
            add("client-bound", text, problem);
        }
        for lost in &report.lost {
            let text = format!("{} {}", lost.candidate, words::lost_connections(lost));
            add("lost", text, problem);
        }
        for text in optimizations::in_words(report) {
            add("optimized", text, known);
        }
        for (candidate, text) in optimizations::refused(report) {
            add("unoptimized", format!("{candidate} {text}"), problem);
        }
    }
    for failure in &report.failures {
        let text = format!("{} at {}: {}", failure.candidate, failure.at, failure.reason);
        add("failed", text, problem);
    }
    for warning in &report.warnings {
        let text = format!("{}. {}", warning.what.trim_end_matches('.'), warning.advice);
        add("warning", text, problem);
    }
    if has_results && output == Output::Terminal {
        let method = report.interval_method.trim_end();
        add("intervals", format!("{method} ± is the farther end of the interval."), known);
    }
    Facts { least: "noise floor".len(), repeats: true, ..Facts::new(facts) }
}

/// Settings shown per candidate: servers of two versions have dozens of different defaults.
const SHOWN_SETTINGS: usize = 12;

/// Settings in which candidates differ from the baseline unintentionally; for a terminal.
pub(crate) fn config_diff(report: &Report) -> Section {
    let title = "settings that differ in effect from the baseline";
    let mut section = Section::new("config-diff", title);
    let mut facts = Vec::new();
    for candidate in &report.candidates {
        let rest = candidate.config_diff.len().saturating_sub(SHOWN_SETTINGS);
        let rest = (rest > 0).then(|| format!("and {rest} more, listed in report.html"));
        let shown = candidate.config_diff.iter().take(SHOWN_SETTINGS).chain(&rest);
        facts.extend(shown.map(|difference| Fact::new(&candidate.name, difference)));
    }
    if !facts.is_empty() {
        section.push(Facts::new(facts));
    }
    section
}

/// Effect of profiles on other microbenchmarks: trained on × measured on, the medians of relative QPS.
/// Nothing in a sweep or without candidates built with a profile.
pub(crate) fn training(report: &Report, grouping: Grouping) -> Section {
    let mut section = Section::new("training", "trained on × measured on");
    section.about = "median of relative QPS, by measured group".to_owned();
    let trained = |candidate: &CandidateRecord| {
        candidate.build.as_ref().and_then(|build| build.trained_on.clone())
    };
    if report.is_sweep() || !report.candidates.iter().any(|one| trained(one).is_some()) {
        return section;
    }
    let summaries = Metric::Qps.summaries(report, grouping);
    let mut groups: Vec<&str> = Vec::new();
    for summary in summaries.iter() {
        if !groups.contains(&summary.group.as_str()) {
            groups.push(&summary.group);
        }
    }
    let labels = [Column::name("trained on"), Column::name("candidate").most(LONGEST_NAME)];
    let titles = groups.iter().map(|group| Column::number(*group));
    let mut table = Table::new(labels.into_iter().chain(titles));
    for candidate in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
        let live = report.optimizations.iter().any(|one| one.candidate == candidate.name);
        let without = if live { "no profile, live optimizer" } else { "no profile" };
        // The workload in parentheses is the same for all candidates.
        let words = trained(candidate).map_or_else(
            || without.to_owned(),
            |words| words.split_once(" (").map_or(words.clone(), |(words, _)| words.to_owned()),
        );
        let cells = groups.iter().map(|group| {
            let found = summaries.iter().find(|summary: &&GroupSummary| {
                summary.group == *group && summary.candidate == candidate.name
            });
            Cell::number(found.map(|summary| ratio(summary.median)))
        });
        let labels = [Cell::text(words), Cell::text(&candidate.name)];
        table.push(Row::new(labels.into_iter().chain(cells)));
    }
    section.push(table);
    section
}

const ABOUT_STATES: &str = "What every instance reported about its data after settling. Candidates are \
     comparable if they were measured from similar states.";

/// What the instances reported about their data: a table per point of the run, for the page.
pub(crate) fn state_snapshots(report: &Report) -> Section {
    let mut section = Section::new("state-snapshots", "State snapshots");
    if !report.state_snapshots.is_empty() {
        section.note(ABOUT_STATES);
    }
    for (index, snapshots) in report.state_snapshots.iter().enumerate() {
        let table = states(snapshots);
        match index {
            0 => {
                section.title(&snapshots.at, "");
                section.push(table);
            }
            _ => section.push(super::Block::Details(snapshots.at.clone(), vec![table.into()])),
        }
    }
    section
}

fn states(snapshots: &StateSnapshots) -> Table {
    let titles = snapshots.candidates.iter().map(Column::number);
    let caption = format!("States {}", snapshots.at);
    let columns = [Column::name("State")].into_iter().chain(titles);
    let mut table = Table::new(columns).class("facts").caption(caption);
    for (name, values) in &snapshots.state {
        let cells = values.iter().map(|value| Cell::number(value.map(grouped)));
        table.push(Row::new([Cell::text(name)].into_iter().chain(cells)));
    }
    table
}

/// That nothing was measured.
pub(crate) fn nothing() -> Section {
    let mut section = Section::new("nothing", "");
    section.push(Text::default().code(""));
    section.push(Text::new(words::NOTHING_MEASURED));
    section
}
