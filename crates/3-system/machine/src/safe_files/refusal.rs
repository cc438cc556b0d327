use std::io;

use dbdyno_units::Bytes;

/// Why a file of another user is not used. The inner error of an [`io::Error`] of kind
/// `InvalidData`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A component of the path is a symbolic link.
    #[error("its path contains a symbolic link, and links of other users are not followed")]
    Link,
    /// The path is absolute, or contains `..`.
    #[error("its path leads out of the directory")]
    Outside,
    /// A directory, a pipe, a socket or a device.
    #[error("it is not a regular file")]
    NotRegular,
    /// Larger than the limit.
    #[error("it is larger than {0}, the limit for such files")]
    TooLarge(Bytes),
    /// A directory tree with more entries than the limit.
    #[error("it contains more than {0} files, the limit for such directories")]
    TooMany(usize),
    /// A directory tree deeper than the limit.
    #[error("its directories are nested deeper than {0} levels, the limit for such directories")]
    TooDeep(usize),
}

impl Refusal {
    /// The refusal that caused an error.
    #[must_use]
    pub fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

impl From<Refusal> for io::Error {
    fn from(refusal: Refusal) -> Self {
        Self::new(io::ErrorKind::InvalidData, refusal)
    }
}
