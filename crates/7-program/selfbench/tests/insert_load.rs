//! The insert benchmark loads the right rows and index entries into three engines.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

use std::process::Command;
use std::sync::Arc;

use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_engines::server::DataShape;
use dbdyno_machine::{CpuAssignment, CpuSet, FsRoot, Topology};
use dbdyno_selfbench::private_server::{PrivateServer, SCHEMA, SEED};
use dbdyno_types::ClientWait;
use dbdyno_types::server::{ServerSystem, StatementMode, StorageEngine, Target};
use dbdyno_worker::protocol::{InsertStep, StepUsages};
use dbdyno_worker::{WorkerError, WorkerHandle};
use dbdyno_workloads::events::ParameterSink;
use dbdyno_workloads::insert::{
    Inserts, Plan, Query, QueryKind, RowStream, Step, Task, indexes, table_name,
};

/// Results compared per query of the benchmark.
const RESULTS: usize = 300;

/// Half of the rows are inserted before the indexes are created, half after.
fn plan(rows: u64) -> Plan {
    let insert = |rows_per_commit, indexed| {
        Task::Insert(Inserts { rows_per_client: rows / 2, rows_per_commit, indexed })
    };
    let tasks = [insert(100, false), Task::Index, insert(50, true), Task::Settle];
    let steps = tasks.map(|task| Step { name: "step".to_owned(), task });
    Plan { clients: 1, tables: 1, data_length: 10, delete_per_insert: false, steps: steps.into() }
}

/// The values of a row after its key, as text; the time is the number formed by its digits.
#[derive(Default)]
struct Values(Vec<String>);

impl ParameterSink for Values {
    fn int(&mut self, value: i64) {
        self.0.push(value.to_string());
    }

    fn text(&mut self, text: &[u8]) {
        self.0.push(String::from_utf8(text.to_vec()).unwrap());
    }
}

/// All rows by column name, in order of insertion, which is key order.
fn expected_rows(plan: &Plan) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for (number, step) in (0..).zip(&plan.steps) {
        let Task::Insert(inserts) = step.task else { continue };
        let mut stream = RowStream::new(SEED, 0, number, 0, plan.data_length);
        for row in 0..inserts.rows_per_client {
            if row % u64::from(inserts.rows_per_commit) == 0 {
                stream.begin_commit();
            }
            let mut values = Values::default();
            stream.draw(&mut values);
            rows.push(values.0.into_iter().map(|value| comparable(&value)).collect());
        }
    }
    rows
}

/// A date and time as its digits; other values as they are.
fn comparable(value: &str) -> String {
    let is_time = value.len() >= 19 && value[10..].contains(':');
    if is_time { value.chars().filter(char::is_ascii_digit).collect() } else { value.to_owned() }
}

/// The text of a statement that makes it use the index of this name.
type IndexHint = fn(&str) -> String;

fn connect(system: ServerSystem, target: &Target) -> (Box<dyn Rows>, IndexHint) {
    let target = Target { database: Some(SCHEMA.to_owned()), ..target.clone() };
    if system != ServerSystem::PostgreSql {
        let connection = MySqlConnection::connect(&target, StatementMode::Text).unwrap();
        return (Box::new(connection), |index| format!("FORCE INDEX ({index})"));
    }
    let mut connection = PostgresConnection::connect(&target, StatementMode::Text).unwrap();
    connection
        .run("SET enable_seqscan = off; SET enable_bitmapscan = off; SET enable_sort = off")
        .unwrap();
    (Box::new(connection), |_| String::new())
}

/// Rows of a statement.
trait Rows {
    fn rows(&mut self, sql: &str) -> Vec<Vec<String>>;
}

impl<C: Connection> Rows for C {
    fn rows(&mut self, sql: &str) -> Vec<Vec<String>> {
        let value = |value: Option<String>| comparable(&value.unwrap());
        let rows = self.query(sql).unwrap().into_iter();
        rows.map(|row| row.into_iter().map(value).collect()).collect()
    }
}

