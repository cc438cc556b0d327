//! What a report says, before anything is drawn: every number with its unit and its uncertainty.

use dbdyno_units::{Bytes, Nanos, Qps, Ratio, Share};
use serde::Serialize;

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
    pub candidates: Vec<CandidateSummary>,
    /// One per microbenchmark that has at least one row, in running order.
    pub microbenchmarks: Vec<MicrobenchmarkRows>,
    /// Group summaries in five groups.
    pub groups: Vec<GroupSummary>,
    /// The same in three groups.
    pub three_groups: Vec<GroupSummary>,
    /// What the control shows; `None` without a control.
    pub noise: Option<NoiseFloor>,
    /// How the intervals were made, in a sentence.
    pub interval_method: String,
    /// What may spoil the results, and what to do about it.
    pub warnings: Vec<Warning>,
    /// Candidates or microbenchmarks that failed.
    pub failures: Vec<Failure>,
    /// Facts of the host: label and value, in the order to show.
    pub host: Vec<(String, String)>,
    /// Settings of the experiment: label and value, in the order to show.
    pub settings: Vec<(String, String)>,
    /// The experiment file, as it was.
    pub experiment_text: String,
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

/// One candidate: what it is.
#[derive(Clone, Debug, Serialize)]
pub struct CandidateSummary {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// The system and its version, such as `SQLite 3.50.0`.
    pub system: String,
    /// The variant's name.
    pub variant: String,
    /// The compiler and its version.
    pub compiler: String,
    /// The whole compile command.
    pub command: String,
    /// The build's fingerprint, shortened.
    pub fingerprint: String,
    /// Machine code in the library.
    pub text_size: Bytes,
    /// The library's file.
    pub file_size: Bytes,
    /// Configuration: key and value.
    pub configuration: Vec<(String, String)>,
    /// An injected delay, in tests of dbdyno itself.
    pub injected_delay: Option<Share>,
}

/// What a candidate is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The others are divided by it.
    Baseline,
    /// Compared with the baseline.
    Candidate,
    /// The baseline again: shows the noise floor.
    Control,
}

/// The rows of one microbenchmark.
#[derive(Clone, Debug, Serialize)]
pub struct MicrobenchmarkRows {
    /// The published name.
    pub name: String,
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
#[derive(Clone, Debug, Serialize)]
pub struct Absolute {
    /// Throughput over the slices that count, in the microbenchmark's unit.
    pub qps: Option<Qps>,
    /// CPU time of the system under test per statement, in µs.
    pub cpu_us_per_query: Option<f64>,
    /// Response time of one event.
    pub latency: Option<Latency>,
    /// Statements executed in the slices that count.
    pub statements: u64,
    /// Statements that failed or answered wrongly.
    pub errors: u64,
    /// Times that a statement waited for another client's lock and tried again.
    pub busy_retries: u64,
}

/// Response time of one event.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    /// Arithmetic mean.
    pub mean: Nanos,
    /// Median.
    pub p50: Nanos,
    /// 95th percentile.
    pub p95: Nanos,
    /// 99th percentile.
    pub p99: Nanos,
    /// The longest.
    pub max: Nanos,
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
    /// CPU time per query relative to the baseline's: below 1 is better.
    pub relative_cpu: Option<Estimate>,
    /// What relative QPS amounts to.
    pub verdict: Verdict,
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
    /// Too few blocks to say.
    Unknown,
    /// The candidate answered wrongly too often.
    Failed,
}

impl Verdict {
    /// The word in tables and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::WithinNoise => "within noise",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// The summary of one group and one candidate.
#[derive(Clone, Debug, Serialize)]
pub struct GroupSummary {
    /// The group's name.
    pub group: String,
    /// The candidate's name.
    pub candidate: String,
    /// What the candidate is for.
    pub role: Role,
    /// Microbenchmarks counted.
    pub count: usize,
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

/// What the control shows.
#[derive(Clone, Debug, Serialize)]
pub struct NoiseFloor {
    /// The typical distance of the control from 1: the median over microbenchmarks.
    pub typical: Share,
    /// The greatest distance of the control from 1.
    pub greatest: Share,
    /// The microbenchmark with the greatest distance.
    pub greatest_at: String,
    /// Microbenchmarks whose control interval contains 1.
    pub contains_one: usize,
    /// Microbenchmarks with a control estimate.
    pub count: usize,
}

/// Something that may spoil the results.
#[derive(Clone, Debug, Serialize)]
pub struct Warning {
    /// What was seen.
    pub what: String,
    /// What to do about it.
    pub advice: String,
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
