//! The data of an insert benchmark's report, and the metrics of the published reports.

use std::array;

use dbdyno_stats::Direction;
use dbdyno_types::insert::Second;
use dbdyno_units::{Nanos, Share};
use serde::{Serialize, Serializer};

use super::Role;

/// Upper ends of the published buckets of response times; one more bucket is for longer ones.
pub const BUCKETS: [(Nanos, &str); 9] = [
    (Nanos::from_micros(256), "256us"),
    (Nanos::from_millis(1), "1ms"),
    (Nanos::from_millis(4), "4ms"),
    (Nanos::from_millis(16), "16ms"),
    (Nanos::from_millis(64), "64ms"),
    (Nanos::from_millis(256), "256ms"),
    (Nanos::from_secs(1), "1s"),
    (Nanos::from_secs(4), "4s"),
    (Nanos::from_secs(16), "16s"),
];

#[derive(Clone, Debug, Serialize)]
pub struct InsertReport {
    pub clients: u32,
    pub tables: u32,
    /// Number of planned repeats.
    pub repeats: u32,
    /// The candidates of each repeat, in order of execution.
    pub order: Vec<Vec<String>>,
    /// A second below this share of its step's median throughput, of inserts or of queries, is a stall.
    pub stall: Share,
    /// A step below this share of its rate did not sustain it.
    pub sustained: Share,
    /// CPUs that the clients can keep busy: one each, at most those of the systems under test. `None` if
    /// these are unknown and there are several clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busy_cpus: Option<u32>,
    /// The steps that at least one candidate finished, in order.
    pub steps: Vec<StepReport>,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The published name.
    pub name: String,
    pub what: String,
    /// Whether it runs queries; if so, its throughput counts queries.
    pub queries: bool,
    pub inserts: bool,
    /// Requested rate of inserts, in rows per second over all clients.
    pub rate: Option<u64>,
    /// The candidates that finished it, baseline first.
    pub candidates: Vec<CandidateStep>,
}

