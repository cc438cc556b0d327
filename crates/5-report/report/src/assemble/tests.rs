use std::path::Path;

use dbdyno_results::{
    BuildRecord, FailureKind, InForceRecord, NewLayout, NewRun, OptimizationRecord, OriginRecord,
    RunWriter, SessionRecord, StateSnapshotRecord,
};
use dbdyno_types::profile::{Function, ModuleBuild, Profile, Stack};
use dbdyno_types::{
    Count, Counter, Counting, Counts, EngineCounts, Latencies, Missing, ServerUsage, SliceMeasured,
    StateSnapshot, StatementPlan, StatementTimes,
};
use dbdyno_units::{Bytes, Energy};
use tempfile::{TempDir, tempdir};

use super::*;
use crate::model::NotCounted;
use crate::terminal::TerminalOptions;
use crate::words::client_bound as client_bound_note;

/// Builds a run: a server as the baseline, another one as the candidate, and the control.
struct Lab {
    dir: TempDir,
    writer: RunWriter,
}

fn candidate(name: &str, role: Role) -> CandidateRecord {
    CandidateRecord {
        name: name.to_owned(),
        role,
        system: "mariadb".to_owned(),
        version: "10.11.19-MariaDB".to_owned(),
        engine: Some("innodb".to_owned()),
        build: None,
        origin: Some(OriginRecord::Server { address: "db:3306".to_owned() }),
        configuration: Vec::new(),
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        in_force: InForceRecord::default(),
        injected_delay: None,
    }
}

fn servers() -> Vec<CandidateRecord> {
    vec![
        candidate("base", Role::Baseline),
        candidate("other", Role::Candidate),
        candidate("control", Role::Control),
    ]
}

fn embedded() -> Vec<CandidateRecord> {
    let build = || BuildRecord {
        variant: "rel".to_owned(),
        trained_on: None,
        bolted: false,
        compiler: "gcc".to_owned(),
        commands: vec!["gcc -c sqlite3.c".to_owned()],
        fingerprint: "abc".to_owned(),
        source_sha256: "12".to_owned(),
        library_sha256: "34".to_owned(),
        text_size: Bytes::from_kib(900),
        file_size: Bytes::from_mib(2),
        stripped_size: None,
        audit: None,
    };
    let inside = |one: CandidateRecord| CandidateRecord {
        system: "sqlite".to_owned(),
        version: "3.50.0".to_owned(),
        engine: None,
        build: Some(build()),
        origin: None,
        ..one
    };
    servers().into_iter().map(inside).collect()
}

impl Lab {
    fn new(candidates: &[CandidateRecord], clients: &[u32], cpus: (u32, u32)) -> Self {
        Self::of(candidates, clients, cpus, serde_json::json!({}))
    }

    fn of(
        candidates: &[CandidateRecord],
        clients: &[u32],
        cpus: (u32, u32),
        experiment: serde_json::Value,
    ) -> Self {
        let microbenchmark = |clients: &u32| MicrobenchmarkRecord {
            name: "point-query_range=100".to_owned(),
            clients: *clients,
            group: "point-1".to_owned(),
            three_group: "point".to_owned(),
            ..MicrobenchmarkRecord::default()
        };
        Self::with(candidates, clients.iter().map(microbenchmark).collect(), cpus, experiment)
    }

    fn with(
        candidates: &[CandidateRecord],
        microbenchmarks: Vec<MicrobenchmarkRecord>,
        cpus: (u32, u32),
        experiment: serde_json::Value,
    ) -> Self {
        let dir = tempdir().unwrap();
        let mut writer = RunWriter::create(
            dir.path(),
            &NewRun {
                name: "test".to_owned(),
                baseline: "base".to_owned(),
                experiment_text: String::new(),
                experiment,
                settings: Vec::new(),
                microbenchmarks,
                insert: None,
            },
        )
        .unwrap();
        writer
            .start_session(&SessionRecord {
                started: String::new(),
                version: String::new(),
                host: Vec::new(),
                facts: serde_json::json!({}),
                warnings: Vec::new(),
                client_cpus: Some(cpus.0),
                system_cpus: Some(cpus.1),
                client_wait: None,
                counting: Vec::new(),
                loses_data: false,
                elapsed: Nanos::ZERO,
            })
            .unwrap();
        writer.add_candidates(candidates).unwrap();
        Self { dir, writer }
    }

    /// Ten blocks in which the slices are equal except for `change`.
    fn blocks(&mut self, microbenchmark: u32, change: impl Fn(u32, u32, &mut SliceMeasured)) {
        for block in 0..10 {
            self.block(microbenchmark, 0, block, &change);
        }
    }

    fn block(
        &mut self,
        microbenchmark: u32,
        restart: u32,
        block: u32,
        change: impl Fn(u32, u32, &mut SliceMeasured),
    ) {
        for candidate in 0..3 {
            let mut measured = slice();
            change(candidate, block, &mut measured);
            let row = SliceRecord {
                microbenchmark,
                restart,
                block,
                position: candidate,
                candidate,
                warmup: false,
                measured,
            };
            self.writer.add_slice(&row).unwrap();
        }
    }

    fn fail(&mut self, kind: FailureKind, candidate: u32) {
        let failure = FailureRecord {
            kind,
            recovered: false,
            candidate,
            microbenchmark: Some(0),
            at: "point-query_range=100".to_owned(),
            reason: "signal 9".to_owned(),
        };
        self.writer.add_failure(&failure).unwrap();
    }

    fn report(&self) -> Report {
        read(self.dir.path())
    }
}

fn read(dir: &Path) -> Report {
    assemble(&RunReader::open(dir).unwrap()).unwrap()
}

