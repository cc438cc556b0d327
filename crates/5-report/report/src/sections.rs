//! The sections of a report as documents: each table, with its columns and cells, is described once for
//! terminal, page and Markdown.
//!
//! A section is a function of the report and the output, which decides only about what has no room
//! there. To add one: build a [`Section`] with [`candidate`], [`ratio_cell`] and the like, and name it
//! where the outputs order their sections (`terminal.rs`, `html.rs`, `markdown.rs`).

pub(crate) mod builds;
pub(crate) mod engine_counters;
pub(crate) mod groups;
pub(crate) mod inserts;
pub(crate) mod instructions;
pub(crate) mod key_results;
pub(crate) mod operations;
pub(crate) mod overview;
pub(crate) mod plans;
pub(crate) mod profile;
pub(crate) mod series;
pub(crate) mod statements;
pub(crate) mod sweep;
pub(crate) mod waits;

use dbdyno_text::{Cell, Column, Csv, Interval, Mark, Table, Tone};
use dbdyno_units::Ratio;

use crate::charts::flame::Flame;
use crate::charts::{Lane, LineChart};
use crate::figures::{ends, plus_minus, ratio};
use crate::metric::{compared, with_clients};
use crate::model::{
    CandidateRecord, Estimate, GroupSummary, Metric, MicrobenchmarkRows, Report, Role, Row, Series,
    Verdict,
};

pub(crate) type Section = dbdyno_text::Section<Chart>;
pub(crate) type Block = dbdyno_text::Block<Chart>;

/// Maximum width of a candidate's name in a column of names on a terminal.
pub(crate) const LONGEST_NAME: usize = 20;

/// Where a section is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    Terminal,
    Page,
    Markdown,
}

impl Verdict {
    pub(crate) const fn tone(self) -> Tone {
        match self {
            Self::Better => Tone::Better,
            Self::Worse => Tone::Worse,
            Self::WithinNoise => Tone::Noise,
            Self::ClientBound => Tone::Bound,
            Self::NoInterval => Tone::Alone,
            Self::Unknown | Self::TooNoisy => Tone::Unknown,
            Self::Failed => Tone::Failed,
        }
    }
}

/// The tone of a difference of times.
const fn tone_of_time(difference: f64, is_certain: bool) -> Tone {
    match is_certain {
        false => Tone::Noise,
        true if difference < 0.0 => Tone::Better,
        true => Tone::Worse,
    }
}

/// An empty section with the first title on a terminal, and the second one elsewhere.
fn titled(output: Output, id: &'static str, [on_terminal, title]: [&str; 2]) -> Section {
    Section::new(id, if output == Output::Terminal { on_terminal } else { title })
}

/// A section with what `blocks` has of each microbenchmark below its name and `about`, and then what it means.
pub(crate) fn by_microbenchmark<B: Into<Block>>(
    report: &Report,
    id: &'static str,
    (about, key): (&str, &str),
    blocks: impl Fn(&MicrobenchmarkRows) -> Vec<B>,
) -> Section {
    let mut section = Section::new(id, "");
    for member in &report.microbenchmarks {
        let blocks = blocks(member);
        if !blocks.is_empty() {
            let title = with_clients(&member.name, member.clients, report.is_sweep());
            section.title(title, about);
            blocks.into_iter().for_each(|block| section.push(block));
        }
    }
    if !section.blocks.is_empty() && !key.is_empty() {
        section.note(key);
    }
    section
}

/// The rows of all microbenchmarks.
pub(crate) fn rows(report: &Report) -> impl Iterator<Item = (&MicrobenchmarkRows, &Row)> {
    report.microbenchmarks.iter().flat_map(|of| of.rows.iter().map(move |row| (of, row)))
}

/// The column of a candidate.
pub(crate) fn candidate_column(report: &Report, one: &CandidateRecord) -> Column {
    Column::number(&one.name).mark(mark(report, &one.name, one.role))
}

/// One line for each thing that `each` has of a microbenchmark's row, with the columns that name the row.
pub(crate) fn csv_of_rows<'r, T: 'r, I: IntoIterator<Item = T>>(
    report: &'r Report,
    each: impl Fn(&'r Row) -> I,
) -> Csv<'r, (&'r MicrobenchmarkRows, &'r Row, T)> {
    let lines =
        rows(report).flat_map(|(of, row)| each(row).into_iter().map(move |one| (of, row, one)));
    Csv::of(lines)
        .column("microbenchmark", |(of, ..)| of.name.clone())
        .column("clients", |(of, ..)| of.clients.to_string())
        .column("candidate", |(_, row, _)| row.candidate.clone())
        .column("baseline", move |_| report.baseline.clone())
}

/// The marker of a candidate.
pub(crate) fn mark(report: &Report, name: &str, role: Role) -> Mark {
    match role {
        Role::Baseline => Mark::Baseline,
        Role::Control => Mark::Control,
        Role::Candidate => {
            let index = compared(report).iter().position(|one| one.name == name);
            Mark::Candidate(index.unwrap_or(0))
        }
    }
}

/// A candidate's name with its marker.
pub(crate) fn candidate(report: &Report, name: &str, role: Role) -> Cell {
    Cell::text(name).mark(mark(report, name, role))
}

pub(crate) fn interval(estimate: Estimate) -> Interval {
    Interval { ends: ends(estimate), plus_minus: plus_minus(estimate) }
}

/// A ratio with its interval.
pub(crate) fn estimated(one: Estimate) -> Cell {
    Cell::text(ratio(one.median)).interval(Some(interval(one)))
}

/// A ratio with its verdict.
pub(crate) fn ratio_cell(value: Ratio, metric: Metric, verdict: Verdict) -> Cell {
    Cell::text(ratio(value)).verdict(verdict.tone(), verdict.word(metric))
}

/// The median of a group with its verdict.
pub(crate) fn median_cell(report: &Report, metric: Metric, group: Option<&GroupSummary>) -> Cell {
    group.map_or_else(Cell::dash, |group| {
        ratio_cell(group.median, metric, report.verdict_of_group(metric, group))
    })
}

/// A ratio with its verdict and interval; the sign alone if there is no ratio.
pub(crate) fn estimate_cell(one: Option<Estimate>, metric: Metric, verdict: Verdict) -> Cell {
    match one {
        Some(one) => ratio_cell(one.median, metric, verdict).interval(Some(interval(one))),
        None => Cell::empty().verdict(verdict.tone(), verdict.word(metric)),
    }
}

/// The charts of a page.
#[derive(Clone, Debug)]
pub(crate) enum Chart {
    /// A table with a lane for each value of a row, and the noise floor as a band around 1.
    Lanes(Table, Vec<Vec<Option<Lane>>>, Option<f64>),
    /// What the markers in the charts below stand for.
    Legend(Vec<(Mark, String)>),
    /// One chart over the whole width.
    Wide(LineChart),
    /// Charts beside each other.
    Lines(Vec<LineChart>),
    /// The rows of a series, and whether they are of several numbers of clients.
    Heat(Box<Series>, bool),
    Flame(Box<Flame>),
}
