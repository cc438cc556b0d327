//! Comparison of runs, mostly from several machines: common results and deviations.
//!
//! Candidates and microbenchmarks are matched by name. A run is a column; a sweep is one column per
//! number of clients, since results at 8 clients do not predict those at 64.

mod csv;
mod html;
mod terminal;

use std::collections::BTreeMap;

use dbdyno_units::Ratio;

pub use self::csv::{COMPARISON_HEADER, csv};
pub use html::html;
pub use terminal::terminal;

use crate::metric::{Grouping, Metric, clients};
use crate::model::{CandidateRecord, Estimate, GroupSummary, Report, Role, RunStatus, Verdict};
use crate::words::{self, TABLES_ROWS};

/// The comparison of several runs.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// The runs in the given order; columns of a sweep by number of clients.
    pub columns: Vec<Column>,
    /// Summaries of relative QPS by candidate and group, in five groups.
    pub groups: Vec<GroupRow>,
    /// Relative QPS by candidate, group and microbenchmark.
    pub rows: Vec<RatioRow>,
    /// Differences between the runs that limit the comparison.
    pub notes: Vec<String>,
}

/// One run, at one number of clients.
#[derive(Clone, Debug)]
pub struct Column {
    /// The label in tables: `A`, `B` and so on.
    pub label: String,
    /// The experiment's name.
    pub run: String,
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
}

impl Column {
    /// A one-line description, without the label.
    #[must_use]
    pub fn describe(&self) -> String {
        let data = self.data.as_ref().map_or_else(String::new, |data| format!(", {data}"));
        let Self { run, machine, baseline, noise, .. } = self;
        let clients = clients(self.clients);
        format!("{run}: {machine}; {clients}{data}; baseline {baseline}; noise {noise}")
    }
}

/// Summaries of one candidate and group, by column.
#[derive(Clone, Debug)]
pub struct GroupRow {
    /// The candidate.
    pub candidate: String,
    /// The group.
    pub group: String,
    /// By column; `None` if nothing was measured.
    pub cells: Vec<Option<GroupSummary>>,
}

/// Ratios of one candidate and microbenchmark, by column.
#[derive(Clone, Debug)]
pub struct RatioRow {
    /// The candidate.
    pub candidate: String,
    /// The group.
    pub group: String,
    /// The microbenchmark.
    pub microbenchmark: String,
    /// By column; `None` if not measured.
    pub cells: Vec<Option<Cell>>,
    /// Agreement of the columns.
    pub agreement: VerdictAgreement,
}

/// The result of one run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cell {
    /// Relative QPS; `None` with too few blocks.
    pub ratio: Option<Ratio>,
    /// The ratio with its interval, if there is one.
    pub estimate: Option<Estimate>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Agreement of several runs. Only the verdicts faster, slower and within noise count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictAgreement {
    /// At least two verdicts, all of them equal.
    Same(Verdict),
    /// At least three verdicts, all but one equal.
    OneDiffers {
        /// The verdict of the others.
        others: Verdict,
        /// The index of the differing column.
        column: usize,
    },
    /// Any other combination.
    Split,
    /// Fewer than two verdicts.
    Unknown,
}

impl VerdictAgreement {
    fn of(cells: &[Option<Cell>]) -> Self {
        let says =
            |verdict| matches!(verdict, Verdict::Better | Verdict::Worse | Verdict::WithinNoise);
        let said: Vec<(usize, Verdict)> = cells
            .iter()
            .enumerate()
            .filter_map(|(column, cell)| Some((column, (*cell)?.verdict)))
            .filter(|(_, verdict)| says(*verdict))
            .collect();
        let [(_, first), (_, second), ..] = said[..] else { return Self::Unknown };
        if said.iter().all(|(_, verdict)| *verdict == first) {
            return Self::Same(first);
        }
        // With two columns, neither can be called the exception.
        for others in [first, second] {
            let mut odd = said.iter().filter(|(_, verdict)| *verdict != others);
            if let (Some((column, _)), None, true) = (odd.next(), odd.next(), said.len() > 2) {
                return Self::OneDiffers { others, column: *column };
            }
        }
        Self::Split
    }

