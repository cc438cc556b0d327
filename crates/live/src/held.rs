//! A process with all that descend from it, switched together.

use std::path::Path;
use std::thread;
use std::time::Duration;

use dbdyno_units::Nanos;

use crate::LiveError;
use crate::family::descendants;
use crate::keeper::Keeper;
use crate::look::{Permit, Process};
use crate::switch::Switched;

/// How often in a row a process may be too busy to be stopped.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(150);

/// Processes that nobody else can change while this lives.
#[derive(Debug)]
pub struct Held {
    keepers: Vec<Keeper>,
}

/// What [`Keeper::undo`] and [`Keeper::redo`] are.
pub type Switch = fn(&mut Keeper) -> Result<Switched, LiveError>;

/// What switching all of them did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SwitchedAll {
    /// How long threads stood still in each process that was switched.
    pub stops: Vec<Nanos>,
    /// How often a process was too busy to be stopped.
    pub refused: u32,
}

impl Held {
    /// Holds a process, and with `family` those that descend from it as far as they can be changed:
    /// they may end at any time, and some may never have been optimized.
    ///
    /// # Errors
    /// The first process is gone, or held by another dbdyno.
    pub fn open(
        pid: u32,
        family: bool,
        state: &Path,
        permit: Permit,
        bound: Duration,
    ) -> Result<Self, LiveError> {
        let open = |pid| Keeper::open(Process::open(pid, permit)?, state, bound);
        let mut keepers = vec![open(pid)?];
        if family {
            keepers.extend(descendants(pid).into_iter().filter_map(|pid| open(pid).ok()));
        }
        Ok(Self { keepers })
    }

    /// Switches all, each as soon as it can be stopped.
    ///
    /// # Errors
    /// The first process could not be switched.
    pub fn switch(&mut self, switch: Switch) -> Result<SwitchedAll, LiveError> {
        let mut all = SwitchedAll::default();
        for (number, keeper) in self.keepers.iter_mut().enumerate() {
            let mut attempts = 0;
            let switched = loop {
                match switch(keeper) {
                    Err(LiveError::NotStopped { .. } | LiveError::NoSafePoint { .. })
                        if attempts < ATTEMPTS =>
                    {
                        attempts += 1;
                        thread::sleep(PAUSE);
                    }
                    Err(_) if number > 0 => break None,
                    outcome => break Some(outcome?),
                }
            };
            all.refused += attempts;
            all.stops.extend(switched.map(|switched| switched.longest_stop));
        }
        Ok(all)
    }
}
