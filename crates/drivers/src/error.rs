/// An error of a database or of the connection to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {message} (code {code})")]
pub struct Error {
    /// The action that failed, such as `executing SELECT c FROM sbtest1 …`.
    pub doing: String,
    /// The database's message.
    pub message: String,
    /// The database's error code, or the operating system's.
    pub code: i32,
    /// What it means for the run.
    pub kind: ErrorKind,
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
