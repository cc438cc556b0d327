use dbdyno_units::{Energy, Nanos, Qps};
use serde::{Deserialize, Serialize};

use crate::{Counts, Latencies, ServerUsed};

/// What one slice measured, over all its clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceMeasured {
    /// When its first client started, on the monotonic clock.
    pub started: Nanos,
    /// The longest time that a client took.
    pub wall: Nanos,
    /// CPU time of all clients together; for an embedded engine that is the system under test.
    pub cpu: Nanos,
    /// What the server spent from the first client's start to the last one's end; `None` for an
    /// embedded engine, and for a server whose processes cannot be seen from here.
    pub server: Option<ServerUsed>,
    /// Statements per second: the sum over clients of each one's statements over its own time.
    /// `None` when no statement succeeded.
    pub throughput: Option<Qps>,
    /// Events finished in the timed part, as all counts here; only the digest covers the lead-in
    /// before it, too.
    pub events: u64,
    /// Statements that succeeded, BEGIN and COMMIT among them.
    pub statements: u64,
    /// Rows returned.
    pub rows: u64,
    /// Rows changed.
    pub affected: u64,
    /// The sum of the digests of all answers: equal for candidates that did the same events on
    /// the same data.
    pub digest: u64,
    /// Statements that failed.
    pub errors: u64,
    /// Statements that answered with a wrong count.
    pub wrong: u64,
    /// The first error or wrong count, in words.
    pub first_complaint: Option<String>,
    /// Waits for another client's lock, and transactions that the database gave up for another
    /// one's sake and that were run again.
    pub busy_retries: u64,
    /// Context switches, of the clients' own will or not.
    pub context_switches: u64,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// What the CPU and the kernel counted for the system under test.
    pub counts: Counts,
    /// Energy that the CPU packages took, whoever was at work; `None` where unknown.
    pub energy: Option<Energy>,
    /// Response times of the events.
    pub latencies: Latencies,
}

impl SliceMeasured {
    /// Adds what another client of the same slice measured.
    ///
    /// What the server spent is not a client's: it stays as it is.
    pub fn merge(&mut self, other: Self) {
        self.started = self.started.min(other.started);
        self.wall = self.wall.max(other.wall);
        self.cpu += other.cpu;
        self.throughput = match (self.throughput, other.throughput) {
            (Some(a), Some(b)) => Some(Qps::from_per_second(a.per_second() + b.per_second())),
            (a, b) => a.or(b),
        };
        self.events += other.events;
        self.statements += other.statements;
        self.rows += other.rows;
        self.affected += other.affected;
        self.digest = self.digest.wrapping_add(other.digest);
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.first_complaint = self.first_complaint.take().or(other.first_complaint);
        self.busy_retries += other.busy_retries;
        self.context_switches += other.context_switches;
        self.page_faults += other.page_faults;
        self.counts.merge(&other.counts);
        // It is the machine's, and one thread reads it.
        self.energy = self.energy.or(other.energy);
        self.latencies.merge(&other.latencies);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn throughputs_of_clients_add_up_and_times_do_not() {
        let client = |statements, millis| SliceMeasured {
            wall: Nanos::from_millis(millis),
            throughput: Qps::over(statements, Nanos::from_millis(millis)),
            statements,
            ..SliceMeasured::default()
        };
        let mut both = client(100, 50);
        both.merge(client(300, 100));
        assert_eq!(both.wall, Nanos::from_millis(100));
        assert_eq!(both.statements, 400);
        assert_eq!(both.throughput, Some(Qps::from_per_second(5_000.0)));
    }

    #[test]
    fn a_client_without_throughput_does_not_hide_the_others() {
        let mut both = SliceMeasured::default();
        both.merge(SliceMeasured {
            throughput: Some(Qps::from_per_second(7.0)),
            ..SliceMeasured::default()
        });
        assert_eq!(both.throughput, Some(Qps::from_per_second(7.0)));
    }
}
