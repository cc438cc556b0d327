//! A connection to a database: prepare, execute, drain rows.
//!
//! One trait for every protocol. A driver knows how to speak to its database and nothing of what
//! is asked or why: no tables, no keys, no microbenchmarks.

mod answer;
mod error;
pub mod mysql;
mod net;
mod params;
pub mod postgres;
pub mod sqlite;
mod words;

pub use answer::Answer;
pub use error::{Error, ErrorKind};
pub use params::{Param, Params};

use std::os::fd::AsFd;

/// An open connection.
///
/// A connection belongs to one thread at a time and blocks. Statements live as long as the
/// connection, or until [`Connection::close_statements`].
pub trait Connection {
    /// How the n-th parameter (from 1) is written in SQL.
    fn placeholder(n: usize) -> String;

    /// The statement that opens a transaction; `writes` tells whether it will change data.
    fn begin_sql(writes: bool) -> &'static str;

    /// Prepares a statement for [`Connection::execute`].
    ///
    /// # Errors
    /// The database refused the statement: syntax, or no such table or column.
    fn prepare(&mut self, sql: &str) -> Result<StatementId, Error>;

    /// Executes a prepared statement with these parameters, reads every column of every row, and
    /// counts.
    ///
    /// # Errors
    /// The database failed to execute it. The statement can be executed again.
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error>;

    /// Runs SQL text without parameters and drops what it returns; several statements may be
    /// joined by semicolons.
    ///
    /// # Errors
    /// The database failed to execute one of them; those after it did not run.
    fn run(&mut self, sql: &str) -> Result<(), Error>;

    /// Runs one query without parameters and returns its rows, every value as text and NULL as
    /// `None`. For questions between measurements: it is not made to be fast.
    ///
    /// # Errors
    /// The database failed to execute it.
    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error>;

    /// Frees all prepared statements. Their ids must not be used again.
    fn close_statements(&mut self);

    /// How often a statement waited for another connection's lock and tried again inside the
    /// driver, since the connection was opened.
    fn busy_retries(&self) -> u64;
}

/// A connection to a server whose requests and answers can be told apart in time, so that one
/// thread can drive many of them.
///
/// At most one request is under way per connection.
pub trait NonBlockingConnection: Connection + AsFd {
    /// Sends a statement for execution and does not wait for its answer.
    ///
    /// # Errors
    /// The connection is lost.
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error>;

    /// Takes in what has arrived of the answer to the last request, without waiting; `None` while
    /// it is not complete.
    ///
    /// # Errors
    /// As [`Connection::execute`]. The request is over then.
    fn try_receive(&mut self) -> Result<Option<Answer>, Error>;
}

/// A statement prepared on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementId(usize);
