use std::collections::HashMap;
use std::path::PathBuf;

use dbdyno_types::Latencies;
use dbdyno_units::Nanos;

/// One imported value.
#[derive(Clone, Debug)]
pub(crate) struct Value {
    pub(crate) file: PathBuf,
    pub(crate) candidate: String,
    pub(crate) microbenchmark: String,
    pub(crate) clients: u32,
    /// Its number among the values of its candidate, microbenchmark and number of clients, in the order of
    /// the files. It pairs the values of candidates.
    pub(crate) block: u32,
    /// In the unit of its source; `None` where a table has none.
    pub(crate) throughput: Option<f64>,
    pub(crate) measure: Measure,
}

/// Numbers the values of each candidate, and removes missing ones: a value that a table has no
/// figure for must not shift the pairs after it.
pub(crate) fn number_blocks(values: &mut Vec<Value>) {
    let mut next: HashMap<(String, String, u32), u32> = HashMap::new();
    for value in values.iter_mut() {
        let of = (value.candidate.clone(), value.microbenchmark.clone(), value.clients);
        let block = next.entry(of).or_default();
        value.block = *block;
        *block += 1;
    }
    values.retain(|value| value.throughput.is_some());
}

/// Data other than the throughput.
#[derive(Clone, Debug)]
pub(crate) enum Measure {
    /// None. Throughput is in the published unit: millions of rows for scans.
    Table,
    /// The summary printed by sysbench. Throughput is in statements per second.
    Sysbench(Box<Sysbench>),
}

/// The summary printed by sysbench.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sysbench {
    pub(crate) queries: u64,
    pub(crate) transactions: u64,
    pub(crate) transactions_per_second: f64,
    /// Statements that failed with an expected error, such as a deadlock, and were repeated.
    pub(crate) ignored_errors: u64,
    pub(crate) reconnects: u64,
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    /// Response times in milliseconds, with sysbench's labels: min, avg, max, 95th percentile.
    pub(crate) latency: Vec<(String, f64)>,
    /// From the histogram; empty if it was not printed.
    pub(crate) latencies: Latencies,
}
