//! The insert benchmark in a run directory: steps, seconds, interruptions.

use dbdyno_results::{
    CandidateRecord, FailureKind, FailureRecord, InForceRecord, InsertPlanRecord, InsertStepPlan,
    InsertStepRecord, NewRun, Role, RunReader, RunWriter, SessionRecord, StartedFrom,
    StateSnapshotRecord, remove_checksums,
};
use dbdyno_types::insert::{DeviceUsage, Operations, Second, StepMeasured};
use dbdyno_types::{Latencies, ServerUsage, StateSnapshot};
use dbdyno_units::{Bytes, Nanos, Share};
use rusqlite::Connection;
use tempfile::{TempDir, tempdir_in};

fn plan() -> InsertPlanRecord {
    InsertPlanRecord {
        clients: 4,
        tables: 2,
        repeats: 3,
        stall: Share::from_percent(50.0),
        sustained: Share::from_percent(95.0),
        steps: vec![InsertStepPlan {
            name: "q100".to_owned(),
            what: "runs queries".to_owned(),
            queries: true,
            inserts: true,
            rate: Some(400),
        }],
    }
}

fn started() -> (TempDir, RunWriter) {
    let dir = tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let run = NewRun {
        name: "test".to_owned(),
        baseline: "base".to_owned(),
        experiment_text: String::new(),
        experiment: serde_json::json!({}),
        settings: Vec::new(),
        microbenchmarks: Vec::new(),
        insert: Some(plan()),
    };
    let mut writer = RunWriter::create(dir.path(), &run).unwrap();
    writer.start_session(&session()).unwrap();
    let candidate = CandidateRecord {
        name: "base".to_owned(),
        role: Role::Baseline,
        system: "sqlite".to_owned(),
        version: String::new(),
        engine: None,
        build: None,
        origin: None,
        configuration: Vec::new(),
        server_settings: Vec::new(),
        config_diff: Vec::new(),
        in_force: InForceRecord::default(),
        injected_delay: None,
    };
    writer.add_candidates(&[candidate]).unwrap();
    (dir, writer)
}

fn session() -> SessionRecord {
    SessionRecord { facts: serde_json::json!({}), ..SessionRecord::default() }
}

fn row(repeat: u32, step: u32) -> InsertStepRecord {
    InsertStepRecord {
        id: 0,
        repeat,
        position: 1,
        candidate: 0,
        step,
        name: format!("step-{step}"),
        started_from: StartedFrom::Copy,
        measured: None,
    }
}

fn whole() -> Second {
    Second {
        number: 7,
        elapsed: Nanos::from_millis(999),
        inserts: 100,
        queries: 5,
        deletes: 3,
        insert_worst: Some(Nanos::from_millis(4)),
        query_worst: Some(Nanos::from_micros(3)),
        delete_worst: Some(Nanos::from_nanos(2)),
        system: Some(ServerUsage {
            cpu: Nanos::from_nanos(11),
            background_cpu: None,
            user: Nanos::from_nanos(12),
            system: Nanos::from_nanos(13),
            context_switches: Some(14),
            page_faults: 15,
            read_from_storage: Some(Bytes::from_bytes(16)),
            written_to_storage: Some(Bytes::from_bytes(17)),
        }),
        client_cpu: Some(Nanos::from_nanos(18)),
        device: Some(DeviceUsage {
            reads: 19,
            read: Bytes::from_bytes(20),
            writes: 21,
            written: Bytes::from_bytes(22),
        }),
        database: Some(Bytes::from_bytes(23)),
        resident: Some(Bytes::from_bytes(24)),
    }
}

fn measured() -> StepMeasured {
    StepMeasured {
        wall: Nanos::from_secs(2),
        inserts: Operations {
            count: 2,
            rows: 100,
            response: Latencies::new(vec![(5, 1), (9, 1)]),
            longest: Some(Nanos::from_nanos(9)),
            service: Some(Latencies::new(vec![(4, 2)])),
            longest_service: Some(Nanos::from_nanos(4)),
        },
        overdue: 50,
        first_complaint: Some("no".to_owned()),
        ..StepMeasured::default()
    }
}

