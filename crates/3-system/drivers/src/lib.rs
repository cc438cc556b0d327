//! Connections to databases: prepare, execute, read all rows.
//!
//! One trait for all protocols. A driver knows its protocol, and nothing of tables, keys or
//! microbenchmarks.

mod answer;
mod error;
mod error_text;
pub mod mysql;
mod net;
mod params;
pub mod postgres;
mod sha256_crypt;
pub mod sqlite;
mod text_rows;
mod verifier;

pub use answer::Answer;
pub use error::{Error, ErrorCode, ErrorKind};
pub use params::{Param, Params};
pub use verifier::verifier;

use std::os::fd::AsFd;

/// An open connection.
///
/// A connection belongs to one thread at a time and blocks. Statements live as long as the
/// connection, or until [`Connection::close_statements`].
pub trait Connection {
    /// The placeholder for the n-th parameter (from 1) in SQL.
    fn placeholder(n: usize) -> String;

    /// The statement that starts a transaction; `writes` is true if it will change data.
    fn begin_sql(writes: bool) -> &'static str;

    /// Prepares a statement for [`Connection::execute`].
    ///
    /// # Errors
    /// The database rejected the statement: a syntax error, or an unknown table or column.
    fn prepare(&mut self, sql: &str) -> Result<StatementId, Error>;

    /// Executes a prepared statement and reads every column of every row.
    ///
    /// # Errors
    /// The database failed to execute it. The statement can be executed again.
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error>;

    /// Executes SQL text without parameters and discards the rows; statements may be separated by
    /// semicolons.
    ///
    /// # Errors
    /// The database failed to execute a statement; those after it were not executed.
    fn run(&mut self, sql: &str) -> Result<(), Error>;

    /// Executes one query without parameters and returns its rows, values as text and NULL as `None`.
    /// For use between measurements: not optimised.
    ///
    /// # Errors
    /// The database failed to execute it.
    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error>;

    /// A statement of SQL text that is executed without preparing it, replacing the last one. The rows of its
    /// next execution are kept for [`Self::take_rows`], unless they have more than 64 MiB.
    ///
    /// # Errors
    /// The text cannot be sent, or the driver has no such statements.
    fn text_statement(&mut self, sql: &str) -> Result<StatementId, Error> {
        Err(Error {
            doing: format!("executing {}", error_text::truncate_sql(sql)),
            message: "SQL text is not supported on this connection".to_owned(),
            code: None,
            kind: ErrorKind::Statement,
        })
    }

    /// The rows that the last execution of [`Self::text_statement`] returned, as text; none if they were not kept.
    fn take_rows(&mut self) -> Vec<Vec<Option<String>>> {
        Vec::new()
    }

    /// Closes a prepared statement. Its id must not be used again.
    fn close_statement(&mut self, statement: StatementId);

    /// Closes all prepared statements. Their ids must not be used again.
    fn close_statements(&mut self);

    /// Number of times the driver retried a statement because of another connection's lock, since the
    /// connection was opened.
    fn busy_retries(&self) -> u64;
}

/// A connection that can send a request without waiting for the answer, so that one thread can drive
/// many connections.
///
/// At most one request is in progress per connection.
pub trait NonBlockingConnection: Connection + AsFd {
    /// Sends a statement for execution without waiting for the answer.
    ///
    /// # Errors
    /// The connection is lost.
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error>;

    /// Reads what has arrived of the answer, without waiting. Without a request in progress, it finds
    /// nothing, or that the connection is lost.
    ///
    /// # Errors
    /// As [`Connection::execute`]. The request has ended then.
    fn receive_available(&mut self) -> Result<Received, Error>;
}

/// What has arrived of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// The rest of it.
    Answer(Answer),
    /// A part, which was processed.
    Part,
    Nothing,
}

/// A statement prepared on one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatementId(usize);
