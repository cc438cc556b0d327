//! Whether a process can be optimized, and what forbids it.
//!
//! A probe reads files about the process and its memory. It does not trace it, so it neither stops a
//! thread nor fails because another program traces the process.

mod content;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use content::{check_executable, check_memory_writes, check_ptrace_scope, program};
use dbdyno_units::Nanos;
use serde::Serialize;

use crate::LiveError;
use crate::arch::check_platform;
use crate::attachment::DEFAULT_MAX_PAUSE;
use crate::journal::{Area, find_record};
use crate::memory::Maps;
use crate::process::{ProbeOptions, Process, identify, threads};
use crate::watchdog::MAX_RAISED;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    Ok,
    /// The process can be optimized, with a limit or a cost that the text names.
    Note,
    /// The process cannot be optimized; the text says what to try.
    Forbidden,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeCheck {
    /// Name, which is stable across versions.
    pub id: &'static str,
    pub result: CheckResult,
    /// The finding, as a sentence without a full stop.
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    pub pid: u32,
    /// Path of its program in its own file system; `None` if it cannot be read.
    pub program: Option<PathBuf>,
    pub optimizable: bool,
    pub checks: Vec<ProbeCheck>,
}

/// What a check found, if it does not forbid anything.
type Found = (CheckResult, String);

fn ok(what: impl Into<String>) -> Result<Found, LiveError> {
    Ok((CheckResult::Ok, what.into()))
}

fn note(what: impl Into<String>) -> Result<Found, LiveError> {
    Ok((CheckResult::Note, what.into()))
}

impl Process {
    /// Probes the process with this ID.
    ///
    /// # Errors
    /// It exited or cannot be optimized, with the reason and what to try. It was not changed.
    pub fn open(pid: u32, options: ProbeOptions) -> Result<Self, LiveError> {
        check_platform()?;
        let identity = identify(pid)?;
        let program = program(pid)?;
        let status = Status::of(pid)?;
        status.check_tracer(pid)?;
        status.check_state(pid)?;
        status.check_filter(pid, options)?;
        check_ptrace_scope(pid)?;
        check_executable(pid)?;
        check_memory_writes(pid)?;
        Self::open_unchecked(&identity, &program, options)
    }
}

/// Checks whether a process can be optimized. Unlike [`Process::open`], does all checks. `state` is
/// the directory of the journals.
pub fn probe(pid: u32, options: ProbeOptions, state: &Path) -> Result<Probe, LiveError> {
    let identity = identify(pid)?;
    let status = Status::of(pid)?;
    let program = program(pid);
    let mut checks = Checks(Vec::new());
    checks.add("program", || {
        program.as_ref().map_err(|error| LiveError::refused(pid, reason(error)))?;
        check_executable(pid)?;
        ok("a 64-bit program for x86-64, dynamically linked")
    });
    checks.add("access", || content::check_access(pid));
    checks.add("tracer", || {
        status.check_tracer(pid)?;
        ok("no other program traces it")
    });
    checks.add("state", || {
        status.check_state(pid)?;
        ok("it is not stopped")
    });
    checks.add("threads", || status.check_threads(pid, DEFAULT_MAX_PAUSE));
    checks.add("system-call-filter", || status.check_filter(pid, options));
    checks.add("memory-writes", || {
        check_memory_writes(pid)?;
        ok("the kernel permits writing to code of other processes")
    });
    checks.add("security-module", || content::check_security_module(pid));
    checks.add("sampling", || {
        let source = crate::sample::permitted_source(pid)?;
        ok(format!("permitted, by {source}"))
    });
    if let Ok(process) = Process::open_unchecked(
        &identity,
        program.as_deref().unwrap_or(Path::new("")),
        ProbeOptions::default(),
    ) {
        let own = find_record(state, &identity).ok().flatten();
        let own: Vec<Area> = own
            .iter()
            .flat_map(|record| &record.generations)
            .flat_map(|it| it.areas.clone())
            .collect();
        match process.maps() {
            Ok(maps) => checks.add_content(&process, &maps, &own),
            Err(error) => checks.add("mappings", || Err(error)),
        }
    }
    let optimizable = checks.0.iter().all(|check| check.result != CheckResult::Forbidden);
    crate::process::check_alive(&identity)?;
    Ok(Probe { pid, program: program.ok(), optimizable, checks: checks.0 })
}

struct Checks(Vec<ProbeCheck>);

impl Checks {
    fn add(&mut self, id: &'static str, check: impl FnOnce() -> Result<Found, LiveError>) {
        let (result, what) =
            check().unwrap_or_else(|error| (CheckResult::Forbidden, reason(&error)));
        self.0.push(ProbeCheck { id, result, what });
    }

    /// The checks that need access to the process.
    fn add_content(&mut self, process: &Process, maps: &Maps, own: &[Area]) {
        self.add("address-space", || content::check_address_space(process.pid(), maps));
        self.add("generated-code", || content::check_generated_code(maps, own));
        self.add("new-code", || content::check_new_code(own));
        self.add("uprobes", || content::check_uprobes(maps));
        self.add("static-probes", || content::check_static_probes(process, maps));
        self.add("unwinder", || content::check_unwinder(process));
        self.add("restartable-sequences", || content::check_rseq(process, maps));
    }
}

/// The reason of a refusal without the process, which the reader knows.
fn reason(error: &LiveError) -> String {
    match error {
        LiveError::Refused { reason, .. } => reason.clone(),
        other => other.to_string(),
    }
}

