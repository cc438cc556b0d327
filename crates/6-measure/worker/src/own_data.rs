//! The user's own data: setup scripts, the `prepare` of sysbench scripts, and the tables that they create.

use std::thread;
use std::time::Duration;

use dbdyno_drivers::{Connection, Error, ErrorKind, Params};
use dbdyno_engines::{Engine, Table, TableCreation};
use dbdyno_scripts::{
    Driver, Host, IgnoredErrors, Outcome, Rows, START_TIME, Seed, Sent, Setup, SqlError,
    SqlErrorKind, Value, prepare, seems_to_return_rows, with_values,
};
use dbdyno_types::server::Protocol;
use dbdyno_workloads::definition::Script;
use dbdyno_workloads::effect::{ALLOWED, Effect, effect};
use dbdyno_workloads::setup::{Dialect, SetupScript, split_script};

use crate::error::RequestError;
use crate::protocol::{Open, SystemUnderTest};
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

/// The error of a statement that was not sent.
pub(crate) fn refusal(what: &str) -> Error {
    let reason =
        format!("{what} is not possible on an existing server, and was not sent; {ALLOWED}");
    Error::new(ErrorKind::Statement, "checking a statement", reason)
}

/// The effect of statements; an error if they change what does not belong to the run on an existing server, where
/// these are its schemas. Elsewhere there are none, and everything is allowed.
fn allowed(sql: &str, dialect: Dialect, own: &[&str]) -> Result<Effect, Error> {
    match effect(sql, dialect, own) {
        Effect::Other(what) if !own.is_empty() => Err(refusal(&what)),
        effect => Ok(effect),
    }
}

/// Runs statements that may create a table.
fn run_setup<E: Engine>(
    engine: &E,
    connection: &mut E::Connection,
    sql: &str,
    dialect: Dialect,
) -> Result<(), Error> {
    let effect = allowed(sql, dialect, engine.schema_of_others().as_slice())?;
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

/// Runs `prepare` of a script, in the schema of the engine.
pub(crate) fn prepare_script<E: Engine>(
    engine: &E,
    dialect: Dialect,
    target: &ScriptTarget,
    script: &Script,
    (seed, clients): (u64, u32),
) -> Result<(), RequestError> {
    let setup = target.setup(script, 0, clients, Seed::of(&[seed, DATA]), 0);
    let setup = Setup { options: script.options.clone(), ..setup };
    let connection = &mut engine.connect_for_setup()?;
    let driver = target.driver;
    set_time(connection, driver, START_TIME)?;
    let prepared = Vec::new();
    let mut host = DataHost { engine, connection, dialect, driver, prepared, columns: 0 };
    let made = prepare(&script.source, &setup, &mut host);
    Ok(made.map_err(|error| format!("prepare of {}: {error}", script.source.name))?)
}

/// The codes of unknown databases and tables of MySQL, and of unknown schemas of PostgreSQL, as in the errors of
/// scripts.
const UNKNOWN: [&str; 3] = ["error 1049,", "error 1146,", "SQLSTATE '3F000'"];

/// Adds to the error of a script which schema it uses, if it may have named another one.
pub(crate) fn with_schema(error: RequestError, open: &Open, number: usize) -> RequestError {
    let SystemUnderTest::Server { settings, .. } = &open.system else { return error };
    let mut schemas = std::iter::once(&settings.schema).chain(&open.more_schemas);
    match schemas.nth(number) {
        Some(schema) => naming(error, schema, settings.is_private()),
        None => error,
    }
}

fn naming(error: RequestError, schema: &str, is_private: bool) -> RequestError {
    let message = error.to_string();
    let is_in_it = message.contains(&format!("'{schema}."));
    if error.lost_connection || is_in_it || !UNKNOWN.iter().any(|code| message.contains(code)) {
        return error;
    }
    let whose = if is_private { "microbenchmark" } else { "candidate" };
    format!(
        "{message}; the tables of this script are in the schema `{schema}`: if it names another one, \
         set that as `schema` of the {whose}"
    )
    .into()
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
        let own = self.engine.schema_of_others();
        let effect = match allowed(&text, self.dialect, own.as_slice()) {
            Ok(effect) => effect,
            Err(error) => return Sent::Done(Err(sql_error(error, &IgnoredErrors::default()))),
        };
        self.columns = 0;
        let creates = matches!(effect, Effect::CreatesTable(_));
        let is_harmless = effect == Effect::CreatesNoTable;
        let ran = if is_harmless || (!creates && seems_to_return_rows(sql)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn excerpts_are_short_lines() {
        assert_eq!(excerpt("SELECT\n  1"), "SELECT 1");
        let long = excerpt(&format!("INSERT INTO é VALUES ({})", "é".repeat(99)));
        assert_eq!(long.chars().count(), EXCERPT + 1);
    }

    #[test]
    fn error_of_an_unknown_schema_names_that_of_the_script() {
        let explained = |message: &str| naming(message.into(), "sbtest_2", true).to_string();
        let unknown = "Table 'sbtest.q' doesn't exist (error 1146, SQLSTATE '42S02') in: SELECT 1";
        assert!(explained(unknown).contains("are in the schema `sbtest_2`"));
        for other in ["Table 'sbtest_2.q' doesn't exist (error 1146, SQLSTATE '42S02')", "no"] {
            assert_eq!(explained(other), other);
        }
    }
}
