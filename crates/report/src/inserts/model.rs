//! What the report of an insert benchmark says, before anything is drawn.

use dbdyno_record::insert::Second;
use dbdyno_units::{Nanos, Share};
use serde::Serialize;

use super::metrics::Figures;
use crate::model::Role;

/// The upper ends of the published buckets of response times; one more is for longer ones.
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
    /// Clients at work at once.
    pub clients: u32,
    /// Tables.
    pub tables: u32,
    /// How often all of it was to be done.
    pub repeats: u32,
    /// For each repeat who ran, in order.
    pub order: Vec<Vec<String>>,
    /// A second below this share of its step's median throughput is a write stall.
    pub stall: Share,
    /// A step below this share of its rate did not sustain it.
    pub sustained: Share,
    /// The steps that somebody finished, in order.
    pub steps: Vec<StepReport>,
}

/// One step.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// The published name.
    pub name: String,
    /// What it does, in words.
    pub what: String,
    /// Whether it runs queries: then its throughput counts queries.
    pub queries: bool,
    /// Whether it inserts.
    pub inserts: bool,
    /// The rate of inserts that was asked for, in rows per second of all clients together.
    pub rate: Option<u64>,
    /// Who finished it, baseline first.
    pub candidates: Vec<CandidateStep>,
}

impl StepReport {
    /// The metric that its throughput is; none where it has none.
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
    /// What it is for.
    pub role: Role,
    /// Its place among those that are compared, which chooses its mark.
    #[serde(skip)]
    pub place: usize,
    /// The median over the repeats.
    pub figures: Figures,
    /// The median relative to the baseline's; nothing for the baseline itself.
    pub relative: Option<Figures>,
    /// The least and the greatest of the repeats, each relative to the baseline in the same
    /// repeat; `None` with fewer than two repeats, and for the baseline.
    pub relative_spread: Option<(Figures, Figures)>,
    /// Each repeat.
    pub repeats: Vec<StepRun>,
}

impl CandidateStep {
    /// Whether its rate was sustained in every repeat; unknown where there is no rate.
    #[must_use]
    pub fn sustained(&self) -> Option<bool> {
        let all: Option<Vec<bool>> = self.repeats.iter().map(|run| run.sustained).collect();
        all.map(|all| all.into_iter().all(|sustained| sustained))
    }

    /// Write stalls in all repeats.
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
    /// Whether it went on from a copy of the data, with empty caches, after an interruption.
    pub from_copy: bool,
    /// How long it took.
    pub wall: Nanos,
    /// Rows inserted.
    pub rows: u64,
    /// Queries.
    pub queries: u64,
    /// Rows that the queries returned.
    pub rows_returned: u64,
    /// Rows deleted.
    pub deleted: u64,
    /// Its figures.
    pub figures: Figures,
    /// Whether it inserted at the rate that was asked for; `None` where none was.
    pub sustained: Option<bool>,
    /// Rows that were due and not inserted when the step ended.
    pub overdue: u64,
    /// Statements that were tried again.
    pub retries: u64,
    /// Tries for a lock inside the driver.
    pub lock_waits: u64,
    /// Statements that answered wrongly.
    pub wrong: u64,
    /// Seconds that were write stalls.
    pub stalls: Vec<u32>,
    /// Response times of commits, from when they were due.
    pub insert_responses: Option<Responses>,
    /// Service times of commits, from when they were sent, where they were due at a fixed rate.
    pub insert_service: Option<Responses>,
    /// Response times of queries.
    pub query_responses: Option<Responses>,
    /// Response times of deletes.
    pub delete_responses: Option<Responses>,
    /// What happened in each second; left out of `run.json`.
    #[serde(skip)]
    pub seconds: Vec<Second>,
}

/// Response times of one kind of operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Responses {
    /// The share in each of [`BUCKETS`], and of longer ones.
    pub shares: [Share; BUCKETS.len() + 1],
    /// Median, to 1%.
    pub p50: Nanos,
    /// 95th percentile, to 1%.
    pub p95: Nanos,
    /// 99th percentile, to 1%.
    pub p99: Nanos,
    /// 99.9th percentile, to 1%.
    pub p999: Nanos,
    /// The longest, exactly.
    pub max: Nanos,
}
