//! What a script's SQL is sent to: a connection, or a recorder that executes nothing.

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
    fn prepare(&mut self, sql: &str) -> Result<u32, SqlError>;

    /// Executes a prepared statement.
    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent;

    fn query(&mut self, sql: &str) -> Sent;

    /// The rows of the last [`Self::query`], which are given away; none if they are too many to keep.
    fn take_rows(&mut self) -> Rows {
        Rows::new()
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
    prepared: Vec<String>,
}

impl Host for Recorder {
    fn prepare(&mut self, sql: &str) -> Result<u32, SqlError> {
        self.prepared.push(sql.to_owned());
        Ok(self.prepared.len() as u32 - 1)
    }

    fn execute(&mut self, statement: u32, values: &[Value<'_>]) -> Sent {
        let sql = self.prepared.get(statement as usize).map_or("", String::as_str);
        self.statements.push(with_values(sql, values, Driver::MySql));
        Sent::Done(Ok(outcome(sql)))
    }

    fn query(&mut self, sql: &str) -> Sent {
        self.statements.push(sql.to_owned());
        Sent::Done(Ok(outcome(sql)))
    }

    fn print(&mut self, text: &str) {
        self.printed.push(text.to_owned());
    }
}

/// A query returns no rows, as nothing is executed.
fn outcome(sql: &str) -> Outcome {
    let word = sql.split_whitespace().next().unwrap_or_default();
    Outcome { has_rows: word.eq_ignore_ascii_case("select"), rows: 0 }
}

/// SQL with the values as literals in place of each `?` outside of quotes.
pub fn with_values(sql: &str, values: &[Value<'_>], driver: Driver) -> String {
    let mut values = values.iter();
    replace_placeholders(sql, driver, |_, text| match values.next() {
        None => text.push('?'),
        Some(Value::Null) => text.push_str("NULL"),
        Some(Value::Int(value)) => text.push_str(&value.to_string()),
        Some(Value::Double(value)) => text.push_str(&value.to_string()),
        Some(Value::Text(value)) => {
            text.push('\'');
            let value = String::from_utf8_lossy(value).replace('\'', "''");
            match driver {
                Driver::MySql => text.push_str(&value.replace('\\', "\\\\")),
                Driver::PostgreSql => text.push_str(&value),
            }
            text.push('\'');
        }
    })
}

/// SQL in which each `?` outside of quotes is replaced: `replace` appends the text for the one with this number,
/// from 1.
pub fn replace_placeholders(
    sql: &str,
    driver: Driver,
    mut replace: impl FnMut(usize, &mut String),
) -> String {
    let mut text = String::with_capacity(sql.len());
    let (mut quote, mut number) = (None, 0);
    let mut left = sql.chars();
    while let Some(c) = left.next() {
        match (quote, c) {
            (None, '?') => {
                number += 1;
                replace(number, &mut text);
                continue;
            }
            (None, '\'' | '"' | '`') => quote = Some(c),
            (Some('\'' | '"'), '\\') if driver == Driver::MySql => {
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
        let values = [Value::Int(1), Value::Text(b"a?'")];
        let sql = with_values("SELECT '?', ?, ?", &values, Driver::MySql);
        assert_eq!(sql, "SELECT '?', 1, 'a?'''");
    }

    fn numbered(sql: &str, driver: Driver) -> String {
        replace_placeholders(sql, driver, |number, text| text.push_str(&format!("${number}")))
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
