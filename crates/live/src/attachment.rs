//! One process's optimizations: put in force, taken back, replaced, freed.

mod activate;
mod activation;
mod areas;
mod free;
mod inherit;

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dbdyno_relayout::AddressMap;
use serde::Serialize;

use crate::LiveError;
use crate::journal::{Area, Generation, GenerationState, Journal, JournalRecord, PatchedMapping};
use crate::patch::Patch;
use crate::process::Process;
use crate::replace::Switched;
use activate::Moving;
pub use activation::redirected;

/// A process and its journal, ready to be changed.
#[derive(Debug)]
pub struct Attachment {
    process: Process,
    journal: Journal,
    max_pause: Duration,
    /// Processes that are to get the same code at the same addresses.
    siblings: Vec<u32>,
}

/// How long threads may stand still unless something else is asked for.
pub const DEFAULT_MAX_PAUSE: Duration = Duration::from_millis(50);

/// What of an optimization is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// No entry is redirected to the new code.
    Inactive,
    /// Some entries are redirected: the switch was interrupted, or threads were in the way.
    Partial,
    /// All entries are redirected.
    Full,
}

/// How long threads are waited for that are inside code which is to be freed, between two looks.
const FREE_PAUSE: Duration = Duration::from_millis(50);

impl Attachment {
    /// Opens the journal, and finishes what an interrupted dbdyno left half done.
    ///
    /// # Errors
    /// Another dbdyno is at work on the process, or the journal cannot be used.
    pub fn open(process: Process, state: &Path, max_pause: Duration) -> Result<Self, LiveError> {
        let journal = Journal::open(state, process.identity(), process.program())?;
        let mut attachment = Self { process, journal, max_pause, siblings: Vec::new() };
        if attachment.generations().is_empty() {
            attachment.inherit(state)?;
        }
        attachment.give_back_scratch()?;
        Ok(attachment)
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
                state: GenerationState::Preparing,
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
        let homes = PatchedMapping::of(&entries, &self.process.maps()?);
        let number = self.generations().last().map_or(0, |last| last.number);
        self.journal.keep_map(number, &patch.map)?;
        tracing::info!(pid = self.process.pid(), number, "redirecting to optimized code");
        let before = self.generations().to_vec();
        self.journal.change(|record| {
            mark_as_switching(record);
            if let Some(last) = record.generations.last_mut() {
                (last.entries, last.exits, last.digest) = (entries, exits, digest);
                (last.homes, last.state) = (homes, GenerationState::Switching);
            }
        })?;
        self.put_in_force(number, patch.map.clone(), before)
    }

    /// Takes back all that leads into our code. The code stays, for threads that are in it and
    /// for [`Attachment::redo`].
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
        tracing::info!(pid, "undoing: redirecting to original code");
        let moving = Moving { from: self.maps(), to: AddressMap::default() };
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
                    GenerationState::Freeing => {}
                    _ if Some(index) == newest => generation.state = GenerationState::Inactive,
                    _ => generation.state = GenerationState::Retired,
                }
            }
        })?;
        Ok(switched)
    }

    /// Puts in force again what was undone.
    ///
    /// # Errors
    /// Nothing was undone; the rest as in [`Attachment::undo`].
    pub fn redo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        self.forget_gone()?;
        let last = self.to_be_redone()?.filter(|index| {
            let state = self.generations()[*index].state;
            matches!(
                state,
                GenerationState::Inactive | GenerationState::Switching | GenerationState::Active
            )
        });
        let Some(last) = last else { return Err(LiveError::NothingToRedo { pid }) };
        let number = self.generations()[last].number;
        tracing::info!(pid, number, "redoing: redirecting to optimized code");
        let before = self.generations().to_vec();
        self.journal
            .change(|record| record.generations[last].state = GenerationState::Switching)?;
        self.put_in_force(number, self.journal.map(number), before)
    }

    /// What is in force, by the bytes that are in the memory.
    ///
    /// # Errors
    /// The process is gone.
    pub fn now(&self) -> Result<Activation, LiveError> {
        let in_force = self.each_in_force()?;
        let mut some = in_force.into_iter().filter(|it| *it != Activation::Inactive);
        // Two at once are left behind by a switch that was interrupted.
        Ok(match (some.next(), some.next()) {
            (None, _) => Activation::Inactive,
            (Some(one), None) => one,
            _ => Activation::Partial,
        })
    }

    /// All memory of ours, as far as is on record.
    pub fn areas(&self) -> impl Iterator<Item = &Area> {
        self.generations().iter().flat_map(|generation| &generation.areas)
    }

    /// Which instruction of a generation stands for which of the program.
    #[must_use]
    pub fn map(&self, number: u32) -> AddressMap {
        self.journal.map(number)
    }

    fn numbers_in(&self, state: GenerationState) -> Vec<u32> {
        let found = self.generations().iter().filter(|it| it.state == state);
        found.map(|generation| generation.number).collect()
    }

    fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations().iter().find(|it| it.number == number)
    }

    fn set_state(&mut self, number: u32, state: GenerationState) -> Result<(), LiveError> {
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
    fn maps(&self) -> Vec<AddressMap> {
        self.generations().iter().map(|it| self.journal.map(it.number)).collect()
    }
}

/// Says of what is in force that any of its entries may be there.
fn mark_as_switching(record: &mut JournalRecord) {
    for generation in &mut record.generations {
        if generation.state == GenerationState::Active {
            generation.state = GenerationState::Switching;
        }
    }
}

/// The instruction of the program for one of any generation's code; itself for any other.
fn map_to_original(maps: &[AddressMap], address: u64) -> u64 {
    maps.iter().find_map(|map| map.to_original(address)).unwrap_or(address)
}
