//! Run directories: creation, resume, locking, concurrent readers, errors.

use std::fs;
use std::path::Path;

use dbdyno_results::{
    AuditRecord, BuildRecord, CandidateRecord, CommandLineDifference, CommandLinesRecord,
    ExtensionRecord, FailureKind, FailureRecord, InForceRecord, MicrobenchmarkRecord, NamedCount,
    NewLayout, NewRun, OptimizationRecord, OriginRecord, ResultsError, Role, RunReader, RunWriter,
    SessionRecord, SliceRecord, StateSnapshotRecord, Warning, remove_checksums,
};
use dbdyno_types::{
    ClientWait, Count, Counted, Counter, Counting, Counts, EngineCounts, Latencies, Missing,
    ServerUsage, SliceMeasured, StateSnapshot, StatementTimes,
};
use dbdyno_units::{Bytes, Energy, Nanos, Qps, Share};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir};

pub(crate) fn new_run() -> NewRun {
    let microbenchmark = |name: &str, clients| MicrobenchmarkRecord {
        name: name.to_owned(),
        clients,
        group: "point-1".to_owned(),
        three_group: "point".to_owned(),
        writes: false,
        ..MicrobenchmarkRecord::default()
    };
    NewRun {
        name: "test".to_owned(),
        baseline: "base".to_owned(),
        experiment_text: "name = \"test\"\n".to_owned(),
        experiment: serde_json::json!({ "seed": 7 }),
        settings: vec![("rows".to_owned(), "1000".to_owned())],
        microbenchmarks: vec![microbenchmark("first", 1), microbenchmark("first", 64)],
        insert: None,
    }
}

fn candidate(name: &str, role: Role) -> CandidateRecord {
    CandidateRecord {
        name: name.to_owned(),
        role,
        system: "sqlite".to_owned(),
        version: "3.50.0".to_owned(),
        engine: None,
        build: Some(BuildRecord {
            variant: "o0".to_owned(),
            trained_on: None,
            bolted: false,
            compiler: "gcc".to_owned(),
            commands: vec!["gcc -c sqlite3.c".to_owned()],
            fingerprint: "abc".to_owned(),
            source_sha256: "12".to_owned(),
            library_sha256: "34".to_owned(),
            text_size: Bytes::from_kib(900),
            file_size: Bytes::from_mib(2),
            stripped_size: Some(Bytes::from_mib(1)),
            audit: Some(AuditRecord {
                objects: 2,
                from_objects: true,
                optimization: vec![NamedCount { name: "O0".to_owned(), count: 2 }],
                against_baseline: Some(CommandLinesRecord {
                    compared: 2,
                    kinds: vec![CommandLineDifference {
                        added: vec!["-O0".to_owned()],
                        removed: vec!["-O2".to_owned()],
                        files: 2,
                        examples: vec!["sqlite3.c".to_owned()],
                    }],
                    ..CommandLinesRecord::default()
                }),
                ..AuditRecord::default()
            }),
        }),
        origin: None,
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        in_force: InForceRecord::default(),
        configuration: vec![("page_size".to_owned(), "4 KiB".to_owned())],
        injected_delay: None,
    }
}

fn server() -> CandidateRecord {
    CandidateRecord {
        system: "mariadb".to_owned(),
        engine: Some("myrocks".to_owned()),
        build: None,
        origin: Some(OriginRecord::Server { address: "127.0.0.1:3306".to_owned() }),
        server_settings: Vec::new(),
        config_diff: vec!["checksums: crc32 here, none there".to_owned()],
        in_force: InForceRecord::default(),
        ..candidate("server", Role::Control)
    }
}

fn candidates() -> Vec<CandidateRecord> {
    vec![candidate("base", Role::Baseline), server()]
}

pub(crate) fn session() -> SessionRecord {
    SessionRecord {
        started: "2026-01-01T12:00:00Z".to_owned(),
        version: "0.1.0".to_owned(),
        host: vec![("CPU".to_owned(), "one".to_owned())],
        facts: serde_json::json!({}),
        warnings: vec![Warning { what: "load".to_owned(), advice: "wait".to_owned() }],
        client_cpus: Some(3),
        system_cpus: Some(5),
        client_wait: Some(ClientWait::Poll),
        counting: vec![None, Some(counting())],
        loses_data: true,
        elapsed: Nanos::ZERO,
    }
}

