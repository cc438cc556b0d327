//! What a script's SQL is sent to.

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    /// An integer.
    Int(i64),
    /// A floating point number.
    Double(f64),
    Text(&'a [u8]),
}

/// Rows of a query as text; NULL is `None`.
pub type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// The result of a statement that succeeded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it has a result set, possibly an empty one.
    pub has_rows: bool,
    /// Rows in the result set.
    pub rows: u64,
}

/// The error of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlError {
    /// The database's number of the error, or 0.
    pub number: i32,
    /// The SQLSTATE, or empty.
    pub state: String,
    /// The database's message.
    pub message: String,
    /// What it means for the script.
    pub kind: SqlErrorKind,
}

/// What an error means for the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SqlErrorKind {
    /// The event is restarted: a deadlock, for example.
    Restart,
    /// The script fails, unless its hook says otherwise.
    Failed,
    /// The connection is unusable.
    Lost,
}

/// A statement that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// It has been executed.
    Done(Result<Outcome, SqlError>),
    /// The answer is passed to [`Client::resume`](crate::Client::resume) later.
    Waiting,
}

/// What a script's SQL is sent to. Statements have numbers that the host chooses.
pub trait Host {
    /// Prepares a statement with `?` for each parameter.
    ///
    /// # Errors
    /// The database refuses it.
    fn prepare(&mut self, sql: &str) -> Result<u32, SqlError>;

    /// Executes a prepared statement.
    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent;

    /// Executes SQL text.
    fn query(&mut self, sql: &str) -> Sent;

    /// The rows of the last [`Self::query`], which are given away; none if they are too many to keep.
    fn take_rows(&mut self) -> Rows;

    /// Closes a prepared statement.
    fn close(&mut self, statement: u32);

    /// Receives a line that the script printed.
    fn print(&mut self, text: &str);

    /// Counts an event that is restarted.
    fn restarted(&mut self);
}
