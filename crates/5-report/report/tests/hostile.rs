//! Runs from others: damaged, or made to cause harm.

#![expect(clippy::unwrap_used, reason = "helpers of a test fail the test")]

mod published;

use std::fs;
use std::ops::Range;
use std::path::Path;

use dbdyno_fuzz::Fuzz;
use dbdyno_report::assemble::assemble;
use dbdyno_report::{export, html, terminal};
use dbdyno_results::{
    FailureKind, FailureRecord, InsertPlanRecord, InsertStepPlan, InsertStepRecord, NewRun,
    RunReader, RunWriter, SessionRecord, StartedFrom, StateSnapshotRecord, remove_checksums,
};
use dbdyno_types::insert::{Operations, Second, StepMeasured};
use dbdyno_types::{Latencies, StateSnapshot};
use dbdyno_units::{Bytes, Nanos, Share};
use rusqlite::Connection;
use serde_json::Value;
use tempfile::TempDir;

/// Memory limit of a report of these small runs.
const MAX_MEMORY: usize = 256 << 20;

/// A few slices of a published run of servers with the live optimizer.
fn small_run(dir: &Path) {
    published::restore("live-against-bolt", "run", dir);
    let database = Connection::open(dir.join("run.sqlite")).unwrap();
    database
        .execute_batch(
            "DELETE FROM counter WHERE slice IN (SELECT id FROM slice WHERE microbenchmark > 1 OR block > 7);
             DELETE FROM slice WHERE microbenchmark > 1 OR block > 7;
             DELETE FROM failure WHERE microbenchmark > 1;
             DELETE FROM optimization WHERE trained_with > 1 OR measured_next > 1;
             DELETE FROM microbenchmark WHERE id > 1;
             PRAGMA journal_mode = DELETE; PRAGMA page_size = 1024; VACUUM;",
        )
        .unwrap();
    drop(database);
    let mut writer = RunWriter::resume(dir).unwrap();
    let failure = FailureRecord {
        candidate: 1,
        microbenchmark: Some(0),
        kind: FailureKind::Lost,
        at: "somewhere".to_owned(),
        reason: "signal 9".to_owned(),
        recovered: false,
    };
    let snapshot = StateSnapshotRecord {
        candidate: 1,
        at: "at the end".to_owned(),
        state_snapshot: StateSnapshot { rows: 5, data_size: Bytes::from_kib(4), state: vec![] },
    };
    let session = RunReader::open(dir).unwrap().sessions().unwrap().remove(0);
    writer.start_session(&session).unwrap();
    writer.add_failure(&failure).unwrap();
    writer.add_state_snapshot(&snapshot).unwrap();
}

/// An insert benchmark with the candidates of the small run.
fn insert_run(dir: &Path, small: &Path) {
    let step = InsertStepPlan {
        name: "q100".to_owned(),
        what: "runs queries".to_owned(),
        queries: true,
        inserts: true,
        rate: Some(400),
    };
    let plan = InsertPlanRecord {
        clients: 4,
        tables: 2,
        repeats: 1,
        stall: Share::from_percent(50.0),
        sustained: Share::from_percent(95.0),
        steps: vec![step],
    };
    let run = NewRun {
        name: "insert".to_owned(),
        baseline: "base".to_owned(),
        experiment_text: String::new(),
        experiment: serde_json::json!({}),
        settings: Vec::new(),
        microbenchmarks: Vec::new(),
        insert: Some(plan),
    };
    let mut writer = RunWriter::create(dir, &run).unwrap();
    let small = RunReader::open(small).unwrap();
    let session: SessionRecord = small.sessions().unwrap().remove(0);
    writer.start_session(&session).unwrap();
    let candidates = small.candidates().unwrap();
    writer.add_candidates(&candidates).unwrap();
    for candidate in 0..2 {
        let row = InsertStepRecord {
            id: 0,
            repeat: 0,
            position: candidate,
            candidate,
            step: 0,
            name: "q100".to_owned(),
            started_from: StartedFrom::Step,
            measured: None,
        };
        let id = writer.begin_insert_step(&row).unwrap();
        for number in 0..5 {
            let elapsed = Nanos::from_secs(1);
            let second =
                Second { number, elapsed, inserts: 400, queries: 900, ..Second::default() };
            writer.add_insert_second(id, &second).unwrap();
        }
        let response = Latencies::new(vec![(1_000_000, 1_900), (90_000_000, 100)]);
        let inserts = Operations { count: 2_000, rows: 2_000, response, ..Operations::default() };
        let wall = Nanos::from_secs(5);
        let measured = StepMeasured { wall, inserts, ..StepMeasured::default() };
        writer.finish_insert_step(id, &measured).unwrap();
    }
}

