//! What a run will do and how long it may take.

use dbdyno_bench::slice::Quota;
use dbdyno_engines::server::{DataShape, DiskEstimate};
use dbdyno_spec::experiment::{Candidate, Experiment, InsertBenchmark, Schedule, System};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::insert::Task;
use dbdyno_workloads::schema::ROW_BYTES;

use crate::live_training;

/// What a run will do and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Instances that are measured, the control among them.
    pub instances: usize,
    /// The fewest and the most slices that count.
    pub slices: (u64, u64),
    /// The shortest and the longest time of measuring, warm-up and lead-in included, if every
    /// slice takes what it should. Events longer than a slice come on top.
    pub measuring: (Nanos, Nanos),
    /// The disk space that the data needs here, roughly: with copies, logs, and what servers that
    /// dbdyno starts keep beside.
    pub data_size: Bytes,
    /// Tables and indexes on servers that run already, wherever they keep them.
    pub data_elsewhere: Bytes,
    /// Tables and indexes of all instances here: what caches should hold.
    pub tables_size: Bytes,
    /// The experiment's settings: label and value.
    pub settings: Vec<(String, String)>,
}

impl RunPlan {
    /// The plan of an experiment.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        if let Some(benchmark) = &experiment.insert_benchmark {
            return Self::of_inserts(experiment, benchmark);
        }
        let schedule = &experiment.schedule;
        let instances = instances(experiment);
        let mut slices = (0, 0);
        let mut measuring = (Nanos::ZERO, Nanos::ZERO);
        for case in cases(experiment) {
            let slice = slice(schedule, &case.microbenchmark);
            let (fewest, most) = blocks(schedule, slice);
            slices.0 += u64::from(fewest) * instances as u64;
            slices.1 += u64::from(most) * instances as u64;
            measuring.0 += time(schedule, slice, fewest, instances as u64);
            measuring.1 += time(schedule, slice, most, instances as u64);
        }
        let tuning = live_training::time(experiment)
            .times(live_training::times(experiment) * instances as u64);
        measuring = (measuring.0 + tuning, measuring.1 + tuning);
        let space = DiskSpace::of(experiment);
        Self {
            instances,
            slices,
            measuring,
            data_size: space.embedded + space.servers,
            data_elsewhere: space.elsewhere,
            tables_size: space.tables,
            settings: crate::settings::of_experiment(experiment),
        }
    }

    /// How long loading takes nobody knows before: the times are those of the steps that end by
    /// time.
    fn of_inserts(experiment: &Experiment, benchmark: &InsertBenchmark) -> Self {
        let instances = instances(experiment);
        let timed = benchmark.plan.steps.iter().map(|step| match step.task {
            Task::Mix(mix) => mix.time,
            Task::Insert(_) | Task::Index | Task::Settle => Nanos::ZERO,
        });
        let time = timed.sum::<Nanos>().times(instances as u64 * u64::from(benchmark.repeats));
        let space = DiskSpace::of(experiment);
        Self {
            instances,
            slices: (0, 0),
            measuring: (time, time),
            data_size: space.embedded + space.servers,
            data_elsewhere: space.elsewhere,
            tables_size: space.tables,
            settings: crate::settings::of_experiment(experiment),
        }
    }

    /// How a candidate is set up, as far as the experiment says it: label and value.
    #[must_use]
    pub fn configuration(candidate: &Candidate) -> Vec<(String, String)> {
        crate::settings::of_candidate(candidate)
    }
}

/// What is measured at a time: a microbenchmark with a number of clients.
#[derive(Clone, Debug)]
pub(crate) struct MicrobenchmarkCase {
    pub microbenchmark: Microbenchmark,
    pub clients: u32,
}

/// All that is measured, in running order.
pub(crate) fn cases(experiment: &Experiment) -> Vec<MicrobenchmarkCase> {
    let workload = &experiment.workload;
    let of = |microbenchmark: &Microbenchmark| {
        let case = |clients: &u32| MicrobenchmarkCase {
            microbenchmark: microbenchmark.clone().for_clients(*clients),
            clients: *clients,
        };
        workload.clients.iter().map(case).collect::<Vec<_>>()
    };
    workload.microbenchmarks.iter().flat_map(of).collect()
}

