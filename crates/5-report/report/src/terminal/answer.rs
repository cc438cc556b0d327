//! The answer to a question in one line, on one screen.

use dbdyno_text::{Paint, Tone, break_name, cut, left, plain, wrap};

use super::{TerminalOptions, first_line};
use crate::key_results::{self, conclusions, conclusions_of_each};
use crate::metric::Grouping;
use crate::model::Report;
use crate::sections::builds::flags;
use crate::sections::inserts::Extent;
use crate::sections::overview::{rates_of_scripts, times};
use crate::sections::statements::largest_differences;
use crate::sections::{inserts, plans, profile};
use crate::words;

/// The lines of a screen that an answer may have, without the line of the prompt.
const SCREEN: usize = 23;

/// The answer to a question in one line, on one screen of 80 columns: a sentence per result, then what
/// a reader must know about it, then where the rest is. `None` without results.
pub fn answer(report: &Report, options: &TerminalOptions) -> Option<String> {
    let mut last = None;
    for of_each in [true, false] {
        for extent in EXTENTS {
            let (text, is_whole) = screen(report, options, extent, of_each)?;
            last = Some(text);
            if is_whole {
                return last;
            }
        }
    }
    last
}

/// How much an answer says, the most first: of an insert benchmark, how many times the least number of
/// lines a text has at most, and how many texts of a kind there are.
const EXTENTS: [(Extent, usize, usize); 7] = [
    (Extent::Steps, 4, 2),
    (Extent::Steps, 2, 2),
    (Extent::Costs, 2, 2),
    (Extent::Rates, 2, 2),
    (Extent::Rates, 2, 1),
    (Extent::Rates, 1, 1),
    (Extent::Rates, 1, 0),
];

/// More lines than this are not whole, even if they are one sentence.
const LONGEST_SENTENCE: usize = 4;

/// A text in lines, and whether this is all of it: if it has more than `most` lines, only its first sentences, or
/// clauses, that fit; the shortest if none fits.
fn whole_sentences(text: &str, columns: usize, most: usize) -> (Vec<String>, bool) {
    let lines = |text: &str| -> Vec<String> {
        wrap(text, columns).iter().flat_map(|line| break_name(line, columns)).collect()
    };
    // Longer ones cannot fit, and a text of somebody else's run may have very many.
    let longest = columns * most.max(LONGEST_SENTENCE);
    let ends = ends_of_clauses(text).into_iter().enumerate().rev();
    let ends = ends.filter(|(at, end)| *at == 0 || *end <= longest);
    let until = |(_, end): (usize, usize)| format!("{}; more: --details", &text[..end]);
    let mut forms: Vec<(Vec<String>, bool)> = vec![(lines(text), true)];
    forms.extend(ends.map(|end| (lines(&until(end)), false)));
    let least = forms.iter().map(|(lines, _)| lines.len()).min().unwrap_or_default();
    let fits = |(lines, _): &(Vec<String>, bool)| lines.len() <= least.max(most);
    let (mut lines, is_whole) = forms.into_iter().find(fits).unwrap_or_default();
    if lines.len() > LONGEST_SENTENCE.max(most) {
        lines.truncate(most);
        let last = &mut lines[most - 1];
        *last = format!("{} … --details", cut(last, columns.saturating_sub(12)));
        return (lines, false);
    }
    (lines, is_whole)
}

/// Where sentences and clauses of a text end, before the last one; not within parentheses.
fn ends_of_clauses(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '.' | ';' if depth == 0 && text[at + 1..].starts_with(' ') => ends.push(at),
            _ => {}
        }
    }
    ends
}