/// The two runs, each in one file.
fn samples() -> (TempDir, Vec<Vec<u8>>) {
    let dir = tempfile::tempdir().unwrap();
    let (small, insert) = (dir.path().join("small"), dir.path().join("insert"));
    fs::create_dir(&small).unwrap();
    small_run(&small);
    insert_run(&insert, &small);
    let samples = [&small, &insert].map(|run| {
        let database = Connection::open(run.join("run.sqlite")).unwrap();
        database.execute_batch("PRAGMA journal_mode = DELETE").unwrap();
        // Most changes would be found before they are parsed.
        database.execute_batch(&remove_checksums()).unwrap();
        drop(database);
        fs::read(run.join("run.sqlite")).unwrap()
    });
    (dir, samples.to_vec())
}

/// Makes every form of report; `None` if the run is refused.
fn reports(run: &Path) -> Option<(String, String)> {
    let report = assemble(&RunReader::open(run).ok()?).ok()?;
    let options =
        terminal::TerminalOptions { width: 100, color: false, three_groups: false, details: true };
    let _ = export::run_json(&report);
    let _ = export::tables(&report);
    Some((terminal::render(&report, &options), html::render(&report)))
}

#[test]
fn damaged_run_is_reported_or_refused() {
    let (dir, samples) = samples();
    let run = dir.path().join("damaged");
    fs::create_dir(&run).unwrap();
    for sample in &samples {
        fs::write(run.join("run.sqlite"), sample).unwrap();
        assert!(reports(&run).is_some(), "{:?}", RunReader::open(&run).err());
    }
    Fuzz::new(samples).cases(128).max_memory(MAX_MEMORY).run(|content| {
        fs::write(run.join("run.sqlite"), content).unwrap();
        let _ = reports(&run);
    });
}

/// Tables with the columns of records, and their keys.
const RECORDS: [(&str, &str, &str); 7] = [
    ("meta", "key", "value"),
    ("candidate", "id", "json"),
    ("microbenchmark", "id", "json"),
    ("session", "id", "json"),
    ("state_snapshot", "id", "json"),
    ("optimization", "id", "json"),
    ("insert_step", "id", "json"),
];

/// Values at the limits of their types, as SQL.
const VALUES: [&str; 16] = [
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "-9223372036854775808",
    "4611686018427387904",
    "9007199254740992",
    "4294967296",
    "4294967295",
    "2147483647",
    "9e999",
    "1e308",
    "-1e308",
    "NULL",
    "'x'",
    "zeroblob(16)",
];

const ROWS: [&str; 3] = ["", " WHERE rowid % 2 = 0", " WHERE rowid = 3"];

/// Calls `each` with every value in the JSON that `is_wanted`.
fn for_each<'v>(
    value: &'v mut Value,
    is_wanted: fn(&Value) -> bool,
    each: &mut dyn FnMut(&'v mut Value),
) {
    if is_wanted(value) {
        return each(value);
    }
    match value {
        Value::Array(list) => list.iter_mut().for_each(|one| for_each(one, is_wanted, each)),
        Value::Object(map) => map.values_mut().for_each(|one| for_each(one, is_wanted, each)),
        _ => {}
    }
}

/// The records of a table: key and JSON.
fn records(
    database: &Connection,
    (table, key, column): (&str, &str, &str),
) -> Vec<(String, String)> {
    let sql = format!("SELECT CAST({key} AS TEXT), {column} FROM {table}");
    let mut query = database.prepare(&sql).unwrap();
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.filter_map(Result::ok).collect()
}

fn store(database: &Connection, (table, key, column): (&str, &str, &str), row: &str, json: &str) {
    let sql = format!("UPDATE {table} SET {column} = ?1 WHERE CAST({key} AS TEXT) = ?2");
    database.execute(&sql, [json, row]).unwrap();
}

