//! Comparison of runs, of several machines or of several days: common results and differences.
//!
//! Candidates and microbenchmarks are matched by name. A run is a column; a sweep is one column per
//! number of clients, since results at 8 clients do not predict those at 64. Ratios to each run's
//! own baseline are compared by [`Agreement`]; absolute figures by [`Change`], which also contains
//! what changed on the machine between the runs.

mod absolute;
mod agreement;
mod candidates;
mod csv;
mod facts;
mod html;
mod machines;
mod markdown;
mod outliers;
mod terminal;
mod words;

use std::collections::{BTreeMap, BTreeSet};

use dbdyno_stats::Difference;
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

pub use self::csv::{ABSOLUTE_HEADER, COMPARISON_HEADER, absolute_csv, csv};
pub use absolute::{AbsoluteCell, AbsoluteFigure, AbsoluteRow, Change, ChangeSummary, Figure};
pub use agreement::Agreement;
pub use facts::{Fact, Facts};
pub use html::html;
pub use markdown::markdown;
pub use terminal::terminal;

use crate::export::ExportError;
use crate::metric::{Grouping, Metric, clients};
use crate::model::{CandidateRecord, Estimate, GroupSummary, Report, Role, Verdict};
use crate::words::{TABLES_ROWS, readable_time};
use absolute::Sources;
use candidates::matched;
use dbdyno_text::letter;

/// The format version of `comparison.json`; incremented if a field is renamed or changes its
/// meaning.
pub const COMPARISON_JSON_FORMAT: u32 = 1;

/// The comparison of several runs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The runs in the given order.
    pub runs: Vec<RunInfo>,
    /// The columns of all runs: one per run, or those of a sweep by number of clients.
    pub columns: Vec<Column>,
    /// Differences between the runs that limit the comparison.
    pub notes: Vec<String>,
    /// Settings, versions, builds and facts about the machine.
    pub facts: Facts,
    /// Summaries of relative QPS by candidate and group, in five groups.
    pub groups: Vec<GroupRow>,
    /// The same over all runs, if they are shards of one: no microbenchmark is in two of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<GroupSummary>,
    /// Relative QPS by candidate, group and microbenchmark.
    pub rows: Vec<RatioRow>,
    /// Absolute figures by candidate, group and microbenchmark.
    pub absolute: Vec<AbsoluteRow>,
    /// The changes of QPS by candidate and column.
    pub changes: Vec<ChangeSummary>,
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// The labels of its columns: `A`, or `A–H` for a sweep.
    pub label: String,
    /// The experiment's name.
    pub name: String,
    /// The directory, as the user named it.
    pub directory: String,
    /// When it started, RFC 3339.
    pub started: String,
    /// Number of its sessions.
    pub sessions: usize,
    /// dbdyno's version.
    pub version: String,
}

/// One run, at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The label in tables: `A`, `B` and so on.
    pub label: String,
    /// The index of the run.
    pub run: usize,
    /// Number of clients.
    pub clients: u32,
    /// The baseline's name and system.
    pub baseline: String,
    /// The CPU model and the number of CPUs.
    pub machine: String,
    /// Size of the data; `None` if the run does not record it.
    pub data: Option<String>,
    /// The noise floor, as text.
    pub noise: String,
    /// The index of the column of the first run that absolute figures are divided by: the one with
    /// the same number of clients, or the only one. `None` for the first run itself, and for a
    /// column without a counterpart.
    pub compared_with: Option<usize>,
}

impl RunInfo {
    /// The start, with the number of sessions if there were several.
    pub(crate) fn when(&self) -> String {
        let started = readable_time(&self.started);
        match self.sessions {
            0 | 1 => started,
            sessions => format!("{started}, {sessions} sessions"),
        }
    }
}

impl Comparison {
    /// A one-line description of a column, without the label.
    pub(crate) fn describe(&self, column: &Column) -> String {
        let run = &self.runs[column.run];
        let RunInfo { name, directory, .. } = run;
        let data = column.data.as_ref().map_or_else(String::new, |data| format!(", {data}"));
        let Column { machine, baseline, noise, .. } = column;
        let clients = clients(column.clients);
        let started = run.when();
        format!(
            "{directory}: {name}, {started}; {machine}; {clients}{data}; baseline {baseline}; \
             noise {noise}"
        )
    }

    /// The summaries of a candidate's groups with several microbenchmarks: that of a single one repeats
    /// its ratio.
    fn summaries_of(&self, candidate: &str) -> Vec<&GroupRow> {
        let several = |row: &&GroupRow| row.cells.iter().flatten().any(|summary| summary.count > 1);
        self.groups.iter().filter(|row| row.candidate == candidate).filter(several).collect()
    }

