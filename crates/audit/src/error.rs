use std::io;
use std::path::PathBuf;

/// Why an audit failed. A single unreadable object is not an error, see
/// [`crate::Audit::unreadable`].
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or directory could not be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The directory has no objects, archives or programs.
    #[error(
        "no objects, archives or programs below {}; name the directory that the build was made \
         in, where its .o files are",
        .0.display()
    )]
    Nothing(PathBuf),
    /// The file is not an ELF file.
    #[error(
        "{} is no ELF program, library, object or archive, and no bitcode",
        .0.display()
    )]
    NotCompiled(PathBuf),
    /// The file is damaged.
    #[error("{} is broken: {reason}", path.display())]
    Broken {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The compile database is invalid.
    #[error(
        "{} is no compile database: {reason}; cmake writes one with \
         -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, meson always",
        path.display()
    )]
    Database {
        /// The file or directory.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
}

impl AuditError {
    pub(crate) fn read(path: &std::path::Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}