/// 1000 statements in 10 ms; CPU time is 2 ms for the client and 5 ms for the server.
fn slice() -> SliceMeasured {
    SliceMeasured {
        wall: Nanos::from_millis(10),
        cpu: Nanos::from_millis(2),
        server: Some(ServerUsage {
            cpu: Nanos::from_millis(5),
            background_cpu: None,
            user: Nanos::from_millis(4),
            system: Nanos::from_millis(1),
            context_switches: Some(2_000),
            page_faults: 500,
            read_from_storage: Some(Bytes::from_bytes(0)),
            written_to_storage: Some(Bytes::from_bytes(64_000)),
        }),
        throughput: Some(Qps::from_per_second(100_000.0)),
        events: 1_000,
        statements: 1_000,
        context_switches: 77,
        page_faults: 7,
        ..SliceMeasured::default()
    }
}

/// The candidate has 20% more throughput and uses 10% less server CPU time.
fn faster(candidate: u32, _: u32, measured: &mut SliceMeasured) {
    if candidate == 1 {
        measured.throughput = Some(Qps::from_per_second(120_000.0));
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(4_500);
        measured.server.as_mut().unwrap().context_switches = Some(3_000);
    }
}

#[test]
fn absolute_figures_have_intervals_around_them() {
    let mut lab = Lab::new(&servers(), &[1, 2], (1, 1));
    let varying = |_: u32, block: u32, measured: &mut SliceMeasured| {
        measured.throughput = Some(Qps::from_per_second(100_000.0 + f64::from(block)));
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(5_000 + u64::from(block));
        let slowest = 100_000 + 1_000 * u64::from(block);
        measured.latencies = Latencies::new(vec![(10_000, 980), (slowest, 20)]);
    };
    lab.blocks(0, varying);
    lab.blocks(1, |candidate, block, measured| {
        varying(candidate, block, measured);
        measured.latencies = Latencies::new(vec![(10_000, 9)]);
    });
    let report = lab.report();
    let base = &report.microbenchmarks[0].baseline;
    let (low, high) = base.qps_interval.unwrap();
    assert!(99_999.0 < low.per_second() && low < base.qps.unwrap() && base.qps.unwrap() < high);
    let (low, high) = base.cpu_interval.unwrap();
    assert!(4.99 < low && low < base.cpu_us_per_query.unwrap() && high < 5.02);
    let (low, high) = base.p99_interval.unwrap();
    let p99 = base.latency.unwrap().p99;
    assert!(low < p99 && p99 < high, "{low} {p99} {high}");
    assert_eq!(report.microbenchmarks[1].baseline.p99_interval, None, "18 events in a part");
}

#[test]
fn cpu_time_of_server_and_client_are_separate() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    let report = lab.report();
    assert_eq!(report.candidates[0].system_title(), "MariaDB 10.11.19 (innodb)");
    let microbenchmark = &report.microbenchmarks[0];
    let base = &microbenchmark.baseline;
    assert_eq!(base.cpu_us_per_query, Some(5.0));
    assert_eq!((base.user_us_per_query, base.system_us_per_query), (Some(4.0), Some(1.0)));
    assert_eq!(base.client_cpu_us_per_query, Some(2.0));
    assert_eq!((base.cs_per_query, base.page_faults_per_query), (Some(2.0), Some(0.5)));
    assert_eq!((base.read_bytes_per_query, base.written_bytes_per_query), (Some(0.0), Some(64.0)));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.2)));
    assert_eq!(base.server_busy, Some(Share::from_fraction(0.5)));
    let row = &microbenchmark.rows[0];
    assert!((row.relative_qps.unwrap().median.get() - 1.2).abs() < 1e-9);
    assert!((row.relative_cpu.unwrap().median.get() - 0.9).abs() < 1e-9);
    assert!((row.relative_cs.unwrap().median.get() - 1.5).abs() < 1e-9);
    assert_eq!((row.verdict, row.cpu_verdict), (Verdict::Better, Verdict::Better));
}

/// Sets the background CPU time of a server before the slice.
fn background(measured: &mut SliceMeasured, micros: u64) {
    measured.server.as_mut().unwrap().background_cpu = Some(Nanos::from_micros(micros));
}

#[test]
fn background_cpu_is_added_to_the_candidate_that_used_it() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // The candidate uses it in one burst: 3 µs per query over all ten blocks.
        let burst = if block == 3 { 30_000 } else { 0 };
        background(measured, if candidate == 1 { burst } else { 1_000 });
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    let (base, row) = (&microbenchmark.baseline, &microbenchmark.rows[0]);
    assert_eq!(base.cpu_us_per_query, Some(6.0));
    assert_eq!(base.background_cpu_us_per_query, Some(1.0));
    assert_eq!(row.absolute.cpu_us_per_query, Some(8.0));
    assert_eq!(row.absolute.background_share(), Some(Share::from_fraction(0.375)));
    // The figures of the slices do not change.
    assert_eq!(
        (base.user_us_per_query, base.server_busy),
        (Some(4.0), Some(Share::from_fraction(0.5)))
    );
    assert!((row.relative_cpu.unwrap().median.get() - 8.0 / 6.0).abs() < 1e-9);
    let of_slices = row.relative_cpu_of_slices.unwrap();
    assert!((of_slices.median.get() - 1.0).abs() < 1e-9 && of_slices.contains_one());
    assert_eq!((row.verdict, row.cpu_verdict), (Verdict::WithinNoise, Verdict::Worse));
}

/// Times of statements: the candidate has twice the update's, and one statement that the baseline has not.
fn with_statements(candidate: u32, block: u32, measured: &mut SliceMeasured) {
    // The machine's speed changes from block to block.
    let speed = 10 + u64::from(block) % 3;
    let mut add = |text: &str, executions, micros| {
        let total = Nanos::from_micros(executions * micros * speed);
        measured.statement_times.push(StatementTimes { text: text.to_owned(), executions, total });
    };
    add("SELECT", 200, 5);
    add("UPDATE", 50, if candidate == 1 { 6 } else { 3 });
    if candidate == 1 {
        add("SET", 10, 1);
    }
    if block == 0 {
        add("ANALYZE", 1, 7);
    }
    measured.statements = if candidate == 1 { 2_600 } else { 2_500 };
    measured.events = 100;
}

