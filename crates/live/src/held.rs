//! A process with those that descend from it, switched together.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::LiveError;
use crate::family::descendants;
use crate::keeper::Keeper;
use crate::look::{Permit, Process};
use crate::patience::patiently;
use crate::switch::Switched;

/// Processes that nobody else can change while this lives.
#[derive(Debug)]
pub struct Held {
    root: u32,
    state: PathBuf,
    permit: Permit,
    bound: Duration,
    keepers: Vec<Keeper>,
    /// Descendants that were there when this was opened, held or not.
    known: HashSet<u32>,
    /// Those that should be held and cannot.
    failed: Vec<(u32, LiveError)>,
}

/// What [`Keeper::undo`] and [`Keeper::redo`] are.
pub type Switch = fn(&mut Keeper) -> Result<Switched, LiveError>;

/// What switching all of them did.
#[derive(Debug, Default)]
pub struct SwitchedAll {
    /// How long threads stood still in each process that was switched.
    pub stops: Vec<Nanos>,
    /// How often a process was too busy to be stopped.
    pub refused: u32,
    /// Processes other than the first that could not be switched. Those that have ended are not
    /// among them.
    pub failed: Vec<(u32, LiveError)>,
}

impl Held {
    /// Holds a process and these of its descendants.
    ///
    /// # Errors
    /// The first process is gone, or held by another dbdyno.
    pub fn open(
        root: u32,
        members: &[u32],
        state: &Path,
        permit: Permit,
        bound: Duration,
    ) -> Result<Self, LiveError> {
        let mut held = Self {
            root,
            state: state.to_owned(),
            permit,
            bound,
            keepers: Vec::new(),
            known: descendants(root).into_iter().collect(),
            failed: Vec::new(),
        };
        held.keepers.push(held.keeper(root)?);
        for pid in members {
            held.add(*pid);
        }
        Ok(held)
    }

    fn keeper(&self, pid: u32) -> Result<Keeper, LiveError> {
        Keeper::open(Process::open(pid, self.permit)?, &self.state, self.bound)
    }

    fn add(&mut self, pid: u32) {
        match self.keeper(pid) {
            Ok(keeper) => self.keepers.push(keeper),
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
    pub fn switch(&mut self, switch: Switch) -> Result<SwitchedAll, LiveError> {
        let failed = std::mem::take(&mut self.failed);
        let mut all = SwitchedAll { failed, ..SwitchedAll::default() };
        for (number, keeper) in self.keepers.iter_mut().enumerate() {
            let (switched, refused) = patiently(|| switch(keeper), LiveError::is_passing);
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
                Err(error) => all.failed.push((keeper.process().pid(), error)),
            }
        }
        Ok(all)
    }
}
