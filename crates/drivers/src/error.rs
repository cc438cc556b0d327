use std::fmt;

/// An error of a database or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {message}{}", in_parentheses(*.code))]
pub struct Error {
    /// The action that failed, such as `executing SELECT c FROM sbtest1 …`.
    pub doing: String,
    /// The database's message.
    pub message: String,
    /// The database's error code, or the operating system's; `None` if dbdyno found the error.
    pub code: Option<ErrorCode>,
    /// What it means for the run.
    pub kind: ErrorKind,
}

impl Error {
    /// Whether the error has this number.
    #[must_use]
    pub fn has_number(&self, number: i32) -> bool {
        self.code == Some(ErrorCode::Number(number))
    }

    /// Whether the error has this SQLSTATE, of a PostgreSQL server.
    #[must_use]
    pub fn has_sqlstate(&self, sqlstate: &str) -> bool {
        matches!(&self.code, Some(ErrorCode::SqlState(state)) if state == sqlstate.as_bytes())
    }
}

/// The code of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// A number, of MariaDB, MySQL, SQLite or the operating system.
    Number(i32),
    /// An SQLSTATE of PostgreSQL: five letters and digits.
    SqlState([u8; 5]),
}

impl ErrorCode {
    /// The code of an error of the operating system; `None` if it is of another kind.
    pub(crate) fn of_io(error: &std::io::Error) -> Option<Self> {
        error.raw_os_error().map(Self::Number)
    }

    /// `None` if the text is no SQLSTATE.
    pub(crate) fn of_sqlstate(text: &str) -> Option<Self> {
        let state: [u8; 5] = text.as_bytes().try_into().ok()?;
        state.iter().all(u8::is_ascii_alphanumeric).then_some(Self::SqlState(state))
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "code {number}"),
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
    /// The disk is full.
    StorageFull,
    /// Storage or the database file is corrupt or cannot be opened.
    Storage,
    /// Any other error: other statements may succeed.
    Statement,
}

impl ErrorKind {
    /// Whether no further statement can succeed.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::Connection | Self::Refused | Self::StorageFull | Self::Storage)
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
        assert_eq!(of(ErrorCode::of_sqlstate("")), "executing: no luck");
        assert_eq!(ErrorCode::of_sqlstate("\u{1b}[31m"), None);
    }
}
