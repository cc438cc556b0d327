use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::CompilerKind;

/// Why a compiler cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CompilerError {
    /// No program of these names is there.
    #[error(
        "no C compiler {}; on the PATH: {}; try one of these, the full path of another, or \
         `apt-get install clang`",
        quoted(looked_for),
        if installed.is_empty() { "none".to_owned() } else { installed.join(", ") }
    )]
    NotFound {
        /// The names or paths that were looked for.
        looked_for: Vec<String>,
        /// The compilers that are on the PATH.
        installed: Vec<String>,
    },
    /// The program is there and does not start.
    #[error("cannot run the compiler {}: {source}", path.display())]
    CannotRun {
        /// The program.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The program answers unlike gcc and clang.
    #[error(
        "{} is neither gcc nor clang: asked for its version it answers `{answer}`; name one of \
         those two",
        path.display()
    )]
    Unknown {
        /// The program.
        path: PathBuf,
        /// The first line of its answer.
        answer: String,
    },
    /// Its installation cannot do link-time optimization.
    #[error(
        "{} ({kind} {version}) cannot link with -flto on this machine: {answer}\ntry {}, another \
         compiler, or a variant without `lto` in its name",
        path.display(),
        lto_advice(*kind, version)
    )]
    NoLto {
        /// The program.
        path: PathBuf,
        /// Its family.
        kind: CompilerKind,
        /// Its version.
        version: String,
        /// What it said about the attempt.
        answer: String,
    },
    /// The attempt to link could not be made.
    #[error(
        "cannot write {} to try the compiler: {source}; is TMPDIR a folder with space left?",
        path.display()
    )]
    NoTrial {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
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
        // Its parts for this come with gcc itself, unless it was configured without them.
        CompilerKind::Gcc => "a gcc configured with --enable-lto".to_owned(),
    }
}
