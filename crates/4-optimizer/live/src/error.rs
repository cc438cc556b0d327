use std::io;
use std::path::Path;

use dbdyno_machine::safe_files::UntrustedDir;
use dbdyno_units::Nanos;

/// Errors of changing a process or of undoing a change.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LiveError {
    #[error("process {pid} does not exist or has exited")]
    Exited { pid: u32 },
    /// The process cannot be optimized; it was not changed.
    #[error("process {pid} cannot be optimized: {reason}")]
    Refused {
        pid: u32,
        /// The reason, and what to try.
        reason: String,
    },
    /// A system call failed.
    #[error("{doing} process {pid} failed: {source}{}", advice(source))]
    System {
        /// What failed, as in "reading the memory of".
        doing: String,
        pid: u32,
        source: io::Error,
    },
    /// The threads did not all stop within the maximum pause.
    #[error(
        "the threads of process {pid} did not all stop within {max_pause}{}; nothing was changed; \
         try again under less load, or allow a longer pause with --max-pause",
        still_running(*missing)
    )]
    NotStopped {
        pid: u32,
        max_pause: Nanos,
        /// Number of threads that were still running.
        missing: usize,
    },
    /// The stacks of the threads were not read within the maximum pause.
    #[error(
        "the stacks of process {pid} took longer to read than {max_pause}; nothing was changed; one may be in a \
         large mapping, such as a coroutine's on the heap; try again under less load, or allow a longer pause \
         with --max-pause"
    )]
    StacksNotRead { pid: u32, max_pause: Nanos },
    /// After a part of the changes the threads did not stop again.
    #[error(
        "process {pid} was changed only in part: in further attempts its threads did not all stop within \
         {max_pause}, or so late that there was no time for more, or one was in a restartable sequence (rseq); \
         `dbdyno live undo` or `redo` finishes it; \
         try under less load, or allow a longer pause with --max-pause"
    )]
    ChangedInPart { pid: u32, max_pause: Nanos },
    #[error(
        "process {pid} was not changed: at each attempt a thread was in a restartable sequence (rseq); \
         try again"
    )]
    InCriticalSection { pid: u32 },
    /// No thread was in a state in which it could run code for dbdyno.
    #[error(
        "no thread of process {pid} was able to {task} within {waited}; no function was redirected; \
         try again while the process is busy"
    )]
    NoSafePoint {
        pid: u32,
        task: &'static str,
        /// Time spent on the search.
        waited: Nanos,
    },
    /// The thread that ran code for dbdyno ended or hangs; the process is alive.
    #[error(
        "the thread of process {pid} that was to {task} ended or hangs in the kernel; try again"
    )]
    ThreadLost { pid: u32, task: &'static str },
    /// Bytes to replace are neither the original nor a patch of dbdyno.
    #[error(
        "the memory of process {pid} at {address:#x} was changed by another program; it was left \
         unchanged"
    )]
    ModifiedByOthers {
        pid: u32,
        /// Address of the first such byte.
        address: u64,
    },
    #[error("process {pid} is not optimized")]
    NotOptimized { pid: u32 },
    #[error("process {pid} has no optimization to redo")]
    NothingToRedo { pid: u32 },
    #[error("another dbdyno{} is attached to process {pid}; wait for it or end it", by.map(|by| format!(" (process {by})")).unwrap_or_default())]
    Locked {
        pid: u32,
        /// Its process, if it is known.
        by: Option<u32>,
    },
    /// Any other error, with what to do if something can be done.
    #[error("{0}")]
    Failed(String),
}

impl From<UntrustedDir> for LiveError {
    fn from(error: UntrustedDir) -> Self {
        Self::Failed(error.to_string())
    }
}

impl LiveError {
    /// Whether the process was only too busy to be stopped: another attempt may succeed. Nothing was changed,
    /// except with [`LiveError::ChangedInPart`].
    pub const fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::NotStopped { .. }
                | Self::StacksNotRead { .. }
                | Self::ChangedInPart { .. }
                | Self::InCriticalSection { .. }
                | Self::NoSafePoint { .. }
                | Self::ThreadLost { .. }
        )
    }

    /// Whether nothing was changed because the process would have been stopped for longer than the maximum pause.
    pub(crate) const fn is_pause_too_long(&self) -> bool {
        matches!(self, Self::NotStopped { .. } | Self::StacksNotRead { .. })
    }

    /// For `map_err`: a failed system call on a process.
    pub(crate) fn system(doing: impl Into<String>, pid: u32) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| match source.raw_os_error() {
            Some(libc::ESRCH) => Self::Exited { pid },
            _ => Self::System { doing, pid, source },
        }
    }

    /// For `map_err`: a file of a process in `/proc` could not be read.
    pub(crate) fn proc_file(doing: &'static str, pid: u32) -> impl FnOnce(io::Error) -> Self {
        move |error| match error.kind() {
            io::ErrorKind::NotFound => Self::Exited { pid },
            _ => Self::system(doing, pid)(error),
        }
    }

    /// For `map_err`: a failed operation on a file of dbdyno.
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let what = format!("{doing} {} failed", path.display());
        move |source| Self::Failed(format!("{what}: {source}"))
    }

    /// The operation is not valid in the current state of the process.
    pub(crate) fn wrong_state(pid: u32, state: &str) -> Self {
        Self::Failed(format!("process {pid} {state}"))
    }

    pub(crate) fn refused(pid: u32, reason: impl Into<String>) -> Self {
        Self::Refused { pid, reason: reason.into() }
    }
}

fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "; run as root or as the user of that process",
        _ => "",
    }
}

fn still_running(missing: usize) -> String {
    match missing {
        0 => String::new(),
        1 => " (1 was still running)".to_owned(),
        n => format!(" ({n} were still running)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_missing_process_has_exited() {
        let error = |code| {
            LiveError::proc_file("reading the state of", 7)(io::Error::from_raw_os_error(code))
        };
        assert!(matches!(error(libc::ENOENT), LiveError::Exited { pid: 7 }));
        assert!(matches!(error(libc::ESRCH), LiveError::Exited { pid: 7 }));
        let text = error(libc::EMFILE).to_string();
        assert!(text.contains("process 7 failed: Too many open files"), "{text}");
    }
}
