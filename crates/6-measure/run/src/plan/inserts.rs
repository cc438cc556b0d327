//! How long an insert benchmark takes, by step.

use std::fmt;

use dbdyno_results::InsertStepRecord;
use dbdyno_spec::experiment::{Candidate, Experiment, System};
use dbdyno_units::{Nanos, grouped};
use dbdyno_workloads::insert::{Inserts, ROW_BYTES, Task};

use crate::plan::cases::instance_count;
use crate::plan::elapsed::{OPENING, READ, TimeRange, times};

/// The fastest and the slowest of MySQL, MariaDB with both engines and PostgreSQL in the published runs `study-a-*`, in
/// seconds: data in memory, 1 and 4 clients. Larger data takes longer.
type Seconds = [f64; 2];
const ROW: Seconds = [3e-6, 9e-6];
const ROW_WITH_INDEXES: Seconds = [12.5e-6, 31e-6];
const COMMIT: Seconds = [50e-6, 400e-6];
/// Of each row, when the indexes are created.
const INDEXED_ROW: Seconds = [2.4e-6, 15e-6];
const SETTLING: Seconds = [0.25, 2.5];

/// More rows than this may not be in memory.
const MANY_ROWS: u64 = 5_000_000;

/// No estimate is longer, so that sums do not overflow: three years.
const LONGEST: f64 = 1e8;

/// Estimated times of the steps of all candidates and repeats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InsertTimes {
    /// Steps with queries, which end by time.
    pub queries: Nanos,
    /// Rows per second and client that are inserted during the queries.
    pub rates: Vec<u32>,
    /// Rows of the steps that insert as fast as they can.
    pub rows: u64,
    pub inserting: TimeRange,
    pub indexes: TimeRange,
    pub settling: TimeRange,
    /// Creating databases, with the first start.
    pub databases: TimeRange,
    /// Copying the data after steps.
    pub copies: TimeRange,
}

impl InsertTimes {
    /// The times of what is left after these steps; `None` for an experiment with microbenchmarks.
    pub(crate) fn left(experiment: &Experiment, stored: &[InsertStepRecord]) -> Option<Self> {
        let benchmark = experiment.insert_benchmark.as_ref()?;
        let plan = &benchmark.plan;
        let runs = instance_count(experiment) as u64 * u64::from(benchmark.repeats);
        let copied = if benchmark.copies { share_that_is_copied(experiment) } else { 0.0 };
        let row_bytes = (ROW_BYTES + u64::from(plan.data_length)) as f64;
        let mut all = Self::default();
        let (mut rows, mut left) = (0_u64, 0);
        for (number, step) in plan.steps.iter().enumerate() {
            let is_done =
                |one: &&InsertStepRecord| one.step as usize == number && one.measured.is_some();
            left = runs.saturating_sub(stored.iter().filter(is_done).count() as u64);
            let new = step.task.rows_per_client().saturating_mul(u64::from(plan.clients));
            match step.task {
                _ if left == 0 => {}
                Task::Insert(inserts) => {
                    let deletes = plan.delete_per_insert && inserts.indexed;
                    let time = inserting(inserts, new.saturating_mul(left), deletes);
                    all.inserting = all.inserting + time;
                    all.rows = all.rows.saturating_add(new.saturating_mul(left));
                }
                Task::Index => {
                    all.indexes = all.indexes + range(INDEXED_ROW, rows.saturating_mul(left));
                }
                Task::Settle => all.settling = all.settling + range(SETTLING, left),
                Task::Mix(mix) => {
                    all.queries += mix.time.times(left);
                    if !all.rates.contains(&mix.rate) {
                        all.rates.push(mix.rate);
                    }
                }
            }
            rows = rows.saturating_add(new);
            if number + 1 < plan.steps.len() {
                let seconds = copied * row_bytes / READ;
                all.copies = all.copies + range([seconds; 2], rows.saturating_mul(left));
            }
        }
        // Whatever is not at its last step has a start before it.
        let seconds = experiment.candidates.iter().map(seconds_of_database).sum::<f64>();
        let seconds = seconds / experiment.candidates.len().max(1) as f64;
        all.databases = range([seconds; 2], left);
        Some(all)
    }

    /// The times if all but that of the queries are up to `contention` times as long, because of what others run.
    pub(crate) fn under_load(self, contention: f64) -> Self {
        let loaded = |time: TimeRange| time.under_load(contention);
        Self {
            inserting: loaded(self.inserting),
            indexes: loaded(self.indexes),
            settling: loaded(self.settling),
            databases: loaded(self.databases),
            copies: loaded(self.copies),
            ..self
        }
    }

