//! What was measured and how reliable it is: facts above the results, notes below, and live
//! optimizations of servers.

use dbdyno_text::{Cell, Column, Fact, Facts, Row, Style, Table, Text, Tone};
use dbdyno_units::grouped;

use super::operations::measured;
use super::{LONGEST_NAME, Output, Section};
use crate::figures::ratio;
use crate::metric::{Grouping, client_bound_rows, with_clients};
use crate::model::{
    BlockCounts, GroupSummary, Metric, MicrobenchmarkRows, Optimization, Report, Role,
    StateSnapshots, distinct,
};
use crate::words::{self, identity, joined, summary, trained};

/// Maximum number of differences listed per candidate.
const MAX_DIFFERENCES: usize = 4;

/// When and on what, what the candidates are, and the signs; for a terminal.
pub(crate) fn introduction(report: &Report) -> Section {
    let mut section = Section::new("introduction", "");
    let measured = times(report, ", elapsed ").map(|times| format!(", measured {times}"));
    section.note(format!("started {}{}", report.started, measured.unwrap_or_default()));
    let mut facts = Vec::new();
    facts.extend(words::workload(report).map(|workload| ("workload", workload)));
    if let Some(baseline) = report.candidates.first() {
        facts.push(("baseline", format!("{}: {}", baseline.name, identity(baseline))));
        for one in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
            let what = summary(one, baseline, MAX_DIFFERENCES);
            facts.push(("candidate", format!("{}: {what}", one.name)));
        }
    }
    facts.extend(words::defaults(report).map(|defaults| ("defaults", defaults)));
    let fact = |(label, text)| Fact::new(label, text).label_style(Style::Dim).style(Style::Dim);
    let facts = Facts { gap: 1, repeats: true, ..Facts::new(facts.into_iter().map(fact)) };
    section.push(facts);
    if report.insert.is_none() {
        section
            .note("+ better than the baseline, - worse, ~ within noise, ? cannot tell, ! failed");
    }
    if client_bound_rows(report).0 > 0 {
        section.note("c client-bound: the load generator was the limit, no verdict");
    }
    if report.is_imported() {
        section.note("· measured by others, too few values for an interval, no verdict");
    }
    section
}

/// The measuring time, and behind `between` the elapsed time if it is known; `None` if nothing was measured here.
pub(crate) fn times(report: &Report, between: &str) -> Option<String> {
    let (measuring, elapsed) = report.times()?;
    let elapsed = elapsed.map(|elapsed| format!("{between}{elapsed}")).unwrap_or_default();
    Some(format!("{measuring}{elapsed}"))
}

/// Noise, failures, warnings and the method. `output` is not the page, which has notes of its own.
pub(crate) fn notes(report: &Report, output: Output) -> Section {
    let mut facts = Vec::new();
    let mut add = |label: &str, text: String, style: Style| {
        facts.push(Fact::new(label, text).label_style(style));
    };
    let (known, problem) = (Style::Strong, Style::Tone(Tone::Worse));
    let has_results = report.insert.is_none();
    if has_results && (output == Output::Terminal || !report.microbenchmarks.is_empty()) {
        add("noise floor", words::noise_floor(report), known);
        for text in scripts(report, output) {
            add("script", text, known);
        }
        if let Some(text) = words::client_bound(report) {
            add("client-bound", text, problem);
        }
        for lost in &report.lost {
            let text = format!("{} {}", lost.candidate, words::lost_connections(lost));
            add("lost", text, problem);
        }
        for text in in_words(report) {
            add("optimized", text, known);
        }
        for (candidate, text) in refused(report) {
            add("unoptimized", format!("{candidate} {text}"), problem);
        }
    }
    for failure in &report.failures {
        let text = format!("{} at {}: {}", failure.candidate, failure.at, failure.reason);
        add("failed", text, problem);
    }
    for warning in &report.warnings {
        add("warning", format!("{} {}", warning.what_with_stop(), warning.advice), problem);
    }
    if has_results && output == Output::Terminal {
        let method = report.interval_method.trim_end();
        add("intervals", format!("{method} ± is the farther end of the interval."), known);
    }
    let mut section = Section::new("notes", "");
    if !facts.is_empty() {
        if output == Output::Terminal {
            // A blank line, in place of a title.
            section.push(Text::default().code(""));
        }
        section.push(Facts { least: "noise floor".len(), repeats: true, ..Facts::new(facts) });
    }
    section
}

/// Scripts shown on a terminal.
const SHOWN_SCRIPTS: usize = 6;

/// Events (transactions) and queries per second of each candidate, a line per script, perhaps with its file and options.
pub(crate) fn rates_of_scripts(report: &Report, with_options: bool) -> Vec<String> {
    let text = |one: &MicrobenchmarkRows| {
        let script = one.script.as_ref()?;
        let rates = measured(report, one).into_iter().filter_map(|(candidate, own, _)| {
            Some(format!("{} {} TPS ({} QPS)", candidate.name, own.tps?, own.qps?))
        });
        let rates = joined(rates, ", ").unwrap_or_default();
        let options = if with_options { format!("{script}; ") } else { String::new() };
        let name = with_clients(&one.name, one.clients, report.is_sweep());
        let polls = one.baseline.client_polling_us_per_query.is_some();
        let clients = if polls { "with clients that poll, " } else { "" };
        Some(format!("{name}: {options}on average {clients}{rates}"))
    };
    report.microbenchmarks.iter().filter_map(text).collect()
}

