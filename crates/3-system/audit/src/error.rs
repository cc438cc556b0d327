use std::fmt::Display;
use std::io;
use std::path::Path;

/// Why an audit failed. A single unreadable object is not an error, see
/// [`crate::Audit::unreadable`].
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct AuditError {
    /// Whether a file is damaged, as opposed to the wrong one.
    pub is_damaged: bool,
    /// What failed and why, with advice.
    what: String,
}

impl AuditError {
    pub fn new(what: impl Into<String>) -> Self {
        Self { is_damaged: false, what: what.into() }
    }

    pub(crate) fn read(path: &Path, error: &io::Error) -> Self {
        Self::new(format!("reading {}: {error}", path.display()))
    }

    pub(crate) fn damaged(path: &Path, reason: &ReadError) -> Self {
        Self { is_damaged: true, what: format!("{} is damaged: {reason}", path.display()) }
    }

    pub(crate) fn not_compiled(path: &Path) -> Self {
        Self::new(format!("{} is not an ELF file, archive or bitcode", path.display()))
    }

    pub(crate) fn database(path: &Path, reason: &impl Display) -> Self {
        Self::new(format!(
            "{} is not a compile database: {reason}; cmake writes one with \
             -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, meson always",
            path.display()
        ))
    }
}

/// Why an object, archive or linked file cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ReadError(pub(crate) String);

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<object::read::Error> for ReadError {
    fn from(error: object::read::Error) -> Self {
        Self(error.to_string())
    }
}
