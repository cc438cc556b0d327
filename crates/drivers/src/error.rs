/// A database's refusal or failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{doing}: {message} (code {code})")]
pub struct Error {
    /// What was being done, such as `executing SELECT c FROM sbtest1 …`.
    pub doing: String,
    /// The database's own words.
    pub message: String,
    /// The database's own code.
    pub code: i32,
    /// What it means for the run.
    pub kind: ErrorKind,
}

/// What a failure means for the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// Another connection held a lock for longer than the driver waits.
    Busy,
    /// The database gave the transaction up for another one's sake (a deadlock, a serialization
    /// failure, a key that another client inserted first): it can be run again.
    Conflict,
    /// The connection is lost, or could not be made.
    Connection,
    /// The server refused to let us in: user, password, encryption, or too many connections.
    Refused,
    /// Storage is full.
    StorageFull,
    /// Storage or the database file is broken, or cannot be opened.
    Storage,
    /// Anything else: this statement failed, others may succeed.
    Statement,
}

impl ErrorKind {
    /// Whether further work on the database is pointless.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        matches!(self, Self::Connection | Self::Refused | Self::StorageFull | Self::Storage)
    }
}
