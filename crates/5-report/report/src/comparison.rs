//! Comparison of runs, of several machines or of several days: common results and differences.
//!
//! Candidates and microbenchmarks are matched by name. A run is a column; a sweep is one column per
//! number of clients, since results at 8 clients do not predict those at 64. Ratios to each run's
//! own baseline are compared by [`Agreement`]; absolute figures by [`Change`], which also contains
//! what changed on the machine between the runs.

mod absolute;
mod facts;
mod sections;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use absolute::Sources;
use dbdyno_results::{DataSize, setting};
use dbdyno_stats::{Difference, RunValue, largest_difference};
use dbdyno_text::letter;
use dbdyno_types::host_fact;
use dbdyno_units::{Ratio, Share};
use facts::matched;
use serde::Serialize;

use crate::export::{ExportError, versioned_json};
use crate::metric::{Grouping, summarise};
use crate::model::{
    CandidateRecord, Estimate, GroupSummary, Metric, MicrobenchmarkRows, Report, RunStatus,
    Verdict, compared_names, distinct, names_by,
};
use crate::words::{is_existing_server, joined, readable_time, status};

pub use absolute::{AbsoluteCell, AbsoluteRow, AbsoluteValue, Change, ChangeSummary};
pub use facts::{Fact, Facts};
pub use sections::{absolute_csv, csv, html, markdown, terminal};

/// The format version of `comparison.json`; incremented if a field is renamed or changes its
/// meaning.
pub const COMPARISON_JSON_FORMAT: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    pub runs: Vec<RunInfo>,
    /// The columns of all runs: one per run, or those of a sweep by number of clients.
    pub columns: Vec<Column>,
    pub notes: Vec<String>,
    pub facts: Facts,
    /// Relative QPS.
    #[serde(flatten)]
    pub qps: Ratios,
    /// Relative CPU per query, of the microbenchmarks of which a run says to trust it.
    pub cpu: Ratios,
    pub absolute: Vec<AbsoluteRow>,
    /// The changes of QPS and of CPU per query by candidate and column.
    pub changes: Vec<ChangeSummary>,
}

/// Ratios of one metric to the baselines of their runs.
#[derive(Clone, Debug, Serialize)]
pub struct Ratios {
    /// Summaries by candidate and group, in five groups.
    pub groups: Vec<GroupRow>,
    /// The same over all runs, if they are shards of one: no microbenchmark is in two of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub merged: Vec<GroupSummary>,
    pub rows: Vec<RatioRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    /// The labels of its columns: `A`, or `A–H` for a sweep.
    pub label: String,
    pub name: String,
    pub directory: String,
    pub started: String,
    pub sessions: usize,
    pub version: String,
}

/// One run, at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct Column {
    /// The label in tables: `A`, `B` and so on.
    pub label: String,
    pub run: usize,
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

/// Summaries of one candidate and group; `None` in columns where nothing was measured.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    pub candidate: String,
    pub group: String,
    pub cells: Vec<Option<GroupSummary>>,
}

/// Ratios of one candidate and microbenchmark; `None` in columns where it was not measured.
#[derive(Clone, Debug, Serialize)]
pub struct RatioRow {
    #[serde(skip)]
    pub metric: Metric,
    pub candidate: String,
    pub group: String,
    pub microbenchmark: String,
    pub cells: Vec<Option<RatioCell>>,
    pub agreement: Agreement,
    /// The largest difference between two columns; `None` if fewer than two have a verdict.
    pub difference: Option<Difference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RatioCell {
    /// The ratio; `None` with too few blocks.
    pub ratio: Option<Ratio>,
    /// The ratio with its interval, if there is one.
    pub estimate: Option<Estimate>,
    /// The noise floor of the run on this microbenchmark; `None` without a control.
    pub floor: Option<Share>,
    pub verdict: Verdict,
}

impl Comparison {
    const fn ratios(&self, metric: Metric) -> &Ratios {
        match metric {
            Metric::Qps => &self.qps,
            Metric::Cpu => &self.cpu,
        }
    }

