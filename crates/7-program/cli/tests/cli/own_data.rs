//! The user's own tables, created by `setup`.

use std::fs;

use dbdyno_drivers::Connection as _;
use dbdyno_types::server::ServerSystem;
use rusqlite::Connection;

use crate::common::{INNODB, MYROCKS, POSTGRES, TestDir, call, finish, read_csv, resume};
use crate::existing::{Theirs, postgresql};
use crate::servers::{DIFFERING_ANSWERS, count};

/// Two tables without use of dbdyno's.
const SHOP: &str = "-- 200 customers; 5000 orders
CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(40) NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer INTEGER NOT NULL, total INTEGER NOT NULL);
INSERT INTO customers WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
    SELECT i, 'a; b' FROM n;
INSERT INTO orders
    SELECT a.id + 200 * (b.id - 1), a.id, a.id * b.id FROM customers a CROSS JOIN customers b
    WHERE b.id <= 25;
CREATE INDEX orders_customer ON orders (customer);
";

/// A join and an update of these tables.
const WORK: &str = r#"
[[microbenchmark]]
name = "join"
group = "range-1"
[[microbenchmark.statements]]
sql = """
SELECT c.name, SUM(o.total) FROM customers c JOIN orders o ON o.customer = c.id \
WHERE c.id = :id GROUP BY c.name"""
draw = { id = "uniform(1..200)" }
rows = 1

[[microbenchmark]]
name = "update"
group = "writes"
[[microbenchmark.statements]]
sql = "UPDATE orders SET total = total + 1 WHERE id = :id"
draw = { id = "uniform(1..5000)" }
affects = 1
"#;

fn experiment(setup: &str, candidates: &[(&str, &str)]) -> String {
    let mut text = format!(
        "name = \"own\"\nbaseline = \"{}\"\n\n[workload]\nrows = 1000\ntables = 3\nsetup = {setup}\n\
         microbenchmarks = [\"join\", \"update\"]\n\n\
         [schedule]\nslice = \"5ms\"\nwrite_slice = \"5ms\"\nmin_blocks = 6\nrestarts = 1\n\
         budget = \"50ms\"\n\n[cpus]\nprevent_idle = false\n{WORK}",
        candidates[0].0
    );
    for (name, lines) in candidates {
        text.push_str(&format!("[[candidate]]\nname = \"{name}\"\n{lines}\n\n"));
    }
    text
}

const SQLITE: (&str, &str) = ("sqlite", "system = \"sqlite\"\nvariant = \"o0\"");

#[test]
fn only_own_tables_are_created_and_copied() {
    let test = TestDir::new();
    fs::write(test.path().join("shop.sql"), SHOP).unwrap();
    let out = test.out();
    let text = experiment("\"shop.sql\"", &[SQLITE]);
    let finished = finish(test.text_command(&text, &out, &["--keep-data"]));
    finished.assert_code(0).assert_prints("running shop.sql with sqlite");
    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative.len(), 1 + 2, "{relative:?}");
    assert!(relative[1..].iter().all(|row| row[13] == "0"), "{relative:?}");
    for instance in ["sqlite", "control"] {
        let data = Connection::open(out.join(format!("data/{instance}/data.sqlite"))).unwrap();
        let tables = "SELECT group_concat(name) FROM \
                      (SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE \
                      'sqlite%' ORDER BY name)";
        let tables: String = data.query_row(tables, [], |row| row.get(0)).unwrap();
        assert_eq!(tables, "customers,orders");
    }
    let run = Connection::open(out.join("run.sqlite")).unwrap();
    let rows = "SELECT group_concat(DISTINCT json ->> 'rows') FROM state_snapshot";
    let rows: String = run.query_row(rows, [], |row| row.get(0)).unwrap();
    assert_eq!(rows, "5200");
    // The script is part of the run: its file is not needed to resume.
    fs::remove_file(test.path().join("shop.sql")).unwrap();
    drop(run);
    crate::common::modify_run(&out, "UPDATE microbenchmark SET done = 0");
    fs::remove_dir_all(out.join("data")).unwrap();
    resume(&out, &[]).assert_code(0).assert_prints("running shop.sql with sqlite");
}

#[test]
fn failed_statement_is_reported_with_its_line() {
    let test = TestDir::new();
    let text =
        experiment("'''\nCREATE TABLE a (id INT);\n\nINSERT INTO\n  b VALUES (1)'''", &[SQLITE]);
    let finished = finish(test.text_command(&text, &test.out(), &[]));
    finished.assert_code(1).assert_prints("loading the data with sqlite");
    finished.assert_prints("line 3, statement 2 (INSERT INTO b VALUES (1)): no such table: b");
}

#[test]
fn own_tables_have_equal_contents_on_several_systems() {
    compare_own_tables(&[SQLITE, INNODB, POSTGRES]);
}

#[test]
#[ignore = "full"]
fn own_tables_have_equal_contents_on_all_systems() {
    compare_own_tables(&[SQLITE, INNODB, MYROCKS, POSTGRES]);
}

fn compare_own_tables(candidates: &[(&str, &str)]) {
    let test = TestDir::new();
    let text = experiment(&format!("'''{SHOP}'''"), candidates);
    let out = test.out();
    finish(test.text_command(&text, &out, &[])).assert_code(0);
    let relative = read_csv(&out.join("relative.csv"));
    assert_eq!(relative.len(), 1 + 2 * candidates.len(), "{relative:?}");
    assert!(relative[1..].iter().all(|row| row[13] == "0"), "{relative:?}");
    assert_eq!(count(&out, DIFFERING_ANSWERS), 0);
}

#[test]
fn clean_removes_own_tables_from_a_running_server() {
    let theirs = Theirs::start(ServerSystem::PostgreSql);
    let test = TestDir::new();
    let url = postgresql(&theirs);
    let view = experiment("'CREATE VIEW v AS SELECT 1'", &[("pg", &url)]);
    call([std::path::Path::new("check"), &test.file(&view)])
        .assert_code(2)
        .assert_prints("line 1: CREATE VIEW is not possible on the existing server of pg");

    let text = experiment(&format!("'''{SHOP}'''"), &[("pg", &url)]);
    let out = test.out();
    finish(test.text_command(&text, &out, &["--keep-data"])).assert_code(0);
    let mut owner = dbdyno_drivers::postgres::PostgresConnection::connect(
        &theirs.server().target(),
        dbdyno_types::server::StatementMode::Text,
    )
    .unwrap();
    let mut schemas = || {
        let sql = "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'dbdyno%'";
        owner.query(sql).unwrap().len()
    };
    assert_eq!(schemas(), 2);
    call([std::path::Path::new("clean"), &out]).assert_code(0);
    assert_eq!(schemas(), 0);
    drop(owner);
    theirs.end();
}
