//! Live optimizations of servers.

use dbdyno_text::{Cell, Column, Row, Table};
use dbdyno_units::grouped;

use super::{Output, Section};
use crate::model::{BlockCounts, Optimization, Report};

const ABOUT: &str = "The layout of the hot code of these servers was rewritten while they ran, after a \
     warm-up that all candidates had.";

/// A row per optimization, for the page.
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
        let refused: Vec<&&Optimization> = all.iter().filter(|one| one.refused.is_some()).collect();
        let Some(last) = refused.last() else { continue };
        let reason = last.refused.as_deref().unwrap_or_default();
        let text = format!(
            "was not optimized, and was measured with its original code, in {} of {} cases; the last \
             is {}: {reason}",
            refused.len(),
            all.len(),
            last.measured_next,
        );
        found.push((candidate.name.as_str(), text));
    }
    found
}
