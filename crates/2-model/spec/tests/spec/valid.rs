//! Valid experiments, including defaults.

use dbdyno_spec::experiment::{
    Build, Candidate, Checks, Cpus, Experiment, Fleet, JournalMode, Pace, Schedule, SqliteConfig,
    Synchronous, System,
};
use dbdyno_types::ClientWait;
use dbdyno_types::build::SourceOrigin;
use dbdyno_units::{Bytes, Nanos, Share};

use super::{parsed, shown};

/// The minimal experiment, with additional lines at the top and at the end of the file.
fn with(top: &str, end: &str) -> Experiment {
    let text = format!(
        "name = 'short'\nbaseline = 'rel'\n{top}\n\
         [[candidate]]\nname = 'rel'\nsystem = 'sqlite'\nvariant = 'rel'\n{end}"
    );
    parsed(&text)
}

#[test]
fn defaults_are_filled_in() {
    let experiment = with("", "");
    assert_eq!((experiment.control, experiment.seed), (true, 1));
    let workload = &experiment.workload;
    assert_eq!((workload.tables, workload.rows), (1, 100_000));
    assert_eq!(workload.clients, [1]);
    assert_eq!(workload.microbenchmarks.len(), 42);
    assert_eq!(
        experiment.schedule,
        Schedule {
            slice: Nanos::from_millis(5),
            write_slice: Nanos::from_millis(5),
            pace: Pace::Events,
            warmup_blocks: 2,
            warmup_time: Nanos::ZERO,
            min_blocks: 20,
            target: Share::from_percent(0.5),
            budget: Nanos::from_secs(2),
            restarts: 6,
            counters: true,
        }
    );
    assert_eq!(experiment.cpus, Cpus::default());
    assert_eq!(experiment.checks, Checks { max_error_share: Share::from_percent(0.1) });
    assert_eq!(
        experiment.candidates,
        [Candidate {
            name: "rel".to_owned(),
            system: System::Sqlite {
                build: Build {
                    source: SourceOrigin::Bundled,
                    variant: "rel".to_owned(),
                    settings: None,
                    compiler: "gcc".to_owned(),
                    flags: Vec::new(),
                    configure_with: None,
                    configure: Vec::new(),
                    training: None,
                    bolt: true,
                    audit_ignore: Vec::new(),
                },
                config: SqliteConfig {
                    page_size: Bytes::from_kib(4),
                    cache_size: Bytes::from_mib(256),
                    journal_mode: JournalMode::Wal,
                    synchronous: Synchronous::Off,
                },
            },
            injected_delay: None,
            live: None,
            matrix: None,
            series: None,
        }]
    );
    assert_eq!(experiment.baseline_candidate().name, "rel");
}

#[test]
fn all_keys_are_read() {
    let experiment = parsed(
        r#"
        name = "full-1.0_x"
        baseline = "a"
        control = false
        seed = 18
        [workload]
        tables = 4
        rows = 20_000
        clients = 8
        microbenchmarks = ["mine", "scan*"]
        [schedule]
        slice = "1.5s"
        write_slice = "5min"
        pace = "time"
        warmup_blocks = 3
        min_blocks = 6
        target = "1%"
        budget = "10min"
        restarts = 5
        counters = false
        [cpus]
        system = "2-3,6"
        dbdyno = "0"
        prevent_idle = false
        wait = "sleep"
        [checks]
        max_error_share = "0%"
        [sqlite]
        page_size = 8192
        journal_mode = "delete"
        synchronous = "full"
        [[candidate]]
        name = "a"
        system = "sqlite"
        variant = "rel_o2"
        [[candidate]]
        name = "a+b"
        system = "sqlite"
        variant = "o1"
        compiler = "/usr/bin/clang-19"
        flags = ["-fno-plt"]
        injected_delay = "3%"
        sqlite = { cache_size = "64MiB" }
        [[microbenchmark]]
        name = "mine"
        group = "range-1"
        [[microbenchmark.statements]]
        sql = "SELECT MAX(k) FROM {table} WHERE id > :id"
        draw = { id = "uniform" }
        rows = 1
        "#,
    );
    assert_eq!((experiment.control, experiment.seed), (false, 18));
    let workload = &experiment.workload;
    assert_eq!((workload.tables, workload.rows), (4, 20_000));
    assert_eq!(workload.clients, [8]);
    let names: Vec<_> = workload.microbenchmarks.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["scan_range=100", "mine"]);
    assert_eq!(
        experiment.schedule,
        Schedule {
            slice: Nanos::from_millis(1500),
            write_slice: Nanos::from_secs(300),
            pace: Pace::Time,
            warmup_blocks: 3,
            warmup_time: Nanos::ZERO,
            min_blocks: 6,
            target: Share::from_percent(1.0),
            budget: Nanos::from_secs(600),
            restarts: 5,
            counters: false,
        }
    );
    assert_eq!(experiment.cpus.system.as_deref(), Some("2-3,6"));
    assert_eq!(experiment.cpus.dbdyno.as_deref(), Some("0"));
    assert_eq!(experiment.cpus.prevent_idle, Some(false));
    assert_eq!(experiment.cpus.wait, Some(ClientWait::Sleep));
    assert_eq!(experiment.checks.max_error_share, Share::default());
    let expected = |cache_size| SqliteConfig {
        page_size: Bytes::from_kib(8),
        cache_size,
        journal_mode: JournalMode::Delete,
        synchronous: Synchronous::Full,
    };
    let [a, b] = &experiment.candidates[..] else { panic!() };
    let System::Sqlite { config, .. } = &a.system else { panic!() };
    assert_eq!(*config, expected(Bytes::from_mib(256)));
    let System::Sqlite { config, build } = &b.system else { panic!() };
    assert_eq!(*config, expected(Bytes::from_mib(64)));
    assert_eq!((b.name.as_str(), build.compiler.as_str()), ("a+b", "/usr/bin/clang-19"));
    assert_eq!(build.flags, ["-fno-plt"]);
    assert_eq!(b.injected_delay, Some(Share::from_percent(3.0)));
}

