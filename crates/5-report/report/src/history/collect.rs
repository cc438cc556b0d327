//! The figures of all runs, by candidate, microbenchmark and metric.

use dbdyno_stats::{ChangeSearch, LogValue, median};
use dbdyno_units::Share;

use super::{Figure, FigureHistory, Value};
use crate::model::{Metric, Report, compared_names, distinct};

/// A figure, and the search for its changes; `None` with too few values.
pub(super) struct Collected {
    pub(super) history: FigureHistory,
    pub(super) search: Option<ChangeSearch>,
}

/// The value of a figure in one run.
#[derive(Clone, Copy)]
struct Measured {
    value: Value,
    log: LogValue,
    floor: Option<Share>,
}

/// A microbenchmark at a number of clients.
#[derive(Clone, PartialEq, Eq)]
struct Work {
    group: String,
    name: String,
    clients: u32,
}

/// All figures with a value: by candidate, metric and group, the microbenchmarks in running order and
/// then the group as a whole.
pub(super) fn collect(reports: &[&Report]) -> Vec<Collected> {
    let work = work(reports);
    let mut all = Vec::new();
    for candidate in compared_names(reports) {
        for metric in [Metric::Qps, Metric::Cpu] {
            for part in work.chunk_by(|a, b| (&a.group, a.clients) == (&b.group, b.clients)) {
                let values = part.iter().map(|one| values(reports, candidate, one, metric));
                let measured: Vec<(&Work, Vec<Option<Measured>>)> = part
                    .iter()
                    .zip(values)
                    .filter(|(_, values)| values.iter().any(Option::is_some))
                    .collect();
                let Some(mean) = mean(reports, candidate, &measured) else { continue };
                let figure = |name: Option<&str>| Figure {
                    candidate: candidate.to_owned(),
                    group: part[0].group.clone(),
                    microbenchmark: name.map(str::to_owned),
                    clients: part[0].clients,
                    metric,
                };
                let of_group = collected(figure(None), mean.0, &mean.1);
                let single = measured
                    .iter()
                    .map(|(work, values)| collected(figure(Some(&work.name)), 1, values));
                all.extend(single);
                all.extend((mean.0 > 0).then_some(of_group));
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
    Collected { history, search: ChangeSearch::new(&logs) }
}

/// The microbenchmarks of all runs by group and number of clients, in the running order of the first run
/// that has them.
fn work(reports: &[&Report]) -> Vec<Work> {
    let microbenchmarks = reports.iter().flat_map(|report| &report.microbenchmarks);
    let mut all = distinct(microbenchmarks.map(|one| Work {
        group: one.group.clone(),
        name: one.name.clone(),
        clients: one.clients,
    }));
    all.sort_by(|a, b| (&a.group, a.clients).cmp(&(&b.group, b.clients)));
    all
}

/// A figure by run.
fn values(
    reports: &[&Report],
    candidate: &str,
    work: &Work,
    metric: Metric,
) -> Vec<Option<Measured>> {
    let value = |report: &&Report| {
        let one = report.microbenchmark(&work.name, work.clients)?;
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
    measured: &[(&Work, Vec<Option<Measured>>)],
) -> Option<(usize, Vec<Option<Measured>>)> {
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
        let has_interval = all.iter().all(|one| one.value.interval.is_some());
        let mean = log.quotient();
        let interval = has_interval.then_some((mean.low, mean.high));
        let value = Value { ratio: mean.ratio, interval };
        Some(Measured { value, log, floor: median(&floors).map(Share::from_fraction) })
    };
    let known = !measured.is_empty();
    known.then(|| (members.len(), (0..reports.len()).map(of_run).collect()))
}
