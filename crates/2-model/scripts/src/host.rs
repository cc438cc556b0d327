//! What a script's SQL is sent to: a connection, or a recorder that executes nothing.

use std::time::Duration;

use crate::files::RecordedFiles;

/// The driver that a script sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    MySql,
    PostgreSql,
}

impl Driver {
    /// The name in scripts.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MySql => "mysql",
            Self::PostgreSql => "pgsql",
        }
    }
}

/// A value of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Double(f64),
    Text(&'a [u8]),
}

/// The declared type of a parameter. sysbench widens all types to these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    Int,
    Double,
    Text,
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
    pub number: i32,
    /// The SQLSTATE, or empty.
    pub state: String,
    pub message: String,
    /// What it means for the script.
    pub kind: SqlErrorKind,
}

impl SqlError {
    /// An error that no server reported.
    pub fn new(message: &str, kind: SqlErrorKind) -> Self {
        Self { number: 0, state: String::new(), message: message.to_owned(), kind }
    }
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
    /// The answer is passed to [`Client::resume`](crate::Client::resume) later, or outside of events fetched by
    /// [`Host::answer`].
    Waiting,
}

/// What a script's SQL is sent to, as bytes of any encoding. Statements have numbers that the host chooses.
pub trait Host {
    /// Prepares a statement with `?` for each parameter.
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError>;

    /// Receives the types of a prepared statement's parameters, each time that the script binds some.
    fn bind(&mut self, _statement: u32, _types: &[ParameterType]) -> Result<(), SqlError> {
        Ok(())
    }

    /// Executes a prepared statement.
    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent;

    /// Executes SQL text, which is not searched for parameters. Of several statements, the outcome is that of one,
    /// as in the client library of the server.
    fn query(&mut self, sql: &[u8]) -> Sent;

    /// The answer to the statement that was sent last, once it is there; waits a little for it with `may_wait`.
    fn answer(&mut self, _may_wait: bool) -> Option<Result<Outcome, SqlError>> {
        None
    }

    /// The rows of the current result of the last [`Self::query`], which are given away; none if they are too many
    /// to keep.
    fn take_rows(&mut self) -> Rows {
        Rows::new()
    }

    /// The number of columns of that result; 0 if only its rows tell.
    fn columns(&self) -> u16 {
        0
    }

    /// Whether another result follows it.
    fn has_more_results(&self) -> bool {
        false
    }

    /// Moves to the next result.
    fn next_result(&mut self) -> Option<Outcome> {
        None
    }

    /// Waits while all clients sleep. Nothing to do where nothing is executed.
    fn sleep(&mut self, _time: Duration) {}

    /// What the script changes instead of files, if it must change nothing: it runs no commands then.
    fn files(&mut self) -> Option<&mut RecordedFiles> {
        None
    }

    fn close(&mut self, _statement: u32) {}

    /// Receives a line that the script printed.
    fn print(&mut self, _text: &str) {}

    /// Counts an event that is restarted.
    fn restarted(&mut self) {}
}

/// A host that executes nothing and keeps the statements as text, with the parameters' values.
#[derive(Debug, Default)]
pub struct Recorder {
    /// The statements that were executed since they were last taken.
    pub statements: Vec<String>,
    /// The lines that were printed.
    pub printed: Vec<String>,
    /// Whether a statement would have returned rows.
    pub asked: bool,
    prepared: Vec<Vec<u8>>,
    /// Bytes of `statements`, and of the other texts.
    sent: usize,
    kept: usize,
}

/// Bytes that a recorder keeps, besides statements that were taken.
const MOST_RECORDED: usize = 64 << 20;

impl Recorder {
    /// Counts a text that is to be kept, and its place in a list; an error if there is too much.
    fn count(&mut self, text: &[u8], is_statement: bool) -> Result<(), SqlError> {
        if self.statements.is_empty() {
            self.sent = 0;
        }
        let bytes = if is_statement { &mut self.sent } else { &mut self.kept };
        *bytes += text.len() + size_of::<String>();
        if self.sent + self.kept <= MOST_RECORDED {
            return Ok(());
        }
        let message = "more than 64 MiB without an end of the event";
        Err(SqlError::new(message, SqlErrorKind::Lost))
    }
}

impl Host for Recorder {
    fn prepare(&mut self, sql: &[u8]) -> Result<u32, SqlError> {
        self.count(sql, false)?;
        self.prepared.push(sql.to_owned());
        Ok(self.prepared.len() as u32 - 1)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let sql = self.prepared.get(statement as usize).map_or(&b""[..], Vec::as_slice);
        let sql = with_values(sql, values, Driver::MySql);
        self.query(&sql)
    }

    fn query(&mut self, sql: &[u8]) -> Sent {
        if let Err(error) = self.count(sql, true) {
            return Sent::Done(Err(error));
        }
        self.statements.push(String::from_utf8_lossy(sql).into_owned());
        // A query returns no rows, as nothing is executed.
        let has_rows = seems_to_return_rows(sql);
        self.asked |= has_rows;
        Sent::Done(Ok(Outcome { has_rows, rows: 0 }))
    }