#[test]
fn statements_are_paired_by_block_and_sorted_by_their_part_of_the_difference() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, with_statements);
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    let order: Vec<&str> = row.statements.iter().map(|one| one.statement.as_str()).collect();
    assert_eq!(order, ["UPDATE", "SET", "SELECT", "ANALYZE"]);
    let [update, set, select, analyze] = &row.statements[..] else { panic!("{order:?}") };
    let estimate = update.relative.unwrap();
    assert!((estimate.median.get() - 2.0).abs() < 1e-9);
    assert_eq!((estimate.blocks, update.verdict), (10, Verdict::Worse));
    let per_event = update.executions_per_event.unwrap();
    assert!((per_event - 2_500.0 / 100.0 * 500.0 / 2_501.0).abs() < 1e-9, "{per_event}");
    let mean = update.baseline_us.unwrap();
    assert!((mean - 3.0 * 10.9).abs() < 1e-9, "{mean}");
    let difference = update.difference_us_per_event.unwrap();
    assert!((difference - per_event * mean).abs() < 1e-6, "{difference}");
    assert_eq!((select.verdict, set.verdict), (Verdict::WithinNoise, Verdict::Unknown));
    assert_eq!(
        (set.baseline_us, set.relative.is_none()),
        (None, true),
        "only the candidate has it"
    );
    assert_eq!(analyze.relative, None, "one block");

    // Of few events, the incomplete first and last ones are a large part.
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        with_statements(candidate, block, measured);
        measured
            .statement_times
            .iter_mut()
            .for_each(|one| one.executions = one.executions.div_ceil(10));
    });
    let few = &lab.report().microbenchmarks[0].rows[0].statements;
    assert!(few.len() == 4 && few.iter().all(|one| one.executions_per_event.is_none()));
}

#[test]
fn statement_whose_interval_is_wider_than_its_difference_is_too_noisy() {
    const MICROS: [u64; 10] = [4, 20, 4, 30, 5, 30, 6, 40, 6, 7];
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let micros = if candidate == 1 { MICROS[block as usize] } else { 3 };
        measured.statement_times.push(StatementTimes {
            text: "UPDATE".to_owned(),
            executions: 50,
            total: Nanos::from_micros(50 * micros),
        });
    });
    let report = lab.report();
    let one = &report.microbenchmarks[0].rows[0].statements[0];
    assert!(!one.relative.unwrap().contains_one(), "{one:?}");
    assert_eq!(one.verdict, Verdict::TooNoisy);
}

#[test]
fn engine_counters_are_those_that_certainly_differ() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let of_candidate = i64::from(candidate == 1);
        let varies = i64::from(block * 7 % 5);
        let mut growth = BTreeMap::from([
            ("page_requests", 3_000 + 600 * of_candidate + varies),
            ("bytes_sent", 900_000 + 90_000 * of_candidate + varies),
            ("lsn_current", 9_000 + 9_000 * of_candidate),
            ("commits", 1_000),
            ("flushes", 100 * varies),
            ("level", if block == 4 { -1 } else { 1_000 + 1_000 * of_candidate }),
            ("noisy_in_the_control", 500 + 100 * i64::from(candidate)),
            ("innodb_pages", 2_000 * (1 - of_candidate)),
        ]);
        if candidate == 1 {
            growth.insert("sorts", 1_000);
            growth.insert("rare", 0);
        }
        growth.retain(|_, growth| *growth != 0);
        let growth = growth.into_iter().map(|(name, growth)| (name.to_owned(), growth)).collect();
        measured.engine_counts = Some(EngineCounts { statements: 1_000, growth });
    });
    let report = lab.report();
    let found: Vec<(&str, f64, f64)> = report.microbenchmarks[0].rows[0]
        .engine_counters
        .iter()
        .map(|one| (one.counter.as_str(), one.baseline_per_query, one.per_query))
        .collect();
    let expected = [
        ("innodb_pages", 2.0, 0.0),
        ("sorts", 0.0, 1.0),
        ("page_requests", 3.002, 3.602),
        ("bytes_sent", 900.002, 990.002),
    ];
    assert_eq!(found, expected);
}

#[test]
fn counters_that_only_one_engine_has_come_last() {
    let mut candidates = servers();
    candidates[1].engine = Some("rocksdb".to_owned());
    let mut lab = Lab::new(&candidates, &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        let varies = i64::from(block * 7 % 5);
        let growth: &[(&str, i64)] = match candidate {
            1 => &[
                ("sorts", 1_000),
                ("rocksdb_memtable_hit", 780 + varies),
                ("rocksdb_flushes", 100 * varies),
                ("rocksdb_rare", 1),
                ("innodb_pages", i64::from(block == 4)),
            ],
            _ => &[("sorts", 500), ("innodb_pages", 3_000)],
        };
        let growth = growth.iter().filter(|(_, growth)| *growth != 0);
        let growth = growth.map(|(name, growth)| ((*name).to_owned(), *growth)).collect();
        measured.engine_counts = Some(EngineCounts { statements: 1_000, growth });
    });
    let report = lab.report();
    let found = &report.microbenchmarks[0].rows[0].engine_counters;
    let found: Vec<(&str, bool)> =
        found.iter().map(|one| (one.counter.as_str(), one.only_one_has_it)).collect();
    assert_eq!(found, [("sorts", false), ("innodb_pages", true), ("rocksdb_memtable_hit", true)]);
}

