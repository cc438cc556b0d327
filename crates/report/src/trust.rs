//! Which metric to trust: the one decision, for all outputs.

use crate::metric::Metric;

/// The properties of a microbenchmark that decide how well throughput describes a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    /// Whether it changes data.
    pub(crate) writes: bool,
    /// Number of clients.
    pub(crate) clients: u32,
    /// Whether the candidate or the baseline is a server.
    pub(crate) on_server: bool,
    /// Whether the load generator was the bottleneck.
    pub(crate) client_bound: bool,
}

impl Work {
    /// The metric that leads.
    ///
    /// CPU per query, if it is known, where throughput includes time that is not the candidate's
    /// work: writes wait for storage, and their flushing comes in bursts; with one client every
    /// statement waits for two wake-ups across CPUs; a client-bound throughput is the load
    /// generator's. Throughput otherwise: it includes waiting for locks and idle CPUs, which users
    /// notice and CPU time does not show.
    pub(crate) const fn trusted_metric(self, cpu_is_known: bool) -> Metric {
        let waits = self.writes || (self.on_server && self.clients == 1) || self.client_bound;
        if waits && cpu_is_known { Metric::Cpu } else { Metric::Qps }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_trusted_for_writes_one_client_of_a_server_and_if_client_bound() {
        let reads = Work { writes: false, clients: 16, on_server: true, client_bound: false };
        assert_eq!(reads.trusted_metric(true), Metric::Qps);
        for work in [
            Work { writes: true, ..reads },
            Work { writes: true, on_server: false, ..reads },
            Work { clients: 1, ..reads },
            Work { client_bound: true, ..reads },
        ] {
            assert_eq!(work.trusted_metric(true), Metric::Cpu, "{work:?}");
            assert_eq!(work.trusted_metric(false), Metric::Qps, "{work:?}");
        }
        let embedded = Work { clients: 1, on_server: false, ..reads };
        assert_eq!(embedded.trusted_metric(true), Metric::Qps);
    }
}
