//! Compares what the insert benchmark has loaded with the expected rows.

use std::fmt::Write;

use anyhow::{Context, anyhow, ensure};
use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_types::insert::StepMeasured;
use dbdyno_types::server::{ServerSystem, StatementMode, Target};
use dbdyno_worker::protocol::{InsertStep, StepUsages};
use dbdyno_worker::{WorkerError, WorkerHandle};
use dbdyno_workloads::events::ParameterSink;
use dbdyno_workloads::insert::{Inserts, Plan, RowStream, Step, Task, indexes, table_name};

use crate::private_server::{SCHEMA, SEED};

/// Rows read by one query.
const CHUNK: usize = 5_000;

/// Number of compared queries of each of the three kinds.
const QUERIES: usize = 300;

const DATA_LENGTH: u32 = 10;

/// Inserts half of the rows before the indexes are created, half after.
#[must_use]
pub fn plan(rows: u64) -> Plan {
    let insert = |name: &str, rows_per_commit, indexed| Step {
        name: name.to_owned(),
        task: Task::Insert(Inserts { rows_per_client: rows / 2, rows_per_commit, indexed }),
    };
    let plain = |name: &str, task| Step { name: name.to_owned(), task };
    Plan {
        clients: 1,
        tables: 1,
        data_length: DATA_LENGTH,
        delete_per_insert: false,
        steps: vec![
            insert("l.i0", 100, false),
            plain("l.x", Task::Index),
            insert("l.i1", 50, true),
            plain("settle", Task::Settle),
        ],
    }
}

/// Runs all steps and calls `done` after each.
///
/// # Errors
/// A step failed.
pub fn load(
    worker: &mut WorkerHandle,
    plan: &Plan,
    mut done: impl FnMut(&str, &StepMeasured),
) -> anyhow::Result<()> {
    for (number, step) in (0..).zip(&plan.steps) {
        let measured = run_step(worker, number)?;
        done(&step.name, &measured);
    }
    Ok(())
}

/// Runs one step.
///
/// # Errors
/// It failed.
pub fn run_step(worker: &mut WorkerHandle, number: u32) -> anyhow::Result<StepMeasured> {
    let order = InsertStep { step: number, repeat: 0, data: None };
    worker
        .insert_step(order, &mut |_| StepUsages::default(), |_| Ok::<bool, WorkerError>(true))?
        .context("the step was interrupted")
}

/// An expected row. The time is the number formed by its digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    time: u64,
    register: u32,
    customer: u32,
    product: u32,
    price: u32,
    data: String,
}

#[derive(Default)]
struct Values {
    ints: Vec<u32>,
    texts: Vec<String>,
}

impl ParameterSink for Values {
    fn int(&mut self, value: i64) {
        self.ints.push(u32::try_from(value).unwrap_or(u32::MAX));
    }

    fn text(&mut self, text: &[u8]) {
        self.texts.push(String::from_utf8_lossy(text).into_owned());
    }
}

/// All rows in order of insertion, which is key order.
fn rows_of(plan: &Plan) -> Vec<Row> {
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
            let (Some(data), Some(time), [register, customer, product, price]) =
                (values.texts.pop(), values.texts.pop(), values.ints[..].as_ref())
            else {
                continue;
            };
            rows.push(Row {
                time: digits(&time),
                register: *register,
                customer: *customer,
                product: *product,
                price: *price,
                data,
            });
        }
    }
    rows
}

fn digits(time: &str) -> u64 {
    let digits = time.bytes().filter(u8::is_ascii_digit);
    digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'))
}

/// A connection for queries with a hint to use an index.
struct QueryClient {
    connection: AnyConnection,
}

enum AnyConnection {
    MySql(Box<MySqlConnection>),
    Postgres(Box<PostgresConnection>),
}

impl QueryClient {
    fn connect(system: ServerSystem, target: &Target) -> anyhow::Result<Self> {
        let target = Target { database: Some(SCHEMA.to_owned()), ..target.clone() };
        let words = |error: dbdyno_drivers::Error| anyhow!("{error}");
        let connection = match system {
            ServerSystem::PostgreSql => {
                let mut connection =
                    PostgresConnection::connect(&target, StatementMode::Text).map_err(words)?;
                let sql = "SET enable_seqscan = off; SET enable_bitmapscan = off; \
                           SET enable_sort = off";
                connection.run(sql).map_err(words)?;
                AnyConnection::Postgres(Box::new(connection))
            }
            ServerSystem::MariaDb | ServerSystem::MySql => AnyConnection::MySql(Box::new(
                MySqlConnection::connect(&target, StatementMode::Text).map_err(words)?,
            )),
        };
        Ok(Self { connection })
    }

    /// The table with a hint to use this index, or the primary key if `None`.
    fn table(&self, index: Option<&str>) -> String {
        let name = table_name(0);
        match self.connection {
            AnyConnection::MySql(_) => {
                format!("{name} FORCE INDEX ({})", index.unwrap_or("PRIMARY"))
            }
            AnyConnection::Postgres(_) => name,
        }
    }

