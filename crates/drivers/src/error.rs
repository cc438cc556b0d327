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
        matches!(self, Self::StorageFull | Self::Storage)
    }
}