#[test]
fn plans_of_the_same_system_that_differ_are_shown() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    let mut set = |candidate, restart, lines: [&str; 2]| {
        let plan = |(number, line): (u32, &str)| StatementPlan {
            number,
            sql: format!("SELECT {number} WHERE id = ?"),
            lines: line.split('/').filter(|line| !line.is_empty()).map(str::to_owned).collect(),
        };
        let plans: Vec<StatementPlan> = (1..).zip(lines).map(plan).collect();
        lab.writer.set_plans((0, candidate, restart), &plans).unwrap();
    };
    set(0, 0, ["t: range by k_1", ""]);
    set(1, 0, ["t: ALL/u: ALL", "t: ALL"]);
    set(2, 0, ["t: ALL", "t: ALL"]);
    let row = |report: &Report| report.microbenchmarks[0].rows[0].plans.clone();
    let found = row(&lab.report());
    assert_eq!(
        found.len(),
        1,
        "one has no plan of the baseline, and the control is none: {found:?}"
    );
    assert_eq!((found[0].plan.len(), found[0].changes), (2, false));
    let mut set = |restart, line: &str| {
        let plan =
            StatementPlan { number: 1, sql: "SELECT".to_owned(), lines: vec![line.to_owned()] };
        lab.writer.set_plans((0, 0, restart), &[plan]).unwrap();
    };
    set(0, "t: const");
    set(1, "t: ALL");
    assert!(row(&lab.report())[0].changes);
    let report = lab.report();
    let options = TerminalOptions { width: 80, color: false, three_groups: false, details: true };
    let text = crate::terminal::render(&report, &options);
    assert!(text.contains("t: ALL / u: ALL; it differs between starts"), "{text}");
}

#[test]
fn background_cpu_known_of_one_server_only_is_not_compared() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, _, measured| {
        if candidate == 0 {
            background(measured, 1_000);
        }
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    assert_eq!(microbenchmark.baseline.cpu_us_per_query, Some(6.0));
    assert!((microbenchmark.rows[0].relative_cpu.unwrap().median.get() - 1.0).abs() < 1e-9);
}

#[test]
fn embedded_database_has_the_workers_cpu_time_and_no_client() {
    let mut lab = Lab::new(&embedded(), &[1], (1, 1));
    lab.blocks(0, |_, _, measured| measured.server = None);
    let report = lab.report();
    assert_eq!(report.candidates[0].system_title(), "SQLite 3.50.0");
    let base = &report.microbenchmarks[0].baseline;
    assert_eq!((base.cpu_us_per_query, base.client_cpu_us_per_query), (Some(2.0), None));
    assert_eq!((base.cs_per_query, base.user_us_per_query), (Some(0.077), None));
    assert_eq!(base.client_busy, None);
    assert_eq!(report.microbenchmarks[0].rows[0].relative_cs, None);
}

#[test]
fn compiled_server_has_a_client() {
    let build = embedded()[0].build.clone();
    let compiled = |one| CandidateRecord { build: build.clone(), origin: None, ..one };
    let candidates: Vec<_> = servers().into_iter().map(compiled).collect();
    let mut lab = Lab::new(&candidates, &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        // Unreadable server CPU time is not replaced by the client's.
        if block == 0 {
            measured.server = None;
        }
    });
    let report = lab.report();
    let base = &report.microbenchmarks[0].baseline;
    assert_eq!(base.client_cpu_us_per_query, Some(2.0));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.2)));
    assert_eq!(base.cpu_us_per_query, Some(5.0));
}

#[test]
fn existing_server_has_client_cpu_time_only() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |_, _, measured| measured.server = None);
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    assert_eq!(microbenchmark.baseline.cpu_us_per_query, None);
    assert_eq!(microbenchmark.baseline.cs_per_query, None);
    assert_eq!(microbenchmark.baseline.client_cpu_us_per_query, Some(2.0));
    assert_eq!(microbenchmark.rows[0].relative_cpu, None);
    assert_eq!(microbenchmark.rows[0].cpu_verdict, Verdict::Unknown);
}

#[test]
fn elapsed_time_that_is_not_stored_yet_is_unknown() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    assert_eq!(lab.report().times(), None);
    lab.blocks(0, |_, _, _| {});
    let report = lab.report();
    let measured = Nanos::from_millis(300);
    assert_eq!(report.times(), Some((measured, None)));
    let elapsed = Nanos::from_secs(1);
    assert_eq!(Report { elapsed, ..report }.times(), Some((measured, Some(elapsed))));
}

#[test]
fn failed_control_gives_no_noise_floor() {
    let mut lab = Lab::new(&servers(), &[1, 2], (1, 1));
    let off_by = |share: f64| {
        move |candidate: u32, _: u32, measured: &mut SliceMeasured| {
            if candidate == 2 {
                measured.throughput = Some(Qps::from_per_second(100_000.0 * (1.0 + share)));
            }
        }
    };
    lab.blocks(0, off_by(0.5));
    lab.blocks(1, off_by(0.01));
    assert!((lab.report().noise.unwrap().greatest.as_percent() - 50.0).abs() < 1e-9);
    lab.fail(FailureKind::Wrong, 2);
    let noise = lab.report().noise.unwrap();
    assert!((noise.greatest.as_percent() - 1.0).abs() < 1e-9);
    assert_eq!(
        (noise.count, noise.greatest_at.as_str()),
        (1, "point-query_range=100 at 2 clients")
    );
}

#[test]
fn microbenchmark_without_slices_is_unmeasured() {
    let mut lab = Lab::new(&servers(), &[1, 8], (1, 1));
    lab.blocks(0, faster);
    let report = lab.report();
    assert_eq!(report.clients(), [1]);
    let [one] = &report.unmeasured[..] else { panic!("{:?}", report.unmeasured) };
    assert_eq!((one.name.as_str(), one.clients), ("point-query_range=100", 8));
    assert_eq!((one.group.as_str(), one.rows.len()), ("point-1", 0));
}

#[test]
fn failure_of_the_baseline_is_its_own() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    lab.fail(FailureKind::Wrong, 1);
    lab.fail(FailureKind::Wrong, 2);
    assert!(!lab.report().microbenchmarks[0].baseline_failed);
    lab.fail(FailureKind::Wrong, 0);
    assert!(lab.report().microbenchmarks[0].baseline_failed);
}

#[test]
fn cpu_verdict_uses_the_control_of_its_row() {
    let mut lab = Lab::new(&servers(), &[1, 2, 4], (1, 1));
    // The candidate's server uses 3% more CPU everywhere; on the first microbenchmark so does the
    // control's.
    for microbenchmark in 0..3 {
        lab.blocks(microbenchmark, |candidate, _, measured| {
            if candidate == 1 || (candidate == 2 && microbenchmark == 0) {
                measured.server.as_mut().unwrap().cpu = Nanos::from_micros(5_150);
            }
        });
    }
    let verdicts: Vec<Verdict> =
        lab.report().microbenchmarks.iter().map(|m| m.rows[0].cpu_verdict).collect();
    assert_eq!(verdicts, [Verdict::WithinNoise, Verdict::Worse, Verdict::Worse]);
}

