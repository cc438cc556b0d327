//! The optimizations of processes, listed, undone and redone.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_machine::ProcessIdentity;
use dbdyno_units::Bytes;
use serde::Serialize;

use crate::attachment::{Activation, Attachment, MAX_CODE, redirected};
use crate::journal::{GenerationState, JournalRecord, find_record, live_records};
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::target::Target;
use crate::threads::retry_while_busy;
use crate::{LiveError, symbols, unwind};

/// The status of an optimized process.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum ProcessStatus {
    Known(Box<KnownStatus>),
    /// It may have exited, or be stopped or traced by another program.
    Unknown {
        pid: u32,
        program: PathBuf,
        error: String,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct KnownStatus {
    pub pid: u32,
    pub program: PathBuf,
    /// Whether C++ exceptions take a lock that all threads share: with libgcc 12 or older.
    pub exceptions_take_lock: bool,
    pub generations: Vec<GenerationStatus>,
    /// Size of all new code.
    #[serde(rename = "code_bytes")]
    pub code: Bytes,
    /// Size of replaced code that is kept.
    #[serde(rename = "kept_bytes")]
    pub kept: Bytes,
    #[serde(rename = "max_code_bytes")]
    pub max_code: Bytes,
    /// Script with the symbols of the new code for gdb.
    pub gdb: Option<PathBuf>,
}

/// One optimization of a process.
#[derive(Clone, Debug, Serialize)]
pub struct GenerationStatus {
    pub number: u32,
    pub state: GenerationState,
    /// When it was made, in seconds since 1970.
    pub made: u64,
    /// Number of functions that it redirects.
    pub entries: usize,
    /// Number of functions that are redirected now.
    pub redirected: usize,
    pub activation: Activation,
    /// Whether its code counts executions.
    pub counts: bool,
    /// Size of its code.
    pub bytes: Bytes,
}

/// The status of all optimized processes, or of this one.
#[must_use]
pub fn process_statuses(state: &Path, pid: Option<u32>) -> Vec<ProcessStatus> {
    let is_listed = |record: &JournalRecord| pid.is_none_or(|pid| pid == record.identity.pid);
    let status = |record: JournalRecord| match known(state, &record) {
        Ok(known) => ProcessStatus::Known(Box::new(known)),
        Err(error) => ProcessStatus::Unknown {
            pid: record.identity.pid,
            program: record.program,
            error: error.to_string(),
        },
    };
    live_records(state).into_iter().filter(is_listed).map(status).collect()
}

fn known(state: &Path, record: &JournalRecord) -> Result<KnownStatus, LiveError> {
    let pid = record.identity.pid;
    let options = ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() };
    let process = Process::open(pid, options)?;
    let mut generations = Vec::new();
    for generation in &record.generations {
        let (redirected, activation) = redirected(&process, generation)?;
        generations.push(GenerationStatus {
            number: generation.number,
            state: generation.state,
            made: generation.made,
            entries: generation.entries.iter().filter(|entry| entry.is_jump()).count(),
            redirected,
            activation,
            counts: generation.counts,
            bytes: Bytes::from_bytes(generation.code_size()),
        });
    }
    let sum = |is_included: fn(&GenerationStatus) -> bool| {
        let included = generations.iter().filter(|it| is_included(it));
        included.fold(Bytes::from_bytes(0), |sum, it| sum + it.bytes)
    };
    Ok(KnownStatus {
        pid,
        program: record.program.clone(),
        exceptions_take_lock: unwind::exceptions_take_lock(&process, &record.generations)?,
        code: sum(|_| true),
        kept: sum(|it| it.state == GenerationState::Retired),
        generations,
        max_code: MAX_CODE,
        gdb: symbols::gdb_script(state, &record.identity),
    })
}

/// The outcome of undoing or redoing the optimization of a process.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum SwitchReport {
    Done { pid: u32, switched: Switched, activation: Activation },
    Failed { pid: u32, error: String },
}

/// What is done with optimizations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Undo,
    Redo,
}

/// Switches these processes, attaching as `target` says. If there is a `root`, the others are its descendants, and are
/// not redone if it cannot be. Returns the outcomes, and the error of the root.
pub fn switch_all(
    target: &Target,
    root: Option<u32>,
    pids: impl IntoIterator<Item = u32>,
    switch: Switch,
) -> (Vec<SwitchReport>, Option<LiveError>) {
    let operation = match switch {
        Switch::Undo => Attachment::undo,
        Switch::Redo => Attachment::redo,
    };
    let (mut reports, mut error_of_root) = (Vec::new(), None);
    for pid in pids {
        let target = Target { pid, ..target.clone() };
        let switched = target.attach().and_then(|mut attachment| {
            // Half of it is the worst state to be left in.
            let is_partial = |error: &LiveError| matches!(error, LiveError::ChangedInPart { .. });
            let switched = retry_while_busy(|| operation(&mut attachment), is_partial).0?;
            Ok((switched, attachment.activation()?))
        });
        match switched {
            Ok((switched, activation)) => {
                reports.push(SwitchReport::Done { pid, switched, activation });
            }
            Err(error) if Some(pid) == root => {
                error_of_root = Some(error);
                if switch == Switch::Redo {
                    break;
                }
            }
            Err(error) if has_nothing(&target.state, pid, root, &error) => {}
            Err(error) => reports.push(SwitchReport::Failed { pid, error: error.to_string() }),
        }
    }
    (reports, error_of_root)
}

/// Whether this error means that a process, or a descendant of `parent`, has no optimized code.
fn has_nothing(state: &Path, pid: u32, parent: Option<u32>, error: &LiveError) -> bool {
    match error {
        // A session may exit, or never have been optimized.
        LiveError::Exited { .. }
        | LiveError::NotOptimized { .. }
        | LiveError::NothingToRedo { .. } => true,
        // The probe refused it. A process that executed another program has inherited nothing.
        LiveError::Refused { .. } => {
            let program = |pid| fs::read_link(format!("/proc/{pid}/exe")).ok();
            let has_journal = ProcessIdentity::of(pid)
                .ok()
                .and_then(|identity| find_record(state, &identity).ok()?)
                .is_some();
            !has_journal && parent.is_none_or(|parent| program(pid) != program(parent))
        }
        _ => false,
    }
}
