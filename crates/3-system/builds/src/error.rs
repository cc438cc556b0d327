use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{CompilerError, System, UnknownVariant};

/// Why a build failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    /// The compiler cannot be used.
    #[error(transparent)]
    Compiler(#[from] CompilerError),
    #[error(transparent)]
    Variant(#[from] UnknownVariant),
    /// The compiler or the linker failed.
    #[error(
        "{} failed ({}) for {}\ncommand: {}\nmessage:\n{}\nlog: {}\n\
         run the command manually; if the message names a flag, remove it from the extra flags or \
         use another compiler",
        .0.step, .0.ended, .0.what, .0.command, .0.message, .0.log.display()
    )]
    Failed(Box<StepFailure>),
    /// The compiler was killed.
    #[error(
        "{} was interrupted ({}) for {}\ncommand: {}\nlog: {}\nif you did not stop it, the \
         machine may be out of memory (see `dmesg`): use fewer jobs",
        .0.step, .0.ended, .0.what, .0.command, .0.log.display()
    )]
    Interrupted(Box<StepFailure>),
    /// The disk is full.
    #[error(
        "no space left while {doing} {}; free some space, or set XDG_CACHE_HOME to a directory on \
         another disk",
        path.display()
    )]
    DiskFull {
        /// The failed action, as a participle.
        doing: String,
        /// The file or directory.
        path: PathBuf,
    },
    /// A source or a release cannot be fetched, or is not as expected.
    #[error("{doing} failed for {what}: {reason}\n{advice}")]
    Fetching {
        /// What is fetched, with its origin.
        what: String,
        /// The failed action, as a participle.
        doing: String,
        reason: String,
        /// Advice for the user.
        advice: String,
    },
    /// A source is not one of the system.
    #[error(
        "detecting the version of {} failed for {what}: {reason}\nuse a source of this system",
        system.title()
    )]
    Unrecognised {
        /// What was fetched, with its origin.
        what: String,
        system: System,
        reason: String,
    },
    /// A program is not installed.
    #[error("program {tool} not found, required for {purpose}: apt-get install {package}")]
    MissingTool {
        /// The program.
        tool: String,
        purpose: String,
        /// The Debian package that contains it.
        package: String,
    },
    /// Build dependencies are not installed.
    #[error(
        "missing build dependencies of {}: {}; install these Debian packages or their equivalents: \
         apt-get install {}{}",
        system.title(),
        missing.join(", "),
        packages.join(" "),
        if install_output.is_empty() { String::new() } else { format!("\ninstallation failed:\n{install_output}") }
    )]
    MissingDependencies {
        /// The system to compile.
        system: System,
        /// The missing dependencies.
        missing: Vec<String>,
        /// The packages that contain them.
        packages: Vec<String>,
        /// The output of a failed attempt to install them; else empty.
        install_output: String,
    },
    /// A profile cannot be created or used.
    #[error(
        "the profile {} cannot be used for {what}: {reason}; collect it again from the \
         same build",
        profile.display()
    )]
    Profile {
        /// The build, instrumented or optimized with the profile.
        what: String,
        /// The profile's directory.
        profile: PathBuf,
        reason: String,
    },
    /// The compiler cannot use a sampled profile.
    #[error(
        "sampled profiles are not supported for {compiler}: gcc 12 and later reject the output of \
         create_gcov in Debian's autofdo (string lengths in words instead of bytes); compile with \
         clang, or use `pgo = \"instrument\"`"
    )]
    NoSampledProfiles { compiler: String },
    /// The system's build system ignores the linker.
    #[error(
        "linker {linker} is not supported for {what}: {}'s build system removes \
         `-fuse-ld={linker}`; use lld, mold or bfd",
        system.title()
    )]
    IgnoredLinker { what: String, system: System, linker: String },
    /// The server's user could not access a build made by root.
    #[error(
        "builds in {} are accessible to root only, and servers do not run as root: other users \
         cannot enter {}; choose another cache directory with --cache or XDG_CACHE_HOME",
        cache.display(), folder.display()
    )]
    Unreachable {
        cache: PathBuf,
        /// The inaccessible directory.
        folder: PathBuf,
    },
    /// The source was edited while it was compiled.
    #[error(
        "{what} was not built: its source in {} was edited while it was compiled\n\
         leave it unchanged and repeat the command, or copy it first",
        path.display()
    )]
    Edited {
        what: String,
        /// The directory of the source.
        path: PathBuf,
    },
    /// [`crate::Builder::cancel`] was set.
    #[error("build cancelled: {what}")]
    Cancelled { what: String },
    /// The compiler succeeded, but its output cannot be used.
    #[error("unusable output {} of {what}: {reason}", path.display())]
    Unusable {
        what: String,
        /// The file.
        path: PathBuf,
        reason: String,
    },
    /// A file or directory could not be read or written.
    #[error("{doing} {} failed: {source}{}", path.display(), io_advice(source))]
    Io {
        /// The failed action, as a participle.
        doing: String,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

/// A failed step of a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepFailure {
    /// The build: system, version, variant, compiler.
    pub what: String,
    /// The step: `compiling sqlite3.c`.
    pub step: String,
    /// The command, quoted for a shell.
    pub command: String,
    /// The exit status, or the compiler's message about the signal.
    pub ended: String,
    /// The last lines of its output, indented.
    pub message: String,
    /// The file with all of its output.
    pub log: PathBuf,
}

impl BuildError {
    /// Whether the source is the reason, so that the same machine may build another revision: it
    /// cannot be compiled or used, or is not one of the system.
    #[must_use]
    pub const fn is_of_source(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::Unusable { .. } | Self::Unrecognised { .. })
    }

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
            "; set XDG_CACHE_HOME to a writable directory"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_disk_and_permission_errors_have_advice() {
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