/// The answer of this extent, with each microbenchmark of small groups or not, and whether it fits and has all results.
fn screen(
    report: &Report,
    options: &TerminalOptions,
    (extent, factor, most_of_kind): (Extent, usize, usize),
    of_each: bool,
) -> Option<(String, bool)> {
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let sentences: Vec<(String, Tone)> = match &report.insert {
        Some(insert) => inserts::conclusions(insert, &report.baseline, extent),
        None => {
            let conclude = if of_each { conclusions_of_each } else { conclusions };
            let all = conclude(report, grouping).into_iter();
            all.map(|(sentence, verdict)| (sentence, verdict.tone())).collect()
        }
    };
    if sentences.is_empty() {
        return None;
    }
    let paint = Paint::new(options.color);
    let width = options.width.min(ANSWER_WIDTH);
    let wrapped = |text: &str, indent: usize, most: usize| {
        whole_sentences(&plain(text), width - indent, most * factor)
    };
    // What a reader must know, the most important first: a label, a text, and its longest form.
    let mut facts: Vec<(&str, String, usize)> = Vec::new();
    let mut several = |label, texts: Vec<String>, shown: usize, lines: usize| {
        // The number of one text would not be shorter.
        let shown = if texts.len() == 1 { 1 } else { shown };
        let rest = texts.len().saturating_sub(shown);
        facts.extend(texts.into_iter().take(shown).map(|text| (label, text, lines)));
        match (rest, shown) {
            (0, _) => {}
            (rest, 0) => facts.push((label, format!("{rest} in all: --details"), 1)),
            (rest, _) => facts.push((label, format!("and {rest} more: --details"), 1)),
        }
    };
    // What may be wrong is not only counted.
    let (remarks, doubts) = (most_of_kind, most_of_kind.max(1));
    let failures = report.failures.iter();
    let failures = failures.map(|one| format!("{} at {}: {}", one.candidate, one.at, one.reason));
    several("failed", failures.collect(), doubts, 2);
    several("bound", words::client_bound(report).into_iter().collect(), 1, 2);
    let defaults =
        report.candidates.iter().flat_map(|one| words::beside_defaults(report, one)).collect();
    several("default", defaults, doubts, 3);
    let warnings = report.warnings.iter();
    let warnings = warnings.map(|one| format!("{} {}", one.what_with_stop(), one.advice));
    several("warning", warnings.collect(), doubts, 2);
    let differing = report.candidates.iter().flat_map(|one| {
        let all = one.config_diff.iter();
        all.map(move |difference| format!("{} in effect: {difference}", one.name))
    });
    several("differs", differing.collect(), remarks, 1);
    several("flags", flags(report), remarks, 1);
    several("TPS", rates_of_scripts(report, false), remarks, 2);
    several("plan", plans::sentences(report), remarks, 2);
    several("SQL", largest_differences(report), remarks, 2);
    match &report.insert {
        Some(insert) => {
            several("rates", inserts::rates(insert).into_iter().collect(), 1, 1);
            several("stalls", inserts::stalls(insert).into_iter().collect(), 1, 1);
        }
        None => several("noise", vec![words::noise_floor(report)], 1, 1),
    }
    let measured = times(report, " without warm-up, elapsed ");
    let measured = measured.map(|times| format!("; measured {times}"));
    let workload = match &report.insert {
        Some(insert) => Some(words::insert_benchmark(insert).trim_end_matches('.').to_owned()),
        None => words::workload(report),
    };
    let workload = workload.map(|workload| workload + &measured.unwrap_or_default());
    several("data", workload.into_iter().collect(), 1, 1);
    let results = key_results::of(report, grouping);
    let longer = key_results::command(&report.directory, &results);
    several("longer", longer.into_iter().collect(), 1, 1);
    let directory = dbdyno_units::shell_quoted(&report.directory.to_string_lossy());
    several("all", vec![format!("dbdyno report {directory} --details")], 1, 1);
    several("charts", vec![format!("{directory}/report.html")], 1, 1);
    if !profile::explained(report, None, None).is_empty() {
        several("why", vec![format!("dbdyno why {directory}")], 1, 1);
    }

    let label = "warning".len() + 2;
    let mut below = Vec::new();
    for (name, text, most) in facts {
        let paint_label = |text: &str| match name {
            "failed" | "bound" | "warning" => paint.worse(text),
            _ => paint.dim(text),
        };
        // What is copied is whole, in a line of its own.
        let lines = match COPIED.contains(&name) {
            true => vec![plain(&text)],
            false => wrapped(&text, label, most).0,
        };
        for (number, line) in lines.into_iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            below.push(format!("{}{line}", paint_label(&left(name, label))));
        }
    }
    // The first line, and two blank ones.
    let room = SCREEN.saturating_sub(below.len() + 3).max(2);
    let mut above: Vec<String> = Vec::new();
    let mut has_all = true;
    for (number, (sentence, tone)) in sentences.iter().enumerate() {
        let (lines, is_whole) = wrapped(sentence, 2, 3);
        has_all &= is_whole;
        let left = sentences.len() - number;
        let reserved = usize::from(left > 1);
        if above.len() + lines.len() + reserved > room && number > 0 {
            let results = if left == 1 { "result" } else { "results" };
            above.push(format!("and {left} more {results}: --details"));
            has_all = false;
            break;
        }
        for (index, line) in lines.into_iter().enumerate() {
            let indent = if index == 0 { "" } else { "  " };
            above.push(format!("{indent}{}", paint.tone(*tone, &line)));
        }
    }
    let fits = has_all && above.len() + below.len() + 3 <= SCREEN;
    let (above, below) = (above.join("\n"), below.join("\n"));
    Some((format!("{}\n{above}\n\n{below}\n", first_line(report, paint)), fits))
}

/// The width of an answer, apart from commands and paths.
const ANSWER_WIDTH: usize = 80;

/// The labels of commands and paths.
const COPIED: [&str; 4] = ["longer", "all", "charts", "why"];

#[cfg(test)]
mod tests;