    /// The candidates with relative QPS, in order, each with the runs that have it.
    fn runs_of_candidates(&self) -> Vec<(&str, BTreeSet<usize>)> {
        let mut all: Vec<(&str, BTreeSet<usize>)> = Vec::new();
        for row in &self.rows {
            if all.last().is_none_or(|(name, _)| *name != row.candidate) {
                all.push((&row.candidate, BTreeSet::new()));
            }
            let cells = self.columns.iter().zip(&row.cells);
            let runs = cells.filter(|(_, cell)| cell.is_some()).map(|(column, _)| column.run);
            if let Some((_, known)) = all.last_mut() {
                known.extend(runs);
            }
        }
        all
    }

    /// The candidates with relative QPS in at least two runs, in order.
    pub(crate) fn relative_candidates(&self) -> Vec<&str> {
        let all = self.runs_of_candidates().into_iter();
        all.filter(|(_, runs)| runs.len() > 1).map(|(name, _)| name).collect()
    }

    /// The candidates with relative QPS in one run only, with the index of the run.
    pub(crate) fn candidates_of_one_run(&self) -> Vec<(&str, usize)> {
        let all = self.runs_of_candidates().into_iter();
        all.filter(|(_, runs)| runs.len() == 1)
            .filter_map(|(name, runs)| Some((name, *runs.first()?)))
            .collect()
    }

    /// The candidates with absolute figures, in order.
    pub(crate) fn absolute_candidates(&self) -> Vec<&str> {
        let mut all: Vec<&str> = self.absolute.iter().map(|row| row.candidate.as_str()).collect();
        all.dedup();
        all
    }

    /// The pairs of columns whose absolute figures are compared: later, earlier.
    pub(crate) fn compared_columns(&self) -> Vec<(usize, usize)> {
        let columns = self.columns.iter().enumerate();
        columns.filter_map(|(index, column)| Some((index, column.compared_with?))).collect()
    }
}

/// Summaries of one candidate and group, by column.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    pub candidate: String,
    pub group: String,
    /// By column; `None` if nothing was measured.
    pub cells: Vec<Option<GroupSummary>>,
}

/// Ratios of one candidate and microbenchmark, by column.
#[derive(Clone, Debug, Serialize)]
pub struct RatioRow {
    pub candidate: String,
    pub group: String,
    pub microbenchmark: String,
    /// By column; `None` if not measured.
    pub cells: Vec<Option<Cell>>,
    /// Agreement of the columns.
    pub agreement: Agreement,
    /// The largest difference between two columns; `None` if fewer than two have a verdict.
    pub difference: Option<Difference>,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Relative QPS; `None` with too few blocks.
    pub ratio: Option<Ratio>,
    /// The ratio with its interval, if there is one.
    pub estimate: Option<Estimate>,
    /// The noise floor of the run on this microbenchmark; `None` without a control.
    pub floor: Option<Share>,
    pub verdict: Verdict,
}

/// Compare runs.
#[must_use]
pub fn compare(reports: &[Report]) -> Comparison {
    let reports: Vec<&Report> = reports.iter().collect();
    let columns = columns(&reports);
    let candidates = matched(&reports);
    let sources = Sources { reports: &reports, columns: &columns, candidates: &candidates };
    let absolute = sources.rows();
    let changes = sources.summaries(&absolute);
    let (groups, rows) = relative(&reports, &columns);
    let runs: Vec<RunInfo> =
        reports.iter().enumerate().map(|(run, report)| info(run, report, &columns)).collect();
    let mut notes = words::notes(&reports, &runs, &columns, !rows.is_empty());
    notes.extend(outliers::notes(&runs, &sources, &absolute));
    Comparison {
        notes,
        runs,
        facts: Facts::of(&reports, &candidates),
        merged: machines::merged(&reports),
        groups,
        rows,
        absolute,
        changes,
        columns,
    }
}

/// The whole comparison with the format version.
///
/// # Errors
/// It cannot be encoded.
pub fn json(comparison: &Comparison) -> Result<String, ExportError> {
    #[derive(Serialize)]
    struct Exported<'a> {
        format: u32,
        #[serde(flatten)]
        comparison: &'a Comparison,
    }
    let exported = Exported { format: COMPARISON_JSON_FORMAT, comparison };
    let mut text = serde_json::to_string_pretty(&exported)
        .map_err(|source| ExportError::Encode { file: "comparison.json", source: source.into() })?;
    text.push('\n');
    Ok(text)
}