/// Instances that are measured.
pub(crate) fn instances(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// The length of a slice of this microbenchmark.
pub(crate) fn slice(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    if microbenchmark.writes() { schedule.write_slice } else { schedule.slice }
}

/// The fewest and the most blocks that count. Without restarts the most is what the budget
/// allows; with restarts, half of the budget is always spent.
pub(crate) fn blocks(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    let slices_in = |time: u64| {
        let slices = time.div_ceil(slice.as_nanos().max(1));
        u32::try_from(slices).unwrap_or(u32::MAX)
    };
    let most = slices_in(schedule.budget.as_nanos()).max(schedule.min_blocks);
    let fewest = match schedule.restarts {
        1 => schedule.min_blocks,
        _ => slices_in(schedule.budget.as_nanos() / 2).max(schedule.min_blocks),
    };
    (fewest, most)
}

/// The time that so many blocks take, with the warm-up after each start and the lead-in of each
/// slice. Starting the instances comes on top.
pub(crate) fn time(schedule: &Schedule, slice: Nanos, blocks: u32, instances: u64) -> Nanos {
    let (_, most) = self::blocks(schedule, slice);
    // Half of the budget is for the restarts that are asked for, the rest for as many again.
    let starts = match schedule.restarts {
        1 => 1,
        restarts if blocks < most => restarts,
        restarts => 2 * restarts,
    };
    let with_warmup = u64::from(blocks) + u64::from(schedule.warmup_blocks * starts);
    let lead_in = Quota::Time(slice).lead_in();
    let with_lead_in = match lead_in {
        Some(Quota::Time(time)) => slice + time,
        _ => slice,
    };
    with_lead_in.times(with_warmup * instances)
}

/// Whether a microbenchmark that makes the tables smaller is measured more than once on the same
/// data: instances then keep a copy.
pub(crate) fn repeats(experiment: &Experiment) -> bool {
    experiment.schedule.restarts > 1 || experiment.workload.clients.len() > 1
}

/// The disk space that a run needs, roughly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// In the run directory, of embedded databases.
    pub embedded: Bytes,
    /// Where private servers live.
    pub servers: Bytes,
    /// Tables on servers that run already.
    pub elsewhere: Bytes,
    /// Tables of the instances that are here, without copies and logs.
    pub tables: Bytes,
}

impl DiskSpace {
    /// Of each instance, of the loaded data of each kind, and of the copies that are kept.
    pub fn of(experiment: &Experiment) -> Self {
        if let Some(benchmark) = &experiment.insert_benchmark {
            return Self::of_inserts(experiment, benchmark);
        }
        let microbenchmarks = &experiment.workload.microbenchmarks;
        let kept =
            repeats(experiment) && microbenchmarks.iter().any(Microbenchmark::shrinks_tables);
        let schedule = &experiment.schedule;
        let (_, most) = blocks(schedule, schedule.write_slice);
        let writing = match microbenchmarks.iter().any(Microbenchmark::writes) {
            true => schedule.write_slice.times(u64::from(most)),
            false => Nanos::ZERO,
        };
        let mut space = Self::default();
        let mut kinds: Vec<&System> = Vec::new();
        for candidate in &experiment.candidates {
            let controlled = experiment.control && candidate.name == experiment.baseline;
            let instances = 1 + u64::from(controlled);
            // As loaded, and at work.
            let loaded = of_one(experiment, candidate, Nanos::ZERO);
            let worked = of_one(experiment, candidate, writing);
            let times = |bytes: Bytes, times: u64| Bytes::from_bytes(bytes.as_bytes() * times);
            let mut here = times(worked.total, instances * (1 + u64::from(kept)));
            if !kinds.iter().any(|other| shares_data(other, &candidate.system)) {
                kinds.push(&candidate.system);
                here = here + loaded.total;
            }
            match &candidate.system {
                System::Sqlite { .. } => space.embedded = space.embedded + here,
                System::Private(_) => space.servers = space.servers + here,
                System::Existing(_) => {
                    space.elsewhere = space.elsewhere + times(worked.tables, instances);
                    continue;
                }
            }
            space.tables = space.tables + times(worked.tables, instances);
        }
        space
    }

    /// One candidate's data at a time: its own, its copy, and the next copy being made.
    fn of_inserts(experiment: &Experiment, benchmark: &InsertBenchmark) -> Self {
        let copies = if benchmark.copies { 3 } else { 1 };
        let data = benchmark.plan.data_bytes().saturating_mul(13) / 10;
        let (one, all) = (Bytes::from_bytes(data), Bytes::from_bytes(data.saturating_mul(copies)));
        let mut space = Self::default();
        for candidate in &experiment.candidates {
            match candidate.system {
                System::Sqlite { .. } => space.embedded = all,
                System::Private(_) => space.servers = all,
                System::Existing(_) => {
                    space.elsewhere = one;
                    continue;
                }
            }
            space.tables = one;
        }
        space
    }
}

