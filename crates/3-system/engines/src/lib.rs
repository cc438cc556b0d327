//! The life cycle of a system under test: create, load, clone, settle, snapshot the state.
//!
//! An engine creates its data, copies it and brings it to a known state. It does not depend on the
//! statements that a microbenchmark executes.

mod clone;
pub mod in_force;
mod insert;
mod marker;
pub mod mysql;
pub mod postgres;
pub mod server;
mod server_engine;
pub mod sqlite;

pub use clone::{CloneError, clone_file};
pub use insert::InsertEngine;
pub use marker::SchemaRemoval;
pub use server_engine::{ServerEngine, WithServerEngine, with_server_engine};

use std::time::{Duration, Instant};

use dbdyno_drivers::{Connection, Error, ErrorKind, Params};
use dbdyno_types::StateSnapshot;

use crate::in_force::ReportedSetting;

/// A system under test, as a worker uses it.
pub trait Engine: Clone + Send + 'static {
    type Connection: Connection + Send;

    /// Whether all connections share one cache, so that reading the data through one warms it for all.
    const SHARES_CACHE: bool;

    fn version(&self) -> Result<String, Error>;

    /// Build options and settings that the system reports: names and values. Those that are known to
    /// affect speed come first. None contains a password, or is a property of this one server, such as
    /// its port.
    fn options(&self) -> Vec<(String, String)>;

    /// The values in force of settings with these names. An embedded system has none.
    fn settings_in_force(&self, _names: &[String]) -> Result<Vec<ReportedSetting>, Error> {
        Ok(Vec::new())
    }

    /// The same system with the tables in another schema; the same one without schemas.
    fn in_schema(&self, _schema: &str) -> Self {
        self.clone()
    }

    /// Creates a schema for this run's tables, if the system has schemas. If the run created it
    /// before, drops its tables on an existing server, and does nothing on a private one.
    fn create_schema(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Logs in to an existing server and checks that this run can create its schema, and have so many connections if a
    /// pooler limits them, without changing anything. Does nothing on other systems.
    fn check_access(&self, _connections: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Opens a connection on which the system checks statements when they are prepared, whatever the
    /// mode of statements is.
    fn connect_to_check(&self) -> Result<Self::Connection, Error> {
        self.connect()
    }

    /// Drops this run's tables, and the schema if nothing else is in it. Leaves a schema alone that is
    /// not this run's.
    fn drop_schema(&self) -> Result<SchemaRemoval, Error> {
        Ok(SchemaRemoval::Absent)
    }

    /// Ends the statements that killed workers of this run left in its schema on an existing server, which may notice only
    /// at their end that the client is gone.
    fn end_statements(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a table with the statement `sql`. What this creates, [`Self::drop_schema`] may drop.
    fn create_table(
        &self,
        connection: &mut Self::Connection,
        _table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        connection.run(sql)
    }

    /// The schema on an existing server, where scripts may change nothing else; `None` where they may change anything.
    fn schema_of_others(&self) -> Option<&str> {
        None
    }

    /// A connection for dbdyno's own statements, such as loading, which no setting of the server affects.
    fn connect_to_administer(&self) -> Result<Self::Connection, Error> {
        self.connect()
    }

    /// A connection for the user's setup scripts, which may change its session settings. Tables that do
    /// not specify it get the candidate's storage engine.
    fn connect_for_setup(&self) -> Result<Self::Connection, Error> {
        self.connect()
    }

    /// Executes one statement of a setup script. Tables that appear in the run's schema are the run's:
    /// [`Self::drop_schema`] may drop them.
    fn run_setup(
        &self,
        connection: &mut Self::Connection,
        sql: &str,
        _creates: TableCreation<'_>,
    ) -> Result<(), Error> {
        connection.run(sql)
    }

    /// The names of all tables of the run, sorted.
    fn table_names(&self, connection: &mut Self::Connection) -> Result<Vec<String>, Error>;

    fn connect(&self) -> Result<Self::Connection, Error>;

    /// Creates the table, fills it with the rows from `next`, then creates the index.
    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error>;

    /// Makes the server count what this connection did: work that it counts later looks new when it is settled.
    fn count_work(&self, _connection: &mut Self::Connection) -> Result<(), Error> {
        Ok(())
    }

    /// Counters of the system that grow while it works, by name, with some levels among them. Those of an embedded
    /// system are of this connection; empty if the system has none that are up to date.
    fn counters(&self, connection: &mut Self::Connection) -> Result<Vec<(String, u64)>, Error>;

    /// How the system would execute a statement with literals, which it does not: lines without estimates.
    fn plan(&self, connection: &mut Self::Connection, sql: &str) -> Result<Vec<String>, Error>;

    /// Settles the database: no background work is left, statistics are up to date.
    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error>;

    /// Reads these tables and their indexes once through this connection, to fill the cache.
    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error>;

    /// Reads these tables of the user and their indexes once through this connection, to fill the
    /// cache.
    fn warm_own(&self, connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error>;

    /// Row count, size and the engine's own figures; of these tables, if the system has figures of
    /// tables.
    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[String],
    ) -> Result<StateSnapshot, Error>;

    /// Adds the tables of another schema of the same system to a state snapshot. Figures of the whole system stay.
    fn add_to_snapshot(&self, sum: &mut StateSnapshot, other: StateSnapshot) {
        sum.rows += other.rows;
        sum.data_size = sum.data_size + other.data_size;
    }
}

/// Writes the next row to load, as `k`, `c` and `pad`, into the parameters; false if there is none.
pub type NextRow<'a> = &'a mut dyn FnMut(&mut Params) -> bool;

/// One of dbdyno's tables and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub name: String,
    /// The name of the index on `k`.
    pub index: String,
}

/// What a statement of a setup script creates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableCreation<'a> {
    Named(&'a str),
    Possible,
    None,
}

/// The values of the first column, without NULLs.
fn column(connection: &mut impl Connection, sql: &str) -> Result<Vec<String>, Error> {
    let rows = connection.query(sql)?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

/// The rows of a name and a whole number, without others.
fn numbers_by_name(rows: Vec<Vec<Option<String>>>) -> Vec<(String, u64)> {
    pairs(rows).filter_map(|(name, value)| Some((name, value.parse().ok()?))).collect()
}

fn failed(doing: impl Into<String>, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Statement, doing, message)
}

/// The error of a query that should return a number.
fn not_a_number(sql: &str, text: &str) -> Error {
    failed(format!("executing {sql}"), format!("`{text}` is not a number"))
}

/// The error of a state that was not reached in time.
fn busy(doing: &str, message: String) -> Error {
    Error::new(ErrorKind::Busy, doing, message)
}

/// Polls until nothing is left; `left` says what is.
fn wait_until_settled(
    doing: &str,
    timeout: Duration,
    mut left: impl FnMut() -> Result<Option<String>, Error>,
) -> Result<(), Error> {
    let started = Instant::now();
    while let Some(left) = left()? {
        if started.elapsed() > timeout {
            return Err(busy(doing, format!("after {} s, {left}", timeout.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// An identifier in double quotes.
fn quoted_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Rows that are a name and a value, without NULLs.
fn pairs(rows: Vec<Vec<Option<String>>>) -> impl Iterator<Item = (String, String)> {
    rows.into_iter().filter_map(|row| match <[Option<String>; 2]>::try_from(row) {
        Ok([Some(name), Some(value)]) => Some((name, value)),
        _ => None,
    })
}
