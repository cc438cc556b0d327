//! The life cycle of a system under test: create, load, clone, settle, snapshot the state.
//!
//! An engine creates its data, copies it and brings it to a known state. It does not depend on the
//! statements that a microbenchmark executes.

mod clone;
mod insert;
mod marker;
pub mod mysql;
pub mod postgres;
pub mod server;
pub mod sqlite;

pub use clone::{CloneError, clone_file};
pub use insert::InsertEngine;
pub use marker::SchemaRemoval;

use dbdyno_drivers::{Connection, Error, Params};
use dbdyno_types::StateSnapshot;

/// A system under test, as a worker uses it.
pub trait Engine: Clone + Send + 'static {
    /// The type of its connections.
    type Connection: Connection + Send;

    /// Whether all connections share one cache, so that reading the data through one warms it for all.
    const SHARES_CACHE: bool;

    /// The version that the system reports.
    fn version(&self) -> String;

    /// Build options and settings that the system reports: names and values. Those that are known to
    /// affect speed come first. None contains a password, or is a property of this one server, such as
    /// its port.
    fn options(&self) -> Vec<(String, String)>;

    /// Creates a schema for this run's tables, if the system has schemas. If the run created it
    /// before, drops its tables on an existing server, and does nothing on a private one.
    ///
    /// # Errors
    /// The database cannot be reached, a schema of this name exists that is not this run's, or objects
    /// of others depend on this run's tables.
    fn create_schema(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Logs in to an existing server and checks that this run can create its schema, without changing
    /// anything. Does nothing on other systems.
    ///
    /// # Errors
    /// The login failed, a privilege is missing, or a schema of this name exists that is not this run's.
    fn check_access(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens a connection on which the system checks statements when they are prepared, whatever the
    /// mode of statements is.
    ///
    /// # Errors
    /// As [`Self::connect`].
    fn connect_to_check(&self) -> Result<Self::Connection, Error> {
        self.connect()
    }

    /// Drops this run's tables, and the schema if nothing else is in it. Leaves a schema alone that is
    /// not this run's.
    ///
    /// # Errors
    /// The database cannot be reached, or objects of others are in the schema or depend on this run's
    /// tables.
    fn drop_schema(&self) -> Result<SchemaRemoval, Error> {
        Ok(SchemaRemoval::Absent)
    }

    /// Creates a table with the statement `sql`. What this creates, [`Self::drop_schema`] may drop.
    ///
    /// # Errors
    /// The statement failed.
    fn create_table(
        &self,
        connection: &mut Self::Connection,
        _table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        connection.run(sql)
    }

    /// A connection for the user's setup scripts, which may change its session settings. Tables that do
    /// not specify it get the candidate's storage engine.
    ///
    /// # Errors
    /// As [`Self::connect`].
    fn connect_for_setup(&self) -> Result<Self::Connection, Error> {
        self.connect()
    }

    /// Executes one statement of a setup script. Tables that appear in the run's schema are the run's:
    /// [`Self::drop_schema`] may drop them.
    ///
    /// # Errors
    /// The statement failed.
    fn run_setup(
        &self,
        connection: &mut Self::Connection,
        sql: &str,
        _creates: TableCreation<'_>,
    ) -> Result<(), Error> {
        connection.run(sql)
    }

    /// The names of all tables of the run, sorted.
    ///
    /// # Errors
    /// A statement failed.
    fn table_names(&self, connection: &mut Self::Connection) -> Result<Vec<String>, Error>;

    /// Opens a connection and applies the settings.
    ///
    /// # Errors
    /// The database cannot be reached or opened, or rejects a setting.
    fn connect(&self) -> Result<Self::Connection, Error>;

    /// Creates the table, fills it with the rows from `next`, then creates the index.
    ///
    /// # Errors
    /// A statement failed; for example, the disk is full.
    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error>;

    /// Settles the database: no background work is left, statistics are up to date.
    ///
    /// # Errors
    /// A statement failed, or the state was not reached in time.
    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error>;

    /// Reads these tables and their indexes once through this connection, to fill the cache.
    ///
    /// # Errors
    /// A statement failed.
    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error>;

    /// Reads these tables of the user and their indexes once through this connection, to fill the
    /// cache.
    ///
    /// # Errors
    /// A statement failed.
    fn warm_own(&self, connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error>;

    /// Row count, size and the engine's own figures; of these tables, if the system has figures of
    /// tables.
    ///
    /// # Errors
    /// A statement failed.
    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[String],
    ) -> Result<StateSnapshot, Error>;
}

/// Writes the next row to load, as `k`, `c` and `pad`, into the parameters; false if there is none.
pub type NextRow<'a> = &'a mut dyn FnMut(&mut Params) -> bool;

/// One of dbdyno's tables and its index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
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