#[test]
fn losses_are_counted_and_are_no_failures() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, faster);
    lab.fail(FailureKind::Lost, 1);
    lab.fail(FailureKind::Lost, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Better);
    assert!(report.failures.is_empty());
    assert_eq!(report.lost.len(), 1);
    assert_eq!((report.lost[0].candidate.as_str(), report.lost[0].count), ("other", 2));
    assert_eq!(report.lost[0].data_differs_from, None);
    lab.fail(FailureKind::Differs, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Better);
    assert!(report.failures.is_empty());
    assert_eq!(report.lost[0].data_differs_from.as_deref(), Some("point-query_range=100"));
    lab.fail(FailureKind::Ended, 1);
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::Failed);
    assert_eq!(report.failures.len(), 1);
}

#[test]
fn script_has_its_options_events_per_second_and_what_of_its_answers_was_compared() {
    let record = |name: &str, answers: Option<&str>| MicrobenchmarkRecord {
        name: name.to_owned(),
        clients: 1,
        group: "own".to_owned(),
        three_group: "own".to_owned(),
        script: Some("a.lua, tables = 2".to_owned()),
        answers: answers.map(str::to_owned),
        ..MicrobenchmarkRecord::default()
    };
    let limit = "only numbers of rows are compared: its SQL has RAND()";
    let records =
        vec![record("one", None), record("two", Some(limit)), record("three", Some(limit))];
    let mut lab = Lab::with(&servers(), records, (1, 1), serde_json::json!({}));
    let events = |_: u32, _: u32, measured: &mut SliceMeasured| measured.events = 50;
    (0..3).for_each(|microbenchmark| lab.blocks(microbenchmark, events));
    lab.fail(FailureKind::Undetermined, 2);
    let report = lab.report();
    let baseline = &report.microbenchmarks[0].baseline;
    assert_eq!(baseline.tps, Some(Qps::from_per_second(5_000.0)));
    assert_eq!(report.microbenchmarks[0].rows[0].verdict, Verdict::WithinNoise);
    let texts: Vec<&str> = report.warnings.iter().map(|one| one.what.as_str()).collect();
    assert_eq!(
        texts,
        ["answers of one: signal 9".to_owned(), format!("answers of two, three: {limit}")]
    );
    const OPTIONS: TerminalOptions =
        TerminalOptions { width: 100, color: false, three_groups: false, details: false };
    let terminal = crate::terminal::render(&report, &OPTIONS);
    let markdown = crate::markdown::render(&report);
    let rates = "on average base 5,000 TPS (100,000 QPS), other 5,000 TPS (100,000 QPS)";
    for text in [terminal.split_whitespace().collect::<Vec<_>>().join(" "), markdown] {
        assert!(text.contains(&format!("one: a.lua, tables = 2; {rates}")), "{text}");
    }
    let answer = crate::terminal::answer(&report, &OPTIONS).unwrap();
    let answer: Vec<&str> = answer.split_whitespace().collect();
    assert!(answer.join(" ").contains(&format!("TPS one: {rates}")), "{answer:?}");
    let page = crate::html::render(&report);
    assert!(page.contains(&format!("one: {rates}")), "{page}");
    assert!(
        crate::export::relative_csv(&report).contains(",5000.000,5000.000,\"a.lua, tables = 2\"")
    );
}

#[test]
fn difference_between_equal_instances_started_once_is_a_warning() {
    let differing = |candidates: &[CandidateRecord], control: f64, restarts: u32| {
        let experiment = serde_json::json!({ "schedule": { "restarts": restarts } });
        let mut lab = Lab::of(candidates, &[1, 2, 4, 8], (1, 1), experiment);
        for microbenchmark in 0..4 {
            lab.blocks(microbenchmark, |candidate, block, measured| {
                let off = if candidate == 2 { control } else { f64::from(block % 2) / 1_000.0 };
                measured.throughput = Some(Qps::from_per_second(100_000.0 * (1.0 + off)));
            });
        }
        lab.report().warnings
    };
    let [warning] = &differing(&embedded(), 0.05, 1)[..] else { panic!() };
    assert!(warning.what.contains("beyond their intervals in 4 of 4"), "{warning:?}");
    assert!(warning.advice.contains("restarts = 4"), "{warning:?}");
    assert!(differing(&embedded(), 0.0005, 1).is_empty());
    assert!(differing(&embedded(), 0.05, 4).is_empty(), "other starts will follow");
    let [existing] = &differing(&servers(), 0.05, 1)[..] else { panic!() };
    assert!(existing.advice.contains("which is not restarted"), "{existing:?}");
}

#[test]
fn ratio_that_changes_within_starts_of_reads_is_a_warning() {
    let warnings = |clients: &[u32], writes: bool, early: u64| {
        let record = |clients: &u32| MicrobenchmarkRecord {
            name: "point-query_range=100".to_owned(),
            clients: *clients,
            writes,
            ..MicrobenchmarkRecord::default()
        };
        let records = clients.iter().map(record).collect();
        let mut lab = Lab::with(&servers(), records, (1, 1), serde_json::json!({}));
        for (start, block) in (0..4).flat_map(|start| (0..12).map(move |block| (start, block))) {
            for microbenchmark in 0..clients.len() as u32 {
                lab.block(microbenchmark, start, 12 * start + block, |candidate, _, measured| {
                    if candidate > 0 && block < 4 {
                        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(early);
                        measured.throughput = Some(Qps::from_per_second(97_000.0));
                    }
                });
            }
        }
        lab.report().warnings
    };
    let [warning] = &warnings(&[1], false, 5_125)[..] else { panic!() };
    assert_eq!(
        warning.what,
        "other on point-query_range=100: CPU per query changes from 1.025 to 1.000 of the baseline's \
         within starts: one of them is not warm when counting begins"
    );
    let [both] = &warnings(&[1, 8], false, 5_125)[..] else { panic!() };
    let largest = "other on point-query_range=100, 8 clients and 1 more: QPS changes from 0.970 to";
    assert!(both.what.starts_with(largest), "{both:?}");
    assert!(warnings(&[1], true, 5_125).is_empty(), "writes change the data");
    assert!(warnings(&[1], false, 5_000).is_empty(), "throughput is not the metric to trust");
}

