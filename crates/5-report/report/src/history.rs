//! The history of an experiment: runs of it at different times, and where a figure changed for good.
//!
//! Each run measures its own baseline, so that only ratios to it are compared. A change of the machine
//! between two runs cancels out; a change of the baseline's program does not.

mod runs;
mod sections;
#[cfg(test)]
mod tests;

use dbdyno_stats::{
    ChangePoint, ChangeSearch, Level, LogValue, MIN_VALUES, Quotient, false_discovery_level,
    geometric_mean, is_too_noisy, median, possible_difference,
};
use dbdyno_units::{Ratio, Share};
use serde::Serialize;

use crate::export::{ExportError, versioned_json};
use crate::model::{Metric, Report, Verdict, compared_names, distinct, names_by};
use crate::profile_change::ProfileChange;

pub use runs::{CandidateVersion, HistoryError, HistoryRun};
pub use sections::{csv, html, terminal};

/// The format version of the exported JSON; incremented if a field is renamed or changes its meaning.
pub const HISTORY_JSON_FORMAT: u32 = 1;

pub const MIN_RUNS: usize = MIN_VALUES;

/// Runs on each side of a change whose profiles are compared, those nearest to it.
const PROFILED_RUNS: usize = 5;

/// The share of figures with a change in which nothing changed.
const FALSE_DISCOVERIES: f64 = 0.05;

#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The experiment's name, that of the latest run.
    pub name: String,
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

#[derive(Clone, Debug, Serialize)]
pub struct FigureHistory {
    #[serde(flatten)]
    pub figure: Figure,
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
    pub verdict: Verdict,
    #[serde(flatten)]
    pub point: ChangePoint,
    /// Where CPU time changed; `None` for groups and without profiles of runs on both sides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileChange>,
}

impl FigureHistory {
    /// Whether it is tested and listed: the mean of one microbenchmark repeats it.
    fn is_tested(&self) -> bool {
        self.figure.microbenchmark.is_some() || self.microbenchmarks > 1
    }

