//! The process to optimize, alone or with its descendants; and the optimized processes, listed, undone and redone.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_machine::ProcessIdentity;
use dbdyno_units::{Bytes, Nanos};
use serde::Serialize;

use crate::attachment::{Activation, Attachment, DEFAULT_MAX_PAUSE, MAX_CODE, redirected};
use crate::job::{Event, Events};
use crate::journal::{GenerationState, JournalRecord, find_record, live_records};
use crate::optimize::{PreparedPatch, optimize_like};
use crate::process::{ProbeOptions, Process, family_of, raise_file_limit, retry_while_busy};
use crate::replace::Switched;
use crate::{LiveError, symbols, unwind};

/// A process, and how to attach to it.
#[derive(Clone, Debug)]
pub struct Target {
    pub pid: u32,
    /// Whether its descendants get the same code: for servers with a process per session.
    pub family: bool,
    pub state: PathBuf,
    pub probe: ProbeOptions,
    pub max_pause: Duration,
}

impl Target {
    pub fn attach(&self) -> Result<Attachment, LiveError> {
        self.attach_to(self.pid)
    }

    fn attach_to(&self, pid: u32) -> Result<Attachment, LiveError> {
        Attachment::open(Process::open(pid, self.probe)?, &self.state, self.max_pause)
    }

    /// As [`Target::attach`]. Ends counting that an interrupted dbdyno left active.
    pub(crate) fn attach_to_optimize(&self, events: Events<'_>) -> Result<Attachment, LiveError> {
        let mut attachment = self.attach()?;
        if attachment.end_abandoned_counting()? {
            events(Event::CountingEnded { pid: self.pid });
        }
        attachment.check_threads()?;
        Ok(attachment)
    }

    /// Attaches to the process and some of its descendants.
    pub fn attach_group(&self, members: &[u32]) -> Result<AttachedGroup, LiveError> {
        raise_file_limit();
        let mut group = AttachedGroup {
            target: self.clone(),
            attachments: vec![self.attach()?],
            known: members.iter().copied().collect(),
            unattached: Vec::new(),
        };
        for pid in members {
            group.add(*pid);
        }
        Ok(group)
    }
}

/// Processes that no other dbdyno can change while this exists.
#[derive(Debug)]
pub struct AttachedGroup {
    target: Target,
    attachments: Vec<Attachment>,
    /// Descendants that were attached, could not be attached, or are excluded.
    known: HashSet<u32>,
    /// Processes that could not be attached.
    unattached: Vec<(u32, LiveError)>,
}

/// [`Attachment::undo`] or [`Attachment::redo`].
pub type SwitchOperation = fn(&mut Attachment) -> Result<Switched, LiveError>;

/// The result of switching a group.
#[derive(Debug, Default)]
pub struct GroupSwitched {
    /// The longest stop of each switched process.
    pub stops: Vec<Nanos>,
    /// Number of times a process was too busy to be stopped.
    pub retries: u32,
    /// Processes other than the first that are attached and could not be switched, without exited ones. After
    /// [`AttachedGroup::undo_all`] also the first.
    pub failed: Vec<(u32, LiveError)>,
}

impl AttachedGroup {
    /// Excludes descendants that were forked before the optimization from [`AttachedGroup::undo_all`] and
    /// [`AttachedGroup::redo_all`], unless they are members.
    pub fn excluding(mut self, earlier: &[u32]) -> Self {
        self.known.extend(earlier);
        self
    }

    fn add(&mut self, pid: u32) {
        match self.target.attach_to(pid) {
            Ok(attachment) => self.attachments.push(attachment),
            Err(LiveError::Exited { .. }) => {}
            Err(error) => self.unattached.push((pid, error)),
        }
    }

    /// Descendants that could not be attached, and so are not switched with the others. Without exited ones.
    pub fn unattached(&self) -> &[(u32, LiveError)] {
        &self.unattached
    }

