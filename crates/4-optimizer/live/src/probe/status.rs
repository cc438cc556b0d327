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
    /// The process exited, or there is no free file descriptor.
    pub(crate) fn of(pid: u32) -> Result<Self, LiveError> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"));
        text.map(Self).map_err(LiveError::proc_file("reading the state of", pid))
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

    /// The mode of the system call filter.
    pub(crate) fn filter_mode(&self) -> FilterMode {
        match self.field("Seccomp") {
            None | Some("0") => FilterMode::None,
            Some("1") => FilterMode::Strict,
            _ => FilterMode::Filter,
        }
    }

    /// Whether a process with this status may read filters of others.
    fn may_read_filters(&self) -> bool {
        const CAP_SYS_ADMIN: u32 = 21;
        let capabilities = self.field("CapEff").and_then(|text| u64::from_str_radix(text, 16).ok());
        capabilities.unwrap_or(0) >> CAP_SYS_ADMIN & 1 == 1
            && self.filter_mode() == FilterMode::None
    }

    /// # Errors
    /// The process has a system call filter that cannot be read, and the options do not accept it.
    pub(crate) fn check_filter(&self, pid: u32, options: ProbeOptions) -> Result<Found, LiveError> {
        let own = Self::of(std::process::id())?;
        let refused = |what: &str| Err(LiveError::refused(pid, what));
        match self.filter_mode() {
            FilterMode::None => ok("none"),
            FilterMode::Strict => refused("it is in seccomp's strict mode, which forbids mmap"),
            FilterMode::Filter if options.allow_seccomp => {
                note("it has one (seccomp), accepted by --allow-seccomp")
            }
            FilterMode::Filter if own.may_read_filters() => note(
                "it has one (seccomp): the calls that dbdyno needs are checked before anything is \
                 changed",
            ),
            FilterMode::Filter => refused(
                "it has a system call filter (seccomp), which may kill it for mapping memory and which \
                 only root outside of such filters can read; run dbdyno as root, or, if the filter \
                 permits mmap, munmap, madvise and rt_sigprocmask, use --allow-seccomp",
            ),
        }
    }
}

/// The mode of a system call filter (seccomp).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterMode {
    None,
    /// Only `read`, `write`, `exit` and the return of signal handlers.
    Strict,
    /// One or more filter programs.
    Filter,
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
        assert_eq!(status.filter_mode(), FilterMode::Filter);
        let (result, _) = status
            .check_filter(1, ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() })
            .unwrap();
        assert_eq!(result, super::super::CheckResult::Note);
        let strict = Status("Seccomp:\t1\n".into());
        assert!(strict.check_filter(1, ProbeOptions::default()).is_err());
    }

    #[test]
    fn filters_are_readable_with_the_capability_and_without_own_filter() {
        let may = |text: &str| Status(text.to_owned()).may_read_filters();
        assert!(may("CapEff:\t000001ffffffffff\nSeccomp:\t0\n"));
        assert!(!may("CapEff:\t000001ffffffffff\nSeccomp:\t2\n"));
        assert!(!may("CapEff:\t0000000000000000\nSeccomp:\t0\n"));
    }
}
