use std::collections::BTreeMap;
use std::mem;

use dbdyno_units::{Bytes, Energy, Nanos, Qps};
use serde::{Deserialize, Serialize};

use crate::Counts;

/// The measurements of one slice, over all its clients.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SliceMeasured {
    /// Start time of the first client, on the monotonic clock.
    pub started: Nanos,
    /// Wall time of the slowest client.
    pub wall: Nanos,
    /// CPU time of all clients; for an embedded engine it includes the system under test.
    pub cpu: Nanos,
    /// The part of `cpu` in which clients polled without receiving anything; the rest is work. `None`
    /// if they slept while they waited.
    pub polling: Option<Nanos>,
    /// Resource usage of the server from the first client's start to the last one's end; `None` for
    /// an embedded engine, and for a server whose processes are unknown.
    pub server: Option<ServerUsage>,
    /// Statements per second: the sum over clients of the statements divided by the client's time.
    /// `None` if no statement succeeded.
    pub throughput: Option<Qps>,
    /// Events completed in the timed part. All counts cover the timed part, except `digest`,
    /// `errors` and `wrong`, which include the lead-in.
    pub events: u64,
    /// Statements that succeeded, including BEGIN and COMMIT.
    pub statements: u64,
    /// Statements that succeeded in the lead-in; `None` in stored slices.
    pub lead_in_statements: Option<u64>,
    /// Rows returned.
    pub rows: u64,
    /// Rows changed.
    pub affected: u64,
    /// The sum of the digests of all answers: equal for candidates that executed the same events
    /// on the same data.
    pub digest: u64,
    /// Statements that failed.
    pub errors: u64,
    /// Statements with a wrong count of rows.
    pub wrong: u64,
    /// A description of the first error or wrong count.
    pub first_complaint: Option<String>,
    /// Waits for another client's lock, and transactions that the database aborted because of a
    /// conflict with another one.
    pub busy_retries: u64,
    /// Context switches of the clients, voluntary and involuntary.
    pub context_switches: u64,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Counters of the CPU and the kernel for the system under test.
    pub counts: Counts,
    /// Energy of the CPU packages, including other load; `None` if unknown.
    pub energy: Option<Energy>,
    /// Response times of the events.
    pub latencies: Latencies,
    /// Response times of a script's statements before the timed part; empty if unknown, and in stored slices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statement_times: Vec<StatementTimes>,
    /// The growth of the engine's own counters in the lead-in and the timed part; `None` if they were not read, and in
    /// stored slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_counts: Option<EngineCounts>,
}

/// How a system executes a statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementPlan {
    /// Its number in the microbenchmark, from 1.
    pub number: u32,
    /// With `?` for parameters.
    pub sql: String,
    /// The lines of the plan, without estimates. Empty if the system does not explain it.
    pub lines: Vec<String>,
}

/// By how much the counters of an engine grew in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCounts {
    /// Statements meanwhile, in the lead-in and the timed part.
    pub statements: u64,
    /// The counters that changed, by name, without the changes that reading causes. A negative one is a level. The first
    /// ones of a process are all that it has, so that one that never changes is not taken for one that does not exist.
    pub growth: BTreeMap<String, i64>,
}

impl EngineCounts {
    /// From three readings: the second directly after the first, which shows what a reading changes, and the last one
    /// after the statements. `with_all` keeps counters that did not change.
    pub fn between(
        [first, second, last]: [&BTreeMap<String, u64>; 3],
        statements: u64,
        with_all: bool,
    ) -> Self {
        let grew = |(name, last): (&String, &u64)| {
            let (first, second) = (first.get(name)?, second.get(name)?);
            let of_reading = second.checked_sub(*first).unwrap_or_default();
            let growth = match last.checked_sub(*second) {
                Some(growth) => growth.saturating_sub(of_reading).cast_signed(),
                None => last.wrapping_sub(*second).cast_signed(),
            };
            (growth != 0 || with_all).then(|| (name.clone(), growth))
        };
        Self { statements, growth: last.iter().filter_map(grew).collect() }
    }
}

/// The executions of a script's statement in a slice, as far as they were timed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatementTimes {
    /// The normalized statement.
    pub text: String,
    pub executions: u64,
    /// The sum of their response times.
    pub total: Nanos,
}

impl SliceMeasured {
    /// CPU time of all clients without polling.
    pub fn work(&self) -> Nanos {
        self.cpu.saturating_sub(self.polling.unwrap_or_default())
    }

