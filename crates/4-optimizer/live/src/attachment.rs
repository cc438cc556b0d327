//! The optimizations of one process: activated, undone, replaced, freed.

mod activation;
mod areas;
mod counting;
mod inherit;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dbdyno_relayout::{AddressMap, VirtualSlot};
use serde::Serialize;

use crate::journal::{Area, Generation, GenerationState, Journal, JournalRecord, PatchedMapping};
use crate::memory::PagedReader;
use crate::patch::{Patch, PatchList};
use crate::process::Process;
use crate::replace::Switched;
use crate::trace::restore_priorities;
use crate::{LiveError, symbols};
use activation::Moving;
pub use activation::redirected;
pub use areas::MAX_CODE;

/// A process and its journal. No other dbdyno can change the process while this exists.
#[derive(Debug)]
pub struct Attachment {
    process: Process,
    journal: Journal,
    max_pause: Duration,
    /// Processes that will get the same code at the same addresses.
    siblings: Vec<u32>,
}

/// Default maximum time for which threads are stopped.
pub const DEFAULT_MAX_PAUSE: Duration = Duration::from_millis(20);

/// How much of an optimization is active.
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

/// Pause between two checks whether threads are in code to be freed.
const FREE_PAUSE: Duration = Duration::from_millis(50);

impl Attachment {
    /// Opens the journal, and restores what an interrupted dbdyno left: borrowed code and raised
    /// priorities.
    ///
    /// # Errors
    /// Another dbdyno is attached to the process, or the journal cannot be used.
    pub fn open(process: Process, state: &Path, max_pause: Duration) -> Result<Self, LiveError> {
        let mut attachment = Self::open_unchanged(process, state, max_pause)?;
        restore_priorities(attachment.process.pid(), attachment.directory());
        attachment.restore_borrowed()?;
        if let Err(error) = attachment.disable_huge_pages() {
            // Memory of the process may get huge pages that it does not want; everything else works.
            tracing::warn!(%error, "huge pages of the process stay enabled");
        }
        Ok(attachment)
    }

    /// Opens the journal only, to read the process without any change.
    ///
    /// # Errors
    /// As [`Attachment::open`].
    pub fn open_unchanged(
        mut process: Process,
        state: &Path,
        max_pause: Duration,
    ) -> Result<Self, LiveError> {
        let journal = Journal::open(state, process.identity(), process.program())?;
        process.set_journal_directory(journal.directory());
        let mut attachment = Self { process, journal, max_pause, siblings: Vec::new() };
        if attachment.generations().is_empty() {
            attachment.inherit(state)?;
        }
        Ok(attachment)
    }

    /// Reserves memory only at addresses that are also free in these processes.
    pub fn share_with(&mut self, siblings: Vec<u32>) {
        self.siblings = siblings;
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// The generations in the journal, oldest first.
    #[must_use]
    pub fn generations(&self) -> &[Generation] {
        &self.journal.record().generations
    }

    /// The directory for files about the process.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.journal.directory()
    }

    /// Starts a new generation. Frees memory that was never used first, and replaced code if
    /// [`ProbeOptions::unmap`](crate::ProbeOptions::unmap) is set.
    ///
    /// # Errors
    /// The process did not stop, or no thread could unmap the unused memory.
    pub fn begin(&mut self) -> Result<(), LiveError> {
        self.check_filters()?;
        self.forget_unloaded()?;
        self.clean_up()?;
        let number = self.generations().last().map_or(1, |last| last.number + 1);
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.journal.change(|record| {
            record.generations.push(Generation {
                number,
                made,
                state: GenerationState::Preparing,
                areas: Vec::new(),
                entries: PatchList::default(),
                mappings: Vec::new(),
                exits: PatchList::default(),
                frames: Vec::new(),
                digest: None,
                counts: false,
            });
        })
    }

    /// Writes and activates a patch made for the reserved memory. It replaces the active one.
    ///
    /// # Errors
    /// In case of an error, no function is redirected, or the journal records which ones may be.
    pub fn install(&mut self, patch: &Patch) -> Result<Switched, LiveError> {
        self.check(patch)?;
        for block in &patch.blocks {
            self.process.memory().write(block.address, &block.bytes)?;
        }
        self.register(&patch.frames)?;
        let digest = self.generations().last().map(|last| self.digest(last)).transpose()?;
        let (entries, exits) = (patch.entries.clone().into(), patch.exits.clone().into());
        let mappings = PatchedMapping::of(&patch.entries, &self.process.maps()?);
        let number = self.generations().last().map_or(0, |last| last.number);
        self.journal.maps().store(number, &patch.map)?;
        tracing::info!(pid = self.process.pid(), number, "redirecting to optimized code");
        let before = self.generations().to_vec();
        self.journal.change(|record| {
            mark_as_switching(record);
            if let Some(last) = record.generations.last_mut() {
                (last.entries, last.exits, last.digest) = (entries, exits, digest);
                (last.mappings, last.state) = (mappings, GenerationState::Switching);
            }
        })?;
        self.activate(number, before)
    }