/// Sets one value, as the bytes choose.
fn set_extreme(database: &Connection, bytes: &[u8]) {
    let [kind, a, b, c, d, ..] = *bytes else { return };
    let pick = |byte: u8, length: usize| usize::from(byte) % length.max(1);
    if kind % 2 == 0 {
        let tables =
            ["slice", "slice", "counter", "insert_second", "insert_step", "failure", "session"];
        let table = tables[pick(a, tables.len())];
        let columns: Vec<String> = database
            .prepare(&format!("SELECT name FROM pragma_table_info('{table}')"))
            .unwrap()
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let column = &columns[pick(b, columns.len())];
        let (value, rows) = (VALUES[pick(c, VALUES.len())], ROWS[pick(d, ROWS.len())]);
        // Tables without row ids have no `rowid`; constraints refuse some values.
        let _ =
            database.execute(&format!("UPDATE OR IGNORE {table} SET {column} = {value}{rows}"), []);
        return;
    }
    let record = RECORDS[pick(a, RECORDS.len())];
    let rows = records(database, record);
    let Some((row, json)) = rows.get(pick(b, rows.len())) else { return };
    let Ok(mut value) = serde_json::from_str::<Value>(json) else { return };
    let mut numbers = Vec::new();
    for_each(&mut value, Value::is_number, &mut |number| numbers.push(number));
    let at = (usize::from(c) << 8 | usize::from(d)) % numbers.len().max(1);
    let extreme =
        ["0", "-1", "18446744073709551615", "9223372036854775807", "1e308", "1e-320", "0.5"];
    if let Some(number) = numbers.get_mut(at) {
        **number = serde_json::from_str(extreme[pick(kind / 2, extreme.len())]).unwrap();
    }
    store(database, record, row, &value.to_string());
}

#[test]
fn extreme_numbers_cause_no_panic() {
    let (dir, runs) = samples();
    let run = dir.path().join("extreme");
    fs::create_dir(&run).unwrap();
    let choices = vec![(0..=255).collect::<Vec<u8>>(), vec![0; 20], vec![1; 20]];
    Fuzz::new(choices).max_memory(MAX_MEMORY).run(|choices| {
        let (first, rest) = choices.split_first().unwrap_or((&0, &[]));
        fs::write(run.join("run.sqlite"), &runs[usize::from(*first) % runs.len()]).unwrap();
        let database = Connection::open(run.join("run.sqlite")).unwrap();
        database
            .execute_batch("PRAGMA foreign_keys = OFF; PRAGMA ignore_check_constraints = ON; BEGIN")
            .unwrap();
        rest.chunks(5).take(4).for_each(|choice| set_extreme(&database, choice));
        database.execute_batch("COMMIT").unwrap();
        drop(database);
        let _ = reports(&run);
    });
}

/// Markup, a terminal's escape sequences, and a formula.
const PAYLOAD: &str = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>\
                       \u{1b}]0;title\u{7}\u{1b}[31m\u{9b}2J=cmd|";

/// The JSON with the payload appended to the texts at these places, and the number of its texts.
fn append(places: Range<usize>, json: &str) -> (String, usize) {
    let Ok(mut value) = serde_json::from_str::<Value>(json) else {
        return (format!("{json}{PAYLOAD}"), 1);
    };
    let mut count = 0;
    for_each(&mut value, Value::is_string, &mut |text| {
        if places.contains(&count) {
            *text = Value::String(format!("{}{PAYLOAD}", text.as_str().unwrap_or_default()));
        }
        count += 1;
    });
    (value.to_string(), count)
}

#[test]
fn text_of_a_run_has_no_effect() {
    let (dir, runs) = samples();
    let mut accepted = 0;
    for (number, content) in runs.iter().enumerate() {
        let run = dir.path().join(format!("text-{number}"));
        fs::create_dir(&run).unwrap();
        fs::write(run.join("run.sqlite"), content).unwrap();
        let database = Connection::open(run.join("run.sqlite")).unwrap();
        for record in RECORDS {
            for (row, json) in records(&database, record) {
                let mut kept = json.clone();
                // All texts at once; if the report refuses that, each half of them.
                let mut left: Vec<_> = std::iter::once(0..append(0..0, &json).1).collect();
                while let Some(places) = left.pop() {
                    let (changed, _) = append(places.clone(), &kept);
                    store(&database, record, &row, &changed);
                    if reports(&run).is_some() {
                        kept = changed;
                        accepted += places.len();
                        continue;
                    }
                    store(&database, record, &row, &kept);
                    if places.len() > 1 {
                        let middle = places.start + places.len() / 2;
                        left.extend([places.start..middle, middle..places.end]);
                    }
                }
            }
        }
        for sql in [
            "UPDATE slice SET first_error = ?1, errors = 1",
            "UPDATE failure SET reason = ?1",
            "UPDATE failure SET at = ?1",
            "UPDATE insert_step SET name = ?1",
        ] {
            let _ = database.execute(sql, [PAYLOAD]);
        }
        let (text, page) = reports(&run).unwrap();
        let is_control = |c: char| c != '\n' && c.is_control();
        assert!(
            !text.contains(is_control),
            "{:?}",
            text.lines().find(|line| line.contains(is_control))
        );
        assert_eq!(page.matches("<script>").count(), 1);
        assert!(!page.contains("<img"));
        assert!(page.contains("&lt;img src=x onerror=alert(1)&gt;"));
    }
    assert!(accepted > 50, "only {accepted} texts were accepted");
}
