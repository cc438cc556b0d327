//! The data of a report, independent of output formats: all numbers with units and intervals.

mod comparisons;
mod inserts;
mod profile;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use dbdyno_results::NewLayout;
use dbdyno_types::ClientWait;
use dbdyno_units::{Nanos, Qps, Ratio, Share};
use serde::Serialize;

use crate::words;

pub use comparisons::{
    Change, CounterFigure, CounterSummary, Effect, NotCounted, Percentile, RelativePercentile,
    RelativeStatement, ScalingRatio, ScalingRow, Series, SeriesCell, SeriesChange, SeriesGroup,
    SeriesPoint, SeriesRow,
};
pub use dbdyno_results::{
    BlockCounts, BuildRecord, CandidateRecord, OriginRecord, ReleaseRecord, Role, Warning,
};
pub use dbdyno_stats::{Estimate, LatencySummary, NoiseFloor};
pub use dbdyno_types::Metric;
pub use inserts::{
    BUCKETS, CandidateStep, INSERT_METRICS, InsertFigures, InsertMetric, InsertReport, Responses,
    StepReport, StepRun,
};
pub use profile::{
    CpuStack, Instructions, LeastCertain, ProfileDifference, ProfileRow, ProfilingCost, Stacks,
};

/// All data for the terminal report, the HTML page and the exports.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub name: String,
    /// The run directory, as the user named it; not in `run.json`.
    #[serde(skip)]
    pub directory: PathBuf,
    pub status: RunStatus,
    /// The process that is measuring; `None` if no process is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_pid: Option<u32>,
    /// When the run started, RFC 3339.
    pub started: String,
    pub sessions: usize,
    /// Time spent in counted slices, over all candidates.
    pub measuring_time: Nanos,
    /// Time from start to end, without the time between sessions.
    pub elapsed: Nanos,
    pub version: String,
    pub baseline: String,
    /// Planned starts of each candidate; `None` if it is unknown. Not in `run.json`.
    #[serde(skip)]
    pub planned_restarts: Option<u32>,
    /// All candidates, baseline first, control last.
    pub candidates: Vec<CandidateRecord>,
    /// One per microbenchmark and number of clients that has at least one row, in running order.
    pub microbenchmarks: Vec<MicrobenchmarkRows>,
    /// Planned microbenchmarks of which the baseline has no counted slice, without rows; not in
    /// `run.json`.
    #[serde(skip)]
    pub unmeasured: Vec<MicrobenchmarkRows>,
    /// The insert benchmark; `None` for a run of microbenchmarks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub insert: Option<InsertReport>,
    /// Summaries of relative QPS in five groups, for each number of clients.
    pub groups: Vec<GroupSummary>,
    /// Summaries of relative QPS in three groups.
    pub three_groups: Vec<GroupSummary>,
    /// Effects of the settings of matrices, by matrix, microbenchmark and setting.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<Effect>,
    /// Candidates in an order, such as the releases of a server.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub series: Vec<Series>,
    /// Summaries of counter figures relative to the baseline, in five groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub counter_groups: Vec<CounterSummary>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub not_counted: Vec<NotCounted>,
    /// Results with more clients relative to those with fewer; empty without a sweep.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<ScalingRow>,
    /// Noise floor of relative QPS; `None` without a control.
    pub noise: Option<NoiseFloor>,
    /// Noise floor of relative CPU per query.
    pub cpu_noise: Option<NoiseFloor>,
    /// How the intervals were calculated, as a sentence.
    pub interval_method: String,
    /// Conditions that may distort the results, with advice.
    pub warnings: Vec<Warning>,
    pub failures: Vec<Failure>,
    /// Lost connections or servers, after which the candidate continued.
    pub lost: Vec<Lost>,
    /// Optimizations by the live optimizer, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub optimizations: Vec<Optimization>,
    /// State snapshots of the instances, in order.
    pub state_snapshots: Vec<StateSnapshots>,
    /// How the clients of servers waited for answers in the last session; `None` without servers, and
    /// for versions in which they always slept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_wait: Option<ClientWait>,
    /// Facts about the host: label and value, in display order.
    pub host: Vec<(String, String)>,
    /// Settings of the experiment: label and value, in display order.
    pub settings: Vec<(String, String)>,
    /// The unchanged text of the experiment file; for imported results, the imported files.
    pub experiment_text: String,
}

