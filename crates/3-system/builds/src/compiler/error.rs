use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::CompilerKind;

/// Why a compiler cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompilerError {
    /// No program of these names was found.
    #[error(
        "no C compiler {}; on the PATH: {}; try one of these, the full path of another, or \
         `apt-get install clang`",
        quoted(looked_for),
        if installed.is_empty() { "none".to_owned() } else { installed.join(", ") }
    )]
    NotFound {
        /// The names or paths searched for.
        looked_for: Vec<String>,
        /// The compilers on the PATH.
        installed: Vec<String>,
    },
    /// The program cannot be started.
    #[error("cannot run the compiler {}: {source}", path.display())]
    CannotRun {
        /// The program.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
    /// The program is neither gcc nor clang.
    #[error(
        "{} is neither gcc nor clang; its version output is `{output}`; use one of those two",
        path.display()
    )]
    Unknown {
        /// The program.
        path: PathBuf,
        /// The first line of its output for `--version`.
        output: String,
    },
    /// Link-time optimization does not work with this installation.
    #[error(
        "{} ({kind} {version}) cannot link with -flto on this machine: {output}\ntry {}, another \
         compiler, or a variant without `lto` in its name",
        path.display(),
        lto_advice(*kind, version)
    )]
    NoLto {
        /// The program.
        path: PathBuf,
        /// The compiler family.
        kind: CompilerKind,
        version: String,
        /// The output of the trial link.
        output: String,
    },
    /// The files for the trial link could not be written.
    #[error(
        "cannot write {} to try the compiler: {source}; check that TMPDIR exists and has free space",
        path.display()
    )]
    NoTrial {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: Arc<io::Error>,
    },
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ")
}

fn lto_advice(kind: CompilerKind, version: &str) -> String {
    let major = version.split('.').next().unwrap_or(version);
    match kind {
        CompilerKind::Clang => format!("`apt-get install lld-{major}`"),
        // gcc contains its LTO plugin, unless configured without it.
        CompilerKind::Gcc => "a gcc configured with --enable-lto".to_owned(),
    }
}
