use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{CompilerError, Origin, System};

/// Why there is no build.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler cannot be used for it; nothing was compiled.
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    /// The compiler or the linker refused.
    #[error(
        "{} failed ({}) for {}\ncommand: {}\nmessage:\n{}\nlog: {}\n\
         try the command by hand; if the message names a flag, take it out of the extra flags or \
         choose another compiler",
        .0.step, .0.ended, .0.what, .0.command, .0.message, .0.log.display()
    )]
    Failed(Box<StepFailure>),
    /// Something ended the compiler from outside.
    #[error(
        "{} was interrupted ({}) for {}\ncommand: {}\nlog: {}\nif you did not end it, memory \
         may have run out (`dmesg` tells): try fewer jobs",
        .0.step, .0.ended, .0.what, .0.command, .0.log.display()
    )]
    Interrupted(Box<StepFailure>),
    /// There is no space left where the build is made.
    #[error(
        "no space left while {doing} {}; free some there, or choose a cache directory on another \
         disk with XDG_CACHE_HOME",
        path.display()
    )]
    DiskFull {
        /// What was being done.
        doing: String,
        /// To which file or folder.
        path: PathBuf,
    },
    /// A source cannot be had, or is not what it should be.
    #[error(
        "{doing} failed for the source of {}, {origin}: {reason}\n{advice}",
        system.title()
    )]
    Source {
        /// What it is the source of.
        system: System,
        /// Where it should come from.
        origin: Box<Origin>,
        /// What was being done.
        doing: String,
        /// What is wrong.
        reason: String,
        /// What to try.
        advice: String,
    },
    /// A program is not on this machine.
    #[error("there is no program {tool}, which is needed for {purpose}: apt-get install {package}")]
    MissingTool {
        /// The program.
        tool: String,
        /// What it is needed for.
        purpose: String,
        /// The Debian package that has it.
        package: String,
    },
    /// Things that compiling needs are not on this machine.
    #[error(
        "to compile {} this machine lacks {}; get the Debian packages (or what they are called \
         elsewhere): apt-get install {}{}",
        system.title(),
        lacks.join(", "),
        packages.join(" "),
        if said.is_empty() { String::new() } else { format!("\nthat failed:\n{said}") }
    )]
    Lacks {
        /// What was to be compiled.
        system: System,
        /// What is missing.
        lacks: Vec<String>,
        /// The packages that have it.
        packages: Vec<String>,
        /// What the attempt to install them said; empty where none was made.
        said: String,
    },
    /// A profile cannot be used, or is none.
    #[error(
        "the profile {} cannot be used for {what}: {reason}; train again, with the build that is \
         to be optimized",
        profile.display()
    )]
    Profile {
        /// What was to be built, or was instrumented.
        what: String,
        /// Its folder.
        profile: PathBuf,
        /// Why not.
        reason: String,
    },
    /// A compiler that cannot be given a sampled profile.
    #[error(
        "there are no sampled profiles for {compiler}: gcc 12 and later refuse what create_gcov of \
         Debian's autofdo writes (it gives lengths of strings in words, they expect bytes); \
         compile with clang, or take the variant with _pgo in its name"
    )]
    NoSampledProfiles {
        /// The compiler.
        compiler: String,
    },
    /// A server that root compiled could not be started by the user that it runs as.
    #[error(
        "builds in {} can only be used by root, and a server does not run as root: others may not \
         enter {}; choose another cache directory with --cache or XDG_CACHE_HOME",
        cache.display(), folder.display()
    )]
    Unreachable {
        /// The cache.
        cache: PathBuf,
        /// The folder that is closed.
        folder: PathBuf,
    },
    /// [`crate::Builder::cancel`] was set.
    #[error("{what} was not finished: the build was cancelled")]
    Cancelled {
        /// What was being built.
        what: String,
    },
    /// The compiler succeeded and what it made cannot be used.
    #[error("{what} gave {}, which is not usable: {reason}", path.display())]
    Unusable {
        /// What was being built.
        what: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file or folder could not be read or written.
    #[error("{doing} {} failed: {source}{}", path.display(), io_advice(source))]
    Io {
        /// What was being done.
        doing: String,
        /// To which file or folder.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
}

/// A step of a plan that ended without success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// What was being built: system, version, variant, compiler.
    pub what: String,
    /// The step: `compiling sqlite3.c`.
    pub step: String,
    /// The command, to be pasted into a shell.
    pub command: String,
    /// How it ended: the exit status, or the compiler's words for the signal.
    pub ended: String,
    /// The end of what it printed, indented.
    pub message: String,
    /// The file with all it printed.
    pub log: PathBuf,
}

impl BuildError {
    /// `doing` is a participle, as in "writing /tmp/x failed".
    pub(crate) fn io(doing: impl Into<String>, path: &Path, source: io::Error) -> Self {
        let (doing, path) = (doing.into(), path.to_owned());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Self::DiskFull { doing, path }
            }
            _ => Self::Io { doing, path, source: source.into() },
        }
    }
}

fn io_advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            "; choose a cache directory that you can write to with XDG_CACHE_HOME"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_forbidden_folder_come_with_advice() {
        let error = |kind: io::ErrorKind| {
            BuildError::io("writing", Path::new("/cache/x"), kind.into()).to_string()
        };
        let full = error(io::ErrorKind::StorageFull);
        assert!(full.starts_with("no space left while writing /cache/x; free some"), "{full}");
        let forbidden = error(io::ErrorKind::PermissionDenied);
        assert!(forbidden.starts_with("writing /cache/x failed: permission denied"), "{forbidden}");
        assert!(forbidden.contains("XDG_CACHE_HOME"), "{forbidden}");
    }
}