#[test]
fn default_pace_depends_on_the_number_of_clients() {
    assert_eq!(with("workload.clients = 2", "").schedule.pace, Pace::Time);
    assert_eq!(with("workload.clients = [1]", "").schedule.pace, Pace::Events);
    assert_eq!(with("workload.clients = [1, 2]", "").schedule.pace, Pace::Time);
    assert_eq!(with("schedule.pace = 'time'", "").schedule.pace, Pace::Time);
}

#[test]
fn sweep_keeps_its_order() {
    let experiment = with("workload.clients = [4, 1, 1024]", "");
    assert_eq!(experiment.workload.clients, [4, 1, 1024]);
}

#[test]
fn write_slice_defaults_to_slice() {
    let schedule = with("schedule.slice = '7ms'", "").schedule;
    assert_eq!(schedule.write_slice, Nanos::from_millis(7));
}

#[test]
fn own_microbenchmark_is_part_of_all() {
    let own = "[[microbenchmark]]\nname = 'mine'\ngroup = 'writes'\nranges = [3]\n\
               statements = [{ sql = 'DELETE FROM {table} WHERE id IN (:ids)', \
               draw = { ids = 'list({R}, uniform)' }, affects = '0..keys' }]";
    let experiment = with("", own);
    let all = &experiment.workload.microbenchmarks;
    assert_eq!(all.len(), 43);
    assert!(all.iter().any(|one| one.name == "mine_range=3"));
}

#[test]
fn machines_of_a_fleet_run_are_read() {
    assert_eq!(with("", "").fleet, None);
    let section = "[fleet]\npartition = 'bench'\nnodes = 5\nconstraint = 'epyc&nvme'\n\
                   time = '4h'\nshard = true\nscratch = '/scratch'\n";
    let expected = Fleet {
        partition: Some("bench".to_owned()),
        nodes: Some(5),
        constraint: Some("epyc&nvme".to_owned()),
        time: Some(Nanos::from_secs(4 * 3600)),
        shard: true,
        scratch: Some("/scratch".to_owned()),
        ..Fleet::default()
    };
    assert_eq!(with("", section).fleet, Some(expected));
    for (wrong, message) in [
        ("nodes = 5\nnodelist = 'a'", "`nodes` and `nodelist` are both set"),
        ("scratch = 'x'", "`x` is not an absolute path"),
        ("partition = 'a b'", "invalid partition `a b`"),
        ("time = '1s'", "time"),
        ("node = 1", "node"),
    ] {
        let text = format!(
            "name = 'short'\nbaseline = 'rel'\n[[candidate]]\nname = 'rel'\nsystem = 'sqlite'\n\
             variant = 'rel'\n[fleet]\n{wrong}\n"
        );
        let problems = shown(&text);
        assert!(problems.contains(message), "{problems}");
    }
}
