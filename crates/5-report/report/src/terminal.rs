//! The report as text for a terminal: the order of its sections.

mod answer;
mod groups;

use dbdyno_text::{Fact, Facts, Paint, plain, terminal};

use crate::metric::Grouping;
use crate::model::{InsertReport, Metric, Report, RunStatus};
use crate::sections::builds::builds;
use crate::sections::engine_counters::engine_counters;
use crate::sections::key_results::{key_results, summaries};
use crate::sections::operations::{Part, counters, operations};
use crate::sections::overview::{config_diff, introduction, notes, nothing, training};
use crate::sections::series::{comes_first, effects, series};
use crate::sections::statements::statements;
use crate::sections::{Output, Section, inserts, plans, profile, sweep, waits};
use crate::words;

pub use answer::answer;
use groups::{renamed, short_names};

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
    let output = Output::Terminal;
    if let Some(insert) = &report.insert {
        let mut sections = of_inserts(insert, options.width);
        sections.extend([builds(report, output), config_diff(report), notes(report, output)]);
        return out + &draw(&sections);
    }
    if report.microbenchmarks.is_empty() {
        out.push_str(&draw(&[nothing()]));
    }
    let grouping = if options.three_groups { Grouping::Three } else { Grouping::Five };
    let by_series = comes_first(report) && !options.details;
    // The report with names for tables. Those of a series are shortened there.
    let short = if by_series { Vec::new() } else { short_names(report, options.width) };
    let renamed = (!short.is_empty()).then(|| renamed(report, &short));
    let (full, report) = (report, renamed.as_ref().unwrap_or(report));
    if !short.is_empty() {
        let mut legend = Section::new("names", "names in tables");
        let names = short.iter().map(|(long, short)| Fact::new(short, *long));
        legend.push(Facts::new(names).indent(2));
        out.push_str(&draw(&[legend]));
    }
    if !by_series {
        out.push_str(&groups::draw(report, grouping, options.width, paint));
    }
    let mut sections = vec![sweep::all_steps(report)];
    if options.details {
        let groups = grouping.groups(&report.microbenchmarks).into_values();
        let members: Vec<_> = groups.flatten().map(|(_, member)| member).collect();
        let parts = [Part::Costs, Part::ResponseTimes, Part::Counters];
        sections.extend(parts.map(|part| operations(report, part, &members, output)));
        sections.push(counters(report, output));
        sections.push(statements(report, output));
        sections.push(engine_counters(report, output));
        sections.push(plans::plans(report));
        sections.push(profile::summary(report, output));
        sections.push(waits::waits(report, None));
    }
    if !by_series {
        sections.push(summaries(report, report.leading_metric(), grouping, output));
    }
    sections.push(effects(report, output));
    sections.push(series(full, output));
    sections.push(training(report, grouping));
    if options.details && report.has(Metric::Cpu) {
        let other = match report.leading_metric() {
            Metric::Qps => Metric::Cpu,
            Metric::Cpu => Metric::Qps,
        };
        sections.push(summaries(report, other, grouping, output));
    }
    sections.extend([builds(full, output), config_diff(report), notes(full, output)]);
    if by_series {
        let mut section = Section::new("note", "");
        section.note(NOT_BY_CANDIDATE);
        sections.push(section);
    } else {
        sections.push(key_results(full, grouping, output));
    }
    sections.push(sweep::scaling(report, grouping, output));
    sections.push(sweep::key_results(report, grouping));
    out + &draw(&sections)
}

/// Where a candidate, or each, needs another CPU time than the baseline, with `details` in all layers and functions, and
/// where it waits; `None` without profiles and recorded waits of it.
pub fn why(
    report: &Report,
    candidate: Option<&str>,
    microbenchmark: Option<&str>,
    options: &TerminalOptions,
) -> Option<String> {
    let mut sections = profile::why(report, candidate, microbenchmark, options.details);
    let mut of_waits = report.clone();
    of_waits.microbenchmarks.retain(|one| microbenchmark.is_none_or(|name| one.name == name));
    let of_waits = waits::waits(&of_waits, candidate);
    sections.extend(Some(of_waits).filter(|one| !one.blocks.is_empty()));
    let text = terminal(&sections, options.width, Paint::new(options.color));
    (!sections.is_empty()).then(|| text.trim_start_matches('\n').to_owned())
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
    let introduction = inserts::introduction(report, Output::Terminal);
    let mut key = Section::new("metrics", "metrics");
    key.note(inserts::key(report));
    let steps = report.steps.iter().map(|step| inserts::step(step, Output::Terminal, room));
    let results = inserts::key_results(report, Output::Terminal);
    [introduction].into_iter().chain(steps).chain([key, results]).collect()
}

#[cfg(test)]
mod tests;