/// Each item once, in the order of the first of its kind.
pub(crate) fn distinct<T: PartialEq>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    by_key(items.into_iter().map(|item| (item, ()))).into_iter().map(|(item, _)| item).collect()
}

/// Items by key, in the order of the first of each key.
pub(crate) fn by_key<K: PartialEq, T>(items: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, item) in items {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, members)) => members.push(item),
            None => groups.push((key, vec![item])),
        }
    }
    groups
}

/// The names of the candidates that are compared with the baseline in some of the runs.
pub(crate) fn compared_names<'a>(reports: &[&'a Report]) -> Vec<&'a str> {
    let all = reports.iter().flat_map(|report| &report.candidates);
    distinct(all.filter(|one| one.role == Role::Candidate).map(|one| one.name.as_str()))
}

/// The names of the microbenchmarks of all runs by a key, in the running order of the first run that has them.
pub(crate) fn names_by<'r, K: Ord>(
    reports: &[&'r Report],
    key: impl Fn(&'r MicrobenchmarkRows) -> K,
) -> BTreeMap<K, Vec<&'r str>> {
    let mut all: BTreeMap<K, Vec<&str>> = BTreeMap::new();
    for one in reports.iter().flat_map(|report| &report.microbenchmarks) {
        let names = all.entry(key(one)).or_default();
        if !names.contains(&one.name.as_str()) {
            names.push(&one.name);
        }
    }
    all
}

impl MicrobenchmarkRows {
    pub(crate) fn row(&self, candidate: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.candidate == candidate)
    }

    /// The figures of all candidates.
    pub(crate) fn absolutes(&self) -> impl Iterator<Item = &Absolute> {
        self.rows.iter().map(|row| &row.absolute).chain([&self.baseline])
    }

    pub(crate) fn control(&self) -> Option<&Row> {
        self.rows.iter().find(|row| row.role == Role::Control)
    }
}

impl Report {
    pub(crate) fn microbenchmark(&self, name: &str, clients: u32) -> Option<&MicrobenchmarkRows> {
        self.microbenchmarks.iter().find(|one| one.name == name && one.clients == clients)
    }

    /// A fact about the host by its label.
    pub(crate) fn host_fact(&self, wanted: &str) -> Option<&str> {
        self.host.iter().find(|(label, _)| label == wanted).map(|(_, value)| value.as_str())
    }

    /// The measured numbers of clients, in ascending order.
    pub fn clients(&self) -> Vec<u32> {
        let all: BTreeSet<u32> = self.microbenchmarks.iter().map(|m| m.clients).collect();
        all.into_iter().collect()
    }

    /// Whether the run is a sweep over numbers of clients.
    pub fn is_sweep(&self) -> bool {
        self.microbenchmarks.windows(2).any(|pair| pair[0].clients != pair[1].clients)
    }

    /// The measuring time and the elapsed time; `None` if nothing was measured here, as of imported results.
    /// The elapsed time of a session is stored after each visit to a microbenchmark, and so is unknown
    /// before the first one has ended, and behind the measuring time while one lasts.
    pub fn times(&self) -> Option<(Nanos, Option<Nanos>)> {
        let measured = !self.is_imported() && self.measuring_time.max(self.elapsed) > Nanos::ZERO;
        let elapsed = (self.elapsed >= self.measuring_time).then_some(self.elapsed);
        measured.then_some((self.measuring_time, elapsed))
    }

    /// Whether the baseline is compared with nothing but its control.
    pub(crate) fn is_alone(&self) -> bool {
        self.candidates.iter().all(|one| one.role != Role::Candidate)
    }

    /// Whether a candidate is known to be as the baseline: it sets something, and what it sets is in force there too.
    pub(crate) fn is_as_baseline(&self, candidate: &str) -> bool {
        let baseline = self.candidates.iter().find(|one| one.role == Role::Baseline);
        let own = self.candidates.iter().find(|one| one.name == candidate);
        own.zip(baseline).is_some_and(|(own, baseline)| {
            !own.in_force.without_effect.is_empty() && words::differences(own, baseline).is_empty()
        })
    }

    /// Whether there is a second instance of the baseline.
    pub fn has_control(&self) -> bool {
        self.candidates.iter().any(|one| one.role == Role::Control)
    }

    pub fn is_imported(&self) -> bool {
        self.candidates.iter().any(|one| matches!(one.origin, Some(OriginRecord::Imported { .. })))
    }