#[test]
fn zero_context_switches_have_no_ratio() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        if candidate == 1 && block == 3 {
            measured.server.as_mut().unwrap().context_switches = Some(0);
        }
    });
    let report = lab.report();
    assert_eq!(report.microbenchmarks[0].rows[0].relative_cs, None);
    assert!(report.microbenchmarks[0].rows[1].relative_cs.is_some());
}

#[test]
fn state_snapshots_are_grouped_by_time() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    for (at, pages) in [("at the start", 1), ("after the writes", 2), ("after the writes", 3)] {
        for candidate in 0..2 {
            let mut state = vec![("pages".to_owned(), pages)];
            if candidate == 1 {
                state.push(("levels".to_owned(), 6));
            }
            let state_snapshot = StateSnapshot { rows: 10, data_size: Bytes::from_kib(4), state };
            let at = at.to_owned();
            lab.writer
                .add_state_snapshot(&StateSnapshotRecord { candidate, at, state_snapshot })
                .unwrap();
        }
    }
    let state_snapshots = lab.report().state_snapshots;
    let times: Vec<&str> = state_snapshots.iter().map(|one| one.at.as_str()).collect();
    assert_eq!(times, ["at the start", "after the writes", "after the writes (2)"]);
    assert_eq!(state_snapshots[2].candidates, ["base", "other"]);
    let state = &state_snapshots[2].state;
    let row = |name: &str| state.iter().find(|(n, _)| n == name).unwrap().1.clone();
    assert_eq!(row("rows"), [Some(10), Some(10)]);
    assert_eq!(row("data_size"), [Some(4_096), Some(4_096)]);
    assert_eq!(row("pages"), [Some(3), Some(3)]);
    assert_eq!(row("levels"), [None, Some(6)]);
}

#[test]
fn optimizations_show_names_instead_of_numbers() {
    let mut lab = Lab::new(&servers(), &[1, 4], (1, 1));
    let optimization = OptimizationRecord {
        candidate: 1,
        trained_with: 1,
        measured_next: 0,
        after_restart: false,
        refused: None,
        layout: NewLayout {
            source: "clock".to_owned(),
            samples: 9_000,
            covered: None,
            functions: 412,
            skipped: Vec::new(),
            files: Vec::new(),
            hot: Bytes::from_kib(300),
            cold: Bytes::from_kib(700),
            added: Bytes::from_mib(2),
            processes: 1,
            unchanged: None,
            counts: None,
            longest_pause: Nanos::from_millis(3),
            threads: 12,
            took: Nanos::from_secs(2),
        },
    };
    lab.writer.add_optimization(&optimization).unwrap();
    let report = lab.report();
    let found = &report.optimizations[0];
    assert_eq!(found.candidate, "other");
    assert_eq!(found.trained_with, "point-query_range=100, 4 clients");
    assert_eq!(found.measured_next, "point-query_range=100, 1 client");
    let json = crate::export::run_json(&report).unwrap();
    assert!(json.contains("\"functions\": 412"), "{json}");
}

#[test]
fn busy_client_gives_no_verdict_and_no_summary() {
    let busy = |candidate, block, measured: &mut SliceMeasured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_micros(9_100);
    };
    let mut lab = Lab::new(&servers(), &[1], (4, 1));
    lab.blocks(0, busy);
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    assert_eq!(row.verdict, Verdict::ClientBound);
    assert!(row.relative_qps.is_some(), "the ratio is still shown");
    assert_eq!(row.cpu_verdict, Verdict::Better);
    assert!(report.groups.is_empty() && report.noise.is_none());
    assert!(report.cpu_noise.is_some());

    // Several clients can use all CPUs: a quarter of four CPUs is not busy.
    let mut lab = Lab::new(&servers(), &[4], (4, 1));
    lab.blocks(0, busy);
    assert_eq!(lab.report().microbenchmarks[0].rows[0].verdict, Verdict::Better);
}

#[test]
fn polling_does_not_make_a_client_busy() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_millis(10);
        measured.polling = Some(Nanos::from_millis(7));
    });
    let microbenchmark = &lab.report().microbenchmarks[0];
    assert_eq!(microbenchmark.rows[0].verdict, Verdict::Better);
    let base = &microbenchmark.baseline;
    assert_eq!(base.client_cpu_us_per_query, Some(3.0));
    assert_eq!(base.client_polling_us_per_query, Some(7.0));
    assert_eq!(base.client_busy, Some(Share::from_fraction(0.3)));
}

#[test]
fn saturated_server_is_not_client_bound() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        faster(candidate, block, measured);
        measured.cpu = Nanos::from_micros(9_500);
        measured.server.as_mut().unwrap().cpu = Nanos::from_micros(9_400);
    });
    assert_eq!(lab.report().microbenchmarks[0].rows[0].verdict, Verdict::Better);
}

#[test]
fn busy_client_of_one_candidate_affects_only_its_row() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, _, measured| {
        if candidate == 1 {
            measured.cpu = Nanos::from_millis(9);
        }
    });
    let mut report = lab.report();
    let verdicts: Vec<Verdict> =
        report.microbenchmarks[0].rows.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts, [Verdict::ClientBound, Verdict::WithinNoise]);
    let note = |report: &Report| client_bound_note(report).unwrap();
    assert!(note(&report).contains(", while the server still had idle CPU time."));
    report.microbenchmarks[0].rows[0].absolute.server_busy = None;
    assert!(note(&report).contains("is not known everywhere."));
    let summary: Vec<&str> = report.groups.iter().map(|s| s.candidate.as_str()).collect();
    assert_eq!(summary, ["control"]);
}

