//! Errors of all drivers.

use std::{fmt, io};

/// An error of a database or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {message}{}", in_parentheses(*.code))]
pub struct Error {
    /// The action that failed, such as `executing SELECT c FROM sbtest1 …`.
    pub doing: String,
    pub message: String,
    /// The database's error code, or the operating system's; `None` if dbdyno found the error.
    pub code: Option<ErrorCode>,
    /// What it means for the run.
    pub kind: ErrorKind,
}

impl Error {
    /// An error that no system has a code for.
    pub fn new(kind: ErrorKind, doing: impl Into<String>, message: impl Into<String>) -> Self {
        Self { doing: doing.into(), message: message.into(), code: None, kind }
    }

    pub fn has_number(&self, number: i32) -> bool {
        self.code.and_then(ErrorCode::number) == Some(number)
    }

    pub fn has_sqlstate(&self, sqlstate: &str) -> bool {
        self.code.and_then(ErrorCode::sqlstate).is_some_and(|state| state == *sqlstate.as_bytes())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A number, of SQLite or the operating system; of MariaDB and MySQL before the login.
    Number(i32),
    /// A number with its SQLSTATE, of MariaDB or MySQL.
    NumberAndState(i32, [u8; 5]),
    /// An SQLSTATE of PostgreSQL: five letters and digits.
    SqlState([u8; 5]),
}

impl ErrorCode {
    /// The code of an error of the operating system; `None` if it is of another kind.
    pub(crate) fn of_io(error: &io::Error) -> Option<Self> {
        error.raw_os_error().map(Self::Number)
    }

    /// `None` if the text is no SQLSTATE.
    pub(crate) fn of_sqlstate(text: &str) -> Option<Self> {
        sqlstate(text.as_bytes()).map(Self::SqlState)
    }

    /// The code of a number with an SQLSTATE, which is left out if it is invalid.
    pub(crate) fn of_number(number: i32, state: Option<&[u8]>) -> Self {
        match state.and_then(sqlstate) {
            Some(state) => Self::NumberAndState(number, state),
            None => Self::Number(number),
        }
    }

    pub const fn number(self) -> Option<i32> {
        match self {
            Self::Number(number) | Self::NumberAndState(number, _) => Some(number),
            Self::SqlState(_) => None,
        }
    }

    pub const fn sqlstate(self) -> Option<[u8; 5]> {
        match self {
            Self::SqlState(state) | Self::NumberAndState(_, state) => Some(state),
            Self::Number(_) => None,
        }
    }
}

/// `None` if the bytes are no SQLSTATE.
fn sqlstate(bytes: &[u8]) -> Option<[u8; 5]> {
    let state: [u8; 5] = bytes.try_into().ok()?;
    state.iter().all(u8::is_ascii_alphanumeric).then_some(state)
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "code {number}"),
            Self::NumberAndState(number, state) => {
                write!(f, "code {number}, SQLSTATE {}", String::from_utf8_lossy(state))
            }
            Self::SqlState(state) => write!(f, "SQLSTATE {}", String::from_utf8_lossy(state)),
        }
    }
}

fn in_parentheses(code: Option<ErrorCode>) -> String {
    code.map_or_else(String::new, |code| format!(" ({code})"))
}

/// What an error means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another connection held a lock for longer than the driver waits.
    Busy,
    /// The transaction was aborted because of a concurrent one (a deadlock, a serialization failure, a
    /// key that another client inserted first) and can be retried.
    Conflict,
    /// The connection is lost or could not be established.
    Connection,
    /// The server refused the login: user, password, encryption, or too many connections.
    Refused,
    StorageFull,
    /// Storage or the database file is corrupt or cannot be opened.
    Storage,
    /// Any other error: other statements may succeed.
    Statement,
}

impl ErrorKind {
    /// Whether no further statement can succeed.
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::Connection | Self::Refused | Self::StorageFull | Self::Storage)
    }
}

/// SQL for an error message, at most 120 characters: in-lists can have thousands of placeholders.
pub(crate) fn truncate_sql(sql: impl AsRef<[u8]>) -> String {
    const MAX_LENGTH: usize = 120;
    let sql = String::from_utf8_lossy(sql.as_ref());
    let sql = sql.trim();
    match sql.char_indices().nth(MAX_LENGTH) {
        Some((end, _)) => format!("{}…", &sql[..end]),
        None => sql.to_owned(),
    }
}

/// The action of executing SQL, for an error message.
pub(crate) fn executing(sql: impl AsRef<[u8]>) -> String {
    format!("executing {}", truncate_sql(sql))
}

/// Text from a server for people to read, at most 4 KiB.
#[cold]
pub(crate) fn server_text(bytes: &[u8]) -> String {
    const MAX_LENGTH: usize = 4 << 10;
    let (shown, rest) = bytes.split_at(bytes.len().min(MAX_LENGTH));
    let mut text = String::from_utf8_lossy(shown).into_owned();
    if !rest.is_empty() {
        text.push('…');
    }
    text
}

/// The error for a network failure.
#[cold]
pub(crate) fn connection_lost(doing: String, error: &io::Error) -> Error {
    Error {
        doing,
        message: format!("the connection is lost: {error}"),
        code: ErrorCode::of_io(error),
        kind: ErrorKind::Connection,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_shown_as_its_database_writes_it() {
        let of = |code| {
            let (doing, message) = ("executing".to_owned(), "no luck".to_owned());
            Error { doing, message, code, kind: ErrorKind::Statement }.to_string()
        };
        assert_eq!(of(ErrorCode::of_sqlstate("42P01")), "executing: no luck (SQLSTATE 42P01)");
        assert_eq!(of(Some(ErrorCode::Number(1146))), "executing: no luck (code 1146)");
        let both = ErrorCode::of_number(1146, Some(b"42S02"));
        assert_eq!(of(Some(both)), "executing: no luck (code 1146, SQLSTATE 42S02)");
        assert_eq!(of(ErrorCode::of_sqlstate("")), "executing: no luck");
        assert_eq!(ErrorCode::of_number(1, Some(b"\x1b[31m")), ErrorCode::Number(1));
        assert_eq!(ErrorCode::of_sqlstate("\u{1b}[31m"), None);
    }

    #[test]
    fn text_of_a_server_is_limited() {
        assert_eq!(server_text("naïve".as_bytes()), "naïve");
        assert_eq!(server_text(&[b'x'; 4096]).chars().count(), 4096);
        assert_eq!(server_text(&[b'x'; 5000]).chars().count(), 4097);
    }
}
