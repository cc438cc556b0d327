//! The user's own data: setup scripts, the `prepare` of sysbench scripts, and the tables that they create.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::thread;
use std::time::Duration;

use dbdyno_drivers::{Connection, Error, Params};
use dbdyno_engines::{Engine, Table, TableCreation};
use dbdyno_scripts::{
    Driver, Host, IgnoredErrors, Outcome, Recorder, Rows, START_TIME, Seed, Sent, SqlError,
    SqlErrorKind, Value, prepare, seems_to_return_rows, with_values,
};
use dbdyno_types::server::Protocol;
use dbdyno_workloads::definition::Script;
use dbdyno_workloads::setup::{Dialect, Effect, SetupScript, effect, split_script};

use crate::error::RequestError;
use crate::protocol::SystemUnderTest;
use crate::script::{ScriptTarget, outcome, print, set_time, sql_error, with_fixed_time};

/// Characters of a statement in messages.
const EXCERPT: usize = 60;

/// The lexical rules of a system's SQL.
pub(crate) const fn dialect(system: &SystemUnderTest) -> Dialect {
    match system {
        SystemUnderTest::Sqlite { .. } => Dialect::Sqlite,
        SystemUnderTest::Server { settings, .. } => match settings.system.facts().protocol {
            Protocol::MySql => Dialect::MySql,
            Protocol::PostgreSql => Dialect::PostgreSql,
        },
    }
}

/// Runs the statements of the scripts, in order.
pub(crate) fn run_scripts<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    dialect: Dialect,
    scripts: &[SetupScript],
) -> Result<(), RequestError> {
    for SetupScript { origin, text } in scripts {
        for (number, statement) in (1..).zip(split_script(text, dialect)) {
            let ran = run_setup(engine, connection, statement.sql, dialect);
            ran.map_err(|error| {
                format!(
                    "{origin}, line {}, statement {number} ({}): {}",
                    statement.line,
                    excerpt(statement.sql),
                    error.message
                )
            })?;
        }
    }
    Ok(())
}

/// The tables that are not dbdyno's.
pub(crate) fn own_table_names<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    tables: &[Table],
) -> Result<Vec<String>, RequestError> {
    let mut names = engine.table_names(connection)?;
    names.retain(|name| tables.iter().all(|table| table.name != *name));
    Ok(names)
}

/// Runs a statement that may create a table.
fn run_setup<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    sql: &str,
    dialect: Dialect,
) -> Result<(), Error> {
    let effect = effect(sql, dialect);
    let creates = match &effect {
        Effect::CreatesTable(name) => TableCreation::Named(name),
        Effect::CreatesNoTable => TableCreation::None,
        Effect::MayCreateTable | Effect::Other(_) => TableCreation::Possible,
    };
    engine.run_setup(connection, sql, creates)
}

/// The start of a statement, in one line.
fn excerpt(sql: &str) -> String {
    let line = sql.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(EXCERPT) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Selects the random numbers of the data; clients have their own.
const DATA: u64 = u64::MAX;

/// Runs `prepare` of each script. One that makes the same tables as another, with as many rows, uses the
/// data of the other.
pub(crate) fn prepare_scripts<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    dialect: Dialect,
    target: &ScriptTarget,
    scripts: &[Script],
    (seed, clients): (u64, u32),
) -> Result<(), RequestError> {
    let mut made: Vec<u64> = Vec::new();
    for script in scripts {
        let setup = target.setup(script, 0, clients, Seed::of(&[seed, DATA]), 0);
        if scripts.len() > 1 {
            let mut recorded = Fingerprint::default();
            // Data that depends on answers is made for each script.
            if prepare(&script.source, &setup, &mut recorded).is_ok() {
                let fingerprint = recorded.finish();
                if made.contains(&fingerprint) {
                    continue;
                }
                made.push(fingerprint);
            }
        }
        let driver = target.driver;
        let mut host = DataHost {
            engine,
            connection: &mut *connection,
            dialect,
            driver,
            prepared: Vec::new(),
            columns: 0,
        };
        set_time(host.connection, driver, START_TIME)?;
        prepare(&script.source, &setup, &mut host)
            .map_err(|error| format!("prepare of {}: {error}", script.source.name))?;
    }
    Ok(())
}

/// Executes the statements of a `prepare` as those of setup scripts.
struct DataHost<'a, E: Engine> {
    engine: &'a E,
    connection: &'a mut E::Connection,
    dialect: Dialect,
    driver: Driver,
    prepared: Vec<Vec<u8>>,
    columns: u16,
}

