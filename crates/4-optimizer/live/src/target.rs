//! The process to optimize, alone or with its descendants.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use dbdyno_units::Nanos;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::LiveError;
use crate::attachment::{Activation, Attachment};
use crate::job::{Event, Events};
use crate::journal::GenerationState;
use crate::optimize::{PreparedPatch, optimize_like};
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::sample::family_of;
use crate::threads::retry_while_busy;

/// A process, and how to attach to it.
#[derive(Clone, Debug)]
pub struct Target {
    /// Process ID.
    pub pid: u32,
    /// Whether its descendants get the same code: for servers with a process per session.
    pub family: bool,
    /// Directory of the journals.
    pub state: PathBuf,
    pub probe: ProbeOptions,
    /// Maximum time for which threads may be stopped.
    pub max_pause: Duration,
}

impl Target {
    /// Attaches to the process.
    ///
    /// # Errors
    /// The process cannot be optimized, or another dbdyno is attached to it.
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
        Ok(attachment)
    }

    /// Attaches to the process and some of its descendants.
    ///
    /// # Errors
    /// The first process exited, or another dbdyno is attached to it.
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
    #[must_use]
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
    #[must_use]
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
    ///
    /// # Errors
    /// As those of [`AttachedGroup::switch`].
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

/// A descendant of an optimized process.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    pub pid: u32,
    pub outcome: MemberOutcome,
}

/// How a descendant got the optimization of its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemberOutcome {
    /// It was forked after its parent had been optimized.
    Inherited,
    /// It was optimized while it ran.
    Switched(Switched),
    /// Why it was not optimized.
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
#[must_use]
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

/// Permits as many open files as possible: an attached process needs two, and a server may have thousands of
/// sessions; sampling without permission for all threads needs one per thread and CPU.
pub(crate) fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    // If it fails, what needs more files reports it.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}