    /// The summaries of a candidate's groups with several microbenchmarks: a group with a single one
    /// repeats its ratio.
    fn summaries_of(&self, metric: Metric, candidate: &str) -> Vec<&GroupRow> {
        let several = |row: &&GroupRow| row.cells.iter().flatten().any(|summary| summary.count > 1);
        let groups = self.ratios(metric).groups.iter();
        groups.filter(|row| row.candidate == candidate).filter(several).collect()
    }

    /// The ratios of a candidate's QPS.
    fn rows_of<'a>(&'a self, candidate: &'a str) -> impl Iterator<Item = &'a RatioRow> + Clone {
        self.qps.rows.iter().filter(move |row| row.candidate == candidate)
    }

    /// Relative CPU per query of the same candidate and microbenchmark, if it is the metric to trust.
    fn cpu_of(&self, row: &RatioRow) -> Option<&RatioRow> {
        self.cpu.rows.iter().find(|cpu| {
            (&cpu.candidate, &cpu.microbenchmark) == (&row.candidate, &row.microbenchmark)
        })
    }

    /// The ratios of a candidate, each by the metric to trust.
    fn trusted_rows_of<'a>(
        &'a self,
        candidate: &'a str,
    ) -> impl Iterator<Item = &'a RatioRow> + Clone {
        self.rows_of(candidate).map(|row| self.cpu_of(row).unwrap_or(row))
    }

    /// The candidates with relative QPS, in order, each with the runs that have it.
    fn candidates(&self) -> Vec<(&str, Vec<usize>)> {
        let names = distinct(self.qps.rows.iter().map(|row| row.candidate.as_str()));
        let runs = |name: &str| {
            let cells = self.rows_of(name).flat_map(|row| self.columns.iter().zip(&row.cells));
            distinct(cells.filter(|(_, cell)| cell.is_some()).map(|(column, _)| column.run))
        };
        names.into_iter().map(|name| (name, runs(name))).collect()
    }

    /// The pairs of columns whose absolute figures are compared: later, earlier.
    fn compared_columns(&self) -> Vec<(usize, usize)> {
        let columns = self.columns.iter().enumerate();
        columns.filter_map(|(index, column)| Some((index, column.compared_with?))).collect()
    }

    /// The labels of two columns: `B/A`.
    fn quotient_label(&self, later: usize, earlier: usize) -> String {
        format!("{}/{}", self.label(later), self.label(earlier))
    }

    fn label(&self, column: usize) -> &str {
        self.columns.get(column).map_or("?", |column| &column.label)
    }
}

pub fn compare(reports: &[Report]) -> Comparison {
    let reports: Vec<&Report> = reports.iter().collect();
    let columns = columns(&reports);
    let candidates = matched(&reports);
    let sources = Sources { reports: &reports, columns: &columns, candidates: &candidates };
    let absolute = sources.rows();
    let changes = sources.summaries(&absolute);
    let [qps, cpu] = [Metric::Qps, Metric::Cpu].map(|metric| relative(metric, &reports, &columns));
    let runs: Vec<RunInfo> =
        reports.iter().enumerate().map(|(run, report)| info(run, report, &columns)).collect();
    let mut notes = notes(&reports, &runs, &columns, !qps.rows.is_empty());
    notes.extend(sources.outliers(&runs, &absolute));
    let facts = Facts::of(&reports, &candidates);
    Comparison { runs, notes, facts, qps, cpu, absolute, changes, columns }
}

pub fn json(comparison: &Comparison) -> Result<String, ExportError> {
    versioned_json("comparison.json", COMPARISON_JSON_FORMAT, comparison)
}

