//! Wrong answers are reported as failures, never as results.

use rusqlite::Connection;

use crate::common::{Experiment, Stored, TestDir, candidates_differ, read_csv, slices_of_live_run};

#[test]
fn unexpected_row_count_fails_the_candidate() {
    let test = TestDir::new();
    let experiment = Experiment {
        microbenchmarks: "\"hot-points*\", \"mistaken\"",
        more: "[[microbenchmark]]\nname = \"mistaken\"\ngroup = \"point-1\"\n\
               [[microbenchmark.statements]]\nsql = \"SELECT c FROM {table} WHERE id = :id\"\n\
               draw = { id = \"uniform\" }\nrows = 2\n",
        ..Experiment::default()
    };
    test.run(&experiment, &[])
        .assert_code(1)
        .assert_prints("had a wrong result")
        .assert_prints("returned 1 rows instead of 2");
    let rows = read_csv(&test.out().join("relative.csv"));
    assert_eq!(rows.len(), 1 + 2);
    for row in &rows[1..] {
        let mistaken = row[0].starts_with("mistaken");
        assert_eq!(row[7] == "failed", mistaken, "{row:?}");
        assert_eq!(row[13] == "0", !mistaken, "{row:?}");
    }
}

#[test]
fn modified_data_is_detected() {
    const READ: &str = "range-notcovered-pk.pre_range=100";
    let test = TestDir::new();
    let out = test.out();
    let experiment = Experiment {
        control: true,
        microbenchmarks: "\"range-notcovered-pk.pre_range=100\"",
        budget: "1s",
        candidates: &[("base", "")],
        ..Experiment::default()
    };
    let mut run = test.start(&experiment, &out, &[]);
    run.wait_until("slices", || slices_of_live_run(&out, READ) >= 10);
    let control = Connection::open(out.join("data/control/data.sqlite")).unwrap();
    control.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
    let deleted = control.execute("DELETE FROM sbtest1 WHERE id % 2 = 0", []).unwrap();
    assert_eq!(deleted, 1_000);
    let finished = run.end();
    finished.assert_code(1).assert_prints("wrong answers").assert_prints("control");
    let rows = read_csv(&out.join("relative.csv"));
    assert_eq!((rows[1][2].as_str(), rows[1][7].as_str()), ("control", "failed"), "{rows:?}");
}

#[test]
fn equal_candidates_answer_equally_in_short_slices_of_writes() {
    let test = TestDir::new();
    let experiment = Experiment {
        control: true,
        rows: 20_000,
        microbenchmarks: "\"insert_range*\", \"delete_range*\", \"update-index_range*\"",
        restarts: 2,
        min_blocks: 60,
        schedule: "write_slice = \"1ms\"",
        ..Experiment::default()
    };
    // A difference in the events of lead-ins, warm-up or slices would change the answers.
    test.run(&experiment, &[]).assert_code(0);
    let mut slices = Stored::open(&test.out()).slices();
    assert!(slices.len() > 3 * 3 * 60);
    slices.sort_by_key(|slice| slice.key);
    for block in slices.chunk_by(|one, other| one.key == other.key) {
        assert_eq!((block.len(), candidates_differ(block)), (3, None));
    }
}

#[test]
fn failed_statements_are_counted_and_reported() {
    let test = TestDir::new();
    let experiment = Experiment {
        microbenchmarks: "\"hot-points*\", \"refused\"",
        more: "[[microbenchmark]]\nname = \"refused\"\ngroup = \"writes\"\ntransaction = true\n\
               [[microbenchmark.statements]]\naffects = 1\ndraw = { id = \"uniform\" }\n\
               sql = \"INSERT INTO {table} (id, k, c, pad) VALUES (:id, 1, 'c', 'pad')\"\n",
        ..Experiment::default()
    };
    test.run(&experiment, &["--keep-data"])
        .assert_code(1)
        .assert_prints("UNIQUE constraint failed");
    for row in &read_csv(&test.out().join("relative.csv"))[1..] {
        let refused = row[0].starts_with("refused");
        assert_eq!(row[7] == "failed", refused, "{row:?}");
        assert_eq!(row[13] == "0", !refused, "{row:?}");
    }
    // Every transaction was rolled back.
    let base = Connection::open(test.out().join("data/base/data.sqlite")).unwrap();
    let rows: u32 = base.query_row("SELECT COUNT(*) FROM sbtest1", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, experiment.rows);
}

#[test]
fn rejected_statement_is_named() {
    let test = TestDir::new();
    let experiment = Experiment {
        microbenchmarks: "\"mistaken\"",
        more: "[[microbenchmark]]\nname = \"mistaken\"\ngroup = \"point-1\"\n\
               [[microbenchmark.statements]]\nsql = \"SELECT absent FROM {table} WHERE id = :id\"\n\
               draw = { id = \"uniform\" }\nrows = 1\n",
        ..Experiment::default()
    };
    let finished = test.run(&experiment, &[]);
    finished.assert_code(1).assert_prints("no such column: absent").assert_prints("mistaken");
}

#[test]
fn injected_delay_is_measured() {
    let test = TestDir::new();
    let experiment = Experiment {
        microbenchmarks: "\"range-covered-pk.pre_range=100\"",
        budget: "200ms",
        candidates: &[("base", ""), ("slow", "injected_delay = \"900%\"")],
        ..Experiment::default()
    };
    test.run(&experiment, &[]).assert_code(0);
    let row = &read_csv(&test.out().join("relative.csv"))[1];
    let [qps, cpu] = [4, 11].map(|field: usize| row[field].parse::<f64>().unwrap());
    assert!(qps < 0.6, "a tenth is expected: {row:?}");
    assert!((4.0..25.0).contains(&cpu), "ten times is expected: {row:?}");
}
