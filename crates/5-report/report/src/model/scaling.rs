//! A sweep: results with more clients relative to those with fewer.

use dbdyno_units::{Nanos, Qps};
use serde::Serialize;

use super::{Estimate, Role, Verdict};

/// One candidate on one microbenchmark with one number of clients.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingRow {
    pub microbenchmark: String,
    pub group: String,
    /// Its group in the older scheme with three groups.
    pub three_group: String,
    /// The candidate, also the baseline.
    pub candidate: String,
    /// The candidate's role.
    pub role: Role,
    /// Number of clients.
    pub clients: u32,
    /// Throughput, in the microbenchmark's unit.
    pub qps: Option<Qps>,
    /// 99th percentile of the response times.
    pub p99: Option<Nanos>,
    /// Relative to the next smaller number of clients; `None` for the smallest.
    pub to_previous: Option<ScalingRatio>,
    /// Relative to the smallest number of clients; `None` for the smallest.
    pub to_smallest: Option<ScalingRatio>,
}

/// Results with more clients divided by those with fewer, of the same candidate.
#[derive(Clone, Debug, Serialize)]
pub struct ScalingRatio {
    /// The smaller number of clients.
    pub than_clients: u32,
    /// Whether blocks with both numbers took turns. Otherwise one was measured after the other, and
    /// drift of the machine is not in the intervals.
    pub interleaved: bool,
    /// Throughput: above 1 is better.
    pub relative_qps: Option<Estimate>,
    /// Verdict on throughput.
    pub verdict: Verdict,
    /// 99th percentile of the response times: below 1 is better.
    pub relative_p99: Option<Estimate>,
    /// Verdict on the 99th percentile.
    pub p99_verdict: Verdict,
}
