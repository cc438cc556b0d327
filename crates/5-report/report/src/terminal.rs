//! The report as text for a terminal: the order of its sections.
//!
//! The tables of groups are not part of the document: a cell has a ratio, a sign and an interval whose
//! arrangement depends on the width of all tables ([`tables`]).

mod tables;

use dbdyno_text::{plain, terminal, write_blocks};

pub use dbdyno_text::{COLOR_CODES, Paint};

use crate::metric::Grouping;
use crate::model::{InsertReport, Metric, Report, RunStatus};
use crate::sections::builds::builds;
use crate::sections::key_results::{key_results, summaries};
use crate::sections::operations::{Part, counters, operations};
use crate::sections::overview::{config_diff, introduction, notes, nothing, training};
use crate::sections::series::{comes_first, effects, series};
use crate::sections::{Output, Section, inserts, sweep};
use crate::words;
use tables::{Layout, ShortNames};

/// Where the tables by candidate are, if they are left out.
const NOT_BY_CANDIDATE: &str =
    "relative.csv and the page have every candidate relative to the baseline; --details prints it.";

/// Output options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TerminalOptions {
    /// Characters per line; 80 is enough for four candidates and the control.
    pub width: usize,
    /// Whether to use ANSI colours; signs carry the same meaning without them.
    pub color: bool,
    /// Three groups (point, range, writes) as in older reports, instead of five.
    pub three_groups: bool,
    /// Also show the cost per operation: a table per microbenchmark, absolute and relative.
    pub details: bool,
}

/// Render the report as text, ending with a line feed.
pub fn render(report: &Report, options: &TerminalOptions) -> String {
    let paint = Paint::new(options.color);
    let draw = |sections: &[Section]| terminal(sections, options.width, paint);
    let mut out = format!("{}{}", first_line(report, paint), draw(&[introduction(report)]));
    let notes = |report: &Report| {
        let mut text = String::from("\n");
        write_blocks::<crate::sections::Chart>(
            &mut text,
            &[notes(report, Output::Terminal).into()],
            options.width,
            paint,
        );
        if text.trim().is_empty() { String::new() } else { text }
    };
    if let Some(insert) = &report.insert {
        out.push_str(&draw(&of_inserts(insert, options.width)));
        out.push_str(&draw(&[builds(report, Output::Terminal), config_diff(report)]));
        out.push_str(&notes(report));
        return out;
    }
    if report.microbenchmarks.is_empty() {
        out.push_str(&draw(&[nothing()]));
    }
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let by_series = comes_first(report) && !options.details;
    // The report with names for tables. Those of a series are shortened there.
    let short = if by_series { None } else { ShortNames::of(report, options.width) };
    let renamed = short.as_ref().map(|names| names.apply(report));
    let (full, report) = (report, renamed.as_ref().unwrap_or(report));
    if let Some(names) = &short {
        out.push_str(&draw(&[names.legend()]));
    }
    for (group, members) in grouping.groups(&report.microbenchmarks) {
        if by_series {
            break;
        }
        for metric in tables::metrics(report, &members) {
            let layout = Layout::choose(report, *metric, options.width);
            tables::render(&mut out, report, (group, &members), &layout, paint);
        }
    }
    let mut sections = vec![sweep::all_steps(report)];
    if options.details {
        let groups = grouping.groups(&report.microbenchmarks).into_values();
        let members: Vec<_> = groups.flatten().map(|(_, member)| member).collect();
        let parts = [Part::Costs, Part::ResponseTimes, Part::Counters];
        sections.extend(parts.map(|part| operations(report, part, &members, Output::Terminal)));
        sections.push(counters(report, Output::Terminal));
    }
    if !by_series {
        sections.push(summaries(report, Metric::Qps, grouping, Output::Terminal));
    }
    sections.push(effects(report, Output::Terminal));
    sections.push(series(full, Output::Terminal));
    sections.push(training(report, grouping));
    if options.details && report.has(Metric::Cpu) {
        sections.push(summaries(report, Metric::Cpu, grouping, Output::Terminal));
    }
    sections.push(builds(full, Output::Terminal));
    sections.push(config_diff(report));
    out.push_str(&draw(&sections));
    out.push_str(&notes(full));
    let mut sections = Vec::new();
    if by_series {
        let mut section = Section::new("note", "");
        section.note(NOT_BY_CANDIDATE);
        sections.push(section);
    } else {
        sections.push(key_results(full, grouping, Output::Terminal));
    }
    sections.push(sweep::scaling(report, grouping, Output::Terminal));
    sections.push(sweep::key_results(report, grouping));
    out.push_str(&draw(&sections));
    out
}

/// Name, status and program.
fn first_line(report: &Report, paint: Paint) -> String {
    let status = words::status(report);
    let status = match (report.status, report.running_pid) {
        (_, Some(_)) => status,
        (RunStatus::Complete, None) => paint.better(&status),
        (RunStatus::Incomplete, None) => {
            paint.worse(&status.replacen("incomplete", "INCOMPLETE", 1))
        }
    };
    let by = paint.dim(&format!("dbdyno {}", plain(&report.version)));
    format!("{}  {status}  {by}\n", paint.bold(&plain(&report.name)))
}

/// The sections of an insert benchmark.
fn of_inserts(report: &InsertReport, room: usize) -> Vec<Section> {
    if report.steps.is_empty() {
        return vec![nothing()];
    }
    let mut introduction = Section::new("inserts", "");
    for text in inserts::introduction(report, Output::Terminal) {
        introduction.push(text);
    }
    let mut key = Section::new("metrics", "metrics");
    key.note(inserts::key(report));
    let steps = report.steps.iter().map(|step| inserts::step(step, Output::Terminal, room));
    [introduction].into_iter().chain(steps).chain([key]).collect()
}

#[cfg(test)]
mod tests;
