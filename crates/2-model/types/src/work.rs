//! The metrics of a comparison, and which to trust: the one decision, for measurement and reports.

use serde::{Deserialize, Serialize};

/// The properties of a microbenchmark that decide how well throughput describes a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whether it changes data.
    pub writes: bool,
    pub clients: u32,
    /// Whether the candidate or the baseline is a server.
    pub on_server: bool,
    /// Whether the load generator was the bottleneck.
    pub client_bound: bool,
}

impl Work {
    /// Whether CPU time per query is to be trusted rather than throughput, if it is known.
    ///
    /// That is where throughput includes time that is not the candidate's work: writes wait for
    /// storage, and their flushing comes in bursts; with one client every statement waits for two
    /// wake-ups across CPUs; a client-bound throughput is the load generator's. Elsewhere throughput
    /// includes waiting for locks and idle CPUs, which users notice and CPU time does not show.
    pub const fn trusts_cpu(self) -> bool {
        self.writes || (self.on_server && self.clients == 1) || self.client_bound
    }
}

words! {
    /// A figure that is compared with the baseline's.
    Metric {
        /// Throughput: above 1 is better.
        Qps = "qps",
        /// CPU time per statement: below 1 is better.
        Cpu = "cpu",
    }
}

impl Metric {
    /// The metric to trust for this work.
    pub fn trusted(work: Work, cpu_is_known: impl FnOnce() -> bool) -> Self {
        if work.trusts_cpu() && cpu_is_known() { Self::Cpu } else { Self::Qps }
    }

    /// The name in headings.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Qps => "relative QPS",
            Self::Cpu => "relative CPU per query",
        }
    }

    /// The name in sentences.
    pub const fn quantity(self) -> &'static str {
        match self {
            Self::Qps => "QPS",
            Self::Cpu => "CPU per query",
        }
    }

    /// Which ratios are better.
    pub const fn better(self) -> &'static str {
        match self {
            Self::Qps => "above 1 is better",
            Self::Cpu => "below 1 is better",
        }
    }
}

words! {
    /// What ends a slice.
    Pace {
        /// All candidates execute the same number of events in a block: as many as the baseline
        /// executes in one slice.
        ///
        /// Each warm-up block measures this number: there the baseline runs first, by time. In the
        /// blocks that count, the highest of them is fixed, as others may have kept the baseline from its
        /// CPU in one of them, so that all candidates use the same keys and, for writes,
        /// have the same sequence of states.
        Events = "events",
        /// Each candidate runs for the length of a slice, plus the rest of its last event.
        Time = "time",
    }
}

words! {
    /// How clients of a server wait for answers.
    #[derive(Default)]
    ClientWait {
        /// Ask the kernel again and again, which uses the whole CPU: no answer has to wake the client,
        /// which would be work of the server's CPU.
        Poll = "poll",
        /// Sleep until the kernel wakes the client.
        #[default]
        Sleep = "sleep",
    }
}

/// The place of a candidate in a matrix of settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatrixCell {
    /// The matrix: the name of the `[[candidate]]` that all its candidates come from.
    pub matrix: String,
    /// The value of each setting of the matrix, in the order of the matrix.
    pub levels: Vec<MatrixLevel>,
}

/// A value of a setting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MatrixLevel {
    pub setting: String,
    pub value: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_trusted_for_writes_one_client_of_a_server_and_if_client_bound() {
        let reads = Work { writes: false, clients: 16, on_server: true, client_bound: false };
        assert!(!reads.trusts_cpu());
        for work in [
            Work { writes: true, ..reads },
            Work { writes: true, on_server: false, ..reads },
            Work { clients: 1, ..reads },
            Work { client_bound: true, ..reads },
        ] {
            assert!(work.trusts_cpu(), "{work:?}");
        }
        assert!(!Work { clients: 1, on_server: false, ..reads }.trusts_cpu(), "embedded");
    }
}