    /// The text in tables and exports, with the column's label.
    #[must_use]
    pub fn words(self, columns: &[Column]) -> String {
        match self {
            Self::Same(verdict) => format!("all {}", verdict.name()),
            Self::OneDiffers { others, column } => {
                let label = columns.get(column).map_or("one", |column| column.label.as_str());
                format!("{label} differs, others {}", others.name())
            }
            Self::Split => "split".to_owned(),
            Self::Unknown => "unknown".to_owned(),
        }
    }
}

/// Compare reports.
#[must_use]
pub fn compare(reports: &[Report]) -> Comparison {
    let measured: Vec<(&Report, u32)> = reports
        .iter()
        .flat_map(|report| report.clients().into_iter().map(move |clients| (report, clients)))
        .collect();
    let columns = measured
        .iter()
        .enumerate()
        .map(|(index, (report, at))| column(index, report, *at))
        .collect();
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
            let summary = |(report, clients): &(&Report, u32)| {
                let mut all = report.groups.iter();
                let same = |one: &&GroupSummary| {
                    (one.group.as_str(), one.candidate.as_str(), one.clients)
                        == (group, candidate, *clients)
                };
                all.find(same).cloned()
            };
            let cells: Vec<Option<GroupSummary>> = measured.iter().map(summary).collect();
            if cells.iter().any(Option::is_some) {
                let (candidate, group) = (candidate.to_owned(), group.to_owned());
                groups.push(GroupRow { candidate, group, cells });
            }
            for name in microbenchmarks {
                let cells: Vec<Option<Cell>> = measured
                    .iter()
                    .map(|(report, at)| cell(report, *at, name, candidate))
                    .collect();
                if cells.iter().any(Option::is_some) {
                    rows.push(RatioRow {
                        candidate: candidate.to_owned(),
                        group: group.to_owned(),
                        microbenchmark: name.to_owned(),
                        agreement: VerdictAgreement::of(&cells),
                        cells,
                    });
                }
            }
        }
    }
    Comparison { columns, groups, rows, notes: notes(reports) }
}

/// Microbenchmarks of all reports by group, in the running order of the first report that has them.
fn names(reports: &[Report]) -> BTreeMap<&str, Vec<&str>> {
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

fn column(index: usize, report: &Report, clients: u32) -> Column {
    let fact = |facts: &[(String, String)], wanted: &str| {
        let mut facts = facts.iter();
        facts.find(|(label, _)| label.eq_ignore_ascii_case(wanted)).map(|(_, value)| value.clone())
    };
    let machine: Vec<String> =
        ["CPU", "CPUs online"].iter().filter_map(|label| fact(&report.host, label)).collect();
    let system = report.candidates.first().map_or_else(String::new, CandidateRecord::system_title);
    Column {
        label: label(index),
        run: report.name.clone(),
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
    }
}

/// `A` to `Z`, then `A2` and so on.
fn label(index: usize) -> String {
    let letter = char::from(b'A' + (index % 26) as u8);
    match index / 26 {
        0 => letter.to_string(),
        round => format!("{letter}{}", round + 1),
    }
}

fn cell(report: &Report, clients: u32, name: &str, candidate: &str) -> Option<Cell> {
    let mut all = report.microbenchmarks.iter();
    let microbenchmark = all.find(|one| one.name == name && one.clients == clients)?;
    let row = microbenchmark.rows.iter().find(|row| row.candidate == candidate)?;
    Some(Cell {
        ratio: Metric::Qps.ratio(row),
        estimate: Metric::Qps.estimate(row),
        verdict: row.verdict,
    })
}

fn notes(reports: &[Report]) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differing = |what: &str, of: &dyn Fn(&Report) -> String| {
        let mut values: Vec<String> = reports.iter().map(of).collect();
        values.dedup();
        if values.len() > 1 {
            notes.push(format!("{what}: {}", values.join("; ")));
        }
    };
    differing("the runs have different baselines", &|report| report.baseline.clone());
    differing("the baseline is not the same program everywhere", &|report| {
        report.candidates.first().map_or_else(String::new, CandidateRecord::system_title)
    });
    let incomplete: Vec<String> = reports
        .iter()
        .filter(|report| report.status == RunStatus::Incomplete)
        .map(|report| match report.running_pid {
            Some(_) => format!("{} ({})", report.name, words::status(report)),
            None => report.name.clone(),
        })
        .collect();
    if !incomplete.is_empty() {
        notes.push(format!("not complete: {}", incomplete.join(", ")));
    }
    notes
}

#[cfg(test)]
mod tests;
