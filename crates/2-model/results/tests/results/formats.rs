//! Runs of other versions of the format.

use dbdyno_results::{ResultsError, RunReader, RunWriter, StateSnapshotRecord};
use dbdyno_types::{Counts, StateSnapshot};
use dbdyno_units::{Bytes, Energy, Nanos};
use rusqlite::Connection;

use tempfile::TempDir;

use crate::run_directory::{counts, lab, session, slice, started};

/// A started run after these statements.
fn altered(sql: &str) -> TempDir {
    let dir = lab();
    drop(started(dir.path()));
    alter(&dir, sql);
    dir
}

fn alter(dir: &TempDir, sql: &str) {
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    database.execute_batch(sql).unwrap();
}

/// The errors of reading and of resuming a run of this format.
fn refusals(format: u32) -> [ResultsError; 2] {
    let dir = altered(&format!("PRAGMA user_version = {format}"));
    [RunReader::open(dir.path()).unwrap_err(), RunWriter::resume(dir.path()).unwrap_err()]
}

#[test]
fn newer_format_is_refused() {
    for error in refusals(999) {
        assert!(matches!(error, ResultsError::NewerFormat { found: 999, .. }), "{error}");
        assert!(error.to_string().contains("newer"), "{error}");
    }
}

#[test]
fn older_format_is_refused_with_advice() {
    for error in refusals(1) {
        assert!(matches!(error, ResultsError::OlderFormat { found: 1, .. }), "{error}");
        assert!(error.to_string().contains("measure again"), "{error}");
    }
}

#[test]
fn run_without_background_cpu_is_read_and_resumed() {
    let dir =
        altered("ALTER TABLE slice DROP COLUMN server_background_ns; PRAGMA user_version = 2");
    let background = |reader: RunReader| -> Vec<Option<Nanos>> {
        let slices = reader.slices(0).unwrap();
        slices.iter().filter_map(|slice| Some(slice.measured.server?.background_cpu)).collect()
    };
    assert_eq!(background(RunReader::open(dir.path()).unwrap()), [None, None]);
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    let mut more = slice(2, 1);
    more.measured.server.as_mut().unwrap().background_cpu = Some(Nanos::from_nanos(5));
    writer.start_session(&session()).unwrap();
    writer.add_slice(&more).unwrap();
    let expected = [None, None, Some(Nanos::from_nanos(5))];
    assert_eq!(background(writer.reader().unwrap()), expected);
}

#[test]
fn session_without_numbers_of_cpus_is_read() {
    let sql = "UPDATE session SET json = json_remove(json, '$.client_cpus', '$.system_cpus')";
    let dir = altered(sql);
    let session = RunReader::open(dir.path()).unwrap().sessions().unwrap().remove(0);
    assert_eq!((session.client_cpus, session.system_cpus), (None, None));
}

#[test]
fn run_without_counters_is_read_and_resumed() {
    let dir = altered(
        "DROP TABLE counter; ALTER TABLE slice DROP COLUMN energy_uj; PRAGMA user_version = 4",
    );
    let known = |reader: RunReader| -> Vec<(u32, Counts, Option<Energy>)> {
        let slices = reader.slices(0).unwrap().into_iter();
        slices.map(|it| (it.block, it.measured.counts, it.measured.energy)).collect()
    };
    let old = known(RunReader::open(dir.path()).unwrap());
    assert_eq!(old.len(), 4);
    assert!(old.iter().all(|(_, counts, energy)| (counts, energy) == (&Counts::default(), &None)));
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_slice(&slice(2, 1)).unwrap();
    let energy = Some(Energy::from_microjoules(42));
    assert_eq!(known(writer.reader().unwrap())[4], (2, counts(1), energy));
}

#[test]
fn a_run_of_format_5_is_read_and_converted_when_resumed() {
    let dir = lab();
    let mut writer = started(dir.path());
    let state_snapshot = StateSnapshotRecord {
        candidate: 1,
        at: "at the end".to_owned(),
        state_snapshot: StateSnapshot { rows: 5, data_size: Bytes::from_kib(4), state: vec![] },
    };
    writer.add_state_snapshot(&state_snapshot).unwrap();
    drop(writer);
    let to_format_5 = "ALTER TABLE state_snapshot RENAME TO certificate; \
                       ALTER TABLE slice RENAME COLUMN position TO place; \
                       ALTER TABLE slice RENAME COLUMN changed_rows TO affected; \
                       ALTER TABLE slice RENAME COLUMN wrong_results TO wrong; \
                       ALTER TABLE slice RENAME COLUMN first_error TO complaint; \
                       ALTER TABLE optimization RENAME COLUMN measured_next TO before; \
                       ALTER TABLE insert_step RENAME COLUMN position TO place; \
                       DROP TABLE latency_bucket; UPDATE microbenchmark SET done = (id = 0); \
                       PRAGMA user_version = 5";
    alter(&dir, to_format_5);
    let expected = [slice(0, 0), slice(0, 1), slice(1, 0), slice(1, 1)];
    let assert_read = |reader: RunReader| {
        assert_eq!(reader.slices(0).unwrap()[..4], expected);
        assert_eq!(reader.state_snapshots().unwrap()[0], state_snapshot);
        assert_eq!(reader.insert_steps().unwrap(), []);
        assert_eq!(reader.optimizations().unwrap(), []);
    };
    assert_read(RunReader::open(dir.path()).unwrap());
    let mut writer = RunWriter::resume(dir.path()).unwrap();
    writer.start_session(&session()).unwrap();
    writer.add_slice(&slice(2, 1)).unwrap();
    writer.add_state_snapshot(&state_snapshot).unwrap();
    assert_read(writer.reader().unwrap());
    assert_eq!(writer.reader().unwrap().state_snapshots().unwrap().len(), 2);
    drop(writer);
    let database = Connection::open(dir.path().join("run.sqlite")).unwrap();
    let format: i64 = database.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(format, 8);
    let sql = "SELECT count(*) FROM latency_bucket WHERE microbenchmark = 0 AND share = 1";
    let complete: i64 = database.query_row(sql, [], |row| row.get(0)).unwrap();
    assert_eq!(complete, 2, "response times of both candidates");
}