    fn rows(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<String>>> {
        let rows = match &mut self.connection {
            AnyConnection::MySql(connection) => connection.query(sql),
            AnyConnection::Postgres(connection) => connection.query(sql),
        };
        let rows = rows.map_err(|error| anyhow!("{error}"))?;
        Ok(rows.into_iter().map(|row| row.into_iter().flatten().collect()).collect())
    }

    /// Rows of numbers; times are converted to their digits.
    fn numbers(&mut self, sql: &str) -> anyhow::Result<Vec<Vec<u64>>> {
        Ok(self.rows(sql)?.iter().map(|row| row.iter().map(|one| digits(one)).collect()).collect())
    }
}

/// Counts of what was checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Rows of the table, with all columns.
    pub rows: usize,
    /// Entries of the three indexes.
    pub entries: usize,
    /// Queries, with all rows of their results.
    pub queries: usize,
}

/// Compares the whole table, all index entries and some query results with the expected ones.
///
/// # Errors
/// A difference, with its position.
pub fn check(system: ServerSystem, target: &Target, plan: &Plan) -> anyhow::Result<Checked> {
    let mut client = QueryClient::connect(system, target)?;
    let rows = rows_of(plan);
    let counted = client.numbers(&format!("SELECT COUNT(*) FROM {}", table_name(0)))?;
    ensure!(counted == [[rows.len() as u64]], "{counted:?} rows, expected {}", rows.len());
    check_table(&mut client, &rows)?;
    let mut queries = 0;
    let mut entries = 0;
    for (index, columns) in indexes(0).into_iter().zip(ENTRIES) {
        let mut expected: Vec<[u64; 3]> = rows.iter().map(columns).collect();
        expected.sort_unstable();
        check_index(&mut client, &index.name, index.columns, &expected)
            .with_context(|| format!("index {}", index.name))?;
        entries += expected.len();
        queries += check_queries(&mut client, index.columns, &expected)?;
    }
    Ok(Checked { rows: rows.len(), entries, queries })
}

/// The values of the index entries, in the order of `indexes`.
const ENTRIES: [fn(&Row) -> [u64; 3]; 3] = [
    |row| [row.product.into(), row.customer.into(), row.price.into()],
    |row| [row.register.into(), row.customer.into(), row.price.into()],
    |row| [row.price.into(), row.time, row.customer.into()],
];

fn check_table(client: &mut QueryClient, rows: &[Row]) -> anyhow::Result<()> {
    let table = client.table(None);
    for (number, chunk) in rows.chunks(CHUNK).enumerate() {
        let first = number * CHUNK + 1;
        let found = client.rows(&format!(
            "SELECT transactionid, dateandtime, cashregisterid, customerid, productid, price, data \
             FROM {table} WHERE transactionid >= {first} AND transactionid < {} \
             ORDER BY transactionid",
            first + CHUNK
        ))?;
        ensure!(found.len() == chunk.len(), "{} rows from {first} on", found.len());
        for (at, (row, found)) in chunk.iter().zip(&found).enumerate() {
            let mut expected = format!("{}", first + at);
            let Row { time, register, customer, product, price, data } = row;
            let _ = write!(expected, " {time} {register} {customer} {product} {price} {data}");
            let mut words = found.clone();
            if let Some(time) = words.get_mut(1) {
                *time = digits(time).to_string();
            }
            ensure!(words.join(" ") == expected, "found {found:?}, expected {expected}");
        }
    }
    Ok(())
}

fn check_index(
    client: &mut QueryClient,
    name: &str,
    columns: [&str; 3],
    expected: &[[u64; 3]],
) -> anyhow::Result<()> {
    let table = client.table(Some(name));
    let list = columns.join(", ");
    let mut at = 0;
    while at < expected.len() {
        // Chunks end between values of the first column.
        let first = expected[at][0];
        let wanted = expected.get(at + CHUNK).map_or(u64::MAX, |entry| entry[0]);
        let last = wanted.max(first + 1).min(1_000_000_000);
        let end = at + expected[at..].partition_point(|entry| entry[0] < last);
        let found = client.numbers(&format!(
            "SELECT {list} FROM {table} WHERE {0} >= {first} AND {0} < {last} ORDER BY {list}",
            columns[0]
        ))?;
        ensure!(found.len() == end - at, "{} entries from {first} to {last}", found.len());
        for (found, expected) in found.iter().zip(&expected[at..end]) {
            ensure!(found == expected, "found {found:?}, expected {expected:?}");
        }
        at = end;
    }
    Ok(())
}

/// The benchmark's queries, spread evenly over the values of the index's first column.
fn check_queries(
    client: &mut QueryClient,
    columns: [&str; 3],
    expected: &[[u64; 3]],
) -> anyhow::Result<usize> {
    use dbdyno_workloads::insert::QueryKind;
    let query = QueryKind::Range
        .queries()
        .iter()
        .find(|query| query.sql("t", "?").contains(&format!("ORDER BY {}", columns[0])))
        .context("the index has no query")?;
    let greatest = expected.last().map_or(0, |entry| entry[0]);
    for number in 0..QUERIES {
        let value = greatest * number as u64 / QUERIES as u64;
        let sql = query.sql(&table_name(0), &value.to_string());
        // The query by cash register starts after its value.
        let from = if sql.contains(">=") { value } else { value + 1 };
        let start = expected.partition_point(|entry| entry[0] < from);
        let answer = &expected[start..expected.len().min(start + 10)];
        let found = client.numbers(&sql)?;
        ensure!(found.len() == answer.len(), "{} rows of {sql}", found.len());
        for (found, expected) in found.iter().zip(answer) {
            ensure!(found == expected, "found {found:?}, expected {expected:?}, by {sql}");
        }
    }
    Ok(QUERIES)
}
