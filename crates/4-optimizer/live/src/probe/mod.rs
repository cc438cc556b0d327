//! Whether a process can be optimized, and what forbids it.
//!
//! A probe reads files about the process and its memory. It does not trace it, so it neither stops a
//! thread nor fails because another program traces the process.

mod content;
mod status;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::LiveError;
use crate::journal::{Area, find_record};
use crate::memory::Maps;
use crate::process::{ProbeOptions, Process};
use crate::threads::identify;
pub(crate) use content::{check_executable, check_memory_writes, check_ptrace_scope, program};
pub(crate) use status::{FilterMode, Status};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckResult {
    /// No problem.
    Ok,
    /// The process can be optimized, with a limit or a cost that the text names.
    Note,
    /// The process cannot be optimized; the text says what to try.
    Forbidden,
}

/// A check of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProbeCheck {
    /// Name, which is stable across versions.
    pub id: &'static str,
    pub result: CheckResult,
    /// The finding, as a sentence without a full stop.
    pub what: String,
}

/// All that a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// Process ID.
    pub pid: u32,
    /// Path of its program in its own file system; `None` if it cannot be read.
    pub program: Option<PathBuf>,
    /// Whether no check forbids to optimize it.
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

/// Checks whether a process can be optimized. Unlike [`Process::open`], does all checks. `state` is
/// the directory of the journals.
///
/// # Errors
/// The process exited.
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
    if let Ok(process) =
        Process::open_unchecked(&identity, program.as_deref().unwrap_or(Path::new("")))
    {
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
    crate::threads::check_alive(&identity)?;
    Ok(Probe { pid, program: program.ok(), optimizable, checks: checks.0 })
}

/// The checks so far.
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