    /// Whether a candidate is a server, as opposed to a library inside the worker.
    pub fn has_servers(&self) -> bool {
        self.candidates.iter().any(|one| {
            matches!(one.origin, Some(OriginRecord::Program { .. } | OriginRecord::Server { .. }))
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunStatus {
    Complete,
    /// Still running ([`Report::running_pid`]), or stopped early and can be resumed.
    Incomplete,
}

/// The rows of one microbenchmark at one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct MicrobenchmarkRows {
    /// The published name.
    pub name: String,
    pub clients: u32,
    /// The published group.
    pub group: String,
    /// The group in the older scheme with three groups.
    pub three_group: String,
    /// Unit of throughput: `statements/s` or `million rows/s`.
    pub throughput_unit: String,
    pub writes: bool,
    /// The sysbench script with its options; `None` if it is not a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Time spent in its counted slices, over all candidates.
    pub measuring_time: Nanos,
    pub baseline: Absolute,
    /// Whether the baseline failed; not in `run.json`, where all other candidates have failed then.
    #[serde(skip)]
    pub baseline_failed: bool,
    /// The other candidates and the control, in the order of the candidates, without failed ones.
    pub rows: Vec<Row>,
}

/// Absolute figures of one candidate on one microbenchmark.
///
/// The system under test is the server, or the worker if the database is embedded in it. `None` is
/// unknown.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Absolute {
    /// Throughput over the counted slices, in the microbenchmark's unit.
    pub qps: Option<Qps>,
    /// The 95% interval of `qps`; `None` with too few slices.
    pub qps_interval: Option<(Qps, Qps)>,
    /// First and third quartile of the slices' throughput.
    pub qps_middle_half: Option<(Qps, Qps)>,
    /// Events (transactions) per second of a script, over the counted slices; `None` if it is not a script.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tps: Option<Qps>,
    /// CPU time of the system under test per statement, in µs, including a server's background CPU
    /// time between slices if known.
    pub cpu_us_per_query: Option<f64>,
    /// The 95% interval of `cpu_us_per_query`, without the variation of the background; `None`
    /// with too few slices.
    pub cpu_interval: Option<(f64, f64)>,
    /// The background part of it, in µs.
    pub background_cpu_us_per_query: Option<f64>,
    /// First and third quartile of the slices' CPU time per statement, in µs.
    pub cpu_middle_half: Option<(f64, f64)>,
    /// User CPU time of a server in its slices per statement, in µs.
    pub user_us_per_query: Option<f64>,
    /// System CPU time of a server in its slices per statement, in µs.
    pub system_us_per_query: Option<f64>,
    /// CPU time of the load generator per statement, in µs, without polling; `None` for an embedded
    /// database.
    pub client_cpu_us_per_query: Option<f64>,
    /// CPU time in which the load generator polled in vain, per statement, in µs; `None` if it slept
    /// instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_polling_us_per_query: Option<f64>,
    /// CPU utilization of the load generator's CPUs without polling: the median over the slices.
    pub client_busy: Option<Share>,
    /// CPU utilization of the server's CPUs: the median over the slices.
    pub server_busy: Option<Share>,
    /// Context switches of the system under test per statement.
    pub cs_per_query: Option<f64>,
    /// Page faults of the system under test per statement.
    pub page_faults_per_query: Option<f64>,
    /// Bytes that a server read from storage per statement.
    pub read_bytes_per_query: Option<f64>,
    /// Bytes that a server wrote to storage per statement.
    pub written_bytes_per_query: Option<f64>,
    /// Counter figures; missing ones are unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<CounterFigure, f64>,
    /// The lowest share of time for which one of the CPU's counters was active: below 1, counters
    /// were multiplexed and their values are estimates. `None` if the CPU counted nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_time: Option<Share>,
    /// Response time of one event.
    pub latency: Option<LatencySummary>,
    /// The 95% interval of the 99th percentile of `latency`; `None` with too few slices or events.
    pub p99_interval: Option<(Nanos, Nanos)>,
    pub statements: u64,
    /// Statements that failed or had a wrong answer.
    pub errors: u64,
    /// Number of times that a statement waited for another client's lock and was repeated.
    pub busy_retries: u64,
}

/// One candidate compared with the baseline on one microbenchmark.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub candidate: String,
    pub role: Role,
    /// Relative QPS; `None` with too few blocks.
    pub relative_qps: Option<Estimate>,
    /// Relative QPS of imported results with too few values for an interval: the median.
    pub single: Option<Ratio>,
    /// CPU time per query relative to the baseline's: below 1 is better.
    pub relative_cpu: Option<Estimate>,
    /// The same without a server's background CPU time; not in `run.json`.
    #[serde(skip)]
    pub relative_cpu_of_slices: Option<Estimate>,
    /// Context switches per query relative to the baseline's.
    pub relative_cs: Option<Estimate>,
    /// Counter figures relative to the baseline's; a missing one is unknown, or zero in some slice.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub relative_counters: BTreeMap<CounterFigure, Estimate>,
    /// Percentiles of response times relative to the baseline's; empty if unknown.
    pub response_times: Vec<RelativePercentile>,
    /// The statements of a script, those that contribute most to the difference first; empty if unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<RelativeStatement>,
    /// The engine's own counters that certainly grow otherwise than the baseline's, first those whose ratio is farthest
    /// beyond noise; then the most even of those that only one of both has.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub engine_counters: Vec<RelativeCounter>,
    /// The statements that are executed otherwise than by the baseline, which has the same system.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub plans: Vec<OtherPlan>,
    /// Where the difference in CPU time is; `None` without samples of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileDifference>,
    /// Where the time per query goes; `None` without recorded waits of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<WaitsDifference>,
    pub verdict: Verdict,
    pub cpu_verdict: Verdict,
    pub trusted_metric: Metric,
    /// Number of counted blocks.
    pub blocks: u64,
    pub absolute: Absolute,
    /// Relative QPS of every counted block, in order; not in `run.json`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ratios: Vec<f64>,
    /// The median of each restart, in order; one value without restarts.
    pub restart_medians: Vec<f64>,
}

/// CPU time and waits of the threads that execute statements.
#[derive(Clone, Debug, Serialize)]
pub struct WaitsDifference {
    /// Why threads were looked at in intervals; `None` if each switch was recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_intervals: Option<String>,
    /// Records of switches that were lost.
    pub lost: u64,
    /// Those that were not; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub records: Option<u64>,
    /// Of recording waits, of the candidate and the baseline.
    pub cost: [Option<ProfilingCost>; 2],
    /// `total` while waits were recorded, of the candidate and the baseline.
    pub recorded_us: [f64; 2],
    /// Shares of recorded slices; their sum is `total`.
    pub parts: Vec<WaitRow>,
    /// Clients × wall time / statements, of measured slices.
    pub total: WaitRow,
    /// Of other threads, relative to the same statements.
    pub background: Vec<WaitRow>,
    /// The stacks in which threads wait that execute statements, except for the client or a CPU, the longest waits
    /// first.
    pub stacks: Vec<WaitRow>,
}

/// Time per query in µs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WaitRow {
    pub name: String,
    pub us: f64,
    pub baseline_us: f64,
    /// Half of the 95% interval of the difference; `None` if there are too few blocks or starts.
    pub half_width_us: Option<f64>,
    /// The control's difference in the same row; `None` if it has none.
    pub control_us: Option<f64>,
}

