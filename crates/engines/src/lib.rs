//! The life of a system under test: create, load, clone, settle, snapshot the state.
//!
//! An engine knows how its data is made, copied and brought to a known state. What the data is
//! asked for is none of its business.

mod clone;
mod insert;
pub mod mysql;
pub mod postgres;
pub mod server;
pub mod sqlite;

pub use clone::{CloneError, clone_file};
pub use insert::InsertEngine;

use dbdyno_drivers::{Connection, Error, Params};
use dbdyno_record::StateSnapshot;

/// A system under test that a worker can connect to.
pub trait Engine: Clone + Send + 'static {
    /// Its connections.
    type Connection: Connection + Send;

    /// Whether all connections share one cache, so that reading the data through one of them
    /// warms it for all.
    const SHARES_CACHE: bool;

    /// The system's version, as it reports it itself.
    fn version(&self) -> String;

    /// How the system says it was built or is set up, one fact per entry.
    fn options(&self) -> Vec<String>;

    /// Makes room for the tables where the system needs that: a schema of dbdyno's own. Does
    /// nothing where it is there already and is dbdyno's.
    ///
    /// # Errors
    /// The database cannot be reached, or something of this name is there that dbdyno did not
    /// make.
    fn create_schema(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Takes away what [`Engine::create_schema`] made, tables included, and nothing else.
    ///
    /// # Errors
    /// The database cannot be reached, or what has this name was not made by dbdyno.
    fn drop_schema(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Opens one more connection, with the settings in force.
    ///
    /// # Errors
    /// The database cannot be reached or opened, or did not take a setting.
    fn connect(&self) -> Result<Self::Connection, Error>;

    /// Makes the table and fills it with the rows that `next` writes into the parameters, then
    /// makes the index.
    ///
    /// # Errors
    /// A statement failed; a full disk among the reasons.
    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error>;

    /// Brings the database to a settled state: nothing left to do in the background, statistics
    /// made anew.
    ///
    /// # Errors
    /// A statement failed, or the state was not reached.
    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error>;

    /// Reads all of these tables and of their indexes once, through this connection.
    ///
    /// # Errors
    /// A statement failed.
    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error>;

    /// Where the database stands.
    ///
    /// # Errors
    /// A statement failed.
    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[Table],
    ) -> Result<StateSnapshot, Error>;
}

/// Writes the next row to load, as `k`, `c` and `pad`, into the parameters; false when there is
/// none left.
pub type NextRow<'a> = &'a mut dyn FnMut(&mut Params) -> bool;

/// A table by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The table's name.
    pub name: String,
    /// The name of its index on `k`.
    pub index: String,
}