fn assert_same(found: &[Vec<String>], expected: &[Vec<String>], of: &str) {
    assert_eq!(found.len(), expected.len(), "{of}");
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected, "{of}");
    }
}

/// Compares all rows, all entries of the three indexes, and results of their queries.
fn check(system: ServerSystem, target: &Target, plan: &Plan) {
    use dbdyno_workloads::insert::COLUMNS;
    let (mut connection, hint) = connect(system, target);
    let table = table_name(0);
    let expected = expected_rows(plan);
    let columns = COLUMNS.join(", ");
    let sql = format!("SELECT {columns} FROM {table} {} ORDER BY transactionid", hint("PRIMARY"));
    assert_same(&connection.rows(&sql), &expected, "the table");
    for index in indexes(0) {
        let positions =
            index.columns.map(|column| COLUMNS.iter().position(|one| *one == column).unwrap());
        let mut entries: Vec<Vec<String>> = expected
            .iter()
            .map(|row| positions.iter().map(|position| row[*position].clone()).collect())
            .collect();
        let number = |value: &String| value.parse::<u64>().unwrap();
        entries.sort_by_key(|entry| -> Vec<u64> { entry.iter().map(number).collect() });
        let list = index.columns.join(", ");
        let sql = format!("SELECT {list} FROM {table} {} ORDER BY {list}", hint(&index.name));
        assert_same(&connection.rows(&sql), &entries, &index.name);
        let by_index = |query: &&Query| query.sql("t", "?").contains(&format!("BY {list}"));
        let query = *QueryKind::Range.queries().iter().find(by_index).unwrap();
        let greatest = number(&entries.last().unwrap()[0]);
        for nth in 0..RESULTS {
            let value = greatest * nth as u64 / RESULTS as u64;
            let sql = query.sql(&table, &value.to_string());
            let first = if sql.contains(">=") { value } else { value + 1 };
            let start = entries.partition_point(|entry| number(&entry[0]) < first);
            let answer = &entries[start..entries.len().min(start + 10)];
            assert_same(&connection.rows(&sql), answer, &sql);
        }
    }
}

const INNODB: (ServerSystem, Option<StorageEngine>) =
    (ServerSystem::MariaDb, Some(StorageEngine::InnoDb));

#[test]
fn rows_indexes_and_answers_are_right() {
    load_and_check(2_000, &[INNODB]);
}

#[test]
#[ignore = "full"]
fn rows_indexes_and_answers_are_right_on_three_engines() {
    let myrocks = (ServerSystem::MariaDb, Some(StorageEngine::MyRocks));
    load_and_check(24_000, &[INNODB, myrocks, (ServerSystem::PostgreSql, None)]);
}

fn load_and_check(rows: u64, engines: &[(ServerSystem, Option<StorageEngine>)]) {
    let topology = Topology::read(&FsRoot::this_machine());
    let cpus = CpuAssignment::choose(&CpuSet::allowed().unwrap(), &topology, 1, false);
    let plan = plan(rows);
    for &(system, engine) in engines {
        let shape = DataShape { tables: 1, rows, clients: 1 };
        let server = PrivateServer::start(system, engine, None, shape, &cpus.system);
        let server = server.unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_load-generator"));
        let log = server.directory().join("worker.log");
        let worker = WorkerHandle::start(command.arg("worker"), &log, Arc::default()).unwrap();
        let insert = Some(plan.clone());
        let mut worker = server.open(worker, &cpus, ClientWait::Sleep, insert).unwrap();
        worker.insert_tables().unwrap();
        for step in 0..plan.steps.len() as u32 {
            let order = InsertStep { step, repeat: 0, data: None };
            let stepped = worker.insert_step(order, &mut |_| StepUsages::default(), |_| {
                Ok::<bool, WorkerError>(true)
            });
            assert_eq!(stepped.unwrap().unwrap().wrong, 0);
        }
        check(system, &server.target().unwrap(), &plan);
    }
}