fn scripts(report: &Report, output: Output) -> Vec<String> {
    let mut texts = rates_of_scripts(report, true);
    if output == Output::Terminal && texts.len() > SHOWN_SCRIPTS {
        let more = texts.len() - SHOWN_SCRIPTS;
        texts.truncate(SHOWN_SCRIPTS);
        texts.push(format!("and {more} more, listed in report.html"));
    }
    texts
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
    if report.is_sweep() || !report.candidates.iter().any(|one| trained(one).is_some()) {
        return section;
    }
    let summaries = report.summaries_of(Metric::Qps, grouping);
    let groups = distinct(summaries.iter().map(|summary| summary.group.as_str()));
    let labels = [Column::name("trained on"), Column::name("candidate").most(LONGEST_NAME)];
    let titles = groups.iter().map(|group| Column::number(report.group_label(group)));
    let mut table = Table::new(labels.into_iter().chain(titles));
    for candidate in report.candidates.iter().filter(|one| one.role == Role::Candidate) {
        let live = report.optimizations.iter().any(|one| one.candidate == candidate.name);
        let without = if live { "no profile, live optimizer" } else { "no profile" };
        let words = trained(candidate).unwrap_or(without);
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

pub(crate) fn nothing() -> Section {
    let mut section = Section::new("nothing", "");
    section.push(Text::default().code(""));
    section.push(Text::new(words::NOTHING_MEASURED));
    section
}

const ABOUT: &str = "The layout of the hot code of these servers was rewritten while they ran, after a \
     warm-up that all candidates had.";

pub(crate) fn optimizations(report: &Report, _: Output) -> Section {
    let mut section = Section::new("optimizations", "Live optimizer");
    if report.optimizations.is_empty() {
        return section;
    }
    section.note(ABOUT);
    let texts = ["Trained with", "Before", "Sampled by"].map(Column::text);
    let numbers = ["Samples", "Functions moved", "Skipped", "Hot code", "Cold code"];
    let numbers = numbers.into_iter().chain(["Longest pause", "Duration"]).map(Column::number);
    let columns = [Column::name("Candidate")].into_iter().chain(texts).chain(numbers);
    let mut table = Table::new(columns).class("facts").caption("Live optimizer");
    report.optimizations.iter().for_each(|one| table.push(row(one)));
    section.push(table);
    section
}

fn row(one: &Optimization) -> Row {
    let layout = &one.layout;
    let mut before = one.measured_next.clone();
    if one.after_restart {
        before.push_str(" (after a restart)");
    }
    if let Some(reason) = &one.refused {
        before.push_str(&format!(": not optimized: {reason}"));
    } else if layout.processes != 1 {
        before.push_str(&format!(" in {} processes", layout.processes));
    }
    if let Some((count, reason)) = &layout.unchanged {
        before.push_str(&format!(" {count} unchanged: {reason}"));
    }
    let counts = match &layout.counts {
        Some(BlockCounts::Counted { lost, .. }) => format!(", executions counted ({lost} lost)"),
        Some(BlockCounts::Estimated { reason }) => format!(", executions estimated: {reason}"),
        None => String::new(),
    };
    let mut samples = grouped(layout.samples);
    if one.refused.is_none() {
        samples.push_str(&format!(" ({} moved)", Cell::number(layout.covered).text));
    }
    let skipped: u64 = layout.skipped.iter().map(|(_, count)| count).sum();
    let results = [
        grouped(layout.functions),
        grouped(skipped),
        layout.hot.to_string(),
        layout.cold.to_string(),
        layout.longest_pause.to_string(),
        layout.took.to_string(),
    ];
    let is_done = one.refused.is_none();
    let results = results.map(|text| if is_done { Cell::text(text) } else { Cell::dash() });
    let source = format!("{}{counts}", layout.source);
    let texts = [&one.candidate, &one.trained_with, &before, &source, &samples].map(Cell::text);
    Row::new(texts.into_iter().chain(results))
}

/// A sentence per candidate that was optimized.
pub(crate) fn in_words(report: &Report) -> Vec<String> {
    let mut texts = Vec::new();
    for candidate in &report.candidates {
        let of = |one: &&Optimization| one.candidate == candidate.name && one.refused.is_none();
        let all: Vec<&Optimization> = report.optimizations.iter().filter(of).collect();
        let longest = all.iter().map(|one| one.layout.longest_pause).max();
        let (Some(last), Some(longest)) = (all.last(), longest) else { continue };
        let covered = last.layout.covered;
        let covered =
            covered.map_or_else(String::new, |share| format!(" with {share} of the samples"));
        let counts = match &last.layout.counts {
            Some(BlockCounts::Counted { .. }) => ", executions counted".to_owned(),
            Some(BlockCounts::Estimated { reason }) => {
                format!(", executions estimated from samples ({reason})")
            }
            None => String::new(),
        };
        texts.push(format!(
            "{} by the live optimizer {}; the last with {}: {} functions moved{covered}{counts}, {} \
             hot, {} added; its threads stood still for {longest} at most.",
            candidate.name,
            if all.len() == 1 { "once".to_owned() } else { format!("{} times", all.len()) },
            last.trained_with,
            last.layout.functions,
            last.layout.hot,
            last.layout.added,
        ));
    }
    texts
}

/// The candidates that the live optimizer could not optimize, with a sentence.
pub(crate) fn refused(report: &Report) -> Vec<(&str, String)> {
    let mut found = Vec::new();
    for candidate in &report.candidates {
        let of = |one: &&Optimization| one.candidate == candidate.name;
        let all: Vec<&Optimization> = report.optimizations.iter().filter(of).collect();
        let refused = all.iter().filter_map(|one| Some((one, one.refused.as_ref()?)));
        let Some((last, reason)) = refused.clone().next_back() else { continue };
        let text = format!(
            "was not optimized, and was measured with its original code, in {} of {} cases; the last \
             is {}: {reason}",
            refused.count(),
            all.len(),
            last.measured_next,
        );
        found.push((candidate.name.as_str(), text));
    }
    found
}