    /// As [`AttachedGroup::unattached`], at the end.
    pub(crate) fn into_unattached(self) -> Vec<(u32, LiveError)> {
        self.unattached
    }

    /// Attaches to all other descendants, which were forked since the optimization, with the code that was active
    /// at the fork.
    fn add_new_descendants(&mut self) {
        for pid in descendants(self.target.pid) {
            if self.known.insert(pid) {
                self.add(pid);
            }
        }
    }

    /// Switches all processes; each is retried while it is too busy to be stopped.
    ///
    /// # Errors
    /// The first process could not be switched; the others were not.
    pub fn switch(
        &mut self,
        operation: impl Fn(&mut Attachment) -> Result<Switched, LiveError>,
    ) -> Result<GroupSwitched, LiveError> {
        let mut all = GroupSwitched::default();
        for (index, attachment) in self.attachments.iter_mut().enumerate() {
            match all.switch(attachment, &operation) {
                Ok(()) => {}
                Err(error) if index == 0 => return Err(error),
                // It exited, or was forked while nothing was active.
                Err(
                    LiveError::Exited { .. }
                    | LiveError::NotOptimized { .. }
                    | LiveError::NothingToRedo { .. },
                ) => {}
                Err(error) => all.failed.push((attachment.process().pid(), error)),
            }
        }
        Ok(all)
    }

    /// Redoes the optimization in all processes, and in descendants that were forked meanwhile.
    pub fn redo_all(&mut self) -> Result<GroupSwitched, LiveError> {
        self.add_new_descendants();
        self.switch(Attachment::redo)
    }

    /// Undoes the optimization in all processes, and in descendants that were forked before the first one was
    /// undone. If that fails, the others are undone nevertheless, and it is the first of [`GroupSwitched::failed`].
    pub fn undo_all(&mut self) -> GroupSwitched {
        let mut all = GroupSwitched::default();
        let mut index = 0;
        while let Some(attachment) = self.attachments.get_mut(index) {
            match all.switch(attachment, Attachment::undo) {
                Ok(()) | Err(LiveError::NotOptimized { .. }) => {}
                Err(LiveError::Exited { .. }) if index > 0 => {}
                Err(error) => all.failed.push((attachment.process().pid(), error)),
            }
            if index == 0 {
                // Those that are forked from now on have the original code.
                self.add_new_descendants();
            }
            index += 1;
        }
        all
    }
}

impl GroupSwitched {
    /// Switches one more process.
    fn switch(
        &mut self,
        attachment: &mut Attachment,
        operation: impl Fn(&mut Attachment) -> Result<Switched, LiveError>,
    ) -> Result<(), LiveError> {
        let (switched, retries) =
            retry_while_busy(|| operation(attachment), LiveError::is_transient);
        self.retries += retries;
        self.stops.push(switched?.longest_stop);
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Member {
    pub pid: u32,
    pub outcome: MemberOutcome,
}

/// How a descendant got the optimization of its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberOutcome {
    Inherited,
    Switched(Switched),
    Error(String),
}

/// Activates the patch that was prepared in the target's process in all its descendants. Those that exit meanwhile are
/// skipped.
pub fn optimize_descendants(target: &Target, prepared: &PreparedPatch) -> Vec<Member> {
    let optimized = |pid| match optimize_member(target, pid, prepared) {
        Err(LiveError::Exited { .. }) => None,
        Err(error) => Some(Member { pid, outcome: MemberOutcome::Error(error.to_string()) }),
        Ok(outcome) => Some(Member { pid, outcome }),
    };
    descendants(target.pid).into_iter().filter_map(optimized).collect()
}

/// The descendants of a process, by process ID.
pub fn descendants(root: u32) -> Vec<u32> {
    let mut members: Vec<u32> = family_of(root).into_iter().filter(|pid| *pid != root).collect();
    members.sort_unstable();
    members
}

fn optimize_member(
    target: &Target,
    pid: u32,
    prepared: &PreparedPatch,
) -> Result<MemberOutcome, LiveError> {
    let mut attachment = target.attach_to(pid)?;
    let newest = attachment.generations().last();
    let has_patch = newest
        .is_some_and(|it| it.state == GenerationState::Active && prepared.is_in(it.areas.iter()));
    if has_patch && attachment.activation()? == Activation::Full {
        return Ok(MemberOutcome::Inherited);
    }
    if let Some(switched) = attachment.activate_inherited(|it| prepared.is_generation(it))? {
        return Ok(MemberOutcome::Switched(switched));
    }
    if let Some(switched) = optimize_like(&mut attachment, prepared)? {
        return Ok(MemberOutcome::Switched(switched));
    }
    Err(LiveError::refused(
        pid,
        match prepared.is_mapped_in(&attachment)? {
            true => {
                "it was forked while its parent was being optimized; the next optimization includes it"
            }
            false => "its memory layout differs from its parent's; optimize it separately",
        },
    ))
}

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
    pub bytes: Bytes,
}