/// One instance's disk space.
struct InstanceSpace {
    tables: Bytes,
    total: Bytes,
}

fn of_one(experiment: &Experiment, candidate: &Candidate, writing: Nanos) -> InstanceSpace {
    let workload = &experiment.workload;
    let (tables, rows) = (workload.tables, workload.rows);
    let shape = DataShape { tables, rows, clients: workload.most_clients() };
    let server = |system, engine, configuration: &[(String, String)]| {
        let space = DiskEstimate::of(system, engine, shape, configuration, writing);
        InstanceSpace { tables: space.tables, total: space.total() }
    };
    match &candidate.system {
        System::Sqlite { .. } => {
            // Pages are not full and have headers: a SQLite table of 100,000 rows takes 1.15 times
            // its rows, and writes add to it.
            let size = Bytes::from_bytes(u64::from(tables) * rows * ROW_BYTES * 13 / 10);
            InstanceSpace { tables: size, total: size }
        }
        System::Private(own) => server(own.system, own.engine, &own.configuration),
        System::Existing(theirs) => server(theirs.system, theirs.engine, &[]),
    }
}

/// Whether one load serves both, as far as the experiment tells. Programs may turn out to be of
/// different versions, and settings not to matter: then it is a copy more, or less.
fn shares_data(one: &System, other: &System) -> bool {
    match (one, other) {
        (System::Sqlite { config: a, .. }, System::Sqlite { config: b, .. }) => {
            a.page_size == b.page_size
        }
        (System::Private(a), System::Private(b)) => {
            (a.system, a.engine, &a.program, &a.configuration)
                == (b.system, b.engine, &b.program, &b.configuration)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_spec::parse;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn experiment(lines: &str) -> Experiment {
        let text = format!("name = \"test\"\nbaseline = \"a\"\n{lines}");
        parse("test.toml", &text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    const READS: &str = "[workload]\nrows = 100_000\nmicrobenchmarks = [\"scan*\"]\n";
    const ALL: &str = "[workload]\nrows = 100_000\nmicrobenchmarks = [\"all\"]\n";
    const TWO_ENGINES: &str = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
         [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\nengine = \"myrocks\"\n";

    fn mib(lines: &str) -> (u64, u64, u64) {
        let DiskSpace { embedded, servers, elsewhere, .. } = DiskSpace::of(&experiment(lines));
        let of = |bytes: Bytes| bytes.as_bytes() / MIB;
        (of(embedded), of(servers), of(elsewhere))
    }

    #[test]
    fn little_data_of_servers_is_mostly_logs() {
        let (embedded, servers, elsewhere) = mib(&format!("{ALL}{TWO_ENGINES}"));
        assert_eq!((embedded, elsewhere), (0, 0));
        // Two instances and the loaded data of InnoDB, one of MyRocks with its own.
        assert!((1_300..2_200).contains(&servers), "{servers}");
    }

    #[test]
    fn copies_are_kept_where_the_tables_get_smaller_more_than_once() {
        let sweep = ALL.replace("[workload]", "[workload]\nclients = [1, 2]");
        let [once, twice] = [ALL, &sweep].map(|all| mib(&format!("{all}{TWO_ENGINES}")).1);
        let reads = mib(&format!(
            "{}{TWO_ENGINES}",
            READS.replace("[workload]", "[workload]\nclients = [1, 2]")
        ));
        assert!(twice > once + 900, "{once} {twice}");
        assert!(reads.1 <= once, "{reads:?} {once}");
    }

    #[test]
    fn one_load_serves_candidates_that_are_alike() {
        let sqlite = |settings: &str| {
            let candidate = |name| {
                format!(
                    "[[candidate]]\nname = \"{name}\"\nsystem = \"sqlite\"\nvariant = \"rel\"\n"
                )
            };
            let text = format!("{READS}{}{}{settings}", candidate("a"), candidate("b"));
            mib(&text).0
        };
        // 25 MiB for each of three instances and the loaded data.
        assert_eq!((sqlite(""), sqlite("sqlite = { page_size = \"8KiB\" }\n")), (100, 125));
    }

    #[test]
    fn servers_that_run_already_keep_their_data_themselves() {
        let existing = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                        url = \"mysql://me@db.example/\"\n";
        assert_eq!(mib(&format!("{READS}{existing}")), (0, 0, 47));
    }
}
