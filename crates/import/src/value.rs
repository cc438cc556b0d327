use std::path::PathBuf;

use dbdyno_record::Latencies;
use dbdyno_units::Nanos;

/// One value that somebody measured.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) file: PathBuf,
    pub(crate) candidate: String,
    pub(crate) microbenchmark: String,
    pub(crate) clients: u32,
    /// In the unit of its source.
    pub(crate) throughput: f64,
    pub(crate) measure: Measure,
}

/// What is known beside the throughput.
#[derive(Clone, Debug)]
pub(crate) enum Measure {
    /// Nothing. Throughput is in the published unit: scans in millions of rows.
    Table,
    /// What sysbench printed. Throughput is in statements per second.
    Sysbench(Box<Sysbench>),
}

/// What sysbench prints at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sysbench {
    pub(crate) queries: u64,
    pub(crate) transactions: u64,
    pub(crate) transactions_per_second: f64,
    /// Statements that failed as could be expected, such as deadlocks, and were run again.
    pub(crate) ignored_errors: u64,
    pub(crate) reconnects: u64,
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    /// Response times in milliseconds, by sysbench's own labels: min, avg, max, 95th percentile.
    pub(crate) latency: Vec<(String, f64)>,
    /// From its histogram, where it was asked for one.
    pub(crate) latencies: Latencies,
}
