//! What a report says, before anything is drawn: every number with its unit and its uncertainty.

use std::collections::{BTreeMap, BTreeSet};

use dbdyno_results::NewLayout;
pub use dbdyno_results::{BuildRecord, CandidateRecord, OriginRecord, Role, Warning};
pub use dbdyno_stats::{LatencySummary, NoiseFloor};
use dbdyno_units::{Nanos, Qps, Ratio, Share};
use serde::Serialize;

pub use crate::counters::{CounterFigure, CounterSummary, NotCounted};
use crate::inserts::InsertReport;

/// Everything that the terminal, the HTML page and the exports show.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The experiment's name.
    pub name: String,
    /// How the run stands.
    pub status: RunStatus,
    /// When the run started, RFC 3339.
    pub started: String,
    /// Time spent measuring (slices that count), all candidates together.
    pub measuring_time: Nanos,
    /// Time from start to end, without pauses between sessions.
    pub elapsed: Nanos,
    /// dbdyno's version.
    pub version: String,
    /// The name of the baseline.
    pub baseline: String,
    /// All candidates, baseline first, control last.
    pub candidates: Vec<CandidateRecord>,
    /// One per microbenchmark and number of clients that has at least one row, in running order.
    pub microbenchmarks: Vec<MicrobenchmarkRows>,
    /// The insert benchmark; `None` for a run of microbenchmarks, which it has instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert: Option<InsertReport>,
    /// Summaries of relative QPS in five groups, for each number of clients.
    pub groups: Vec<GroupSummary>,
    /// The same in three groups.
    pub three_groups: Vec<GroupSummary>,
    /// Summaries of what was counted relative to the baseline, in five groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counter_groups: Vec<CounterSummary>,
    /// What the CPU and the kernel could not count, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<NotCounted>,
    /// What the control shows of relative QPS; `None` without a control.
    pub noise: Option<NoiseFloor>,
    /// What the control shows of relative CPU per query.
    pub cpu_noise: Option<NoiseFloor>,
    /// How the intervals were made, in a sentence.
    pub interval_method: String,
    /// What may spoil the results, and what to do about it.
    pub warnings: Vec<Warning>,
    /// Candidates or microbenchmarks that failed.
    pub failures: Vec<Failure>,
    /// Connections or servers that were lost, after which the candidate went on.
    pub lost: Vec<Lost>,
    /// What the live optimizer did to servers, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optimizations: Vec<Optimization>,
    /// Where the instances stood at fixed points of the run, in order.
    pub state_snapshots: Vec<StateSnapshots>,
    /// Facts of the host: label and value, in the order to show.
    pub host: Vec<(String, String)>,
    /// Settings of the experiment: label and value, in the order to show.
    pub settings: Vec<(String, String)>,
    /// The experiment file, as it was; for imported results, the files that they were read from.
    pub experiment_text: String,
}

impl Report {
    /// The numbers of clients that were measured, in ascending order.
    #[must_use]
    pub fn clients(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.microbenchmarks.iter().map(|m| m.clients).collect();
        all.into_iter().collect()
    }

    /// Whether the same was measured with several numbers of clients.
    #[must_use]
    pub fn is_sweep(&self) -> bool {
        self.microbenchmarks.windows(2).any(|pair| pair[0].clients != pair[1].clients)
    }

    /// Whether any of it was measured by others.
    #[must_use]
    pub fn is_imported(&self) -> bool {
        self.candidates.iter().any(|one| matches!(one.origin, Some(OriginRecord::Imported { .. })))
    }

    /// Whether any candidate is a server rather than a library inside the worker.
    #[must_use]
    pub fn has_servers(&self) -> bool {
        self.candidates.iter().any(|one| {
            matches!(one.origin, Some(OriginRecord::Program { .. } | OriginRecord::Server { .. }))
        })
    }
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    /// All that was asked for is measured.
    Complete,
    /// Stopped early, or still going on; can be resumed.
    Incomplete,
}

/// The rows of one microbenchmark at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct MicrobenchmarkRows {
    /// The published name.
    pub name: String,
    /// Clients at work at once.
    pub clients: u32,
    /// The published group.
    pub group: String,
    /// The group in the older form with three groups.
    pub three_group: String,
    /// What throughput counts: `statements/s` or `million rows/s`.
    pub throughput_unit: String,
    /// The baseline's own figures.
    pub baseline: Absolute,
    /// The other candidates and the control, in the candidates' order; a failed one is missing.
    pub rows: Vec<Row>,
}

