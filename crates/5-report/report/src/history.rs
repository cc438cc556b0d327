//! The history of an experiment: runs of it at different times, and where a figure changed for good.
//!
//! Each run measures its own baseline, so that only ratios to it are compared. A change of the machine
//! between two runs cancels out; a change of the baseline's program does not.

mod chart;
mod collect;
mod runs;
mod sections;
#[cfg(test)]
mod tests;

use dbdyno_stats::{ChangePoint, ChangeSearch, Level, MIN_VALUES, false_discovery_level};
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

pub use runs::{CandidateVersion, HistoryError, HistoryRun};
pub use sections::{csv, html, terminal};

use crate::export::{ExportError, versioned_json};
use crate::model::{Metric, Report, Verdict, distinct};
use collect::{Collected, collect};

/// The format version of the exported JSON; incremented if a field is renamed or changes its meaning.
pub const HISTORY_JSON_FORMAT: u32 = 1;

/// Minimum number of runs.
pub const MIN_RUNS: usize = MIN_VALUES;

/// The share of figures with a change in which nothing changed.
const FALSE_DISCOVERIES: f64 = 0.05;

/// The history of an experiment.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The experiment's name, that of the latest run.
    pub name: String,
    /// The baseline of all runs.
    pub baseline: String,
    /// The runs by the time they started.
    pub runs: Vec<HistoryRun>,
    /// Differences between the runs that limit what changes mean.
    pub notes: Vec<String>,
    /// The significance level of the test of one figure.
    pub significance_level: f64,
    /// All changes, the largest first.
    pub changes: Vec<FigureChange>,
    /// All figures with at least one value, groups after their microbenchmarks.
    pub figures: Vec<FigureHistory>,
}

/// What is followed over the runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Figure {
    pub candidate: String,
    pub group: String,
    /// The microbenchmark; `None` for the geometric mean of the group.
    pub microbenchmark: Option<String>,
    pub clients: u32,
    pub metric: Metric,
}

/// A figure over the runs.
#[derive(Clone, Debug, Serialize)]
pub struct FigureHistory {
    #[serde(flatten)]
    pub figure: Figure,
    /// Number of microbenchmarks in it.
    pub microbenchmarks: usize,
    /// By run; `None` if unknown there.
    pub values: Vec<Option<Value>>,
    /// The typical noise floor of the runs; `None` without controls.
    pub noise_floor: Option<Share>,
    /// The probability of differences as large as the largest one if nothing changed; `None` with too few
    /// values.
    pub p_value: Option<f64>,
    /// The levels between its changes; empty with too few values.
    pub levels: Vec<Level>,
    /// The indices of single runs far from both neighbours, which were left out.
    pub outliers: Vec<usize>,
    /// Its changes in order; exported in [`History::changes`].
    #[serde(skip)]
    pub points: Vec<ChangePoint>,
}

/// The figure of one run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Value {
    /// The ratio to the baseline of the same run.
    pub ratio: Ratio,
    /// The ends of its 95% interval; `None` for imported single values.
    pub interval: Option<(Ratio, Ratio)>,
}

/// A lasting change of a figure. Runs are named by their indices.
#[derive(Clone, Debug, Serialize)]
pub struct FigureChange {
    #[serde(flatten)]
    pub figure: Figure,
    /// Whether it is for the better.
    pub verdict: Verdict,
    /// Position, size and significance.
    #[serde(flatten)]
    pub point: ChangePoint,
}

impl FigureHistory {
    /// Whether it is tested and listed: the mean of one microbenchmark repeats it.
    fn is_tested(&self) -> bool {
        self.figure.microbenchmark.is_some() || self.microbenchmarks > 1
    }

    /// Whether a change of it is for the better.
    fn verdict(&self, point: &ChangePoint) -> Verdict {
        Verdict::of_ratio(self.figure.metric, point.ratio.ratio, None)
    }

    /// Whether it is of a group as a whole.
    const fn is_of_group(&self) -> bool {
        self.figure.microbenchmark.is_none()
    }
}

impl FigureChange {
    /// Its size regardless of its direction: equal for a ratio and its reciprocal.
    fn size(&self) -> f64 {
        self.point.ratio.ratio.get().ln().abs()
    }
}

impl History {
    /// Number of figures that were tested.
    fn tested(&self) -> usize {
        self.figures.iter().filter(|one| one.is_tested() && one.p_value.is_some()).count()
    }

    /// Whether figures differ in the number of clients.
    fn is_sweep(&self) -> bool {
        self.figures.windows(2).any(|pair| pair[0].figure.clients != pair[1].figure.clients)
    }

    /// The candidates with a figure, in order.
    fn candidates(&self) -> Vec<&str> {
        distinct(self.figures.iter().map(|history| history.figure.candidate.as_str()))
    }
}

/// The history of runs of the same experiment.
///
/// # Errors
/// The runs are too few, have different baselines, or too few of them measured the same.
pub fn history(reports: &[Report]) -> Result<History, HistoryError> {
    let reports = runs::in_order(reports)?;
    let collected = collect(&reports);
    if collected.iter().all(|one| one.search.is_none()) {
        return Err(runs::nothing_in_common(&reports));
    }
    let tested = collected.iter().filter(|one| one.history.is_tested());
    let p_values: Vec<f64> =
        tested.filter_map(|one| Some(one.search.as_ref()?.p_value())).collect();
    let level = false_discovery_level(&p_values, FALSE_DISCOVERIES);
    let mut changes = Vec::new();
    let mut figures = Vec::new();
    for Collected { mut history, search } in collected {
        if let Some(search) = search {
            changes.extend(searched(&mut history, &search, level));
        }
        figures.push(history);
    }
    changes.sort_by(|a: &FigureChange, b| b.size().total_cmp(&a.size()));
    let latest = reports.last().map_or_else(Default::default, |report| report.name.clone());
    Ok(History {
        name: latest,
        baseline: reports.first().map_or_else(Default::default, |one| one.baseline.clone()),
        notes: runs::notes(&reports, &figures),
        runs: runs::describe(&reports),
        significance_level: level,
        changes,
        figures,
    })
}

/// Searches a figure for changes; returns those that are listed.
fn searched(history: &mut FigureHistory, search: &ChangeSearch, level: f64) -> Vec<FigureChange> {
    let least = history.noise_floor.map_or(0.0, Share::as_fraction).ln_1p();
    let found = search.changes(level, least);
    history.p_value = Some(search.p_value());
    history.levels = found.levels;
    history.outliers = found.outliers;
    history.points = found.points;
    let change = |point: &ChangePoint| FigureChange {
        figure: history.figure.clone(),
        verdict: history.verdict(point),
        point: *point,
    };
    let listed = history.points.iter().filter(|_| history.is_tested());
    listed.map(change).collect()
}

/// The whole history with the format version.
pub fn json(history: &History) -> Result<String, ExportError> {
    versioned_json("the JSON", HISTORY_JSON_FORMAT, history)
}