fn counting() -> Counting {
    Counting {
        counted: vec![Counted { counter: Counter::MinorFaults, user_only: true }],
        missing: vec![Missing {
            counter: Counter::Cycles,
            reason: "none".to_owned(),
            advice: Some("another machine".to_owned()),
        }],
        no_energy: Some("none".to_owned()),
    }
}

/// No counters for candidate 0; a multiplexed and a permanently active counter for candidate 1.
pub(crate) fn counts(candidate: u32) -> Counts {
    let count = |counter, count, running| Count {
        counter,
        count,
        enabled: Nanos::from_millis(4),
        running: Nanos::from_millis(running),
    };
    match candidate {
        0 => Counts::default(),
        _ => Counts::new(vec![
            count(Counter::CpuMigrations, 0, 4),
            count(Counter::Instructions, 1 << 62, 3),
        ]),
    }
}

/// A slice with a different value in each field, including maximum values.
pub(crate) fn slice(block: u32, candidate: u32) -> SliceRecord {
    SliceRecord {
        microbenchmark: 0,
        restart: 3,
        block,
        position: candidate,
        candidate,
        warmup: block == 0,
        measured: SliceMeasured {
            started: Nanos::from_nanos(1 << 62),
            wall: Nanos::from_millis(5),
            cpu: Nanos::from_millis(4),
            polling: (block == 1).then_some(Nanos::from_millis(3)),
            server: (candidate == 1).then_some(ServerUsage {
                cpu: Nanos::from_micros(1_234),
                background_cpu: (block == 1).then_some(Nanos::from_nanos(6_789)),
                user: Nanos::from_millis(1),
                system: Nanos::from_nanos(5),
                context_switches: (block == 0).then_some(0),
                page_faults: 13,
                read_from_storage: (block == 0).then_some(Bytes::from_kib(4)),
                written_to_storage: (block == 1).then_some(Bytes::from_mib(8)),
            }),
            throughput: (block != 1).then(|| Qps::from_per_second(1234.5)),
            events: 6,
            statements: 7,
            // Not stored.
            lead_in_statements: None,
            engine_counts: None,
            rows: 8,
            affected: 9,
            digest: u64::MAX - u64::from(block),
            errors: 1,
            wrong: 2,
            first_complaint: Some("returned 1 rows instead of 2".to_owned()),
            busy_retries: 10,
            context_switches: 11,
            page_faults: 12,
            counts: counts(candidate),
            energy: (candidate == 1).then_some(Energy::from_microjoules(42)),
            statement_times: Vec::new(),
            latencies: Latencies::new(vec![(1_000, 5), (1_000_000_000_000, 1)]),
        },
    }
}