/// Figures of one candidate on one microbenchmark that stand for themselves.
///
/// The system under test is the server where there is one, and else the worker, which has the
/// database inside. `None` is unknown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Absolute {
    /// Throughput over the slices that count, in the microbenchmark's unit.
    pub qps: Option<Qps>,
    /// The middle half of the slices' throughput: its lower and its upper end.
    pub qps_middle_half: Option<(Qps, Qps)>,
    /// CPU time of the system under test per statement, in µs; what a server did in the
    /// background between its slices is in it where it is known.
    pub cpu_us_per_query: Option<f64>,
    /// Of it, what a server did in the background between its slices, in µs.
    pub background_cpu_us_per_query: Option<f64>,
    /// The middle half of the slices' CPU time per statement, in µs.
    pub cpu_middle_half: Option<(f64, f64)>,
    /// Of the CPU time of a server in its slices, in user mode, in µs.
    pub user_us_per_query: Option<f64>,
    /// Of the CPU time of a server in its slices, in the kernel, in µs.
    pub system_us_per_query: Option<f64>,
    /// CPU time of the load generator per statement, in µs; `None` where the database is inside.
    pub client_cpu_us_per_query: Option<f64>,
    /// How much of the CPUs that it could use the load generator used: the median of the slices.
    pub client_busy: Option<Share>,
    /// How much of the CPUs that it could use the server used: the median of the slices.
    pub server_busy: Option<Share>,
    /// Context switches of the system under test per statement.
    pub cs_per_query: Option<f64>,
    /// Page faults of the system under test per statement.
    pub page_faults_per_query: Option<f64>,
    /// Bytes that a server fetched from storage per statement.
    pub read_bytes_per_query: Option<f64>,
    /// Bytes that a server wrote to storage per statement.
    pub written_bytes_per_query: Option<f64>,
    /// What the CPU and the kernel counted; one that is missing is unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<CounterFigure, f64>,
    /// For what share of the time the CPU's counters were at work, at least: below 1 they took
    /// turns, and what they counted is an estimate. `None` where the CPU counted nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_time: Option<Share>,
    /// Response time of one event.
    pub latency: Option<LatencySummary>,
    /// Statements executed in the slices that count.
    pub statements: u64,
    /// Statements that failed or answered wrongly.
    pub errors: u64,
    /// Times that a statement waited for another client's lock and tried again.
    pub busy_retries: u64,
}

/// One candidate against the baseline on one microbenchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// The candidate's name.
    pub candidate: String,
    /// What the candidate is for.
    pub role: Role,
    /// Relative QPS; `None` with too few blocks.
    pub relative_qps: Option<Estimate>,
    /// Relative QPS of results that others measured, where there are too few values for an
    /// interval: their median stands alone.
    pub single: Option<Ratio>,
    /// CPU time per query relative to the baseline's: below 1 is better.
    pub relative_cpu: Option<Estimate>,
    /// Context switches per query relative to the baseline's.
    pub relative_cs: Option<Estimate>,
    /// What was counted relative to the baseline's; one that is missing is unknown, as where a
    /// slice has none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub relative_counters: BTreeMap<CounterFigure, Estimate>,
    /// What relative QPS amounts to.
    pub verdict: Verdict,
    /// What relative CPU per query amounts to: faster stands for less CPU.
    pub cpu_verdict: Verdict,
    /// Blocks that count.
    pub blocks: u64,
    /// The candidate's own figures.
    pub absolute: Absolute,
    /// Relative QPS of every block that counts, in order; left out of `run.json`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<f64>,
    /// The median of each restart, in order; one entry without restarts.
    pub restart_medians: Vec<f64>,
}

/// A ratio with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Median of the blocks' ratios.
    pub median: Ratio,
    /// Lower end of the 95% interval.
    pub low: Ratio,
    /// Upper end of the 95% interval.
    pub high: Ratio,
}