    /// Adds the measurements of another client of the same slice.
    ///
    /// The server's usage is not per client and stays unchanged.
    pub fn merge(&mut self, other: Self) {
        self.started = self.started.min(other.started);
        self.wall = self.wall.max(other.wall);
        self.cpu += other.cpu;
        self.polling = match (self.polling, other.polling) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.throughput = match (self.throughput, other.throughput) {
            (Some(a), Some(b)) => Some(Qps::from_per_second(a.per_second() + b.per_second())),
            (a, b) => a.or(b),
        };
        self.events += other.events;
        self.statements += other.statements;
        self.lead_in_statements =
            self.lead_in_statements.zip(other.lead_in_statements).map(|(one, other)| one + other);
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
        // Energy is per machine, and only one thread reads it.
        self.energy = self.energy.or(other.energy);
        self.latencies.merge(&other.latencies);
        other.statement_times.into_iter().for_each(|one| self.add_statement(one));
    }

    /// Adds the times of a statement.
    pub fn add_statement(&mut self, times: StatementTimes) {
        match self.statement_times.iter_mut().find(|known| known.text == times.text) {
            Some(known) => {
                known.executions += times.executions;
                known.total += times.total;
            }
            None => self.statement_times.push(times),
        }
    }
}

/// A histogram of response times: pairs of a time in nanoseconds (accurate to 1%) and the number
/// of events, in ascending order.
///
/// Kept encoded, with about three bytes per pair, because a long run has millions: integers of variable length
/// in the postcard format, each time as the difference from the previous one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Latencies(Vec<u8>);

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        Self::new(counts)
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(latencies: Latencies) -> Self {
        latencies.counts().collect()
    }
}

impl Latencies {
    /// From times and counts in any order.
    pub fn new(mut counts: Vec<(u64, u64)>) -> Self {
        counts.sort_unstable();
        let (mut bytes, mut before) = (Vec::new(), 0);
        for (nanos, count) in counts {
            let pair = (nanos - mem::replace(&mut before, nanos), count);
            bytes = postcard::to_extend(&pair, bytes).expect("a vector grows as needed");
        }
        Self(bytes)
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Self) {
        let mut counts: Vec<(u64, u64)> = self.counts().chain(other.counts()).collect();
        counts.sort_unstable();
        counts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
        *self = Self::new(counts);
    }

    /// The number of pairs, and the pairs as they are kept.
    pub fn to_bytes(&self) -> Vec<u8> {
        let length = postcard::to_allocvec(&self.counts().count());
        let mut bytes = length.expect("a vector grows as needed");
        bytes.extend_from_slice(&self.0);
        bytes
    }

    /// Decodes the result of [`Self::to_bytes`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let (length, pairs): (usize, &[u8]) =
            postcard::take_from_bytes(bytes).map_err(|error| error.to_string())?;
        let mut counts = LatencyCounts { encoded: pairs, nanos: 0 };
        if counts.by_ref().take(length).count() < length {
            return Err("a time is missing or too long".to_owned());
        }
        Ok(Self(pairs[..pairs.len() - counts.encoded.len()].to_vec()))
    }

    /// Pairs of nanoseconds and counts, in ascending order.
    pub fn counts(&self) -> LatencyCounts<'_> {
        LatencyCounts { encoded: &self.0, nanos: 0 }
    }
}

/// The pairs of [`Latencies`]. Ends at a damaged one.
#[derive(Clone, Debug)]
pub struct LatencyCounts<'a> {
    encoded: &'a [u8],
    /// The time before.
    nanos: u64,
}

impl Iterator for LatencyCounts<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let ((distance, count), encoded): ((u64, u64), _) =
            postcard::take_from_bytes(self.encoded).ok()?;
        let nanos = self.nanos.checked_add(distance)?;
        (self.encoded, self.nanos) = (encoded, nanos);
        Some((nanos, count))
    }
}