fn columns(reports: &[&Report]) -> Vec<Column> {
    let of_first = reports.first().map(|first| first.clients()).unwrap_or_default();
    let mut columns = Vec::new();
    for (run, report) in reports.iter().enumerate() {
        let facts = [host_fact::CPU, host_fact::CPUS_ONLINE].into_iter();
        let facts = facts.filter_map(|label| report.host_fact(label)).map(str::to_owned);
        let machine = joined(facts, ", ").unwrap_or_else(|| "machine unknown".to_owned());
        let system =
            report.candidates.first().map_or_else(String::new, CandidateRecord::system_title);
        let noise = report.noise_of(Metric::Qps);
        let own = report.clients();
        let are_single = of_first.len() == 1 && own.len() == 1;
        for clients in own {
            let same = of_first.iter().position(|one| *one == clients);
            columns.push(Column {
                label: letter(columns.len()),
                run,
                clients,
                baseline: format!("{}, {system}", report.baseline),
                machine: machine.clone(),
                data: DataSize::of(&report.settings).map(|data| data.to_string()),
                noise: noise.map_or_else(|| "unknown".to_owned(), |noise| format!("±{noise}")),
                compared_with: same.or(are_single.then_some(0)).filter(|_| run > 0),
            });
        }
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

/// Whether a run says to trust CPU per query for a candidate on one of these microbenchmarks.
fn trusts_cpu(reports: &[&Report], candidate: &str, names: &[&str]) -> bool {
    let all = reports.iter().flat_map(|report| &report.microbenchmarks);
    let named = all.filter(|one| names.contains(&one.name.as_str()));
    named.filter_map(|one| one.row(candidate)).any(|row| row.trusted_metric == Metric::Cpu)
}

/// The ratios of a metric by candidate: summaries of groups, and each microbenchmark. CPU per query only
/// where it is to be trusted.
fn relative(metric: Metric, reports: &[&Report], columns: &[Column]) -> Ratios {
    let (mut groups, mut rows) = (Vec::new(), Vec::new());
    let summaries: Vec<_> =
        reports.iter().map(|report| report.summaries_of(metric, Grouping::Five)).collect();
    let cell = |column: &Column, name: &str, candidate: &str| {
        let report = reports[column.run];
        let microbenchmark = report.microbenchmark(name, column.clients)?;
        let row = microbenchmark.row(candidate)?;
        Some(RatioCell {
            ratio: row.ratio(metric),
            estimate: row.estimate(metric),
            floor: report.floor_of(metric, microbenchmark),
            verdict: row.verdict_of(metric),
        })
    };
    for candidate in compared_names(reports) {
        for (group, microbenchmarks) in names_by(reports, |one| one.group.as_str()) {
            let summary = |column: &Column| {
                let same = |one: &&GroupSummary| {
                    (one.group.as_str(), one.candidate.as_str(), one.clients)
                        == (group, candidate, column.clients)
                };
                summaries[column.run].iter().find(same).cloned()
            };
            let is_shown =
                |names: &[&str]| metric == Metric::Qps || trusts_cpu(reports, candidate, names);
            if !is_shown(&microbenchmarks) {
                continue;
            }
            let cells: Vec<Option<GroupSummary>> = columns.iter().map(summary).collect();
            if cells.iter().any(Option::is_some) {
                let (candidate, group) = (candidate.to_owned(), group.to_owned());
                groups.push(GroupRow { candidate, group, cells });
            }
            for name in microbenchmarks.into_iter().filter(|name| is_shown(&[*name])) {
                let cell = |column| cell(column, name, candidate);
                let cells: Vec<Option<RatioCell>> = columns.iter().map(cell).collect();
                if cells.iter().any(Option::is_some) {
                    let (agreement, difference) = Agreement::of_columns(&cells, columns);
                    rows.push(RatioRow {
                        metric,
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
    let mut merged = merged(metric, reports);
    merged.retain(|summary| {
        let is_shown =
            |row: &GroupRow| (&row.candidate, &row.group) == (&summary.candidate, &summary.group);
        metric == Metric::Qps || groups.iter().any(is_shown)
    });
    Ratios { groups, merged, rows }
}

/// Summaries over all runs, if no microbenchmark is in two of them, as those of shards; empty otherwise.
/// Each ratio is to the baseline of its own run.
fn merged(metric: Metric, reports: &[&Report]) -> Vec<GroupSummary> {
    let Some((first, others)) = reports.split_first() else { return Vec::new() };
    if others.is_empty() || others.iter().any(|one| one.baseline != first.baseline) {
        return Vec::new();
    }
    let mut all: Vec<MicrobenchmarkRows> = Vec::new();
    for one in reports.iter().flat_map(|report| &report.microbenchmarks) {
        let is_known = all.iter().any(|known| known.name == one.name);
        // A sweep has the numbers of clients in columns.
        if is_known || all.first().is_some_and(|known| known.clients != one.clients) {
            return Vec::new();
        }
        all.push(one.clone());
    }
    summarise(metric, &all, &first.candidates, Grouping::Five)
}

/// Differences between the runs that limit the comparison. Those of the baselines matter only for
/// ratios to them.
fn notes(
    reports: &[&Report],
    runs: &[RunInfo],
    columns: &[Column],
    has_ratios: bool,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut differing = |what: &str, of: &dyn Fn(&Report) -> String| {
        let mut values: Vec<String> = reports.iter().map(|report| of(report)).collect();
        values.dedup();
        if values.len() > 1 {
            notes.push(format!("{what}: {}", values.join("; ")));
        }
    };
    if has_ratios {
        differing("the runs have different baselines", &|report| report.baseline.clone());
        differing("the baseline is not the same program everywhere", &|report| {
            report.candidates.first().map_or_else(String::new, CandidateRecord::system_title)
        });
    }
    if columns.iter().any(|column| column.machine != columns[0].machine) {
        notes.push(
            "the runs were made on different machines: quotients of absolute figures compare the \
             machines, too"
                .to_owned(),
        );
    }
    let pairs = reports.iter().zip(reports.iter().skip(1));
    let other = pairs.flat_map(|(one, other)| setting::other_work(&one.settings, &other.settings));
    notes.extend(joined(distinct(other), ", ").map(|what| {
        format!(
            "not the same in all runs, so that what changes is not an effect of a candidate: {what}"
        )
    }));
    let mut about = |what: &str, wanted: &dyn Fn(&Report) -> bool| {
        let all = runs.iter().zip(reports).filter(|(_, report)| wanted(report));
        let named = all.map(|(run, report)| match report.running_pid {
            Some(_) if what == NOT_COMPLETE => format!("{} ({})", run.label, status(report)),
            _ => run.label.clone(),
        });
        notes.extend(joined(named, ", ").map(|names| format!("{what}: {names}")));
    };
    about(NOT_COMPLETE, &|report| report.status == RunStatus::Incomplete);
    about("insert benchmarks are not compared", &|report| report.insert.is_some());
    about("without a control, so that the noise floor is unknown", &|report| !report.has_control());
    about("existing servers, whose settings are not recorded", &|report| {
        let unknown =
            |one: &CandidateRecord| is_existing_server(one) && one.server_settings.is_empty();
        report.candidates.iter().any(unknown)
    });
    notes
}

const NOT_COMPLETE: &str = "not complete";

impl RunInfo {
    /// The start, with the number of sessions if there were several.
    fn when(&self) -> String {
        let started = readable_time(&self.started);
        match self.sessions {
            0 | 1 => started,
            sessions => format!("{started}, {sessions} sessions"),
        }
    }
}

/// Agreement of several runs. Only cells with a verdict from an interval count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    /// All verdicts are equal, and no difference between the runs is certain.
    Agree(Verdict),
    /// The runs agree at each number of clients, on different verdicts.
    AgreeByClients,
    /// All are faster, or all slower, but by sizes that certainly differ.
    SizeDiffers(Verdict),
    /// One run shows a difference from the baseline, another one none, and the runs certainly
    /// differ.
    Differ,
    /// One run is faster, another one slower, and the runs certainly differ.
    Contradict,
    /// The verdicts differ, but no difference between the runs is certain; or no run shows a difference
    /// from its baseline, although their ratios differ.
    NotCertain,
    /// Fewer than two verdicts.
    Unknown,
}

impl Agreement {
    /// The agreement of the columns, and the largest difference between two of them. If a run has several
    /// columns, only those with the same number of clients are compared; of several numbers, the one
    /// with the worst agreement counts.
    fn of_columns(cells: &[Option<RatioCell>], columns: &[Column]) -> (Self, Option<Difference>) {
        let is_sweep = columns.windows(2).any(|pair| pair[0].run == pair[1].run);
        if !is_sweep {
            return Self::of(cells);
        }
        let numbers: BTreeSet<u32> = columns.iter().map(|column| column.clients).collect();
        let at = |clients: u32| {
            let cells = cells.iter().zip(columns);
            let cells: Vec<Option<RatioCell>> =
                cells.map(|(cell, column)| cell.filter(|_| column.clients == clients)).collect();
            Self::of(&cells)
        };
        let worse = |one: (Self, Option<Difference>), other: (Self, Option<Difference>)| match (
            one.0, other.0,
        ) {
            (Self::Agree(one), Self::Agree(other)) if one != other => (Self::AgreeByClients, None),
            (first, second) if second.rank_sign_words().0 > first.rank_sign_words().0 => other,
            _ => one,
        };
        numbers.into_iter().map(at).reduce(worse).unwrap_or((Self::Unknown, None))
    }

    /// How much the runs disagree, of which unknown is least, the sign at the end of a line, and the text for QPS.
    const fn rank_sign_words(self) -> (u8, &'static str, &'static str) {
        match self {
            Self::Unknown => (0, "", "unknown"),
            Self::Agree(Verdict::Better) => (1, "=", "agree: faster"),
            Self::Agree(Verdict::Worse) => (1, "=", "agree: slower"),
            Self::Agree(_) => (1, "=", "agree: within noise"),
            Self::AgreeByClients => (2, "=", "agree: by number of clients"),
            Self::NotCertain => (3, "~", "not certain"),
            Self::SizeDiffers(_) => (4, "s", "same direction, different size"),
            Self::Differ => (5, "d", "differ"),
            Self::Contradict => (6, "x", "contradict"),
        }
    }

    /// The agreement of the columns, whatever their numbers of clients.
    fn of(cells: &[Option<RatioCell>]) -> (Self, Option<Difference>) {
        use Verdict::{Better, TooNoisy, WithinNoise, Worse};
        let usable = |cell: &&RatioCell| cell.verdict.has_interval();
        let value = |cell: &Option<RatioCell>| {
            let cell = cell.as_ref().filter(usable)?;
            Some(RunValue::of(&cell.estimate?, cell.floor))
        };
        let verdicts: Vec<Verdict> =
            cells.iter().flatten().filter(usable).map(|cell| cell.verdict).collect();
        let [first, _, ..] = verdicts[..] else { return (Self::Unknown, None) };
        let values: Vec<Option<RunValue>> = cells.iter().map(value).collect();
        let largest = largest_difference(&values);
        let certain = largest.is_some_and(|difference| difference.quotient.is_certain());
        let same = verdicts.iter().all(|verdict| *verdict == first);
        let opposite = verdicts.contains(&Better) && verdicts.contains(&Worse);
        let agreement = match (certain, same) {
            (false, true) if first != TooNoisy => Self::Agree(first),
            (false, _) => Self::NotCertain,
            // No run shows a difference, but their ratios are apart.
            (true, true) if matches!(first, WithinNoise | TooNoisy) => Self::NotCertain,
            (true, true) => Self::SizeDiffers(first),
            (true, _) if opposite => Self::Contradict,
            (true, _) => Self::Differ,
        };
        (agreement, largest)
    }

    /// The text in tables and exports.
    pub const fn words(self, metric: Metric) -> &'static str {
        match (self, metric) {
            (Self::Agree(Verdict::Better), Metric::Cpu) => "agree: less CPU",
            (Self::Agree(Verdict::Worse), Metric::Cpu) => "agree: more CPU",
            _ => self.rank_sign_words().2,
        }
    }

    /// Whether the runs certainly differ.
    const fn is_difference(self) -> bool {
        matches!(self, Self::SizeDiffers(_) | Self::Differ | Self::Contradict)
    }
}