/// A counter that was active for this many thousandths of 5 ms.
fn count(counter: Counter, count: u64, thousandths: u64) -> Count {
    let enabled = Nanos::from_millis(5);
    Count { counter, count, enabled, running: Nanos::from_micros(5 * thousandths) }
}

#[test]
fn counters_are_compared_by_block() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // All slices drift in the same way; the candidate uses 20% fewer instructions and 10% fewer
        // cycles.
        let drift = 100 + u64::from(block);
        let (instructions, cycles) = if candidate == 1 { (80, 90) } else { (100, 100) };
        measured.counts = Counts::new(vec![
            count(Counter::Instructions, 1_000 * drift * instructions, 1_000),
            count(Counter::Cycles, 2_000 * drift * cycles, 1_000),
            // Active half of the time: doubled.
            count(Counter::L1iMisses, drift * instructions, 500),
            count(Counter::MinorFaults, u64::from(candidate + block), 1_000),
        ]);
        measured.energy = Some(Energy::from_microjoules(1_000 * cycles));
    });
    let report = lab.report();
    let microbenchmark = &report.microbenchmarks[0];
    let (base, row) = (&microbenchmark.baseline, &microbenchmark.rows[0]);
    let figure = |figure| base.counters.get(&figure).copied();
    assert_eq!(figure(CounterFigure::InstructionsPerCycle), Some(0.5));
    assert_eq!(figure(CounterFigure::InstructionsPerQuery), Some(10_450.0));
    assert_eq!(figure(CounterFigure::L1iMissesPer1000Instructions), Some(2.0));
    assert_eq!(figure(CounterFigure::MicrojoulesPerQuery), Some(100.0));
    assert_eq!(figure(CounterFigure::BranchesPerQuery), None);
    assert_eq!(base.counted_time, Some(Share::from_fraction(0.5)));
    let near = |figure, expected: f64| {
        let estimate = row.relative_counters.get(&figure).unwrap();
        assert!((estimate.median.get() - expected).abs() < 1e-9, "{figure:?} {estimate:?}");
        assert!(estimate.low <= estimate.median && estimate.median <= estimate.high);
    };
    near(CounterFigure::InstructionsPerQuery, 0.8);
    near(CounterFigure::CyclesPerQuery, 0.9);
    near(CounterFigure::InstructionsPerCycle, 0.8 / 0.9);
    near(CounterFigure::L1iMissesPer1000Instructions, 1.0);
    near(CounterFigure::EventsPerMillionCycles, 1.0 / 0.9);
    near(CounterFigure::MicrojoulesPerQuery, 0.9);
    // The baseline's first slice has no faults, so this block has no ratio.
    assert_eq!(figure(CounterFigure::MinorFaultsPerQuery), Some(0.0045));
    assert!(!row.relative_counters.contains_key(&CounterFigure::MinorFaultsPerQuery));
    let control = &microbenchmark.rows[1].relative_counters;
    assert!((control[&CounterFigure::CyclesPerQuery].median.get() - 1.0).abs() < 1e-9);
    let of_groups = &report.counter_groups;
    assert_eq!(of_groups.len(), 2 * 3, "{of_groups:?}");
    assert_eq!(of_groups[0].figure, CounterFigure::InstructionsPerQuery);
    assert!((of_groups[0].median.get() - 0.8).abs() < 1e-9);
}

#[test]
fn slices_with_unknown_counts_are_ignored() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |candidate, block, measured| {
        // Not scheduled in one block, and not counted at all in another.
        let running = if (candidate, block) == (1, 3) { 0 } else { 1_000 };
        if (candidate, block) != (1, 5) {
            measured.counts = Counts::new(vec![count(Counter::Cycles, 5_000, running)]);
        }
    });
    let report = lab.report();
    let row = &report.microbenchmarks[0].rows[0];
    assert_eq!(row.absolute.counters[&CounterFigure::CyclesPerQuery], 5.0);
    assert_eq!(row.relative_counters[&CounterFigure::CyclesPerQuery].median.get(), 1.0);
    assert_eq!(row.absolute.counted_time, Some(Share::from_fraction(8.0 / 9.0)));
}

#[test]
fn unavailable_counters_are_listed_once_with_their_candidates() {
    let mut lab = Lab::new(&servers(), &[1], (1, 1));
    lab.blocks(0, |_, _, _| ());
    let missing = |counter, reason: &str| Missing {
        counter,
        reason: reason.to_owned(),
        advice: Some("look elsewhere".to_owned()),
    };
    let hardware = || Counter::ALL.into_iter().filter(|counter| counter.is_hardware());
    let here = Counting {
        missing: hardware().map(|counter| missing(counter, "no PMU")).collect(),
        no_energy: Some("no RAPL".to_owned()),
        ..Counting::default()
    };
    let elsewhere = Counting {
        missing: Counter::ALL.map(|counter| missing(counter, "elsewhere")).into(),
        no_energy: Some("no RAPL".to_owned()),
        ..Counting::default()
    };
    let mut session = lab.writer.reader().unwrap().sessions().unwrap().pop().unwrap();
    assert!(lab.report().not_counted.is_empty(), "nobody tried");
    session.counting = vec![Some(here.clone()), Some(elsewhere), Some(here)];
    lab.writer.update_session(&session).unwrap();
    let lines: Vec<String> = lab.report().not_counted.iter().map(NotCounted::line).collect();
    assert_eq!(
        lines,
        [
            "hardware counters of base, control: not available here: no PMU",
            "energy: not available here: no RAPL",
            "hardware counters of other: not available here: elsewhere",
            "counters of the kernel of other: not available here: elsewhere",
        ]
    );
}

#[test]
fn each_number_of_clients_has_its_own_rows_and_summaries() {
    let mut lab = Lab::new(&servers(), &[1, 8], (1, 1));
    lab.blocks(0, |_, _, _| {});
    lab.blocks(1, faster);
    let report = lab.report();
    assert!(report.is_sweep());
    assert_eq!(report.clients(), [1, 8]);
    let of_other: Vec<(u32, f64)> = report
        .groups
        .iter()
        .filter(|summary| summary.candidate == "other")
        .map(|summary| (summary.clients, summary.median.get()))
        .collect();
    assert_eq!(of_other[0], (1, 1.0));
    assert!(of_other[1].0 == 8 && (of_other[1].1 - 1.2).abs() < 1e-9);
}