/// Resource usage of a server during one slice, over all its processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerUsage {
    /// CPU time, with nanosecond resolution.
    pub cpu: Nanos,
    /// CPU time between the end of its previous slice and the start of this one's lead-in: work in
    /// the background during the slices of others. `None` for the first slice of a microbenchmark,
    /// and for a server that other clients may use.
    pub background_cpu: Option<Nanos>,
    /// Part of `cpu` in user mode, with the resolution of the kernel's tick: accurate only in sums
    /// over many slices.
    pub user: Nanos,
    /// Part of `cpu` in the kernel, with the same resolution as `user`.
    pub system: Nanos,
    /// Context switches; `None` if unknown.
    pub context_switches: Option<u64>,
    /// Page faults, minor and major.
    pub page_faults: u64,
    /// Bytes read from storage; `None` if the user lacks the permission to read it.
    pub read_from_storage: Option<Bytes>,
    /// Bytes of pages made dirty, and of direct writes; `None` as in `read_from_storage`.
    pub written_to_storage: Option<Bytes>,
}

/// The state of an instance after settling. Stored with the run, to show that all candidates were
/// measured in a comparable state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSnapshot {
    /// Number of rows in all tables.
    pub rows: u64,
    /// Size of the data on disk.
    pub data_size: Bytes,
    /// The engine's own figures, by name, such as `wal_frames` and `free_pages`.
    pub state: Vec<(String, u64)>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn merge_adds_throughput_but_not_wall_time() {
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
    fn merge_adds_times_of_equal_statements() {
        let client = |text: &str, micros| {
            let (text, total) = (text.to_owned(), Nanos::from_micros(micros));
            let statement_times = vec![StatementTimes { text, executions: 2, total }];
            SliceMeasured { statement_times, ..SliceMeasured::default() }
        };
        let mut all = client("a", 30);
        all.merge(client("b", 50));
        all.merge(client("a", 12));
        let found = all.statement_times.iter().map(|one| (one.executions, one.total));
        let micros = Nanos::from_micros;
        assert_eq!(found.collect::<Vec<_>>(), [(4, micros(42)), (2, micros(50))]);
    }

    #[test]
    fn growth_of_counters_excludes_that_of_reading() {
        let reading = |values: [u64; 4]| -> BTreeMap<String, u64> {
            let names = ["commits", "readings", "level", "idle"].map(str::to_owned);
            names.into_iter().zip(values).collect()
        };
        let [first, second] = [reading([10, 4, 7, 3]), reading([10, 5, 9, 3])];
        let last = reading([25, 6, 2, 3]);
        let counts = |with_all| EngineCounts::between([&first, &second, &last], 15, with_all);
        let mut expected = BTreeMap::from([("commits".to_owned(), 15), ("level".to_owned(), -7)]);
        assert_eq!((counts(false).statements, counts(false).growth), (15, expected.clone()));
        expected.extend(["readings", "idle"].map(|name| (name.to_owned(), 0)));
        assert_eq!(counts(true).growth, expected);
    }

    #[test]
    fn work_is_cpu_time_without_polling() {
        let client = |cpu, polling: Option<u64>| SliceMeasured {
            cpu: Nanos::from_millis(cpu),
            polling: polling.map(Nanos::from_millis),
            ..SliceMeasured::default()
        };
        let mut all = client(50, None);
        assert_eq!(all.work(), Nanos::from_millis(50));
        all.merge(client(50, Some(30)));
        all.merge(client(50, Some(25)));
        assert_eq!(
            (all.polling, all.work()),
            (Some(Nanos::from_millis(55)), Nanos::from_millis(95))
        );
    }

    #[test]
    fn merge_keeps_throughput_if_one_client_has_none() {
        let mut both = SliceMeasured::default();
        both.merge(SliceMeasured {
            throughput: Some(Qps::from_per_second(7.0)),
            ..SliceMeasured::default()
        });
        assert_eq!(both.throughput, Some(Qps::from_per_second(7.0)));
    }

    proptest! {
        #[test]
        fn latencies_round_trip_through_bytes(
            counts in prop::collection::vec((any::<u64>(), any::<u64>()), 0..50)
        ) {
            let latencies = Latencies::new(counts);
            prop_assert_eq!(Latencies::from_bytes(&latencies.to_bytes()), Ok(latencies));
        }

        #[test]
        fn invalid_bytes_do_not_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..64)
        ) {
            let _ = Latencies::from_bytes(&bytes);
        }
    }

    #[test]
    fn merging_adds_counts_of_equal_times() {
        let mut latencies = Latencies::new(vec![(5, 1), (2, 1)]);
        latencies.merge(&Latencies::new(vec![(2, 3), (9, 1)]));
        assert!(latencies.counts().eq([(2, 4), (5, 1), (9, 1)]));
    }
}
