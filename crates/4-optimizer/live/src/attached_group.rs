//! A process and its descendants, switched together.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::LiveError;
use crate::attachment::Attachment;
use crate::family::descendants;
use crate::file_limit::raise_file_limit;
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::retry::retry_while_busy;

/// Processes that no other dbdyno can change while this exists.
#[derive(Debug)]
pub struct AttachedGroup {
    root: u32,
    state: PathBuf,
    probe: ProbeOptions,
    max_pause: Duration,
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
    /// Attaches to a process and some of its descendants.
    ///
    /// # Errors
    /// The first process exited, or another dbdyno is attached to it.
    pub fn open(
        root: u32,
        members: &[u32],
        state: &Path,
        probe: ProbeOptions,
        max_pause: Duration,
    ) -> Result<Self, LiveError> {
        raise_file_limit();
        let mut group = Self {
            root,
            state: state.to_owned(),
            probe,
            max_pause,
            attachments: Vec::new(),
            known: members.iter().copied().collect(),
            unattached: Vec::new(),
        };
        group.attachments.push(group.attach(root)?);
        for pid in members {
            group.add(*pid);
        }
        Ok(group)
    }

    /// Excludes descendants that were forked before the optimization from [`AttachedGroup::undo_all`] and
    /// [`AttachedGroup::redo_all`], unless they are members.
    #[must_use]
    pub fn excluding(mut self, earlier: &[u32]) -> Self {
        self.known.extend(earlier);
        self
    }

    fn attach(&self, pid: u32) -> Result<Attachment, LiveError> {
        Attachment::open(Process::open(pid, self.probe)?, &self.state, self.max_pause)
    }

    fn add(&mut self, pid: u32) {
        match self.attach(pid) {
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
        for pid in descendants(self.root) {
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