impl From<dbdyno_stats::Estimate> for Estimate {
    fn from(estimate: dbdyno_stats::Estimate) -> Self {
        Self { median: estimate.median, low: estimate.low, high: estimate.high }
    }
}

/// What a difference amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More throughput than the baseline, beyond the noise.
    Faster,
    /// Less throughput than the baseline, beyond the noise.
    Slower,
    /// The interval contains 1, or the difference is smaller than the noise floor.
    WithinNoise,
    /// The load generator was the limit, not the candidate or the baseline.
    ClientBound,
    /// Measured by others, with too few values for an interval.
    NoInterval,
    /// Too few blocks to say.
    Unknown,
    /// The candidate or the baseline answered wrongly too often here, or ended before it was
    /// measured as long as was asked for.
    Failed,
}

impl Absolute {
    /// What a server did in the background between its slices, as a share of its CPU time.
    #[must_use]
    pub fn background_share(&self) -> Option<Share> {
        let (background, all) = (self.background_cpu_us_per_query?, self.cpu_us_per_query?);
        (all > 0.0).then(|| Share::from_fraction(background / all))
    }
}

impl Verdict {
    /// The verdict on an estimate above this noise floor; `None` stands for a run without a control.
    #[must_use]
    pub fn on(estimate: &dbdyno_stats::Estimate, floor: Option<Share>) -> Self {
        match dbdyno_stats::Verdict::on(estimate, floor) {
            dbdyno_stats::Verdict::Faster => Self::Faster,
            dbdyno_stats::Verdict::Slower => Self::Slower,
            dbdyno_stats::Verdict::WithinNoise => Self::WithinNoise,
        }
    }

    /// The word in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::WithinNoise => "within noise",
            Self::ClientBound => "client-bound",
            Self::NoInterval => "no interval",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// The summary of one group, one number of clients and one candidate.
///
/// Rows that failed or that were client-bound are left out: they say nothing of the candidate.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSummary {
    /// The group's name.
    pub group: String,
    /// Clients at work at once.
    pub clients: u32,
    /// The candidate's name.
    pub candidate: String,
    /// What the candidate is for.
    pub role: Role,
    /// Microbenchmarks counted.
    pub count: usize,
    /// Microbenchmarks left out because the load generator was the limit.
    pub client_bound: usize,
    /// Least relative QPS.
    pub min: Ratio,
    /// Greatest relative QPS.
    pub max: Ratio,
    /// Arithmetic mean of relative QPS.
    pub avg: Ratio,
    /// Median of relative QPS.
    pub median: Ratio,
    /// Sample standard deviation of relative QPS; `None` for fewer than two.
    pub stddev: Option<f64>,
    /// The microbenchmark with the least relative QPS.
    pub worst: String,
    /// The microbenchmark with the greatest relative QPS.
    pub best: String,
}

/// Something that failed.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The candidate.
    pub candidate: String,
    /// Where: the microbenchmark or the stage.
    pub at: String,
    /// Why.
    pub reason: String,
}

/// Connections or servers of one candidate that were lost, after which it went on.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    /// The candidate.
    pub candidate: String,
    /// How often.
    pub count: u64,
    /// Where it was last: the microbenchmark or the stage.
    pub at: String,
    /// Why, the last time.
    pub reason: String,
    /// Where a slice of writes was lost, if one was: from there on its data differed from that of
    /// the others, and their answers were not compared.
    pub data_differs_from: Option<String>,
}

/// A server's code was laid out anew while it ran.
#[derive(Clone, Debug, Serialize)]
pub struct Optimization {
    /// The candidate.
    pub candidate: String,
    /// The microbenchmark under whose load it was sampled, with the number of clients in a sweep.
    pub trained_with: String,
    /// The microbenchmark that was measured next.
    pub measured_next: String,
    /// Whether it was made again for a server that was started again.
    pub after_restart: bool,
    /// What was done.
    #[serde(flatten)]
    pub layout: NewLayout,
}

/// Where all instances stood at one point of the run.
#[derive(Clone, Debug, Serialize)]
pub struct StateSnapshots {
    /// When.
    pub at: String,
    /// The candidates with a state snapshot, in their order.
    pub candidates: Vec<String>,
    /// Each figure's name and its value per candidate; `None` where a candidate has none.
    pub state: Vec<(String, Vec<Option<u64>>)>,
}
