//! The disk space that a run needs.

use std::collections::BTreeMap;

use dbdyno_engines::server::{DataShape, DiskEstimate};
use dbdyno_spec::experiment::{Candidate, Experiment, InsertBenchmark, System, Workload};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::insert::Task;
use dbdyno_workloads::schema::ROW_BYTES;

use crate::plan::cases::{block_range, keeps_copy};

/// Estimate of the disk space that a run needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DiskSpace {
    /// Embedded databases, in the run directory.
    pub embedded: Bytes,
    /// Private servers' data directories.
    pub servers: Bytes,
    /// Private servers' data directories on other hosts, by the host's name.
    pub on_hosts: BTreeMap<String, Bytes>,
    /// Tables on existing servers.
    pub existing: Bytes,
    /// Tables of the embedded databases and private servers, without copies and logs.
    pub tables: Bytes,
}

impl DiskSpace {
    /// The space for every instance, the loaded data of each kind, and kept copies.
    pub fn of(experiment: &Experiment) -> Self {
        if let Some(benchmark) = &experiment.insert_benchmark {
            return Self::of_insert_benchmark(experiment, benchmark);
        }
        let microbenchmarks = &experiment.workload.microbenchmarks;
        let kept = microbenchmarks.iter().any(|one| keeps_copy(experiment, one));
        let schedule = &experiment.schedule;
        let (_, most) = block_range(schedule, schedule.write_slice);
        let writing = match microbenchmarks.iter().any(Microbenchmark::writes) {
            true => schedule.write_slice.times(u64::from(most)),
            false => Nanos::ZERO,
        };
        let mut space = Self::default();
        let mut kinds: Vec<&System> = Vec::new();
        for candidate in &experiment.candidates {
            let controlled = experiment.control && candidate.name == experiment.baseline;
            let instances = 1 + u64::from(controlled);
            let loaded = instance_space(experiment, candidate, Nanos::ZERO);
            let worked = instance_space(experiment, candidate, writing);
            let times = |bytes: Bytes, times: u64| Bytes::from_bytes(bytes.as_bytes() * times);
            let mut here = times(worked.total, instances * (1 + u64::from(kept)));
            if !kinds.iter().any(|other| shares_data(other, &candidate.system)) {
                kinds.push(&candidate.system);
                here = here + loaded.total;
            }
            match &candidate.system {
                System::Sqlite { .. } => space.embedded = space.embedded + here,
                System::Private(server) => {
                    if let Some(host) = &server.host {
                        let there = space.on_hosts.entry(host.clone()).or_default();
                        *there = *there + here;
                        continue;
                    }
                    space.servers = space.servers + here;
                }
                System::Existing(_) => {
                    space.existing = space.existing + times(worked.tables, instances);
                    continue;
                }
            }
            space.tables = space.tables + times(worked.tables, instances);
        }
        space
    }

    /// The space for one candidate at a time: its data, with logs and system tables of a private server, a copy,
    /// and the next copy.
    fn of_insert_benchmark(experiment: &Experiment, benchmark: &InsertBenchmark) -> Self {
        let copies = if benchmark.copies { 3 } else { 1 };
        let embedded = Bytes::from_bytes(benchmark.plan.data_bytes().saturating_mul(13) / 10);
        let in_server = Bytes::from_bytes(benchmark.plan.server_bytes());
        let Workload { tables: count, rows, .. } = experiment.workload;
        let shape = DataShape { tables: count, rows, clients: experiment.workload.most_clients() };
        let steps = benchmark.plan.steps.iter();
        let times = steps.map(|step| match step.task {
            Task::Mix(mix) => mix.time,
            Task::Insert(_) | Task::Index | Task::Settle => Nanos::ZERO,
        });
        let writing: Nanos = times.sum();
        let with_copies = |one: Bytes| Bytes::from_bytes(one.as_bytes().saturating_mul(copies));
        let mut space = Self::default();
        for candidate in &experiment.candidates {
            let tables = match candidate.system {
                System::Sqlite { .. } => embedded,
                System::Private(_) | System::Existing(_) => in_server,
            };
            match &candidate.system {
                System::Sqlite { .. } => space.embedded = with_copies(tables),
                System::Private(server) => {
                    let own = &server.configuration;
                    let of_server =
                        DiskEstimate::of(server.system, server.engine, shape, own, writing);
                    let one = tables + of_server.overhead;
                    if let Some(host) = &server.host {
                        // Nothing is copied there: a later session could not use it.
                        let there = space.on_hosts.entry(host.clone()).or_default();
                        *there = one.max(*there);
                        continue;
                    }
                    space.servers = space.servers.max(with_copies(one));
                }
                System::Existing(_) => {
                    space.existing = tables;
                    continue;
                }
            }
            space.tables = space.tables.max(tables);
        }
        space
    }
}

struct InstanceSpace {
    tables: Bytes,
    total: Bytes,
}

