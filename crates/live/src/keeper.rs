//! One process's optimizations: put in force, taken back, replaced, freed.

mod force;
mod freeing;
mod inheriting;
mod memory;
mod switching;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::LiveError;
use crate::journal::{Area, Generation, Home, Journal, Record, State};
use crate::look::Process;
use crate::patch::{Equivalence, Patch};
use crate::switch::Switched;
pub use force::redirected;
use switching::Moving;

/// A process and its journal, ready to be changed.
#[derive(Debug)]
pub struct Keeper {
    process: Process,
    journal: Journal,
    bound: Duration,
    /// Processes that are to get the same code at the same addresses.
    siblings: Vec<u32>,
}

/// How long threads may stand still unless something else is asked for.
pub const STOP_BOUND: Duration = Duration::from_millis(50);

/// What of an optimization is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InForce {
    /// Nothing.
    No,
    /// Some entries lead to new code: it was interrupted, or threads were in the way.
    Partly,
    /// All of it.
    Yes,
}

/// How long threads are waited for that are inside code which is to be freed, between two looks.
const FREE_PAUSE: Duration = Duration::from_millis(50);

impl Keeper {
    /// Opens the journal, and finishes what an interrupted dbdyno left half done.
    ///
    /// # Errors
    /// Another dbdyno is at work on the process, or the journal cannot be used.
    pub fn open(process: Process, state: &Path, bound: Duration) -> Result<Self, LiveError> {
        let journal = Journal::open(state, process.identity(), process.program())?;
        let mut keeper = Self { process, journal, bound, siblings: Vec::new() };
        if keeper.generations().is_empty() {
            keeper.inherit(state)?;
        }
        keeper.give_back_scratch()?;
        Ok(keeper)
    }

    /// Has memory reserved only where these processes have none either, as far as they live.
    pub fn share_with(&mut self, siblings: Vec<u32>) {
        self.siblings = siblings;
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What is on record.
    #[must_use]
    pub fn generations(&self) -> &[Generation] {
        &self.journal.record().generations
    }

    /// Where other files about the process may be kept.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.journal.directory()
    }

    /// Starts a new generation. Memory that nobody uses any more is freed first.
    ///
    /// # Errors
    /// The process did not stop, or no thread could unmap what is free.
    pub fn begin(&mut self) -> Result<(), LiveError> {
        self.forget_gone()?;
        self.retire_unused()?;
        self.free()?;
        let number = self.generations().last().map_or(1, |last| last.number + 1);
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.journal.change(|record| {
            record.generations.push(Generation {
                number,
                made,
                state: State::Preparing,
                areas: Vec::new(),
                entries: Vec::new(),
                homes: Vec::new(),
                exits: Vec::new(),
                frames: Vec::new(),
                digest: None,
            });
        })
    }

    /// Puts a patch in force that was made for the reserved memory, in place of the one before.
    ///
    /// # Errors
    /// Nothing leads to the new code then, or the journal says what does.
    pub fn install(&mut self, patch: &Patch) -> Result<Switched, LiveError> {
        self.check(patch)?;
        for block in &patch.blocks {
            self.process.memory().write(block.address, &block.bytes)?;
        }
        self.register(&patch.frames)?;
        let digest = self.generations().last().map(|last| self.digest(last)).transpose()?;
        let (entries, exits) = (patch.entries.clone(), patch.exits.clone());
        let homes = Home::of(&entries, &self.process.maps()?);
        let number = self.generations().last().map_or(0, |last| last.number);
        self.journal.keep_map(number, &patch.map)?;
        let before = self.generations().to_vec();
        self.journal.change(|record| {
            mark_as_switching(record);
            if let Some(last) = record.generations.last_mut() {
                (last.entries, last.exits, last.digest) = (entries, exits, digest);
                (last.homes, last.state) = (homes, State::Switching);
            }
        })?;
        self.put_in_force(number, patch.map.clone(), before)
    }