impl<E: Engine> Host for DataHost<'_, E> {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.prepared.push(sql.to_owned());
        Ok(self.prepared.len() as u32 - 1)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let sql = with_values(&self.prepared[statement as usize], values, self.driver);
        self.query(&sql)
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        let sql = &*with_fixed_time(sql, self.driver);
        let text = String::from_utf8_lossy(sql);
        self.columns = 0;
        let creates_none = effect(&text, self.dialect) == Effect::CreatesNoTable;
        let ran = if creates_none || seems_to_return_rows(sql) {
            let executed = self.connection.text_statement(sql);
            executed.and_then(|id| self.connection.execute(id, &Params::default())).map(|_| {
                self.columns = self.connection.result().columns;
                outcome(self.connection.result())
            })
        } else {
            let ran = run_setup(self.engine, self.connection, &text, self.dialect);
            ran.map(|()| Outcome::default())
        };
        // There is nothing to restart.
        Sent::Done(ran.map_err(|error| SqlError {
            kind: SqlErrorKind::Failed,
            ..sql_error(error, &IgnoredErrors::default())
        }))
    }

    fn take_rows(&mut self) -> Rows {
        self.connection.take_rows()
    }

    fn columns(&self) -> u16 {
        self.columns
    }

    fn has_more_results(&self) -> bool {
        self.connection.has_more_results()
    }

    fn next_result(&mut self) -> Option<Outcome> {
        let next = self.connection.next_result()?;
        self.columns = next.columns;
        Some(outcome(next))
    }

    fn sleep(&mut self, time: Duration) {
        thread::sleep(time);
    }

    fn print(&mut self, text: &str) {
        print(text);
    }
}

/// Hashes what the statements of a `prepare` create instead of executing them: of `INSERT`, the number of
/// rows, since values are random.
#[derive(Default)]
struct Fingerprint {
    recorder: Recorder,
    hasher: DefaultHasher,
    /// The table that rows are inserted into, and their number.
    table: String,
    rows: u64,
}

fn is_insert(sql: &str) -> bool {
    sql.trim_start().get(..6).is_some_and(|word| word.eq_ignore_ascii_case("insert"))
}

impl Fingerprint {
    fn finish(&mut self) -> u64 {
        self.rows.hash(&mut self.hasher);
        self.hasher.finish()
    }

    fn hashed(&mut self, sent: Sent) -> Sent {
        for statement in self.recorder.statements.drain(..) {
            match statement.split_once("VALUES") {
                Some((table, rows)) if is_insert(table) => {
                    // Rows of one table are split into statements by their random size.
                    if self.table != table {
                        (self.rows, table).hash(&mut self.hasher);
                        (self.rows, self.table) = (0, table.to_owned());
                    }
                    self.rows += 1 + rows.matches("),(").count() as u64;
                }
                _ => {
                    (self.rows, &statement).hash(&mut self.hasher);
                    (self.rows, self.table) = (0, String::new());
                }
            }
        }
        sent
    }
}

impl Host for Fingerprint {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.recorder.prepare(sql)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let sent = self.recorder.execute(statement, values);
        self.hashed(sent)
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        let sent = self.recorder.query(sql);
        self.hashed(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_lines() {
        assert_eq!(excerpt("SELECT\n  1"), "SELECT 1");
        let long = excerpt(&format!("INSERT INTO é VALUES ({})", "é".repeat(99)));
        assert_eq!(long.chars().count(), EXCERPT + 1);
    }

    fn fingerprint(statements: &[&str]) -> u64 {
        let mut recorded = Fingerprint::default();
        for sql in statements {
            recorded.query(sql.as_bytes());
        }
        recorded.finish()
    }

    #[test]
    fn data_with_the_same_tables_and_numbers_of_rows_is_the_same() {
        let one = fingerprint(&["CREATE TABLE a (i INT)", "INSERT INTO a VALUES (1),(2)"]);
        for values in [&["(3),(9)"][..], &["(1)", "(2)"]] {
            let inserts: Vec<String> =
                values.iter().map(|rows| format!("INSERT INTO a VALUES {rows}")).collect();
            let mut statements = vec!["CREATE TABLE a (i INT)"];
            statements.extend(inserts.iter().map(String::as_str));
            assert_eq!(one, fingerprint(&statements));
        }
        for other in [
            fingerprint(&["CREATE TABLE b (i INT)", "INSERT INTO a VALUES (1),(2)"]),
            fingerprint(&["CREATE TABLE a (i INT)", "INSERT INTO a VALUES (1)"]),
            fingerprint(&["CREATE TABLE a (i INT)", "INSERT INTO b VALUES (1),(2)"]),
            fingerprint(&["CREATE TABLE a (i INT)"]),
        ] {
            assert_ne!(one, other);
        }
    }
}