    pub fn total(&self) -> TimeRange {
        let ranges = [self.inserting, self.indexes, self.settling, self.databases, self.copies];
        TimeRange::exactly(self.queries) + ranges.into_iter().sum::<TimeRange>()
    }
}

/// `about 50 to 70 s: 20 s of queries with inserts at 100 rows/s per client, 5 to 15 s inserting 400,000 rows, …`.
impl fmt::Display for InsertTimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.queries > Nanos::ZERO {
            let queries = TimeRange::exactly(self.queries);
            let rates: Vec<String> = self.rates.iter().map(u32::to_string).collect();
            let rates = rates.join(", ");
            parts.push(format!("{queries} of queries with inserts at {rates} rows/s per client"));
        }
        if self.rows > 0 {
            parts.push(format!("{} inserting {} rows", self.inserting, grouped(self.rows)));
        }
        let others = [
            (self.indexes, "creating indexes"),
            (self.settling, "settling"),
            (self.databases, "creating databases"),
            (self.copies, "copying data"),
        ];
        for (time, what) in others {
            if time.most >= Nanos::from_secs(1) {
                parts.push(format!("{time} {what}"));
            }
        }
        write!(f, "about {}: {}", self.total(), parts.join(", "))?;
        if self.rows > MANY_ROWS {
            f.write_str("; longer if the data does not fit in memory")?;
        }
        Ok(())
    }
}

fn inserting(inserts: Inserts, rows: u64, deletes: bool) -> TimeRange {
    let row = if inserts.indexed { ROW_WITH_INDEXES } else { ROW };
    let commits = rows.div_ceil(u64::from(inserts.rows_per_commit).max(1));
    let time = range(row, rows) + range(COMMIT, commits);
    if deletes { times(time, 2.0) } else { time }
}

fn range(seconds: Seconds, count: u64) -> TimeRange {
    let [least, most] = seconds.map(|one| Nanos::from_secs_f64((one * count as f64).min(LONGEST)));
    TimeRange { least, most }
}

fn seconds_of_database(candidate: &Candidate) -> f64 {
    let time = match &candidate.system {
        System::Private(server) => {
            let typical = server.system.facts().typical_times;
            typical.create + typical.restart_after_writes
        }
        System::Sqlite { .. } | System::Existing(_) => OPENING,
    };
    time.as_secs_f64()
}

/// The share of the candidates whose data is copied after each step.
fn share_that_is_copied(experiment: &Experiment) -> f64 {
    let is_copied = |one: &&Candidate| match &one.system {
        System::Sqlite { .. } => true,
        System::Private(server) => server.host.is_none(),
        System::Existing(_) => false,
    };
    let copied = experiment.candidates.iter().filter(is_copied).count();
    copied as f64 / experiment.candidates.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use dbdyno_types::insert::StepMeasured;

    use super::*;

    #[test]
    fn all_steps_are_announced_and_those_that_are_done_are_not() {
        let text = "name = \"test\"\nbaseline = \"a\"\n\
                    [insert_benchmark]\nrows = { i0 = 100_000, i1 = 10_000, i2 = 1_000 }\n\
                    rates = [100, 500]\nseconds = \"5s\"\n\
                    [[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                    [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\n";
        let experiment =
            dbdyno_spec::parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let all = InsertTimes::left(&experiment, &[]).unwrap();
        assert_eq!((all.queries, all.rows), (Nanos::from_secs(20), 222_000));
        let words = all.to_string();
        for part in [
            "20 s of queries with inserts at 100, 500 rows/s per client, ",
            " inserting 222,000 rows, ",
            " creating indexes, ",
            " settling, ",
            " creating databases",
        ] {
            assert!(words.contains(part), "{words}");
        }
        // Both databases are created and started.
        assert!(all.total().least > Nanos::from_secs(20 + 2 * 4), "{words}");
        let steps = experiment.insert_benchmark.as_ref().unwrap().plan.steps.len() as u32;
        let done = |step| InsertStepRecord {
            step,
            measured: Some(StepMeasured::default()),
            ..InsertStepRecord::default()
        };
        let stored: Vec<InsertStepRecord> = (0..steps).map(done).collect();
        let left = InsertTimes::left(&experiment, &stored).unwrap();
        assert_eq!((left.queries, left.rows), (Nanos::from_secs(10), 111_000));
        let twice: Vec<InsertStepRecord> = stored.iter().chain(&stored).cloned().collect();
        let nothing = InsertTimes::left(&experiment, &twice).unwrap();
        assert_eq!(nothing.total(), TimeRange::default());
    }
}
