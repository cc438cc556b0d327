//! Connections to databases: prepare, execute, read all rows.
//!
//! One trait for all protocols. A driver knows its protocol, and nothing of tables, keys or
//! microbenchmarks.

mod error;
pub mod mysql;
mod net;
pub mod postgres;
pub mod sqlite;
mod verifier;

use std::os::fd::AsFd;

pub use error::{Error, ErrorCode, ErrorKind};
pub use verifier::verifier;

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
    fn prepare(&mut self, sql: impl AsRef<[u8]>) -> Result<StatementId, Error>;

    /// Executes a prepared statement and reads every column of every row.
    fn execute(&mut self, statement: StatementId, params: &Params) -> Result<Answer, Error>;

    /// Executes SQL text without parameters and discards the rows; statements may be separated by
    /// semicolons.
    fn run(&mut self, sql: &str) -> Result<(), Error>;

    /// Executes one query without parameters and returns its rows, values as text and NULL as `None`.
    /// For use between measurements: not optimised.
    fn query(&mut self, sql: &str) -> Result<Vec<Vec<Option<String>>>, Error>;

    /// A statement of SQL text that is executed as it is, without preparing it, replacing the last one. The rows
    /// of its next execution are kept for [`Self::take_rows`], unless they have more than 64 MiB.
    fn text_statement(&mut self, sql: &[u8]) -> Result<StatementId, Error> {
        let message = "SQL text is not supported on this connection";
        Err(Error::new(ErrorKind::Statement, error::executing(sql), message))
    }

    /// The result of the last execution. If that was text of several statements, it is the first one's on MariaDB
    /// and MySQL, and the last one's on PostgreSQL, as in their own client libraries.
    fn result(&self) -> ResultShape {
        ResultShape::default()
    }

    /// Whether another result of the last text statement follows.
    fn has_more_results(&self) -> bool {
        false
    }

    /// Moves to the next result of the last text statement, if there is one.
    fn next_result(&mut self) -> Option<ResultShape> {
        None
    }

    /// The rows of the current result of the last text statement, as text; none if they were not kept.
    fn take_rows(&mut self) -> Vec<TextRow> {
        Vec::new()
    }

    /// Closes a prepared statement. Its id must not be used again.
    fn close_statement(&mut self, statement: StatementId);

    /// Closes all prepared statements. Their ids must not be used again.
    fn close_statements(&mut self);

    /// Number of times the driver retried a statement because of another connection's lock, since the
    /// connection was opened. Servers wait for locks themselves: 0 unless a driver says otherwise.
    fn busy_retries(&self) -> u64 {
        0
    }
}

/// A connection that can send a request without waiting for the answer, so that one thread can drive
/// many connections.
///
/// At most one request is in progress per connection.
pub trait NonBlockingConnection: Connection + AsFd {
    /// Sends a statement for execution without waiting for the answer.
    fn send(&mut self, statement: StatementId, params: &Params) -> Result<(), Error>;

    /// Reads what has arrived of the answer, without waiting. Without a request in progress, it finds
    /// nothing, or that the connection is lost.
    fn receive_available(&mut self) -> Result<Received, Error>;
}

/// A row in text form; NULL is `None`. Values may have any encoding.
pub type TextRow = Vec<Option<Vec<u8>>>;

/// The size of a statement's result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResultShape {
    /// Columns of the result set; 0 if there is none.
    pub columns: u16,
    pub rows: u64,
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

/// Counts and digest of the result of one execution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows returned.
    pub rows: u64,
    /// Rows changed by a statement that returns no rows.
    pub affected: u64,
    /// Wrapping sum over all values: integers as they are, texts as length plus first eight bytes.
    /// Independent of the order of rows. The same query on the same data has the same digest.
    pub digest: u64,
}

/// A text's contribution to [`Answer::digest`].
#[inline(always)]
pub(crate) fn text_digest(text: &[u8]) -> u64 {
    let head = match text.first_chunk::<8>() {
        Some(chunk) => u64::from_le_bytes(*chunk),
        None => text.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    };
    head.wrapping_add(text.len() as u64)
}

/// The parameters of one execution; reused for the next one without allocating.
#[derive(Clone, Debug, Default)]
pub struct Params {
    values: Vec<Param>,
    text: Vec<u8>,
}

/// A parameter; a text refers to the bytes in its [`Params`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Param {
    /// A 64-bit integer.
    Int(i64),
    Null,
    Text {
        /// Offset of its first byte.
        start: u32,
        /// Length in bytes.
        len: u32,
    },
}

impl Params {
    #[inline]
    pub fn clear(&mut self) {
        self.values.clear();
        self.text.clear();
    }

    #[inline]
    pub fn push_int(&mut self, value: i64) {
        self.values.push(Param::Int(value));
    }

    #[inline]
    pub fn push_null(&mut self) {
        self.values.push(Param::Null);
    }

    #[inline]
    pub fn push_text(&mut self, text: &[u8]) {
        self.values.push(Param::Text { start: self.text.len() as u32, len: text.len() as u32 });
        self.text.extend_from_slice(text);
    }

    #[inline]
    pub fn values(&self) -> &[Param] {
        &self.values
    }

    /// The bytes of a text among the values.
    ///
    /// # Panics
    /// If `start` and `len` are not from this list.
    #[inline]
    pub fn text(&self, start: u32, len: u32) -> &[u8] {
        &self.text[start as usize..(start + len) as usize]
    }
}
