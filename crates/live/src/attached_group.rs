//! A process with those that descend from it, switched together.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::LiveError;
use crate::attachment::Attachment;
use crate::family::descendants;
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::retry::retry_while_busy;

/// Processes that nobody else can change while this lives.
#[derive(Debug)]
pub struct AttachedGroup {
    root: u32,
    state: PathBuf,
    probe: ProbeOptions,
    max_pause: Duration,
    attachments: Vec<Attachment>,
    /// Descendants that were there when this was opened, held or not.
    known: HashSet<u32>,
    /// Those that should be held and cannot.
    failed: Vec<(u32, LiveError)>,
}

/// What [`Attachment::undo`] and [`Attachment::redo`] are.
pub type SwitchOperation = fn(&mut Attachment) -> Result<Switched, LiveError>;

/// What switching all of them did.
#[derive(Debug, Default)]
pub struct GroupSwitched {
    /// How long threads stood still in each process that was switched.
    pub stops: Vec<Nanos>,
    /// How often a process was too busy to be stopped.
    pub refused: u32,
    /// Processes other than the first that could not be switched. Those that have ended are not
    /// among them.
    pub failed: Vec<(u32, LiveError)>,
}

impl AttachedGroup {
    /// Holds a process and these of its descendants.
    ///
    /// # Errors
    /// The first process is gone, or held by another dbdyno.
    pub fn open(
        root: u32,
        members: &[u32],
        state: &Path,
        probe: ProbeOptions,
        max_pause: Duration,
    ) -> Result<Self, LiveError> {
        let mut group = Self {
            root,
            state: state.to_owned(),
            probe,
            max_pause,
            attachments: Vec::new(),
            known: descendants(root).into_iter().collect(),
            failed: Vec::new(),
        };
        group.attachments.push(group.attachment(root)?);
        for pid in members {
            group.add(*pid);
        }
        Ok(group)
    }

    fn attachment(&self, pid: u32) -> Result<Attachment, LiveError> {
        Attachment::open(Process::open(pid, self.probe)?, &self.state, self.max_pause)
    }

    fn add(&mut self, pid: u32) {
        match self.attachment(pid) {
            Ok(attachment) => self.attachments.push(attachment),
            Err(LiveError::Gone { .. }) => {}
            Err(error) => self.failed.push((pid, error)),
        }
    }

    /// Holds processes that were split off since, with what the first one had in force then.
    pub fn add_newcomers(&mut self) {
        for pid in descendants(self.root) {
            if self.known.insert(pid) {
                self.add(pid);
            }
        }
    }

    /// Switches all, each as soon as it can be stopped.
    ///
    /// # Errors
    /// The first process could not be switched.
    pub fn switch(&mut self, switch: SwitchOperation) -> Result<GroupSwitched, LiveError> {
        let failed = std::mem::take(&mut self.failed);
        let mut all = GroupSwitched { failed, ..GroupSwitched::default() };
        for (number, attachment) in self.attachments.iter_mut().enumerate() {
            let (switched, refused) =
                retry_while_busy(|| switch(attachment), LiveError::is_transient);
            all.refused += refused;
            match switched {
                Ok(switched) => all.stops.push(switched.longest_stop),
                Err(error) if number == 0 => return Err(error),
                // It has ended, or was split off while nothing was in force.
                Err(
                    LiveError::Gone { .. }
                    | LiveError::NotOptimized { .. }
                    | LiveError::NothingToRedo { .. },
                ) => {}
                Err(error) => all.failed.push((attachment.process().pid(), error)),
            }
        }
        Ok(all)
    }
}