#[test]
fn numbers_of_clients_are_interleaved_only_if_they_take_turns() {
    let (restarts, blocks, numbers) = (0..6, 0..4, 0..4);
    let interleaved = |in_turns: bool| {
        let mut lab = Lab::new(&servers(), &[1, 2, 4, 8], (1, 1));
        for restart in restarts.clone() {
            let mut visits: Vec<(u32, u32)> = numbers
                .clone()
                .flat_map(|number| blocks.clone().map(move |b| (number, b)))
                .collect();
            if in_turns {
                // In each round the order is another.
                visits.sort_by_key(|(number, block)| (*block, number ^ block));
            }
            for (number, block) in visits {
                lab.block(number, restart, 4 * restart + block, |_, _, _| {});
            }
        }
        let rows = lab.report().scaling;
        let ratios = rows.into_iter().flat_map(|row| [row.to_previous, row.to_smallest]).flatten();
        ratios.map(|ratio| ratio.interleaved).collect::<Vec<bool>>()
    };
    assert_eq!(interleaved(true), [true; 18]);
    assert_eq!(interleaved(false), [false; 18]);
}

/// A profile with stacks that profiles rarely have: of the kernel, without a name, without a stack, recursive.
fn sampled(candidate: u32, restart: u32) -> ProfileRecord {
    let function = |module: &str, name: Option<&str>, start: u64| Function {
        module: module.to_owned(),
        name: name.map(str::to_owned),
        source: None,
        start,
    };
    let functions = vec![
        function("mariadbd", Some("dispatch_command"), 16),
        function("mariadbd", Some("row_search_mvcc"), 32),
        function("mariadbd", None, 48 + 16 * u64::from(candidate)),
        function("[k]", Some("__x64_sys_futex"), 0),
    ];
    let (of_start, of_candidate) = (u64::from(restart), u64::from(candidate));
    let stack = |frames: &[u32], samples| Stack { frames: frames.to_vec(), samples };
    let stacks = vec![
        stack(&[0], 300 + 7 * of_start),
        stack(&[1, 1, 0], 500 - 11 * of_start),
        stack(&[2, 1, 0], 200 * of_candidate),
        stack(&[3, 2, 1, 0], 90),
        stack(&[], 3),
    ];
    let samples = stacks.iter().map(|stack| stack.samples).sum();
    let module = "mariadbd".to_owned();
    let modules = vec![ModuleBuild { module, build: format!("build {candidate}") }];
    let profile = Profile { functions, modules, stacks, samples, cut: 2, ..Profile::default() };
    let cpu = Nanos::from_millis(600);
    ProfileRecord { candidate, restart, statements: 100_000, cpu, profile }
}

#[test]
fn rules_for_layers_are_compiled_once_for_each_sampled_system() {
    let mut candidates = servers();
    candidates[1].system = "mysql".to_owned();
    candidates[2].system = "postgresql".to_owned();
    let records: Vec<ProfileRecord> = (0..6).map(|one| sampled(one % 2, one / 2)).collect();
    let systems = |records: &[ProfileRecord]| -> Vec<String> {
        profile::layers_of(records.iter(), &candidates, None).into_keys().collect()
    };
    assert_eq!(systems(&records), ["mariadb", "mysql"]);
    assert!(systems(&[]).is_empty(), "no profile");
}

#[test]
fn rows_of_a_profile_add_up_to_the_measured_difference() {
    let profiling = serde_json::json!({
        "schedule": { "restarts": 3 }, "profile": { "time": 4_000_000_000_u64 }
    });
    let mut lab = Lab::of(&servers(), &[1], (1, 1), profiling);
    for restart in 0..3 {
        for block in 0..6 {
            lab.block(0, restart, 10 * restart + block, |candidate, block, measured| {
                let server = measured.server.as_mut().unwrap();
                let of_candidate = 1_300 * u64::from(candidate % 2);
                let micros = 5_000 + of_candidate + u64::from(40 * block + 200 * restart);
                server.cpu = Nanos::from_micros(micros);
                server.background_cpu = Some(Nanos::from_micros(900));
            });
        }
        // One start of the candidate has none.
        for candidate in (0..3).filter(|candidate| (*candidate, restart) != (1, 2)) {
            lab.writer.set_profile(0, &sampled(candidate, restart)).unwrap();
        }
    }
    let report = lab.report();
    let member = &report.microbenchmarks[0];
    let row = &member.rows[0];
    let profile = row.profile.as_ref().unwrap();
    let of_slices =
        |one: &Absolute| one.cpu_us_per_query.unwrap() - one.background_cpu_us_per_query.unwrap();
    let measured = of_slices(&row.absolute) - of_slices(&member.baseline);
    assert!(measured > 1.0, "{measured}");
    for rows in [&profile.layers, &profile.functions] {
        let sum: f64 = rows.iter().map(model::ProfileRow::difference).sum();
        assert!((sum / measured - 1.0).abs() < 0.02, "{sum} instead of {measured}: {rows:?}");
    }
    let [own, base] = profile.stacks.each_ref().map(|stacks| stacks.total_us());
    assert!(((own - base) / measured - 1.0).abs() < 0.02, "{own} {base} {measured}");
    assert_eq!(profile.system_calls[0].name, "kernel: futex");
    let below = profile.functions.iter().find(|one| one.name == "unnamed below row_search_mvcc");
    assert!(below.is_some_and(|one| one.baseline_us == 0.0), "{:?}", profile.functions);
    assert_eq!(profile.unnamed.map(|share| share.as_percent().round()), [18.0, 0.0]);
    assert_eq!(profile.asked_cpu, Some(Nanos::from_secs(4)));
    assert_eq!(profile.sampled_cpu, [2, 3].map(|starts| Nanos::from_millis(600 * starts)));
}
