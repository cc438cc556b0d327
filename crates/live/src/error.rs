use std::io;
use std::path::PathBuf;

use dbdyno_units::Nanos;

/// Why a process was not changed, or not changed back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    /// There is no such process, or it ended meanwhile.
    #[error("process {pid} does not exist, or ended meanwhile")]
    Gone {
        /// Its number.
        pid: u32,
    },
    /// The process cannot be optimized; nothing in it was touched.
    #[error("process {pid} cannot be optimized: {reason}")]
    Refused {
        /// Its number.
        pid: u32,
        /// What is in the way, and what to try.
        reason: String,
    },
    /// The kernel refused something.
    #[error("{doing} process {pid} failed: {source}{}", advice(source))]
    System {
        /// What was being done, as in "reading the memory of".
        doing: String,
        /// To which process.
        pid: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The threads could not all be stopped in the time that they may stand still.
    #[error(
        "the threads of process {pid} did not all stop within {max_pause}{}; nothing was changed; try \
         again when it is calmer, or allow more time with --stop-max_pause",
        unstopped(*missing)
    )]
    NotStopped {
        /// The process.
        pid: u32,
        /// The time that was allowed.
        max_pause: Nanos,
        /// How many threads were still running.
        missing: usize,
    },
    /// No thread stood where it can run a few instructions for us.
    #[error(
        "no thread of process {pid} could {task} within {waited}; nothing was redirected; try \
         again while the process has work"
    )]
    NoSafePoint {
        /// The process.
        pid: u32,
        /// What a thread was to do.
        task: &'static str,
        /// How long one was looked for.
        waited: Nanos,
    },
    /// The thread that ran a few instructions for us was lost over it; the process lives.
    #[error(
        "the thread of process {pid} that was to {task} ended, or hangs in the kernel; try again"
    )]
    ThreadLost {
        /// The process.
        pid: u32,
        /// What the thread was to do.
        task: &'static str,
    },
    /// There is no room near the code.
    #[error("process {pid} has no {size} bytes of free addresses within 2 GiB of {address:#x}")]
    NoRoom {
        /// The process.
        pid: u32,
        /// The bytes wanted.
        size: u64,
        /// Where the code is.
        address: u64,
    },
    /// Bytes that were to be replaced are not what they should be.
    #[error(
        "the memory of process {pid} at {address:#x} is neither the original nor our patch: \
         somebody else changed it, and it was left alone"
    )]
    Foreign {
        /// The process.
        pid: u32,
        /// Where.
        address: u64,
    },
    /// There is nothing to undo.
    #[error("process {pid} is not optimized")]
    NotOptimized {
        /// The process.
        pid: u32,
    },
    /// Nothing was undone that could be put in force again.
    #[error("process {pid} has no optimization that could be redone")]
    NothingToRedo {
        /// The process.
        pid: u32,
    },
    /// What was asked does not fit the state of the process.
    #[error("process {pid} {state}")]
    WrongState {
        /// The process.
        pid: u32,
        /// Its state, and what to do.
        state: String,
    },
    /// A command that was to tell how much work was done.
    #[error("the work command `{command}` {what}")]
    WorkCommand {
        /// The command.
        command: String,
        /// What is wrong with it or with what it said.
        what: String,
    },
    /// Another dbdyno works on the same process.
    #[error("another dbdyno is at work on process {pid}; wait for it, or end it")]
    Busy {
        /// The process.
        pid: u32,
    },
    /// A file of ours could not be read or written.
    #[error("{doing} {} failed: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl LiveError {
    /// Whether the process was merely too busy to be stopped: nothing was changed, and a moment
    /// later it may work.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::NotStopped { .. } | Self::NoSafePoint { .. } | Self::ThreadLost { .. })
    }

    /// For `map_err`: an error of the system about a process.
    pub(crate) fn system(doing: impl Into<String>, pid: u32) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Gone { pid },
            _ => Self::System { doing, pid, source },
        }
    }

    pub(crate) fn file(
        doing: &'static str,
        path: &std::path::Path,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File { doing, path, source }
    }

    pub(crate) fn refused(pid: u32, reason: impl Into<String>) -> Self {
        Self::Refused { pid, reason: reason.into() }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; try as root, or as the user of that process",
        _ => "",
    }
}

fn unstopped(missing: usize) -> String {
    match missing {
        0 => String::new(),
        1 => " (1 was still running)".to_owned(),
        n => format!(" ({n} were still running)"),
    }
}
