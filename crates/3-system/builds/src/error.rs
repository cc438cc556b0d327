use std::fmt::Display;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use dbdyno_types::build::UnknownVariant;
use rustix::process::Signal;

/// Why there is no build, source, release or profile.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BuildError {
    #[error(
        "{} failed ({}) for {}\ncommand: {}\nmessage:\n{}\nlog: {}\n\
         run the command manually; if the message names a flag, remove it from the extra flags or \
         use another compiler",
        .0.step, .0.ended, .0.what, .0.command, .0.message, .0.log.display()
    )]
    Failed(Box<StepFailure>),
    #[error(
        "{} was interrupted ({}) for {}\ncommand: {}\nlog: {}\nif you did not stop it, the \
         machine may be out of memory (see `dmesg`): use fewer CPUs, as with `taskset --cpu-list 0,1`",
        .0.step, .0.ended, .0.what, .0.command, .0.log.display()
    )]
    Interrupted(Box<StepFailure>),
    /// [`crate::Builder::cancel`] was set.
    #[error("build cancelled: {what}")]
    Cancelled { what: String },
    #[error(transparent)]
    Other(Box<Problem>),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}{}{advice}", self.separator())]
pub struct Problem {
    pub kind: ProblemKind,
    /// What failed, for what, and why.
    pub what: String,
    /// What to do; empty if there is no advice.
    pub advice: String,
}

/// The problems that callers distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// The source is not one of the system, or its output cannot be used.
    Source,
    /// A source or a release cannot be fetched, or is not as expected.
    Fetching,
    /// A profile cannot be collected or used.
    Profile,
    /// The machine does not have a program, or other users cannot enter the cache.
    Machine,
    DiskFull,
    Other,
}

impl Problem {
    fn separator(&self) -> &'static str {
        match self.kind {
            _ if self.advice.is_empty() => "",
            ProblemKind::Fetching => "\n",
            _ if self.what.contains('\n') => "\n",
            _ => "; ",
        }
    }
}

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
    pub log: PathBuf,
}

impl BuildError {
    pub fn new(kind: ProblemKind, what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self::Other(Box::new(Problem { kind, what: what.into(), advice: advice.into() }))
    }

    pub(crate) fn cancelled(what: impl Display) -> Self {
        Self::Cancelled { what: what.to_string() }
    }

    /// `doing` is a participle, as in "writing /tmp/x failed".
    pub(crate) fn io(doing: impl Display, path: &Path, error: &io::Error) -> Self {
        let path = path.display();
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::new(
                ProblemKind::DiskFull,
                format!("no space left while {doing} {path}"),
                "free some space, or set XDG_CACHE_HOME to a directory on another disk",
            ),
            kind => {
                let advice = match kind {
                    io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                        "set XDG_CACHE_HOME to a writable directory"
                    }
                    _ => "",
                };
                Self::new(ProblemKind::Other, format!("{doing} {path} failed: {error}"), advice)
            }
        }
    }

    pub(crate) fn missing_tool(tool: impl Display, purpose: impl Display, package: &str) -> Self {
        Self::new(
            ProblemKind::Machine,
            format!("program {tool} not found, required for {purpose}"),
            format!("apt-get install {package}"),
        )
    }

    /// A profile in `folder` cannot be collected from or used for a build.
    pub(crate) fn profile(what: impl Display, folder: &Path, reason: impl Display) -> Self {
        Self::new(
            ProblemKind::Profile,
            format!("the profile {} cannot be used for {what}: {reason}", folder.display()),
            "collect it again from the same build",
        )
    }

    /// The compiler succeeded, but its output cannot be used.
    pub(crate) fn unusable(what: impl Display, path: &Path, reason: impl Display) -> Self {
        let text = format!("unusable output {} of {what}: {reason}", path.display());
        Self::new(ProblemKind::Source, text, "")
    }

    /// The kind of a problem; `None` for a step or a cancelled build.
    pub const fn kind(&self) -> Option<ProblemKind> {
        match self {
            Self::Other(problem) => Some(problem.kind),
            Self::Failed(_) | Self::Interrupted(_) | Self::Cancelled { .. } => None,
        }
    }

    /// Whether the source is the reason, so that the same machine may build another revision: it
    /// cannot be compiled or used, or is not one of the system.
    pub fn is_of_source(&self) -> bool {
        matches!(self, Self::Failed(_)) || self.kind() == Some(ProblemKind::Source)
    }

    /// Whether something could not be fetched, with this text in the message.
    pub(crate) fn is_fetching(&self, sign: &str) -> bool {
        matches!(self, Self::Other(problem)
            if problem.kind == ProblemKind::Fetching && problem.what.contains(sign))
    }

    /// Replaces the advice if something could not be fetched, with `sign` in the message.
    pub(crate) fn with_advice(mut self, sign: &str, advice: impl FnOnce() -> String) -> Self {
        if self.is_fetching(sign)
            && let Self::Other(problem) = &mut self
        {
            problem.advice = advice();
        }
        self
    }
}

impl From<UnknownVariant> for BuildError {
    fn from(error: UnknownVariant) -> Self {
        Self::new(ProblemKind::Other, error.to_string(), "")
    }
}