impl WaitRow {
    pub fn difference(&self) -> f64 {
        self.us - self.baseline_us
    }

    /// Whether the interval of the difference does not contain 0, and the difference is larger than the control's.
    pub fn is_certain(&self) -> bool {
        let floor = self.control_us.map_or(0.0, f64::abs);
        self.half_width_us.is_some_and(|half| self.difference().abs() > half.max(floor))
    }
}

/// A statement with another plan than the baseline's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherPlan {
    /// The statement, with `?` for parameters.
    pub sql: String,
    /// The lines of the plan in the first start; likewise the baseline's.
    pub plan: Vec<String>,
    pub baseline: Vec<String>,
    /// Whether one of them had several plans in its starts.
    pub changes: bool,
}

/// A counter of the engine that certainly grows otherwise than the baseline's.
#[derive(Clone, Debug, Serialize)]
pub struct RelativeCounter {
    /// The engine's own name.
    pub counter: String,
    /// By how much the baseline's grows per query; 0 if it never does.
    pub baseline_per_query: f64,
    pub per_query: f64,
    /// `None` if one of them never grows.
    pub relative: Option<Estimate>,
    /// Whether the engine or system of one of them does not count this: no growth there says nothing.
    pub only_one_has_it: bool,
}

/// Verdict on a ratio to the baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// More throughput or less CPU than the baseline, by more than the noise.
    #[serde(rename = "faster")]
    Better,
    /// Less throughput or more CPU than the baseline, by more than the noise.
    #[serde(rename = "slower")]
    Worse,
    /// The interval contains 1, or the difference is smaller than the noise floor.
    WithinNoise,
    /// The same, but so large a difference is possible that it does not mean equal.
    TooNoisy,
    /// The load generator was the bottleneck, not the candidate or the baseline.
    ClientBound,
    /// Imported, with too few values for an interval.
    NoInterval,
    /// Too few blocks.
    Unknown,
    /// The candidate or the baseline had too many wrong answers here, or ended before its
    /// measurement was complete.
    Failed,
}