#[test]
fn stored_steps_and_seconds_are_read_back() {
    let (dir, mut writer) = started();
    let id = writer.begin_insert_step(&row(0, 0)).unwrap();
    let unknown = Second { number: 8, elapsed: Nanos::from_nanos(1), ..Second::default() };
    writer.add_insert_second(id, &whole()).unwrap();
    writer.add_insert_second(id, &unknown).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let steps = reader.insert_steps().unwrap();
    assert_eq!(steps, [InsertStepRecord { id, ..row(0, 0) }], "it is not done yet");
    writer.finish_insert_step(id, &measured()).unwrap();
    let steps = reader.insert_steps().unwrap();
    assert_eq!(steps, [InsertStepRecord { id, measured: Some(measured()), ..row(0, 0) }]);
    assert_eq!(reader.insert_seconds(id).unwrap(), [whole(), unknown]);
    assert_eq!(reader.insert_plan().unwrap(), Some(plan()));
}

#[test]
fn changed_step_or_second_is_named_in_the_error() {
    let (dir, mut writer) = started();
    let id = writer.begin_insert_step(&row(0, 0)).unwrap();
    writer.add_insert_second(id, &whole()).unwrap();
    writer.finish_insert_step(id, &measured()).unwrap();
    let change = |sql: &str| {
        let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
        database.execute_batch(sql).unwrap();
    };
    let reader = RunReader::open(dir.path()).unwrap();
    change("UPDATE insert_second SET queries = queries + 1");
    let error = reader.insert_seconds(id).unwrap_err().to_string();
    let expected = "the row with step 1 and second 7 of its table insert_second is not what";
    assert!(error.contains(expected), "{error}");
    assert_eq!(reader.insert_steps().unwrap().len(), 1);
    change("UPDATE insert_step SET json = replace(json, '\"overdue\":50', '\"overdue\":51')");
    let error = reader.insert_steps().unwrap_err().to_string();
    assert!(error.contains("the row with id 1 of its table insert_step"), "{error}");
    change(&remove_checksums());
    assert_eq!(reader.insert_steps().unwrap()[0].measured.as_ref().unwrap().overdue, 51);
    assert_eq!(reader.insert_seconds(id).unwrap()[0].queries, whole().queries + 1);
}

#[test]
fn restarted_step_loses_only_its_first_attempt() {
    let (dir, mut writer) = started();
    for step in 0..2 {
        let id = writer.begin_insert_step(&row(0, step)).unwrap();
        writer.add_insert_second(id, &whole()).unwrap();
    }
    let again = writer.begin_insert_step(&row(0, 1)).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let steps = reader.insert_steps().unwrap();
    assert_eq!(steps.len(), 2);
    assert_eq!(reader.insert_seconds(again).unwrap(), []);
    assert_eq!(reader.insert_seconds(steps[0].id).unwrap().len(), 1);
}

#[test]
fn forgotten_steps_leave_neither_rows_nor_snapshots() {
    let (dir, mut writer) = started();
    let at = |repeat: u32| format!("after step-0, repeat {}", repeat + 1);
    let state_snapshot = StateSnapshot { rows: 1, data_size: Bytes::default(), state: vec![] };
    for repeat in 0..2 {
        writer.begin_insert_step(&row(repeat, 0)).unwrap();
        let state_snapshot = state_snapshot.clone();
        let record = StateSnapshotRecord { candidate: 0, at: at(repeat), state_snapshot };
        writer.add_state_snapshot(&record).unwrap();
    }
    writer.forget_insert_steps(0, 0, &[at(0)]).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let repeats: Vec<u32> = reader.insert_steps().unwrap().iter().map(|one| one.repeat).collect();
    assert_eq!(repeats, [1], "other repeats stay");
    let left = reader.state_snapshots().unwrap();
    assert_eq!(left, [StateSnapshotRecord { candidate: 0, at: at(1), state_snapshot }]);
}

#[test]
fn failure_is_recovered_by_a_complete_step_of_a_later_session() {
    let (dir, mut writer) = started();
    let failure = FailureRecord {
        kind: FailureKind::Ended,
        recovered: false,
        candidate: 0,
        microbenchmark: None,
        at: "step-0, repeat 1".to_owned(),
        reason: "killed".to_owned(),
    };
    writer.add_failure(&failure).unwrap();
    let reader = RunReader::open(dir.path()).unwrap();
    let is_recovered = || reader.failures().unwrap()[0].recovered;
    let id = writer.begin_insert_step(&row(1, 0)).unwrap();
    writer.finish_insert_step(id, &measured()).unwrap();
    assert!(!is_recovered(), "another repeat of the same session");
    writer.start_session(&session()).unwrap();
    let id = writer.begin_insert_step(&row(0, 0)).unwrap();
    assert!(!is_recovered(), "the step is not done yet");
    writer.finish_insert_step(id, &measured()).unwrap();
    assert!(is_recovered());
}