fn columns(reports: &[&Report]) -> Vec<Column> {
    let measured = reports.iter().enumerate().flat_map(|(run, report)| {
        report.clients().into_iter().map(move |clients| (run, *report, clients))
    });
    let mut columns: Vec<Column> = measured
        .enumerate()
        .map(|(index, (run, report, clients))| column(index, run, report, clients))
        .collect();
    let first: Vec<(usize, u32)> = columns
        .iter()
        .enumerate()
        .filter(|(_, column)| column.run == 0)
        .map(|(index, column)| (index, column.clients))
        .collect();
    for column in columns.iter_mut().filter(|column| column.run > 0) {
        let same = first.iter().find(|(_, clients)| *clients == column.clients);
        let only = match (&first[..], reports[column.run].clients().len()) {
            ([only], 1) => Some(only),
            _ => None,
        };
        column.compared_with = same.or(only).map(|(index, _)| *index);
    }
    columns
}

fn info(index: usize, report: &Report, columns: &[Column]) -> RunInfo {
    let mut own = columns.iter().filter(|column| column.run == index);
    let label = match (own.next(), own.next_back()) {
        (Some(first), Some(last)) => format!("{}–{}", first.label, last.label),
        (Some(only), None) => only.label.clone(),
        (None, _) => format!("run {}", index + 1),
    };
    RunInfo {
        label,
        name: report.name.clone(),
        directory: report.directory.display().to_string(),
        started: report.started.clone(),
        sessions: report.sessions,
        version: report.version.clone(),
    }
}

/// Relative QPS by candidate: summaries of groups, and the ratios.
fn relative(reports: &[&Report], columns: &[Column]) -> (Vec<GroupRow>, Vec<RatioRow>) {
    let mut candidates: Vec<&str> = Vec::new();
    for candidate in reports.iter().flat_map(|report| &report.candidates) {
        if candidate.role == Role::Candidate && !candidates.contains(&candidate.name.as_str()) {
            candidates.push(&candidate.name);
        }
    }
    let mut groups = Vec::new();
    let mut rows = Vec::new();
    for candidate in candidates {
        for (group, microbenchmarks) in names(reports) {
            let summary = |column: &Column| {
                let same = |one: &&GroupSummary| {
                    (one.group.as_str(), one.candidate.as_str(), one.clients)
                        == (group, candidate, column.clients)
                };
                reports[column.run].groups.iter().find(same).cloned()
            };
            let cells: Vec<Option<GroupSummary>> = columns.iter().map(summary).collect();
            if cells.iter().any(Option::is_some) {
                let (candidate, group) = (candidate.to_owned(), group.to_owned());
                groups.push(GroupRow { candidate, group, cells });
            }
            for name in microbenchmarks {
                let of =
                    |column: &Column| cell(reports[column.run], column.clients, name, candidate);
                let cells: Vec<Option<Cell>> = columns.iter().map(of).collect();
                if cells.iter().any(Option::is_some) {
                    let (agreement, difference) = Agreement::of_columns(&cells, columns);
                    rows.push(RatioRow {
                        candidate: candidate.to_owned(),
                        group: group.to_owned(),
                        microbenchmark: name.to_owned(),
                        cells,
                        agreement,
                        difference,
                    });
                }
            }
        }
    }
    (groups, rows)
}

/// Microbenchmarks of all reports by group, in the running order of the first report that has them.
fn names<'a>(reports: &[&'a Report]) -> BTreeMap<&'a str, Vec<&'a str>> {
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for report in reports {
        for (group, members) in Grouping::Five.groups(&report.microbenchmarks) {
            let names = groups.entry(group).or_default();
            for (_, member) in members {
                if !names.contains(&member.name.as_str()) {
                    names.push(&member.name);
                }
            }
        }
    }
    groups
}

fn column(index: usize, run: usize, report: &Report, clients: u32) -> Column {
    let fact = |facts: &[(String, String)], wanted: &str| {
        let mut facts = facts.iter();
        facts.find(|(label, _)| label.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.clone())
    };
    let machine: Vec<String> =
        ["CPU", "CPUs online"].iter().filter_map(|label| fact(&report.host, label)).collect();
    let system = report.candidates.first().map_or_else(String::new, CandidateRecord::system_title);
    Column {
        label: letter(index),
        run,
        clients,
        baseline: format!("{}, {system}", report.baseline),
        machine: match machine.is_empty() {
            true => "machine unknown".to_owned(),
            false => machine.join(", "),
        },
        data: fact(&report.settings, TABLES_ROWS),
        noise: Metric::Qps
            .noise(report)
            .map_or_else(|| "unknown".to_owned(), |noise| format!("±{noise}")),
        compared_with: None,
    }
}

fn cell(report: &Report, clients: u32, name: &str, candidate: &str) -> Option<Cell> {
    let mut all = report.microbenchmarks.iter();
    let microbenchmark = all.find(|one| one.name == name && one.clients == clients)?;
    let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate)?;
    Some(Cell {
        ratio: Metric::Qps.ratio(row),
        estimate: Metric::Qps.estimate(row),
        floor: Metric::Qps.floor(report, microbenchmark),
        verdict: row.verdict,
    })
}

#[cfg(test)]
mod tests;