/// Maximum number of threads of a process to optimize. A stop of a server takes 0.04 to 0.08 ms for each on a virtual
/// machine with two CPUs, so that of all of them takes a third of the shortest limit of the watchdog, which also resets
/// the priorities of at most as many.
const MAX_THREADS: u128 = MAX_RAISED as u128;
/// Number of threads that stop in a millisecond and whose stacks are read. On a virtual machine with two CPUs it was 27 to
/// 59 of threads in a condition variable, and 12 of those in `epoll_wait`.
const THREADS_PER_MILLISECOND: u128 = 10;
/// The same on a busy machine.
const TYPICAL_PER_MILLISECOND: u128 = 5;

/// The text of `/proc/PID/status`.
pub(crate) struct Status(String);

impl Status {
    pub(crate) fn of(pid: u32) -> Result<Self, LiveError> {
        let text = fs::read_to_string(format!("/proc/{pid}/status"));
        text.map(Self).map_err(LiveError::proc_file("reading the state of", pid))
    }

    /// That of a thread; `None` if it has ended.
    pub(crate) fn of_thread(pid: u32, tid: i32) -> Option<Self> {
        fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok().map(Self)
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.map(str::trim)
    }

    fn tracer(&self) -> Option<u32> {
        self.field("TracerPid")?.parse().ok().filter(|tracer| *tracer != 0)
    }

    pub(crate) fn check_tracer(&self, pid: u32) -> Result<(), LiveError> {
        let of_thread = |tid| Self::of_thread(pid, tid)?.tracer();
        let of_threads = || threads(pid).unwrap_or_default().into_iter().find_map(of_thread);
        let Some(tracer) = self.tracer().or_else(of_threads) else { return Ok(()) };
        let name = fs::read_to_string(format!("/proc/{tracer}/comm")).unwrap_or_default();
        let what =
            format!("process {tracer} ({}) traces it; detach that debugger or tracer", name.trim());
        Err(LiveError::refused(pid, what))
    }

    pub(crate) fn check_state(&self, pid: u32) -> Result<(), LiveError> {
        if self.field("State").is_some_and(|state| state.starts_with(['T', 't'])) {
            let what = format!("it is stopped; resume it with: kill -CONT {pid}");
            return Err(LiveError::refused(pid, what));
        }
        Ok(())
    }

    /// Checks that all threads can be stopped together, within this time.
    pub(crate) fn check_threads(&self, pid: u32, max_pause: Duration) -> Result<Found, LiveError> {
        let count: u128 = self.field("Threads").and_then(|text| text.parse().ok()).unwrap_or(1);
        let in_time = max_pause.as_millis() * THREADS_PER_MILLISECOND;
        if count > MAX_THREADS {
            let what = format!(
                "it has {count} threads, more than the {MAX_THREADS} that are stopped together; let it use \
                 fewer, with a pool of threads for instance"
            );
            return Err(LiveError::refused(pid, what));
        }
        if count > in_time {
            let (pause, longer) = (Nanos::from(max_pause), count.div_ceil(TYPICAL_PER_MILLISECOND));
            let what = format!(
                "it has {count} threads, more than the {in_time} that may stop within {pause}; allow a longer \
                 pause, for instance with --max-pause {longer}"
            );
            return Err(LiveError::refused(pid, what));
        }
        ok(format!("{count} of at most {}", in_time.min(MAX_THREADS)))
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
        self.has_capability(CAP_SYS_ADMIN) == Some(true) && self.filter_mode() == FilterMode::None
    }

    fn has_capability(&self, number: u32) -> Option<bool> {
        let capabilities = u64::from_str_radix(self.field("CapEff")?, 16).ok()?;
        Some(capabilities >> number & 1 == 1)
    }

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
        assert_eq!(result, CheckResult::Note);
        let strict = Status("Seccomp:\t1\n".into());
        assert!(strict.check_filter(1, ProbeOptions::default()).is_err());
    }

    #[test]
    fn threads_are_limited_by_the_pause_and_in_any_case() {
        let check = |count: u32, millis: u64| {
            let status = Status(format!("Name:\tx\nThreads:\t{count}\n"));
            status.check_threads(7, Duration::from_millis(millis)).map_err(|error| reason(&error))
        };
        let found =
            |text: &str| -> Result<Found, String> { Ok((CheckResult::Ok, text.to_owned())) };
        assert_eq!(check(1000, 100), found("1000 of at most 1000"));
        assert_eq!(check(4096, 500), found("4096 of at most 4096"));
        let refused = check(1001, 100).unwrap_err();
        assert!(refused.contains("1001 threads, more than the 1000 that may stop"), "{refused}");
        assert!(refused.ends_with("--max-pause 201"), "{refused}");
        let refused = check(4097, 10_000).unwrap_err();
        assert!(refused.contains("4097 threads, more than the 4096"), "{refused}");
    }

    #[test]
    fn filters_are_readable_with_the_capability_and_without_own_filter() {
        let may = |text: &str| Status(text.to_owned()).may_read_filters();
        assert!(may("CapEff:\t000001ffffffffff\nSeccomp:\t0\n"));
        assert!(!may("CapEff:\t000001ffffffffff\nSeccomp:\t2\n"));
        assert!(!may("CapEff:\t0000000000000000\nSeccomp:\t0\n"));
    }
}
