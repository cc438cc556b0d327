use std::io;
use std::path::PathBuf;

/// Why there is no audit at all. A single file that cannot be read is no error but is listed in
/// [`crate::Audit::unreadable`].
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// A file or directory could not be read.
    #[error("reading {}: {source}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is nothing in the directory that a compiler made.
    #[error(
        "no objects, archives or programs below {}; name the directory that the build was made \
         in, where its .o files are",
        .0.display()
    )]
    Nothing(PathBuf),
    /// The file is nothing that a compiler made.
    #[error(
        "{} is no ELF program, library, object or archive, and no bitcode",
        .0.display()
    )]
    NotCompiled(PathBuf),
    /// The file looks like one and cannot be read.
    #[error("{} is broken: {reason}", path.display())]
    Broken {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The compile database is none.
    #[error(
        "{} is no compile database: {reason}; cmake writes one with \
         -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, meson always",
        path.display()
    )]
    Database {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

impl AuditError {
    pub(crate) fn read(path: &std::path::Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}