    /// Takes back all that leads into our code. The code stays, for threads that are in it and
    /// for [`Keeper::redo`].
    ///
    /// # Errors
    /// The process did not stop; or somebody else has changed some of the bytes, and all others are
    /// as they were.
    pub fn undo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        if self.generations().is_empty() {
            return Err(LiveError::NotOptimized { pid });
        }
        self.forget_gone()?;
        let moving = Moving { from: self.maps(), to: Equivalence::default() };
        let newest = self.to_be_redone()?;
        let in_force = self.each_in_force()?;
        let switched = self.switch_to(None, &|from| moving.target(from));
        if switched.is_err() && self.each_in_force().is_ok_and(|now| now != in_force) {
            // The error that led here says more than one of the journal would.
            let _ = self.journal.change(mark_as_switching);
        }
        let switched = switched?;
        self.journal.change(|record| {
            for (index, generation) in record.generations.iter_mut().enumerate() {
                match generation.state {
                    State::Freeing => {}
                    _ if Some(index) == newest => generation.state = State::Undone,
                    _ => generation.state = State::Retired,
                }
            }
        })?;
        Ok(switched)
    }

    /// Puts in force again what was undone.
    ///
    /// # Errors
    /// Nothing was undone; the rest as in [`Keeper::undo`].
    pub fn redo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        self.forget_gone()?;
        let last = self.to_be_redone()?.filter(|index| {
            let state = self.generations()[*index].state;
            matches!(state, State::Undone | State::Switching | State::Active)
        });
        let Some(last) = last else { return Err(LiveError::NothingToRedo { pid }) };
        let number = self.generations()[last].number;
        let before = self.generations().to_vec();
        self.journal.change(|record| record.generations[last].state = State::Switching)?;
        self.put_in_force(number, self.journal.map(number), before)
    }

    /// What is in force, by the bytes that are in the memory.
    ///
    /// # Errors
    /// The process is gone.
    pub fn now(&self) -> Result<InForce, LiveError> {
        let in_force = self.each_in_force()?;
        let mut some = in_force.into_iter().filter(|it| *it != InForce::No);
        // Two at once are left behind by a switch that was interrupted.
        Ok(match (some.next(), some.next()) {
            (None, _) => InForce::No,
            (Some(one), None) => one,
            _ => InForce::Partly,
        })
    }

    /// All memory of ours, as far as is on record.
    pub fn areas(&self) -> impl Iterator<Item = &Area> {
        self.generations().iter().flat_map(|generation| &generation.areas)
    }

    /// Which instruction of a generation stands for which of the program.
    #[must_use]
    pub fn map(&self, number: u32) -> Equivalence {
        self.journal.map(number)
    }

    fn numbers_in(&self, state: State) -> Vec<u32> {
        let found = self.generations().iter().filter(|it| it.state == state);
        found.map(|generation| generation.number).collect()
    }

    fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations().iter().find(|it| it.number == number)
    }

    fn set_state(&mut self, number: u32, state: State) -> Result<(), LiveError> {
        self.journal.change(|record| {
            for generation in record.generations.iter_mut().filter(|it| it.number == number) {
                generation.state = state;
            }
        })
    }

    fn change_last(&mut self, change: impl FnOnce(&mut Generation)) -> Result<(), LiveError> {
        self.journal.change(|record| {
            if let Some(last) = record.generations.last_mut() {
                change(last);
            }
        })
    }

    /// Which instruction stands for which, for each generation.
    fn maps(&self) -> Vec<Equivalence> {
        self.generations().iter().map(|it| self.journal.map(it.number)).collect()
    }
}

/// Says of what is in force that any of its entries may be there.
fn mark_as_switching(record: &mut Record) {
    for generation in &mut record.generations {
        if generation.state == State::Active {
            generation.state = State::Switching;
        }
    }
}

/// The instruction of the program for one of any generation's code; itself for any other.
fn led_back(maps: &[Equivalence], address: u64) -> u64 {
    maps.iter().find_map(|map| map.to_original(address)).unwrap_or(address)
}