    /// Whether its level is so uncertain that no change does not mean the same.
    fn is_too_noisy(&self) -> bool {
        let is_wide = |Quotient { ratio, low, high }: Quotient| {
            let end = |end: Ratio| Ratio::new(end.get() / ratio.get());
            is_too_noisy(possible_difference((end(low), end(high)), None))
        };
        self.points.is_empty() && self.levels.last().is_some_and(|level| is_wide(level.ratio))
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

impl History {
    /// Whether figures differ in the number of clients.
    fn is_sweep(&self) -> bool {
        self.figures.windows(2).any(|pair| pair[0].figure.clients != pair[1].figure.clients)
    }

    /// Whether profiles would say more about a change, and none has any.
    pub fn lacks_profiles(&self) -> bool {
        self.changes.iter().any(|one| one.figure.microbenchmark.is_some())
            && self.changes.iter().all(|one| one.profile.is_none())
    }

    /// The candidates with a figure, in order.
    fn candidates(&self) -> Vec<&str> {
        distinct(self.figures.iter().map(|history| history.figure.candidate.as_str()))
    }
}

/// The history of runs of the same experiment.
pub fn history(reports: &[Report]) -> Result<History, HistoryError> {
    let reports = runs::in_order(reports)?;
    let collected = collect(&reports);
    if collected.iter().all(|(_, search)| search.is_none()) {
        return Err(runs::nothing_in_common(&reports));
    }
    let tested = collected.iter().filter(|(history, _)| history.is_tested());
    let p_values: Vec<f64> =
        tested.filter_map(|(_, search)| Some(search.as_ref()?.p_value())).collect();
    let level = false_discovery_level(&p_values, FALSE_DISCOVERIES);
    let mut changes: Vec<FigureChange> = Vec::new();
    let mut figures = Vec::new();
    for (mut history, search) in collected {
        if let Some(search) = search {
            let least = history.noise_floor.map_or(0.0, Share::as_fraction).ln_1p();
            let found = search.changes(level, least);
            history.p_value = Some(search.p_value());
            history.levels = found.levels;
            history.outliers = found.outliers;
            history.points = found.points;
            let change = |(number, point): (usize, &ChangePoint)| FigureChange {
                figure: history.figure.clone(),
                verdict: history.verdict(point),
                point: *point,
                profile: profile_change(&reports, &history, number),
            };
            let listed = history.points.iter().enumerate().filter(|_| history.is_tested());
            changes.extend(listed.map(change));
        }
        figures.push(history);
    }
    // Equal for a ratio and its reciprocal.
    let size = |change: &FigureChange| change.point.ratio.ratio.get().ln().abs();
    changes.sort_by(|a, b| size(b).total_cmp(&size(a)));
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

/// Where CPU time changed with a change of a figure, which is between the levels of its number and the next one: by the
/// runs that are certainly at one of them, and whose baseline is the same program as after the change.
fn profile_change(
    reports: &[&Report],
    history: &FigureHistory,
    number: usize,
) -> Option<ProfileChange> {
    let FigureHistory { figure, levels, points, .. } = history;
    let point = points.get(number)?;
    let baseline = |run: usize| reports[run].candidates.first().map(runs::version);
    let profile = |run: usize| {
        let is_used = !history.outliers.contains(&run) && baseline(run) == baseline(point.after);
        let of = reports[run].microbenchmark(figure.microbenchmark.as_deref()?, figure.clients)?;
        let profile = of.row(&figure.candidate)?.profile.as_ref().filter(|_| is_used)?;
        profile.is_usable().then_some((run, profile))
    };
    let before = (levels.get(number)?.first..=point.earliest).rev();
    let after = point.latest..=levels.get(number + 1)?.last;
    let mut before: Vec<_> = before.filter_map(profile).take(PROFILED_RUNS).collect();
    before.reverse();
    let after = after.filter_map(profile).take(PROFILED_RUNS).collect();
    ProfileChange::between(&[before, after])
}

pub fn json(history: &History) -> Result<String, ExportError> {
    versioned_json("the JSON", HISTORY_JSON_FORMAT, history)
}

/// A figure, and the search for its changes; `None` with too few values.
type Collected = (FigureHistory, Option<ChangeSearch>);

/// The value of a figure in one run.
#[derive(Clone, Copy)]
struct Measured {
    value: Value,
    log: LogValue,
    floor: Option<Share>,
}

/// All figures with a value: by candidate, metric and group, the microbenchmarks in running order and
/// then the group as a whole.
fn collect(reports: &[&Report]) -> Vec<Collected> {
    let microbenchmarks = names_by(reports, |one| (one.group.as_str(), one.clients));
    let mut all = Vec::new();
    for candidate in compared_names(reports) {
        for metric in [Metric::Qps, Metric::Cpu] {
            for (&(group, clients), names) in &microbenchmarks {
                let values = |name| (name, values(reports, candidate, (name, clients), metric));
                let mut measured: Vec<(&str, Vec<Option<Measured>>)> =
                    names.iter().copied().map(values).collect();
                measured.retain(|(_, values)| values.iter().any(Option::is_some));
                if measured.is_empty() {
                    continue;
                }
                let figure = |name: Option<&str>| Figure {
                    candidate: candidate.to_owned(),
                    group: group.to_owned(),
                    microbenchmark: name.map(str::to_owned),
                    clients,
                    metric,
                };
                let (members, mean) = mean(reports, candidate, &measured);
                let single = measured.iter();
                all.extend(single.map(|(name, values)| collected(figure(Some(name)), 1, values)));
                all.extend((members > 0).then(|| collected(figure(None), members, &mean)));
            }
        }
    }
    all
}

fn collected(figure: Figure, microbenchmarks: usize, measured: &[Option<Measured>]) -> Collected {
    let logs: Vec<Option<LogValue>> = measured.iter().map(|one| Some(one.as_ref()?.log)).collect();
    let floors: Vec<f64> =
        measured.iter().flatten().filter_map(|one| Some(one.floor?.as_fraction())).collect();
    let history = FigureHistory {
        figure,
        microbenchmarks,
        values: measured.iter().map(|one| Some(one.as_ref()?.value)).collect(),
        noise_floor: median(&floors).map(Share::from_fraction),
        p_value: None,
        levels: Vec::new(),
        outliers: Vec::new(),
        points: Vec::new(),
    };
    (history, ChangeSearch::new(&logs))
}

fn values(
    reports: &[&Report],
    candidate: &str,
    (name, clients): (&str, u32),
    metric: Metric,
) -> Vec<Option<Measured>> {
    let value = |report: &&Report| {
        let one = report.microbenchmark(name, clients)?;
        let row = one.row(candidate)?;
        let ratio = row.counted(metric)?;
        let floor = report.floor_of(metric, one);
        let estimate = row.estimate(metric);
        let log = match &estimate {
            Some(estimate) => LogValue::of(estimate, floor),
            None => LogValue::single(ratio, floor),
        };
        let interval = estimate.map(|estimate| (estimate.low, estimate.high));
        Some(Measured { value: Value { ratio, interval }, log, floor })
    };
    reports.iter().map(value).collect()
}

/// The geometric mean by run of the microbenchmarks that every run with the candidate measured, and their
/// number: others would change the mean where they are missing.
fn mean(
    reports: &[&Report],
    candidate: &str,
    measured: &[(&str, Vec<Option<Measured>>)],
) -> (usize, Vec<Option<Measured>>) {
    let has = |report: &Report| report.candidates.iter().any(|one| one.name == candidate);
    let needed: Vec<bool> = (0..reports.len())
        .map(|run| has(reports[run]) && measured.iter().any(|(_, values)| values[run].is_some()))
        .collect();
    let complete = |values: &&Vec<Option<Measured>>| {
        values.iter().zip(&needed).all(|(value, needed)| value.is_some() || !needed)
    };
    let members: Vec<&Vec<Option<Measured>>> =
        measured.iter().map(|(_, values)| values).filter(complete).collect();
    let of_run = |run: usize| {
        let all: Vec<Measured> = members.iter().filter_map(|values| values[run]).collect();
        let logs: Vec<LogValue> = all.iter().map(|one| one.log).collect();
        let log = LogValue::mean(&logs)?;
        let floors: Vec<f64> =
            all.iter().filter_map(|one| Some(one.floor?.as_fraction())).collect();
        let ends = |end: fn((Ratio, Ratio)) -> Ratio| {
            let ends = all.iter().map(|one| one.value.interval.map(end));
            geometric_mean(&ends.collect::<Option<Vec<Ratio>>>()?)
        };
        let interval = ends(|(low, _)| low).zip(ends(|(_, high)| high));
        let value = Value { ratio: Ratio::new(log.log.exp()), interval };
        Some(Measured { value, log, floor: median(&floors).map(Share::from_fraction) })
    };
    (members.len(), (0..reports.len()).map(of_run).collect())
}