fn instance_space(experiment: &Experiment, candidate: &Candidate, writing: Nanos) -> InstanceSpace {
    let workload = &experiment.workload;
    let (tables, rows) = (workload.loaded_tables(), workload.rows);
    let shape = DataShape { tables, rows, clients: workload.most_clients() };
    let server = |system, engine, configuration: &[(String, String)]| {
        let space = DiskEstimate::of(system, engine, shape, configuration, writing);
        InstanceSpace { tables: space.tables, total: space.total() }
    };
    match &candidate.system {
        System::Sqlite { .. } => {
            // A freshly loaded SQLite table of 100,000 rows takes 1.15 times the size of its rows;
            // writes add to it.
            let size = Bytes::from_bytes(u64::from(tables) * rows * ROW_BYTES * 13 / 10);
            InstanceSpace { tables: size, total: size }
        }
        System::Private(own) => server(own.system, own.engine, &own.configuration),
        System::Existing(theirs) => server(theirs.system, theirs.engine, &[]),
    }
}

/// Whether both can start from the same loaded data, judged by the experiment alone: program
/// versions are not known yet.
fn shares_data(one: &System, other: &System) -> bool {
    match (one, other) {
        (System::Sqlite { config: a, .. }, System::Sqlite { config: b, .. }) => {
            a.page_size == b.page_size
        }
        (System::Private(a), System::Private(b)) => {
            is_same_kind(one, other)
                && (a.defaults, &a.configuration) == (b.defaults, &b.configuration)
        }
        _ => false,
    }
}

/// Whether the data of one is probably copied from the other: few settings change the files.
pub(crate) fn is_same_kind(one: &System, other: &System) -> bool {
    match (one, other) {
        (System::Sqlite { .. }, System::Sqlite { .. }) => true,
        (System::Private(a), System::Private(b)) => {
            (a.system, a.engine, &a.program, &a.release, &a.host)
                == (b.system, b.engine, &b.program, &b.release, &b.host)
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
    const ALL: &str = "[schedule]\nrestarts = 1\n\
                       [workload]\nrows = 100_000\nmicrobenchmarks = [\"all\"]\n";
    const TWO_ENGINES: &str = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
         [[candidate]]\nname = \"b\"\nsystem = \"mariadb\"\nengine = \"myrocks\"\n";

    fn mib(lines: &str) -> (u64, u64, u64) {
        let DiskSpace { embedded, servers, existing, .. } = DiskSpace::of(&experiment(lines));
        let of = |bytes: Bytes| bytes.as_bytes() / MIB;
        (of(embedded), of(servers), of(existing))
    }

    #[test]
    fn small_server_data_is_mostly_logs() {
        let (embedded, servers, existing) = mib(&format!("{ALL}{TWO_ENGINES}"));
        assert_eq!((embedded, existing), (0, 0));
        // Two instances and the loaded data of InnoDB, one of MyRocks with its own.
        assert!((1_300..2_200).contains(&servers), "{servers}");
    }

    #[test]
    fn repeated_shrinking_needs_space_for_copies() {
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
    fn candidates_with_equal_page_size_share_loaded_data() {
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
    fn each_host_needs_space_for_its_own_servers() {
        let candidate = |name: &str, host: &str| {
            format!("[[candidate]]\nname = \"{name}\"\nsystem = \"mariadb\"\n{host}\n")
        };
        let on = |host: &str| format!("host = \"{host}\"");
        let text = format!(
            "{READS}[host.x]\n[host.y]\n{}{}{}",
            candidate("a", &on("x")),
            candidate("b", &on("y")),
            candidate("c", &on("y"))
        );
        let space = DiskSpace::of(&experiment(&text));
        assert_eq!((space.servers, space.tables), (Bytes::default(), Bytes::default()));
        // The baseline with its control and the loaded data; two instances with the loaded data.
        let (x, y) = (space.on_hosts["x"], space.on_hosts["y"]);
        assert!(x == y && x > Bytes::from_mib(400), "{x} {y}");
        let inserts = text.replace(READS, "[insert_benchmark]\n");
        let space = DiskSpace::of(&experiment(&inserts));
        assert_eq!(space.on_hosts.len(), 2);
        assert_eq!(space.servers, Bytes::default());
    }

    #[test]
    fn insert_benchmark_needs_space_for_the_logs_of_the_largest_server() {
        let servers = |copies: bool| {
            let rows = "rows = { i0 = 200_000, i1 = 60_000 }\nrates = 100\nseconds = \"10s\"";
            let text = format!("[insert_benchmark]\n{rows}\ncopies = {copies}\n{TWO_ENGINES}");
            mib(&text).1
        };
        // InnoDB's redo log, system and undo tablespaces take 352 MiB, the tables 63 MiB.
        assert_eq!((servers(false), servers(true)), (414, 1_244));
    }

    #[test]
    fn existing_servers_need_no_local_space() {
        let existing = "[[candidate]]\nname = \"a\"\nsystem = \"mariadb\"\n\
                        url = \"mysql://me@db.example/\"\n";
        assert_eq!(mib(&format!("{READS}{existing}")), (0, 0, 47));
    }
}