impl Absolute {
    /// Background CPU time of a server between its slices, as a share of its CPU time.
    pub fn background_share(&self) -> Option<Share> {
        let (background, all) = (self.background_cpu_us_per_query?, self.cpu_us_per_query?);
        (all > 0.0).then(|| Share::from_fraction(background / all))
    }
}

impl From<dbdyno_stats::Verdict> for Verdict {
    fn from(verdict: dbdyno_stats::Verdict) -> Self {
        match verdict {
            dbdyno_stats::Verdict::Better => Self::Better,
            dbdyno_stats::Verdict::Worse => Self::Worse,
            dbdyno_stats::Verdict::Noise => Self::WithinNoise,
            dbdyno_stats::Verdict::TooNoisy => Self::TooNoisy,
        }
    }
}

impl Verdict {
    /// Whether the difference is more than noise.
    pub const fn is_certain(self) -> bool {
        matches!(self, Self::Better | Self::Worse)
    }

    /// Whether there is an interval that it is based on.
    pub const fn has_interval(self) -> bool {
        self.is_certain() || matches!(self, Self::WithinNoise | Self::TooNoisy)
    }

    /// Whether the ratio describes the candidate's and the baseline's own work.
    pub(crate) const fn is_of_own_work(self) -> bool {
        !matches!(self, Self::Failed | Self::ClientBound)
    }

    /// The text in tables and exports, for relative QPS.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Better => "faster",
            Self::Worse => "slower",
            Self::WithinNoise => "within noise",
            Self::TooNoisy => "too noisy",
            Self::ClientBound => "client-bound",
            Self::NoInterval => "no interval",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// The summary of one group, one number of clients and one candidate.
///
/// Failed and client-bound rows are left out.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSummary {
    pub group: String,
    pub clients: u32,
    pub candidate: String,
    pub role: Role,
    pub count: usize,
    /// Number of microbenchmarks left out because they were client-bound.
    pub client_bound: usize,
    pub min: Ratio,
    pub max: Ratio,
    /// Arithmetic mean of relative QPS.
    pub avg: Ratio,
    pub median: Ratio,
    /// Sample standard deviation of relative QPS; `None` for fewer than two.
    pub stddev: Option<f64>,
    /// The microbenchmark with the minimum relative QPS.
    pub worst: String,
    /// The microbenchmark with the maximum relative QPS.
    pub best: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub candidate: String,
    /// The microbenchmark or the stage.
    pub at: String,
    pub reason: String,
}

/// Lost connections or servers of one candidate, after which it continued.
#[derive(Clone, Debug, Serialize)]
pub struct Lost {
    pub candidate: String,
    pub count: u64,
    /// The microbenchmark or the stage of the last one.
    pub at: String,
    /// The reason of the last one.
    pub reason: String,
    /// The microbenchmark of the first lost slice of writes, if any: after it the candidate's data differed
    /// from the others', and answers were not compared.
    pub data_differs_from: Option<String>,
}

/// An optimization of a running server by the live optimizer.
#[derive(Clone, Debug, Serialize)]
pub struct Optimization {
    pub candidate: String,
    /// The microbenchmark during which it was sampled, with the number of clients in a sweep.
    pub trained_with: String,
    pub measured_next: String,
    /// Whether it was repeated for a restarted server.
    pub after_restart: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(flatten)]
    pub layout: NewLayout,
}

/// State snapshots of all instances at one time of the run.
#[derive(Clone, Debug, Serialize)]
pub struct StateSnapshots {
    pub at: String,
    /// The candidates with a state snapshot, in order.
    pub candidates: Vec<String>,
    /// Each figure's name and its value per candidate; `None` where a candidate has none.
    pub state: Vec<(String, Vec<Option<u64>>)>,
}
