//! `/proc/PID/status`: tracers, stops and system call filters.

use std::fs;

use super::{Found, note, ok};
use crate::LiveError;
use crate::process::ProbeOptions;
use crate::threads::threads;

/// The text of `/proc/PID/status`.
pub(crate) struct Status(String);

impl Status {
    /// Reads it.
    ///
    /// # Errors
    /// The process exited.
    pub(crate) fn of(pid: u32) -> Result<Self, LiveError> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"));
        text.map(Self).map_err(|_| LiveError::Exited { pid })
    }

    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    }

    /// Process ID of the tracer.
    fn tracer(&self) -> Option<u32> {
        self.field("TracerPid")?.parse().ok().filter(|tracer| *tracer != 0)
    }

    /// # Errors
    /// Another program traces a thread of the process.
    pub(crate) fn check_tracer(&self, pid: u32) -> Result<(), LiveError> {
        let of_thread = |tid| {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
            Self(text).tracer()
        };
        let of_threads = || threads(pid).unwrap_or_default().into_iter().find_map(of_thread);
        let Some(tracer) = self.tracer().or_else(of_threads) else { return Ok(()) };
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        let what =
            format!("process {tracer} ({}) traces it; detach that debugger or tracer", name.trim());
        Err(LiveError::refused(pid, what))
    }

    /// # Errors
    /// The process is stopped.
    pub(crate) fn check_state(&self, pid: u32) -> Result<(), LiveError> {
        if self.field("State").is_some_and(|state| state.starts_with(['T', 't'])) {
            let what = format!("it is stopped; resume it with: kill -CONT {pid}");
            return Err(LiveError::refused(pid, what));
        }
        Ok(())
    }

    /// Whether the process has a system call filter.
    pub(crate) fn has_filter(&self) -> bool {
        self.field("Seccomp").is_some_and(|mode| mode != "0")
    }

    /// # Errors
    /// The process has a system call filter, and the options do not accept it.
    pub(crate) fn check_filter(&self, pid: u32, options: ProbeOptions) -> Result<Found, LiveError> {
        match (self.has_filter(), options.allow_seccomp) {
            (false, _) => ok("none"),
            (true, true) => note("it has one (seccomp), accepted by --allow-seccomp"),
            (true, false) => Err(LiveError::refused(
                pid,
                "it has a system call filter (seccomp), which may kill it for mapping memory; if the \
                 filter permits mmap, munmap and madvise, use --allow-seccomp",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let status =
            Status("Name:\tx\nState:\tT (stopped)\nSeccomp_filters:\t1\nSeccomp:\t2\n".into());
        assert_eq!(status.field("Seccomp"), Some("2"));
        assert_eq!(status.field("Seccomp_filter"), None);
        assert!(status.check_tracer(1).is_ok() && status.check_state(1).is_err());
        assert!(status.check_filter(1, ProbeOptions::default()).is_err());
        let (result, _) = status
            .check_filter(1, ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() })
            .unwrap();
        assert_eq!(result, super::super::CheckResult::Note);
    }
}
