use std::io;
use std::path::{Path, PathBuf};

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
    #[error("{} is broken: {source}", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ReadError,
    },
    /// The compile database is invalid.
    #[error(
        "{} is no compile database: {source}; cmake writes one with \
         -DCMAKE_EXPORT_COMPILE_COMMANDS=ON, meson always",
        path.display()
    )]
    Database {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: DatabaseError,
    },
}

impl AuditError {
    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        Self::Read { path: path.to_owned(), source }
    }
}

/// Why an object, archive or linked file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be mapped into memory.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The headers are invalid.
    #[error(transparent)]
    Format(#[from] object::read::Error),
    /// It has another format than ELF.
    #[error("not an ELF file")]
    NotElf,
    /// It starts like bitcode, but has no identification of the compiler.
    #[error("invalid bitcode")]
    Bitcode,
    /// A compressed section claims to be far larger than any compiler's output.
    #[error(
        "the section {section} has {stored} bytes, which stand for {size}: more than audits accept; \
         decompress it with `objcopy --decompress-debug-sections`"
    )]
    Compression {
        /// Its name.
        section: String,
        /// Size in the file.
        stored: usize,
        /// Size when decompressed.
        size: u64,
    },
    /// The strings of the debug information are far larger than the file, or take too long to read.
    #[error("its debug information repeats more text than audits accept")]
    TooMuchText,
    /// The archive ends within a member.
    #[error("truncated archive: {0}")]
    Truncated(object::read::Error),
    /// A member of an archive cannot be read.
    #[error("member {name}: {source}")]
    Member {
        /// The member's name.
        name: String,
        /// The reason.
        source: Box<ReadError>,
    },
}

/// Why a compile database is invalid.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It is not JSON, or an entry lacks a field.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A command cannot be split into words.
    #[error("the command of entry {entry} has an open quote: {command}")]
    OpenQuote {
        /// The number of the entry, from 1.
        entry: usize,
        command: String,
    },
    /// An entry has no command.
    #[error("entry {0} has neither `command` nor `arguments`")]
    NoCommand(usize),
}