/// A run with a session, candidates and the slices of two blocks.
pub(crate) fn started(dir: &Path) -> RunWriter {
    let mut writer = RunWriter::create(dir, &new_run()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_candidates(&candidates()).unwrap();
    for block in 0..2 {
        for candidate in 0..2 {
            writer.add_slice(&slice(block, candidate)).unwrap();
        }
    }
    writer
}

pub(crate) fn lab() -> TempDir {
    tempdir().unwrap()
}

#[test]
fn stored_records_are_read_back() {
    let dir = lab();
    let out = dir.path().join("deep/out");
    let mut writer = started(&out);
    let failure = FailureRecord {
        kind: FailureKind::Ended,
        recovered: false,
        candidate: 1,
        microbenchmark: Some(0),
        at: "first".to_owned(),
        reason: "killed".to_owned(),
    };
    let elsewhere = FailureRecord { microbenchmark: None, ..failure.clone() };
    writer.add_failure(&failure).unwrap();
    writer.add_failure(&elsewhere).unwrap();
    let lost = FailureRecord { kind: FailureKind::Lost, ..elsewhere.clone() };
    let wrong = FailureRecord { kind: FailureKind::Wrong, ..elsewhere.clone() };
    writer.add_failure(&lost).unwrap();
    writer.add_failure(&wrong).unwrap();
    let state_snapshot = StateSnapshotRecord {
        candidate: 0,
        at: "at the start".to_owned(),
        state_snapshot: StateSnapshot {
            rows: 1_000,
            data_size: Bytes::from_mib(1),
            state: vec![("pages".to_owned(), 256)],
        },
    };
    writer.add_state_snapshot(&state_snapshot).unwrap();
    writer.session_elapsed(Nanos::from_secs(5)).unwrap();
    writer.set_done(0).unwrap();
    drop(writer);

    let reader = RunReader::open(&out).unwrap();
    assert_eq!(reader.name().unwrap(), "test");
    assert_eq!(reader.baseline().unwrap(), "base");
    assert_eq!(reader.experiment_text().unwrap(), "name = \"test\"\n");
    assert_eq!(reader.experiment::<serde_json::Value>().unwrap()["seed"], 7);
    assert_eq!(reader.settings().unwrap(), new_run().settings);
    assert_eq!(reader.candidates().unwrap(), candidates());
    let expected = [slice(0, 0), slice(0, 1), slice(1, 0), slice(1, 1)];
    assert_eq!(reader.slices(0).unwrap(), expected);
    assert!(reader.slices(1).unwrap().is_empty());
    assert_eq!(reader.failures().unwrap(), [failure, elsewhere, lost, wrong]);
    assert_eq!(reader.state_snapshots().unwrap(), [state_snapshot]);
    let sessions = reader.sessions().unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(sessions[0].elapsed, Nanos::from_secs(5));
    assert_eq!(sessions[0].warnings, session().warnings);
    assert_eq!((sessions[0].client_cpus, sessions[0].system_cpus), (Some(3), Some(5)));
    let microbenchmarks = reader.microbenchmarks().unwrap();
    let expected: Vec<_> = new_run().microbenchmarks.into_iter().zip([true, false]).collect();
    assert_eq!(microbenchmarks, expected);
}

#[test]
fn resumed_run_appends_slices_and_a_session() {
    let dir = lab();
    drop(started(dir.path()));
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_slice(&slice(2, 0)).unwrap();
    let blocks: Vec<u32> =
        writer.reader().unwrap().slices(0).unwrap().iter().map(|slice| slice.block).collect();
    assert_eq!(blocks, [0, 0, 1, 1, 2]);
    assert_eq!(writer.reader().unwrap().sessions().unwrap().len(), 2);
}

#[test]
fn failure_while_starting_is_recovered_by_a_later_slice_of_its_candidate() {
    let dir = lab();
    let failure = |candidate, microbenchmark| FailureRecord {
        kind: FailureKind::Ended,
        recovered: false,
        candidate,
        microbenchmark,
        at: "starting".to_owned(),
        reason: "killed".to_owned(),
    };
    let mut writer = started(dir.path());
    for failure in [failure(0, None), failure(1, None), failure(0, Some(0)), failure(0, Some(1))] {
        writer.add_failure(&failure).unwrap();
    }
    drop(writer);
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    let recovered = |writer: &RunWriter| -> Vec<bool> {
        let failures = writer.reader().unwrap().failures().unwrap();
        failures.iter().map(|failure| failure.recovered).collect()
    };
    writer.add_slice(&SliceRecord { warmup: true, ..slice(2, 0) }).unwrap();
    assert_eq!(recovered(&writer), [false; 4]);
    writer.add_slice(&slice(3, 0)).unwrap();
    assert_eq!(recovered(&writer), [true, false, true, false]);
}

#[test]
fn duplicate_slice_is_an_error() {
    let dir = lab();
    let mut writer = started(dir.path());
    let error = writer.add_slice(&slice(1, 1)).unwrap_err();
    assert!(error.to_string().contains("storing a slice"), "{error}");
    assert_eq!(writer.reader().unwrap().slices(0).unwrap().len(), 4);
}

#[test]
fn existing_run_is_not_overwritten() {
    let dir = lab();
    drop(started(dir.path()));
    let error = RunWriter::create(dir.path(), &new_run()).unwrap_err();
    assert!(matches!(error, ResultsError::Exists(_)), "{error}");
    assert!(error.to_string().contains("--resume"), "{error}");
    assert_eq!(RunReader::open(dir.path()).unwrap().slices(0).unwrap().len(), 4);
}

#[test]
fn deleted_run_leaves_room_for_another() {
    let dir = lab();
    let mut writer = RunWriter::create(dir.path(), &new_run()).unwrap();
    assert!(!writer.reader().unwrap().has_measured().unwrap());
    assert!(!writer.reader().unwrap().may_have_schemas().unwrap());
    writer.set_may_have_schemas(true).unwrap();
    assert!(writer.reader().unwrap().may_have_schemas().unwrap());
    writer.set_may_have_schemas(false).unwrap();
    assert!(!writer.reader().unwrap().may_have_schemas().unwrap());
    let first = writer.identity().id.clone();
    writer.delete().unwrap();
    assert!(matches!(RunReader::open(dir.path()), Err(ResultsError::NotARun { .. })));
    let second = started(dir.path());
    assert_ne!(second.identity().id, first);
    assert!(second.reader().unwrap().has_measured().unwrap());
}

#[test]
fn removed_run_is_noticed_when_a_slice_is_stored() {
    let dir = lab();
    let out = dir.path().join("run");
    let mut writer = started(&out);
    fs::remove_dir_all(&out).unwrap();
    let error = writer.add_slice(&slice(2, 0)).unwrap_err();
    assert!(matches!(error, ResultsError::Gone(_)), "{error}");
}

#[test]
fn create_ignores_files_of_a_killed_creation() {
    let dir = lab();
    fs::write(dir.path().join("run.sqlite.new"), "half a database").unwrap();
    let missing = RunReader::open(dir.path()).unwrap_err();
    assert!(matches!(missing, ResultsError::NotARun { .. }), "{missing}");
    drop(started(dir.path()));
    assert_eq!(RunReader::open(dir.path()).unwrap().slices(0).unwrap().len(), 4);
}

#[test]
fn create_ignores_the_log_of_a_removed_database() {
    let (killed, dir) = (lab(), lab());
    let writer = started(killed.path());
    for name in ["run.sqlite-wal", "run.sqlite-shm"] {
        fs::copy(killed.path().join(name), dir.path().join(name)).unwrap();
    }
    drop(writer);
    drop(RunWriter::create(dir.path(), &new_run()).unwrap());
    let reader = RunReader::open(dir.path()).unwrap();
    assert_eq!((reader.candidates().unwrap(), reader.slices(0).unwrap()), (vec![], vec![]));
}

#[test]
fn second_writer_is_refused() {
    let dir = lab();
    let first = started(dir.path());
    let error = RunWriter::resume(dir.path()).unwrap_err();
    let ResultsError::InUse { pid, .. } = &error else { panic!("{error}") };
    assert_eq!(*pid, Some(std::process::id()));
    let writer_pid = || RunReader::open(dir.path()).unwrap().writer_pid();
    assert_eq!(writer_pid(), Some(std::process::id()));
    drop(first);
    assert_eq!(writer_pid(), None);
    drop(RunWriter::resume(dir.path()).unwrap());
}

#[test]
fn readers_see_each_slice_when_it_is_stored() {
    let dir = lab();
    let mut writer = started(dir.path());
    let reader = RunReader::open(dir.path()).unwrap();
    for block in 2..50 {
        writer.add_slice(&slice(block, 0)).unwrap();
        assert_eq!(reader.slices(0).unwrap().last().unwrap().block, block);
    }
}

#[test]
fn microbenchmark_is_unique_per_number_of_clients() {
    let dir = lab();
    let mut run = new_run();
    run.microbenchmarks[1].clients = 1;
    let error = RunWriter::create(dir.path(), &run).unwrap_err();
    assert!(error.to_string().contains("creating the run's database"), "{error}");
}

#[test]
fn directory_without_a_run_is_refused() {
    let dir = lab();
    let refused = |path: &Path| {
        let error = RunReader::open(path).unwrap_err();
        let resumed = RunWriter::resume(path).unwrap_err();
        assert!(matches!(error, ResultsError::NotARun { .. }), "{error}");
        assert_eq!(error.to_string(), resumed.to_string());
        error.to_string()
    };
    assert!(refused(&dir.path().join("missing")).contains("does not exist"));
    assert!(refused(dir.path()).contains("no run.sqlite"));
    let file = dir.path().join("run.sqlite");
    fs::write(&file, "text, and enough of it to be longer than a header".repeat(10)).unwrap();
    assert!(refused(dir.path()).contains("not a database"));
    assert!(refused(&file).contains("not a directory"));
    fs::remove_file(&file).unwrap();
    Connection::open(&file).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    assert!(refused(dir.path()).contains("not made by dbdyno"));
}

#[test]
fn damaged_part_is_named_in_the_error() {
    let dir = lab();
    drop(started(dir.path()));
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database
        .execute_batch(
            "UPDATE candidate SET json = '{', checksum = NULL; \
             UPDATE slice SET latencies = x'ff', checksum = NULL",
        )
        .unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let error = reader.candidates().unwrap_err();
    assert!(matches!(error, ResultsError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("a candidate is damaged"), "{error}");
    let error = reader.slices(0).unwrap_err();
    assert!(error.to_string().contains("reading slices"), "{error}");
    database
        .execute_batch(
            "INSERT INTO failure (session, candidate, kind, at, reason) VALUES (1, 0, 'odd', '', '')",
        )
        .unwrap();
    let error = reader.failures().unwrap_err();
    assert!(error.to_string().contains("reading the run"), "{error}");
}

#[test]
fn changed_row_is_named_in_the_error() {
    for (sql, id) in [
        ("UPDATE slice SET qps = qps * 2 WHERE id = 1", 1),
        ("UPDATE slice SET wall_ns = wall_ns + 1 WHERE id = 2", 2),
        ("UPDATE slice SET polling_ns = NULL WHERE id = 3", 3),
        ("UPDATE slice SET latencies = latencies || x'00' WHERE id = 3", 3),
        ("UPDATE slice SET server_cpu_ns = NULL WHERE id = 4", 4),
        ("UPDATE slice SET checksum = -checksum - 1 WHERE id = 4", 4),
        ("UPDATE counter SET count = count - 1 WHERE slice = 2 AND counter = 'instructions'", 2),
        ("DELETE FROM counter WHERE slice = 4", 4),
    ] {
        let dir = lab();
        drop(started(dir.path()));
        let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
        database.execute_batch(sql).unwrap();
        let error = RunReader::open(dir.path()).unwrap().slices(0).unwrap_err();
        assert!(matches!(error, ResultsError::Damaged { .. }), "{sql}: {error}");
        let expected = format!("run.sqlite is damaged: the row with id {id} of its table slice");
        assert!(error.to_string().contains(&expected), "{sql}: {error}");
        if !sql.contains("latencies") {
            database.execute_batch(&remove_checksums()).unwrap();
            assert_eq!(RunReader::open(dir.path()).unwrap().slices(0).unwrap().len(), 4);
        }
    }
}

#[test]
fn changed_record_is_named_in_the_error() {
    let dir = lab();
    drop(started(dir.path()));
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    let sql = "UPDATE microbenchmark SET json = replace(json, 'point-1', 'point-3') WHERE id = 1; \
               UPDATE candidate SET json = json_set(json, '$.name', 'case') WHERE id = 0";
    database.execute_batch(sql).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let error = reader.microbenchmarks().unwrap_err().to_string();
    assert!(error.contains("the row with id 1 of its table microbenchmark"), "{error}");
    let error = reader.candidates().unwrap_err().to_string();
    assert!(error.contains("the row with id 0 of its table candidate"), "{error}");
    database.execute_batch(&remove_checksums()).unwrap();
    assert_eq!(reader.candidates().unwrap()[0].name, "case");
    assert_eq!(reader.microbenchmarks().unwrap()[1].0.group, "point-3");
}

#[test]
fn changed_session_snapshot_or_setting_is_named_in_the_error() {
    for (sql, row) in [
        ("UPDATE session SET json = replace(json, '0.1.0', '0.1.1')", "id 1 of its table session"),
        ("UPDATE session SET elapsed_ns = elapsed_ns + 1", "id 1 of its table session"),
        ("UPDATE state_snapshot SET json = replace(json, ':5', ':7')", "table state_snapshot"),
        ("UPDATE state_snapshot SET candidate = 0", "id 1 of its table state_snapshot"),
        (
            "UPDATE meta SET value = 'server' WHERE key = 'baseline'",
            "key baseline of its table meta",
        ),
        (
            "UPDATE meta SET key = 'settingt' WHERE key = 'settings'",
            "key settingt of its table meta",
        ),
    ] {
        let dir = lab();
        let mut writer = started(dir.path());
        writer.session_elapsed(Nanos::from_secs(5)).unwrap();
        let state_snapshot = StateSnapshot { rows: 5, data_size: Bytes::default(), state: vec![] };
        let record = StateSnapshotRecord { candidate: 1, at: "first".to_owned(), state_snapshot };
        writer.add_state_snapshot(&record).unwrap();
        drop(writer);
        let read = || {
            let reader = RunReader::open(dir.path())?;
            reader.sessions()?;
            reader.state_snapshots()
        };
        assert_eq!(read().unwrap(), [record]);
        let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
        database.execute_batch(sql).unwrap();
        let error = read().unwrap_err();
        assert!(matches!(error, ResultsError::Damaged { .. }), "{sql}: {error}");
        let error = error.to_string();
        assert!(error.contains(row) && error.contains("restore the file"), "{sql}: {error}");
        assert!(error.starts_with(&dir.path().display().to_string()), "{sql}: {error}");
    }
}

#[test]
fn rows_of_earlier_versions_need_no_checksum() {
    let dir = lab();
    drop(started(dir.path()));
    let change = |sql: &str| {
        let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
        database.execute_batch(sql).unwrap();
    };
    let slices = || RunReader::open(dir.path()).unwrap().slices(0);
    let expected = slices().unwrap();
    for table in ["slice", "meta", "session", "state_snapshot"] {
        change(&format!("ALTER TABLE {table} DROP COLUMN checksum"));
    }
    assert_eq!(slices().unwrap(), expected);
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_slice(&slice(2, 0)).unwrap();
    drop(writer);
    change("UPDATE slice SET wall_ns = wall_ns + 1 WHERE id = 1");
    assert_eq!(slices().unwrap().len(), 5);
    change("UPDATE slice SET wall_ns = wall_ns + 1 WHERE id = 5");
    assert!(slices().unwrap_err().to_string().contains("the row with id 5"));
}

#[test]
fn stored_optimizations_are_read_back() {
    let dir = lab();
    let mut writer = started(dir.path());
    let optimization = OptimizationRecord {
        candidate: 1,
        trained_with: 0,
        measured_next: 1,
        after_restart: true,
        refused: None,
        layout: NewLayout {
            source: "clock".to_owned(),
            samples: 20_000,
            covered: Some(Share::from_percent(97.0)),
            functions: 412,
            skipped: vec![("transaction".to_owned(), 3)],
            files: vec!["/usr/sbin/mariadbd".to_owned()],
            hot: Bytes::from_kib(300),
            cold: Bytes::from_kib(700),
            added: Bytes::from_mib(2),
            processes: 5,
            unchanged: Some((1, "it has ended".to_owned())),
            counts: None,
            longest_pause: Nanos::from_millis(3),
            threads: 12,
            took: Nanos::from_secs(2),
        },
    };
    writer.add_optimization(&optimization).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    assert_eq!(reader.optimizations().unwrap(), [optimization]);
}

#[test]
fn updated_session_record_keeps_other_sessions() {
    let dir = lab();
    let mut writer = started(dir.path());
    writer.session_elapsed(Nanos::from_secs(5)).unwrap();
    let before = SessionRecord { counting: Vec::new(), loses_data: false, ..session() };
    writer.start_session(&before).unwrap();
    writer.update_session(&session()).unwrap();
    let sessions = writer.reader().unwrap().sessions().unwrap();
    assert_eq!(sessions[1].counting, [None, Some(counting())]);
    assert!(sessions[1].loses_data);
    assert_eq!(sessions[0].elapsed, Nanos::from_secs(5));
}

#[test]
fn growth_of_engine_counters_is_stored_with_the_slices_in_which_they_were_read() {
    let dir = lab();
    let mut writer = started(dir.path());
    let of = |growth: &[(&str, i64)]| {
        let growth = growth.iter().map(|(name, growth)| ((*name).to_owned(), *growth)).collect();
        EngineCounts { statements: 70, growth }
    };
    let counts = [of(&[("commits", 70), ("level", -3)]), of(&[]), of(&[("commits", i64::MAX)])];
    for (block, counts) in (2..).zip(&counts) {
        let mut slice = slice(block, 1);
        slice.measured.engine_counts = Some(counts.clone());
        writer.add_slice(&slice).unwrap();
    }
    let read = writer.reader().unwrap().engine_counts(0).unwrap();
    let keys: Vec<(u32, u32, u32)> =
        read.iter().map(|one| (one.restart, one.block, one.candidate)).collect();
    assert_eq!(keys, [(3, 2, 1), (3, 3, 1), (3, 4, 1)], "others were not read");
    assert!(read.iter().map(|one| &one.counts).eq(&counts));
}

#[test]
fn response_times_of_a_complete_microbenchmark_can_be_queried() {
    let dir = lab();
    let mut writer = started(dir.path());
    let mut more = slice(2, 1);
    more.measured.latencies = Latencies::new(vec![(1_000, 97), (2_000, 1), (9_216, 2)]);
    writer.add_slice(&more).unwrap();
    let mut warmup = slice(3, 1);
    (warmup.warmup, warmup.measured.latencies) = (true, Latencies::new(vec![(77_000, 9_999)]));
    writer.add_slice(&warmup).unwrap();
    let percentiles = |database: &Connection| -> Vec<(i64, i64)> {
        let sql = "SELECT candidate, min(response_ns) FROM latency_bucket \
                   WHERE microbenchmark = 0 AND share >= 0.99 GROUP BY candidate";
        let mut query = database.prepare(sql).unwrap();
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    assert_eq!(percentiles(&database), [], "it is not complete");
    writer.set_done(0).unwrap();
    // Blocks added to a complete run are added to its response times.
    writer.set_done(0).unwrap();
    let p99 = percentiles(&database);
    assert_eq!(p99.len(), 2);
    assert_eq!(p99[1], (1, 9_216));
    let (events, end): (i64, f64) = database
        .query_row(
            "SELECT sum(events), max(share) FROM latency_bucket WHERE candidate = 1",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .unwrap();
    // Those of its block 1 and of block 2; block 0 is warm-up.
    assert_eq!((events, end), (6 + 100, 1.0));

    let goals = [(0, Nanos::from_secs(9))].into();
    writer.extend(&ExtensionRecord { goals }, "9s").unwrap();
    assert_eq!(percentiles(&database), [], "it is not complete any more");
}

#[test]
fn times_of_statements_are_read_back_and_unknown_of_runs_of_earlier_versions() {
    let dir = lab();
    let mut writer = started(dir.path());
    let timed = |block, candidate, texts: &[&str]| {
        let times = texts.iter().map(|text| StatementTimes {
            text: (*text).to_owned(),
            executions: 3,
            total: Nanos::from_micros(120),
        });
        let mut slice = slice(block, candidate);
        slice.measured.statement_times = times.collect();
        slice
    };
    let warmup = SliceRecord { warmup: true, ..timed(10, 0, &["COMMIT"]) };
    for slice in [warmup, timed(11, 0, &["COMMIT", "SELECT ?"]), timed(11, 1, &["SELECT ?"])] {
        writer.add_slice(&slice).unwrap();
    }
    let microbenchmark = slice(11, 0).microbenchmark;
    let read = || RunReader::open(dir.path()).unwrap().statement_times(microbenchmark).unwrap();
    let found = read();
    assert_eq!(found.keys().collect::<Vec<_>>(), ["COMMIT", "SELECT ?"]);
    assert_eq!((found["COMMIT"].len(), found["SELECT ?"].len()), (1, 2));
    let one = found["SELECT ?"][1];
    assert_eq!((one.block, one.candidate, one.executions), (11, 1, 3));
    assert_eq!(one.total, Nanos::from_micros(120));
    drop(writer);
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute_batch("DROP TABLE statement_time; DROP TABLE statement").unwrap();
    drop(database);
    assert!(read().is_empty());
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_slice(&timed(12, 0, &["COMMIT"])).unwrap();
    assert_eq!(read().len(), 1);
}