/// The status of all optimized processes, or of this one.
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
    let process = Process::open(pid, ProbeOptions::WITHOUT_CALLS)?;
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

impl SwitchReport {
    /// Whether the process could not be switched, or practically nothing was redone.
    pub fn has_failed(&self, switch: Switch) -> bool {
        match self {
            // An undo skips no function, only jumps out of code that nothing leads to.
            Self::Done { switched, .. } => switch == Switch::Redo && switched.is_ineffective(),
            Self::Failed { .. } => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    Undo,
    Redo,
}

/// Switches these processes, attaching as `target` says, but by default with the maximum pause of their optimizations.
/// The pause of `target` is not used. If there is a `root`, the others are its descendants, and are not redone if it cannot
/// be. Returns the outcomes, and the error of the root.
pub fn switch_all(
    target: &Target,
    root: Option<u32>,
    pids: impl IntoIterator<Item = u32>,
    switch: Switch,
    max_pause: Option<Duration>,
) -> (Vec<SwitchReport>, Option<LiveError>) {
    let operation = match switch {
        Switch::Undo => Attachment::undo,
        Switch::Redo => Attachment::redo,
    };
    let (mut reports, mut error_of_root) = (Vec::new(), None);
    for pid in pids {
        let max_pause = max_pause.unwrap_or_else(|| recorded_pause(&target.state, pid, root));
        let target = Target { pid, max_pause, ..target.clone() };
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

/// The maximum pause with which a process, or else its ancestor, was optimized; the default if no journal has it.
fn recorded_pause(state: &Path, pid: u32, ancestor: Option<u32>) -> Duration {
    let recorded = |pid| find_record(state, &ProcessIdentity::of(pid).ok()?).ok()??.max_pause();
    recorded(pid).or_else(|| recorded(ancestor?)).unwrap_or(DEFAULT_MAX_PAUSE)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Generation, Journal};

    #[test]
    fn switch_takes_the_pause_of_the_optimization_or_of_that_of_an_ancestor() {
        let state = tempfile::tempdir().unwrap();
        let (me, other) = (std::process::id(), u32::MAX);
        assert_eq!(recorded_pause(state.path(), me, Some(me)), DEFAULT_MAX_PAUSE);
        let identity = ProcessIdentity::of(me).unwrap();
        let mut journal = Journal::open(state.path(), &identity, Path::new("/bin/me")).unwrap();
        let with = |max_pause_ms| {
            let state = GenerationState::Active;
            Generation { number: 1, state, max_pause_ms, ..Generation::default() }
        };
        let generations = [Some(100), Some(400), None].map(with).to_vec();
        journal.change(|record| record.generations = generations).unwrap();
        let expected = Duration::from_millis(400);
        assert_eq!(recorded_pause(state.path(), me, None), expected);
        assert_eq!(recorded_pause(state.path(), other, Some(me)), expected);
        assert_eq!(recorded_pause(state.path(), other, None), DEFAULT_MAX_PAUSE);
    }
}