    fn print(&mut self, text: &str) {
        if self.count(text.as_bytes(), false).is_ok() {
            self.printed.push(text.to_owned());
        }
    }
}

/// Whether a statement seems to return rows, by its words: for where no server tells.
pub fn seems_to_return_rows(sql: &[u8]) -> bool {
    const FIRST: [&str; 10] = [
        "select", "show", "with", "values", "explain", "describe", "desc", "table", "execute",
        "fetch",
    ];
    let text = String::from_utf8_lossy(sql).to_ascii_lowercase();
    let mut rest = text.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    while let Some(comment) = rest.strip_prefix("/*").and_then(|rest| rest.split_once("*/")) {
        rest = comment.1.trim_start_matches(|c: char| c.is_whitespace() || c == '(');
    }
    let mut words = rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let first = words.next().unwrap_or_default();
    FIRST.contains(&first) || words.any(|word| word == "returning")
}

/// SQL with the values as literals in place of each `?` outside of quotes.
pub fn with_values(sql: &[u8], values: &[Value<'_>], driver: Driver) -> Vec<u8> {
    let mut values = values.iter();
    replace_placeholders(sql, driver, |_, text| match values.next() {
        None => text.push(b'?'),
        Some(Value::Null) => text.extend_from_slice(b"NULL"),
        Some(Value::Int(value)) => text.extend_from_slice(value.to_string().as_bytes()),
        Some(Value::Double(value)) => text.extend_from_slice(value.to_string().as_bytes()),
        Some(Value::Text(value)) => {
            text.push(b'\'');
            for byte in *value {
                if *byte == b'\'' || *byte == b'\\' && driver == Driver::MySql {
                    text.push(*byte);
                }
                text.push(*byte);
            }
            text.push(b'\'');
        }
    })
}

/// SQL in which each `?` outside of quotes is replaced: `replace` appends the text for the one with this number,
/// from 1.
pub fn replace_placeholders(
    sql: &[u8],
    driver: Driver,
    mut replace: impl FnMut(usize, &mut Vec<u8>),
) -> Vec<u8> {
    let mut text = Vec::with_capacity(sql.len());
    let (mut quote, mut number) = (None, 0);
    let mut left = sql.iter().copied();
    while let Some(c) = left.next() {
        match (quote, c) {
            (None, b'?') => {
                number += 1;
                replace(number, &mut text);
                continue;
            }
            (None, b'\'' | b'"' | b'`') => quote = Some(c),
            (Some(b'\'' | b'"'), b'\\') if driver == Driver::MySql => {
                text.push(c);
                text.extend(left.next());
                continue;
            }
            (Some(open), _) if open == c => quote = None,
            _ => {}
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_replace_only_placeholders_outside_of_quotes() {
        let values = [Value::Int(1), Value::Text(b"\xe9?'\\")];
        let sql = with_values(b"SELECT '?', ?, ?", &values, Driver::MySql);
        assert_eq!(sql, b"SELECT '?', 1, '\xe9?''\\\\'");
        let sql = with_values(b"SELECT '?', ?, ?", &values, Driver::PostgreSql);
        assert_eq!(sql, b"SELECT '?', 1, '\xe9?''\\'");
    }

    #[test]
    fn statements_that_seem_to_return_rows_are_known_by_their_words() {
        for sql in [
            "SELECT 1",
            " select\n1",
            "(SELECT 1)",
            "SHOW TABLES",
            "/* a */ /* b */ (with a as (select 1) select 2)",
            "EXECUTE one(1)",
            "INSERT INTO t VALUES (1) RETURNING id",
        ] {
            assert!(seems_to_return_rows(sql.as_bytes()), "{sql}");
        }
        for sql in ["INSERT INTO t SELECT 1", "BEGIN", "", "selected", "/* a"] {
            assert!(!seems_to_return_rows(sql.as_bytes()), "{sql}");
        }
    }

    fn numbered(sql: &str, driver: Driver) -> String {
        let number = |number: usize, text: &mut Vec<u8>| {
            text.extend_from_slice(format!("${number}").as_bytes());
        };
        String::from_utf8(replace_placeholders(sql.as_bytes(), driver, number)).unwrap()
    }

    #[test]
    fn placeholders_in_quotes_are_kept() {
        let sql = "SELECT '?', \"a?\", `?`, 'it''s ?' FROM t WHERE a = ? AND b = ?";
        let expected = "SELECT '?', \"a?\", `?`, 'it''s ?' FROM t WHERE a = $1 AND b = $2";
        for driver in [Driver::MySql, Driver::PostgreSql] {
            assert_eq!(numbered(sql, driver), expected);
        }
    }

    #[test]
    fn backslash_escapes_a_quote_in_mysql_only() {
        assert_eq!(numbered(r"SELECT '\'?', ?", Driver::MySql), r"SELECT '\'?', $1");
        assert_eq!(numbered(r"SELECT '\', ?", Driver::PostgreSql), r"SELECT '\', $1");
    }
}