impl StepReport {
    pub fn has_repeats(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.repeats.len() > 1)
    }

    /// The metric of its throughput; `None` if it has no throughput.
    pub const fn throughput(&self) -> Option<&'static str> {
        match (self.queries, self.inserts) {
            (true, _) => Some("qps"),
            (false, true) => Some("ips"),
            (false, false) => None,
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct CandidateStep {
    pub candidate: String,
    pub role: Role,
    /// Its index among the compared candidates, which selects its marker.
    #[serde(skip)]
    pub index: usize,
    /// The median over the repeats.
    pub figures: InsertFigures,
    /// The median relative to the baseline's; `None` for the baseline.
    pub relative: Option<InsertFigures>,
    /// The least and the greatest value over the repeats, each relative to the baseline in the same
    /// repeat; `None` with fewer than two repeats, and for the baseline.
    pub relative_spread: Option<(InsertFigures, InsertFigures)>,
    /// The ends of the 95% interval of the ratio over the repeats; `None` as for the spread.
    pub relative_interval: Option<(InsertFigures, InsertFigures)>,
    pub repeats: Vec<StepRun>,
}

impl CandidateStep {
    /// Whether the rate was not sustained in some repeat.
    pub(crate) fn misses_rate(&self) -> bool {
        self.repeats.iter().any(|run| run.sustained == Some(false))
    }
}

/// One step of one candidate in one repeat.
#[derive(Clone, Debug, Serialize)]
pub struct StepRun {
    /// The repeat, from 1.
    pub repeat: u32,
    /// Whether it started from a copy of the data, with empty caches, after an interruption.
    pub from_copy: bool,
    pub wall: Nanos,
    pub rows: u64,
    pub queries: u64,
    pub rows_returned: u64,
    pub deleted: u64,
    pub figures: InsertFigures,
    /// Whether the requested rate was sustained; `None` without a rate.
    pub sustained: Option<bool>,
    /// Rows that were due but not inserted at the end of the step.
    pub overdue: u64,
    pub retries: u64,
    /// Attempts to get a lock inside the driver.
    pub lock_waits: u64,
    pub wrong: u64,
    /// Numbers of the seconds that were write stalls.
    pub stalls: Vec<u32>,
    /// Numbers of the seconds in which queries stalled.
    pub query_stalls: Vec<u32>,
    /// Response times of commits, counted from when they were due.
    pub insert_responses: Option<Responses>,
    /// Service times of commits, counted from when they were sent, for inserts at a fixed rate.
    pub insert_service: Option<Responses>,
    pub query_responses: Option<Responses>,
    pub delete_responses: Option<Responses>,
    /// The measurements of each second; not in `run.json`.
    #[serde(skip)]
    pub seconds: Vec<Second>,
}

/// Response times of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responses {
    /// Shares of the operations in each of [`BUCKETS`], and of longer ones.
    pub shares: [Share; BUCKETS.len() + 1],
    /// Median, to 1%.
    pub p50: Nanos,
    pub p95: Nanos,
    pub p99: Nanos,
    pub p999: Nanos,
    /// The maximum, exact.
    pub max: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertMetric {
    /// The published name.
    pub name: &'static str,
    /// Definition and unit.
    pub what: &'static str,
    /// `None`: it is an amount of work, or of other processes, too.
    pub better: Option<Direction>,
}

const MORE: Option<Direction> = Some(Direction::MoreIsBetter);
const LESS: Option<Direction> = Some(Direction::LessIsBetter);

const fn metric(name: &'static str, what: &'static str, better: Option<Direction>) -> InsertMetric {
    InsertMetric { name, what, better }
}

/// All metrics, in the order of the published tables. Reads and writes are those of the device, from all
/// processes: they say nothing certain about the candidate.
pub const INSERT_METRICS: [InsertMetric; 21] = [
    metric("ips", "rows inserted per second", MORE),
    metric("qps", "queries per second", MORE),
    metric("rps", "reads from storage per second", None),
    metric("rmbps", "MB read from storage per second", None),
    metric("wps", "writes to storage per second", None),
    metric("wmbps", "MB written to storage per second", None),
    metric("rpq", "reads per query (in l. steps: per row inserted)", None),
    metric("rkbpq", "KB read per query (in l. steps: per row inserted)", None),
    metric("wpi", "writes per row inserted", None),
    metric("wkbpi", "KB written per row inserted", None),
    metric("csps", "context switches per second", None),
    metric("cpups", "CPU of the system under test in percent; 100 is one CPU", None),
    metric("cspq", "context switches per query (in l. steps: per row inserted)", LESS),
    metric("cpupq", "µs of CPU per query (in l. steps: per row inserted)", LESS),
    metric("ccpupq", "the same of the load generator, beside the system under test", LESS),
    metric("dbgb", "size of the database in GB at the end", LESS),
    metric("rss", "memory in use in GB at the end", LESS),
    metric("maxop", "the longest response time, in seconds", LESS),
    metric("p50", "throughput that half of the seconds reach", MORE),
    metric("p99", "throughput that 99% of the seconds reach", MORE),
    metric("dps", "rows deleted per second", None),
];

/// The index of a metric in [`INSERT_METRICS`].
///
/// # Panics
/// There is no metric of this name.
fn index_of(name: &str) -> usize {
    INSERT_METRICS
        .iter()
        .position(|metric| metric.name == name)
        .expect("metrics are named in this crate")
}

/// A value of each metric; `None` if unknown or meaningless in this step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InsertFigures([Option<f64>; INSERT_METRICS.len()]);

impl InsertFigures {
    /// The value of a metric, by its published name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.0[index_of(name)]
    }

    pub(crate) fn set(&mut self, name: &str, value: Option<f64>) {
        self.0[index_of(name)] = value.filter(|value| value.is_finite());
    }

    /// Aggregate each metric with `of`; `None` for metrics that are unknown in one of `all`.
    pub(crate) fn over(all: &[&Self], of: impl Fn(&[f64]) -> Option<f64>) -> Self {
        Self(array::from_fn(|index| {
            let values: Option<Vec<f64>> = all.iter().map(|one| one.0[index]).collect();
            of(&values.filter(|values| !values.is_empty())?)
        }))
    }

    pub(crate) fn relative_to(&self, baseline: &Self) -> Self {
        Self(array::from_fn(|index| {
            let base = baseline.0[index].filter(|base| *base > 0.0)?;
            Some(self.0[index]? / base)
        }))
    }
}

/// Serialized as an object with the published names.
impl Serialize for InsertFigures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(INSERT_METRICS.iter().map(|metric| metric.name).zip(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_names_are_unique() {
        for (at, metric) in INSERT_METRICS.iter().enumerate() {
            assert_eq!(index_of(metric.name), at);
        }
    }

    #[test]
    fn ratio_needs_both_values_and_a_nonzero_baseline() {
        let (mut own, mut base) = (InsertFigures::default(), InsertFigures::default());
        own.set("ips", Some(3.0));
        base.set("ips", Some(2.0));
        own.set("rpq", Some(1.0));
        base.set("rpq", Some(0.0));
        own.set("qps", Some(f64::NAN));
        let ratio = own.relative_to(&base);
        assert_eq!(ratio.get("ips"), Some(1.5));
        assert_eq!((ratio.get("rpq"), ratio.get("qps")), (None, None));
    }
}