/// Explains an error of the operating system; `doing` is a participle.
pub(crate) fn io_error(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> BuildError {
    move |error| BuildError::io(doing, path, &error)
}

/// Maximum number of lines of a compiler's output in an error; the log has all.
const SHOWN: usize = 40;

/// Why a compiler failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It rejected the source or the flags, or crashed.
    Refused,
    DiskFull,
    /// It was killed; the text is the signal or the compiler's message.
    Interrupted(String),
}

/// Determines the cause from the exit status and the output.
pub(crate) fn cause_of(status: ExitStatus, message: &str) -> Cause {
    const ENDING: [i32; 7] = [
        Signal::HUP.as_raw(),
        Signal::INT.as_raw(),
        Signal::QUIT.as_raw(),
        Signal::KILL.as_raw(),
        Signal::TERM.as_raw(),
        Signal::XCPU.as_raw(),
        Signal::XFSZ.as_raw(),
    ];
    if let Some(signal) = status.signal().filter(|signal| ENDING.contains(signal)) {
        return Cause::Interrupted(format!("signal {signal}"));
    }
    // A compiler consists of several processes. If one of them is killed, the compiler driver
    // reports it and exits with an ordinary error status.
    let killed = |line: &&str| {
        let by_signal = line.contains("signal terminated program")
            || line.contains("unable to execute command:")
            || line.contains("terminated with signal");
        by_signal
            && ["Killed", "Terminated", "Interrupt", "Hangup"].iter().any(|s| line.contains(s))
    };
    if let Some(line) = message.lines().find(killed) {
        return Cause::Interrupted(line.trim().to_owned());
    }
    let full = ["No space left on device", "Disk quota exceeded"];
    if full.iter().any(|text| message.contains(text)) {
        return Cause::DiskFull;
    }
    Cause::Refused
}

/// The last lines of a message, indented, with the number of omitted lines.
pub(crate) fn last_lines(message: &str) -> String {
    let mut lines: Vec<&str> = message.trim_end().lines().collect();
    // After a failed command, ninja waits for the running ones and prints their output.
    if let Some(failed) = lines.iter().position(|line| line.starts_with("FAILED: ")) {
        lines.truncate(failed + SHOWN);
    }
    if lines.is_empty() {
        return "  (no message)".to_owned();
    }
    let skipped = lines.len().saturating_sub(SHOWN);
    let mut text = String::new();
    if skipped > 0 {
        text = format!("  ({skipped} lines before these are in the log)\n");
    }
    let shown: Vec<String> = lines[skipped..].iter().map(|line| format!("  {line}")).collect();
    text + &shown.join("\n")
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn full_disk_and_permission_errors_have_advice() {
        let error = |kind: io::ErrorKind| {
            BuildError::io("writing", Path::new("/cache/x"), &kind.into()).to_string()
        };
        let full = error(io::ErrorKind::StorageFull);
        assert!(full.starts_with("no space left while writing /cache/x; free some"), "{full}");
        let forbidden = error(io::ErrorKind::PermissionDenied);
        assert!(forbidden.starts_with("writing /cache/x failed: permission denied"), "{forbidden}");
        assert!(forbidden.contains("XDG_CACHE_HOME"), "{forbidden}");
    }

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn source_error_and_crash_are_refusals() {
        assert_eq!(cause_of(exit(1), "sqlite3.c:1: error: expected ';'"), Cause::Refused);
        assert_eq!(cause_of(ExitStatus::from_raw(Signal::SEGV.as_raw()), ""), Cause::Refused);
    }

    #[test]
    fn full_disk_is_recognized() {
        let message = "/tmp/cc1.s: fatal error: error writing to x.o: No space left on device";
        assert_eq!(cause_of(exit(1), message), Cause::DiskFull);
    }

    #[test]
    fn killed_compiler_is_recognized_by_status_or_message() {
        let by_signal = cause_of(ExitStatus::from_raw(Signal::KILL.as_raw()), "");
        assert_eq!(by_signal, Cause::Interrupted("signal 9".to_owned()));
        let message = "x\ngcc: fatal error: Killed signal terminated program cc1\ny";
        let line = "gcc: fatal error: Killed signal terminated program cc1".to_owned();
        assert_eq!(cause_of(exit(1), message), Cause::Interrupted(line));
        let clang = "clang: error: unable to execute command: Killed";
        assert_eq!(cause_of(exit(254), clang), Cause::Interrupted(clang.to_owned()));
    }

    #[test]
    fn damaged_messages_are_shortened() {
        let message = "x.c:1: error: y\ngcc: fatal error: Killed signal terminated program cc1\n";
        let words = ["\n", "\r", "FAILED: ", "No space left on device", "terminated with signal"];
        Fuzz::new(vec![message.repeat(40).into()]).words(&words).run(|message| {
            let message = String::from_utf8_lossy(message);
            let _ = cause_of(exit(1), &message);
            assert!(last_lines(&message).lines().count() <= 1 + SHOWN);
        });
    }

    #[test]
    fn long_message_is_reduced_to_last_lines() {
        let message: String = (1..=50).map(|i| format!("line {i}\n")).collect();
        let shown = last_lines(&message);
        assert!(shown.starts_with("  (10 lines before these are in the log)\n  line 11\n"));
        assert!(shown.ends_with("  line 50"));
        assert_eq!(last_lines("\n"), "  (no message)");
    }
}