    /// Restores all redirected functions. The new code stays, for threads that are in it and for
    /// [`Attachment::redo`].
    ///
    /// # Errors
    /// The process did not stop, perhaps after some functions were restored; or another program has changed some
    /// of the bytes, and all others are restored.
    pub fn undo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        if self.generations().is_empty() {
            return Err(LiveError::NotOptimized { pid });
        }
        self.forget_unloaded()?;
        tracing::info!(pid, "undoing: redirecting to original code");
        let moving = Moving { from: self.maps(), to: Arc::default() };
        let newest = self.newest_redoable()?;
        // Code that counts replaces no optimization.
        let was_counting = newest.is_some_and(|index| self.generations()[index].counts);
        let before = self.activations()?;
        let switched = self.switch_to(None, &|from| moving.target(from));
        if switched.is_err() && self.activations().is_ok_and(|now| now != before) {
            // The first error is more useful than one from the journal.
            let _ = self.journal.change(mark_as_switching);
        }
        let switched = switched?;
        self.journal.change(|record| {
            for (index, generation) in record.generations.iter_mut().enumerate() {
                match generation.state {
                    GenerationState::Freeing => {}
                    GenerationState::Inactive if was_counting => {}
                    _ if Some(index) == newest && !generation.counts => {
                        generation.state = GenerationState::Inactive
                    }
                    _ => generation.state = GenerationState::Retired,
                }
            }
        })?;
        Ok(switched)
    }

    /// Activates the inactive optimization again.
    ///
    /// # Errors
    /// There is none; otherwise as in [`Attachment::undo`].
    pub fn redo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        self.forget_unloaded()?;
        let Some(number) = self.redoable()? else { return Err(LiveError::NothingToRedo { pid }) };
        tracing::info!(pid, number, "redoing: redirecting to optimized code");
        let before = self.generations().to_vec();
        self.set_state(number, GenerationState::Switching)?;
        self.activate(number, before)
    }

    /// The generation that a redo activates.
    fn redoable(&self) -> Result<Option<u32>, LiveError> {
        let Some(index) = self.newest_redoable()? else { return Ok(None) };
        let newest = &self.generations()[index];
        let is_redoable = !newest.counts
            && matches!(
                newest.state,
                GenerationState::Inactive | GenerationState::Switching | GenerationState::Active
            );
        Ok(is_redoable.then_some(newest.number))
    }

    /// Activates a generation, whatever its state.
    ///
    /// # Errors
    /// It was never activated or was freed; otherwise as in [`Attachment::undo`].
    pub fn activate_generation(&mut self, number: u32) -> Result<Switched, LiveError> {
        self.forget_unloaded()?;
        let is_usable = match self.generation(number) {
            Some(it) if it.state != GenerationState::Freeing && it.digest.is_some() => {
                self.are_mapped(it)?
            }
            _ => false,
        };
        if !is_usable {
            return Err(LiveError::NothingToRedo { pid: self.process.pid() });
        }
        let before = self.generations().to_vec();
        self.journal.change(|record| {
            mark_as_switching(record);
            for generation in record.generations.iter_mut().filter(|it| it.number == number) {
                generation.state = GenerationState::Switching;
            }
        })?;
        self.activate(number, before)
    }

    /// How much is active, according to the memory of the process.
    ///
    /// # Errors
    /// The process exited.
    pub fn activation(&self) -> Result<Activation, LiveError> {
        let activations = self.activations()?;
        let mut some = activations.into_iter().filter(|it| *it != Activation::Inactive);
        // An interrupted switch may leave two generations active.
        Ok(match (some.next(), some.next()) {
            (None, _) => Activation::Inactive,
            (Some(one), None) => one,
            _ => Activation::Partial,
        })
    }

    /// All memory in the journal that was added to the process.
    pub fn areas(&self) -> impl Iterator<Item = &Area> {
        self.generations().iter().flat_map(|generation| &generation.areas)
    }

    /// The addresses of original and copied instructions of a generation.
    #[must_use]
    pub fn map(&self, number: u32) -> Arc<AddressMap> {
        self.journal.maps().get(number)
    }

    /// Writes symbols of a generation for `perf` and debuggers. The process does not need them, so errors
    /// are ignored.
    pub(crate) fn write_symbols(&self, number: u32, patch: &Patch) {
        symbols::write_perf_map(self.process.pid(), &patch.symbols, self.areas());
        symbols::write_symbol_files(self.directory(), number, patch);
    }

    /// The slots of virtual tables that contain their function, or the copy of a generation.
    pub(crate) fn known_slots(&self, slots: &[VirtualSlot]) -> Vec<VirtualSlot> {
        let patches = self.generations().iter().flat_map(|it| it.entries.iter());
        let patches: HashSet<(u64, &[u8])> =
            patches.map(|entry| (entry.address, &*entry.patch)).collect();
        let memory = PagedReader::new(self.process.memory());
        let is_known = |slot: &VirtualSlot| {
            memory.read(slot.address, 8).is_ok_and(|now| {
                now == slot.function.to_le_bytes() || patches.contains(&(slot.address, &*now))
            })
        };
        slots.iter().filter(|slot| is_known(slot)).copied().collect()
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

    /// The address map of each generation.
    fn maps(&self) -> Vec<Arc<AddressMap>> {
        self.generations().iter().map(|it| self.journal.maps().get(it.number)).collect()
    }
}

/// Records that any entry of an active generation may be written.
fn mark_as_switching(record: &mut JournalRecord) {
    for generation in &mut record.generations {
        if generation.state == GenerationState::Active {
            generation.state = GenerationState::Switching;
        }
    }
}

/// The original of an instruction in the code of any generation; the address itself otherwise.
fn original_address(maps: &[Arc<AddressMap>], address: u64) -> u64 {
    maps.iter().find_map(|map| map.to_original(address)).unwrap_or(address)
}
