//! The data of an insert benchmark's report, independent of output formats.

use dbdyno_types::insert::Second;
use dbdyno_units::{Nanos, Share};
use serde::Serialize;

use super::{InsertFigures, Role};

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

/// The insert benchmark of a run.
#[derive(Clone, Debug, Serialize)]
pub struct InsertReport {
    /// Number of clients.
    pub clients: u32,
    /// Number of tables.
    pub tables: u32,
    /// Number of planned repeats.
    pub repeats: u32,
    /// The candidates of each repeat, in order of execution.
    pub order: Vec<Vec<String>>,
    /// A second below this share of its step's median throughput is a write stall.
    pub stall: Share,
    /// A step below this share of its rate did not sustain it.
    pub sustained: Share,
    /// The steps that at least one candidate finished, in order.
    pub steps: Vec<StepReport>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The published name.
    pub name: String,
    /// Description.
    pub what: String,
    /// Whether it runs queries; if so, its throughput counts queries.
    pub queries: bool,
    /// Whether it inserts.
    pub inserts: bool,
    /// Requested rate of inserts, in rows per second over all clients.
    pub rate: Option<u64>,
    /// The candidates that finished it, baseline first.
    pub candidates: Vec<CandidateStep>,
}

impl StepReport {
    /// Whether it was measured several times.
    #[must_use]
    pub fn has_repeats(&self) -> bool {
        self.candidates.iter().any(|candidate| candidate.repeats.len() > 1)
    }

    /// The metric of its throughput; `None` if it has no throughput.
    #[must_use]
    pub const fn throughput(&self) -> Option<&'static str> {
        match (self.queries, self.inserts) {
            (true, _) => Some("qps"),
            (false, true) => Some("ips"),
            (false, false) => None,
        }
    }
}

/// One candidate in one step.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateStep {
    /// The candidate's name.
    pub candidate: String,
    /// The candidate's role.
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
    pub repeats: Vec<StepRun>,
}

impl CandidateStep {
    /// Whether the rate was sustained in every repeat; `None` without a rate.
    #[must_use]
    pub fn sustained(&self) -> Option<bool> {
        let all: Option<Vec<bool>> = self.repeats.iter().map(|run| run.sustained).collect();
        all.map(|all| all.into_iter().all(|sustained| sustained))
    }

    /// Number of write stalls in all repeats.
    #[must_use]
    pub fn stalls(&self) -> usize {
        self.repeats.iter().map(|run| run.stalls.len()).sum()
    }
}

/// One step of one candidate in one repeat.
#[derive(Clone, Debug, Serialize)]
pub struct StepRun {
    /// The repeat, from 1.
    pub repeat: u32,
    /// Whether it started from a copy of the data, with empty caches, after an interruption.
    pub from_copy: bool,
    /// Duration.
    pub wall: Nanos,
    /// Rows inserted.
    pub rows: u64,
    /// Queries executed.
    pub queries: u64,
    /// Rows that the queries returned.
    pub rows_returned: u64,
    /// Rows deleted.
    pub deleted: u64,
    pub figures: InsertFigures,
    /// Whether the requested rate was sustained; `None` without a rate.
    pub sustained: Option<bool>,
    /// Rows that were due but not inserted at the end of the step.
    pub overdue: u64,
    /// Statements that were repeated.
    pub retries: u64,
    /// Attempts to get a lock inside the driver.
    pub lock_waits: u64,
    /// Statements with a wrong answer.
    pub wrong: u64,
    /// Numbers of the seconds that were write stalls.
    pub stalls: Vec<u32>,
    /// Response times of commits, counted from when they were due.
    pub insert_responses: Option<Responses>,
    /// Service times of commits, counted from when they were sent, for inserts at a fixed rate.
    pub insert_service: Option<Responses>,
    /// Response times of queries.
    pub query_responses: Option<Responses>,
    /// Response times of deletes.
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
    /// 95th percentile, to 1%.
    pub p95: Nanos,
    /// 99th percentile, to 1%.
    pub p99: Nanos,
    /// 99.9th percentile, to 1%.
    pub p999: Nanos,
    /// The maximum, exact.
    pub max: Nanos,
}
