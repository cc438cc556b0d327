//! The optimizations of one process: activated, undone, replaced, freed.

mod areas;
mod inherit;

use std::collections::HashSet;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use areas::MAX_CODE;
use dbdyno_relayout::{AddressMap, VirtualSlot};
use serde::Serialize;

use crate::journal::{Area, Generation, GenerationState, Journal, JournalRecord, PatchedMapping};
use crate::memory::{Maps, PagedReader};
use crate::patch::{BytePatch, JUMP_SIZE, PAGE, Patch};
use crate::probe::Status;
use crate::process::{ProbeOptions, Process, identify, retry_while_busy};
use crate::process_lock::ProcessLock;
use crate::replace::{GenerationTarget, Moves, SwitchPlan, Switched, replace};
use crate::target::descendants;
use crate::trace::restore_priorities;
use crate::unwind::Unwinder;
use crate::{LiveError, symbols, unwind};

/// A process and its journal. No other dbdyno can change the process while this exists.
#[derive(Debug)]
pub struct Attachment {
    process: Process,
    journal: Journal,
    max_pause: Duration,
    /// Processes that will get the same code at the same addresses.
    siblings: Vec<u32>,
    /// Released after the journal was closed.
    _lock: ProcessLock,
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
    pub fn open_unchanged(
        mut process: Process,
        state: &Path,
        max_pause: Duration,
    ) -> Result<Self, LiveError> {
        let lock = ProcessLock::take(process.pid())?;
        let journal = Journal::open(state, process.identity(), process.program())?;
        process.set_journal_directory(journal.directory());
        let mut attachment =
            Self { process, journal, max_pause, siblings: Vec::new(), _lock: lock };
        if attachment.generations().is_empty() {
            attachment.inherit(state)?;
        }
        Ok(attachment)
    }

    /// Reserves memory only at addresses that are also free in these processes.
    pub fn share_with(&mut self, siblings: Vec<u32>) {
        self.siblings = siblings;
    }

    pub fn process(&self) -> &Process {
        &self.process
    }

    pub fn generations(&self) -> &[Generation] {
        &self.journal.record().generations
    }

    pub fn directory(&self) -> &Path {
        self.journal.directory()
    }

    /// Checks that the process has no more threads than can be stopped within the maximum pause.
    pub(crate) fn check_threads(&self) -> Result<(), LiveError> {
        let pid = self.process.pid();
        Status::of(pid)?.check_threads(pid, self.max_pause)?;
        Ok(())
    }

    /// Starts a new generation. Frees memory that was never used first, and replaced code if
    /// [`ProbeOptions::unmap`](crate::ProbeOptions::unmap) is set.
    pub fn begin(&mut self) -> Result<(), LiveError> {
        self.check_threads()?;
        self.check_filters()?;
        self.forget_unloaded()?;
        self.clean_up()?;
        let number = self.generations().last().map_or(1, |last| last.number + 1);
        let max_pause_ms = u64::try_from(self.max_pause.as_millis()).ok();
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.journal.change(|record| {
            let new = Generation { number, made, max_pause_ms, ..Generation::default() };
            record.generations.push(new);
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
    pub fn redo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        self.forget_unloaded()?;
        let Some(number) = self.redoable()? else { return Err(LiveError::NothingToRedo { pid }) };
        tracing::info!(pid, number, "redoing: redirecting to optimized code");
        self.activate_again(number)
    }

    /// The generation that a redo activates.
    fn redoable(&self) -> Result<Option<u32>, LiveError> {
        let Some(index) = self.newest_redoable()? else { return Ok(None) };
        let newest = &self.generations()[index];
        Ok(newest.is_redoable().then_some(newest.number))
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
        self.activate_again(number)
    }

    fn activate_again(&mut self, number: u32) -> Result<Switched, LiveError> {
        let before = self.generations().to_vec();
        self.journal.change(|record| {
            mark_as_switching(record);
            let chosen = record.generations.iter_mut().filter(|it| it.number == number);
            chosen.for_each(|it| it.state = GenerationState::Switching);
        })?;
        self.activate(number, before)
    }

    /// How much is active, according to the memory of the process.
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

/// The current bytes at the address of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The jump to the new code.
    Patch,
    Original,
    /// Other bytes: of another generation, or of another program.
    Other(Vec<u8>),
    /// A file other than the patched one: the library was unloaded.
    Unloaded,
}

impl Found {
    fn new(entry: &BytePatch, now: &[u8], is_unloaded: impl FnOnce() -> bool) -> Self {
        match now {
            // Also in a copy of the code that was mapped in its place.
            now if now == entry.patch => Self::Patch,
            _ if is_unloaded() => Self::Unloaded,
            now if now == entry.original => Self::Original,
            now => Self::Other(now.to_vec()),
        }
    }
}

/// The memory of a process at one time: generations have entries on the same pages.
struct MemorySnapshot<'a> {
    maps: Maps,
    memory: PagedReader<'a>,
}

impl<'a> MemorySnapshot<'a> {
    fn of(process: &'a Process) -> Result<Self, LiveError> {
        Ok(Self { maps: process.maps()?, memory: PagedReader::new(process.memory()) })
    }

    /// The current bytes at the addresses of all entries of a generation.
    fn found(&self, generation: &Generation) -> Result<Vec<Found>, LiveError> {
        let found = |entry: &BytePatch| {
            let is_unloaded = || is_unloaded(generation, entry, &self.maps);
            let found = self.memory.inspect(entry.address, entry.patch.len(), |now| {
                Found::new(entry, now, is_unloaded)
            });
            match found {
                Err(error) if is_unmapped(&error) => Ok(Found::Unloaded),
                found => found,
            }
        };
        generation.entries.iter().map(found).collect()
    }

    fn redirected(&self, generation: &Generation) -> Result<(usize, Activation), LiveError> {
        let found = self.found(generation)?;
        let loaded = found.iter().filter(|it| **it != Found::Unloaded).count();
        let patched = found.iter().filter(|it| **it == Found::Patch).count();
        let activation = match patched {
            0 => Activation::Inactive,
            n if n == loaded => Activation::Full,
            _ => Activation::Partial,
        };
        let entries = generation.entries.iter().zip(&found);
        let functions = entries.filter(|(entry, found)| entry.is_jump() && **found == Found::Patch);
        Ok((functions.count(), activation))
    }
}

fn is_unloaded(generation: &Generation, entry: &BytePatch, maps: &Maps) -> bool {
    generation.mappings.iter().any(|mapping| mapping.was_replaced_at(entry.address, maps))
}

fn is_unmapped(error: &LiveError) -> bool {
    matches!(error, LiveError::System { source, .. } if source.raw_os_error() == Some(libc::EIO))
}

pub fn redirected(
    process: &Process,
    generation: &Generation,
) -> Result<(usize, Activation), LiveError> {
    MemorySnapshot::of(process)?.redirected(generation)
}

impl Attachment {
    pub(super) fn activation_of(&self, generation: &Generation) -> Result<Activation, LiveError> {
        redirected(&self.process, generation).map(|(_, activation)| activation)
    }

    /// Number of entries of a generation that lead to its code.
    pub(super) fn patched_entries(&self, generation: &Generation) -> Result<usize, LiveError> {
        let found = MemorySnapshot::of(&self.process)?.found(generation)?;
        Ok(found.iter().filter(|it| **it == Found::Patch).count())
    }

    pub(super) fn activations(&self) -> Result<Vec<Activation>, LiveError> {
        let memory = MemorySnapshot::of(&self.process)?;
        self.generations().iter().map(|it| memory.redirected(it).map(|(_, it)| it)).collect()
    }

    /// Whether a thread may enter a generation: through its entries, or through bytes that another
    /// program has written over them and may restore.
    pub(super) fn may_be_entered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let others = self.generations().iter().filter(|it| it.number != generation.number);
        let of_others: HashSet<(u64, &[u8])> =
            others.flat_map(|it| it.entries.iter()).map(|it| (it.address, &*it.patch)).collect();
        let found = MemorySnapshot::of(&self.process)?.found(generation)?;
        Ok(generation.entries.iter().zip(found).any(|(entry, found)| match found {
            Found::Patch => true,
            Found::Original | Found::Unloaded => false,
            Found::Other(bytes) => !of_others.contains(&(entry.address, &bytes)),
        }))
    }

    /// Removes entries from the journal whose library was unloaded.
    pub(super) fn forget_unloaded(&mut self) -> Result<(), LiveError> {
        let mut unloaded = HashSet::new();
        let memory = MemorySnapshot::of(&self.process)?;
        for generation in self.generations() {
            let found = memory.found(generation)?;
            let entries = generation.entries.iter().zip(found);
            let entries = entries.filter(|(_, found)| *found == Found::Unloaded);
            unloaded.extend(entries.map(|(entry, _)| (generation.number, entry.address)));
        }
        if unloaded.is_empty() {
            return Ok(());
        }
        self.journal.change(|record| {
            for generation in &mut record.generations {
                let number = generation.number;
                let is_loaded = |entry: &&BytePatch| !unloaded.contains(&(number, entry.address));
                let loaded: Vec<_> = generation.entries.iter().filter(is_loaded).cloned().collect();
                generation.entries = loaded.into();
            }
        })
    }
}

/// Moves threads between equivalent instructions of the original code and of generations.
pub(super) struct Moving {
    /// The generations that threads leave.
    pub(super) from: Vec<Arc<AddressMap>>,
    /// The generation that threads enter; empty for the original code.
    pub(super) to: Arc<AddressMap>,
}

impl Moving {
    pub(super) fn target(&self, from: u64) -> Option<u64> {
        let original = self.from.iter().find_map(|map| map.to_original(from));
        let copy = self.to.to_copy(original.unwrap_or(from));
        // From an inactive generation to the original code, if the active one has no copy.
        copy.or(original)
    }
}

impl Attachment {
    /// Checks that a patch is inside the reserved memory and can be written atomically.
    pub(super) fn check(&self, patch: &Patch) -> Result<(), LiveError> {
        let pid = self.process.pid();
        let wrong = |state: String| Err(LiveError::wrong_state(pid, &state));
        let last =
            self.generations().last().filter(|last| last.state == GenerationState::Preparing);
        let Some(last) = last else { return wrong("has no reserved memory".to_owned()) };
        for block in &patch.blocks {
            let end = block.address + block.bytes.len() as u64;
            let inside = |area: &Area| area.address <= block.address && end <= area.stub();
            if !last.areas.iter().any(inside) {
                return wrong(format!("has no reserved memory at {:#x}", block.address));
            }
        }
        let mut all = patch.entries.iter().chain(&patch.exits);
        if let Some(entry) = all.find(|entry| !entry.is_on_one_page()) {
            return wrong(format!(
                "cannot be patched atomically at {:#x}, across a page boundary",
                entry.address
            ));
        }
        Ok(())
    }

    /// Activates one generation or none: redirects its entries, restores all others, and writes the
    /// exits of all other generations.
    ///
    /// # Errors
    /// The code of the generation is not mapped, or the process did not stop. Or another program has changed
    /// some of the bytes: then no generation was activated, but all other entries were restored if `number` is
    /// `None`.
    pub(super) fn switch_to(
        &self,
        number: Option<u32>,
        moves: Moves<'_>,
    ) -> Result<Switched, LiveError> {
        let mut switched = Switched::default();
        let mut targets = Vec::new();
        let maps = self.process.maps()?;
        for generation in self.generations() {
            // Its code may already be unmapped if dbdyno was killed while it was freed.
            let is_mapped = areas::are_mapped_in(&maps, generation);
            let active = Some(generation.number) == number;
            if active && !is_mapped {
                return Err(LiveError::NothingToRedo { pid: self.process.pid() });
            }
            targets.push(GenerationTarget {
                entries: &generation.entries,
                exits: if is_mapped { &generation.exits } else { &[] },
                active,
            });
        }
        let memory = PagedReader::new(self.process.memory());
        let plan = SwitchPlan::new(&targets, |address, size| memory.read(address, size))?;
        let pid = self.process.pid();
        let modified =
            plan.modified.first().map(|&address| LiveError::ModifiedByOthers { pid, address });
        match modified {
            Some(error) if number.is_some() => return Err(error),
            _ if plan.edits.is_empty() => {}
            _ => {
                // Another program's bytes stay, and may be a jump.
                let is_inside = |to: &u64| {
                    let mut kept = plan.modified.iter();
                    kept.any(|address| (address + 1..address + JUMP_SIZE as u64).contains(to))
                };
                let moves = |from: u64| moves(from).filter(|to| !is_inside(to));
                switched = replace(&self.process, &plan.edits, &moves, self.max_pause)?;
            }
        }
        // Restoring the other entries is better than nothing.
        modified.map_or(Ok(switched), Err)
    }

    /// The generation that a redo activates: the active one, else the newest that was undone, also if dbdyno was
    /// killed before it recorded that.
    pub(super) fn newest_redoable(&self) -> Result<Option<usize>, LiveError> {
        let newest = self.activations()?.iter().rposition(|it| *it != Activation::Inactive);
        let newest =
            newest.or_else(|| self.generations().iter().rposition(Generation::is_redoable));
        Ok(newest.or_else(|| self.generations().iter().rposition(|it| !it.entries.is_empty())))
    }

    /// Switches to a generation that the journal has as `Switching`. If that fails without a change,
    /// the journal is reset to `before`.
    pub(super) fn activate(
        &mut self,
        number: u32,
        before: Vec<Generation>,
    ) -> Result<Switched, LiveError> {
        let activations = self.activations()?;
        let others = self.generations().iter().filter(|it| it.number != number);
        let from = others.map(|it| self.journal.maps().get(it.number)).collect();
        let moving = Moving { from, to: self.journal.maps().get(number) };
        let switched = self.switch_to(Some(number), &|from| moving.target(from));
        if switched.is_err() && self.activations().is_ok_and(|now| now == activations) {
            // The first error is more useful than one from the journal.
            let _ = self.journal.change(|record| record.generations = before);
        }
        let switched = switched?;
        // Code that counts does not replace an optimization that can be redone.
        let replaces = self.generation(number).is_some_and(|generation| !generation.counts);
        self.journal.change(|record| {
            for generation in &mut record.generations {
                let state = generation.state;
                if generation.number == number {
                    generation.state = GenerationState::Active;
                } else if state.may_be_active() || (state == GenerationState::Inactive && replaces)
                {
                    generation.state = GenerationState::Retired;
                }
            }
        })?;
        Ok(switched)
    }

    /// Activates the generation that was active before, or the original code if there was none or it cannot be
    /// activated. Retries while the process is too busy to be stopped.
    pub fn restore(&mut self, earlier: Option<u32>) -> Result<Switched, LiveError> {
        if let Some(earlier) = earlier {
            let activate = || self.activate_generation(earlier);
            match retry_while_busy(activate, LiveError::is_transient).0 {
                Ok(switched) => return Ok(switched),
                Err(error @ LiveError::Exited { .. }) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, earlier, "the earlier optimization is inactive");
                }
            }
        }
        retry_while_busy(|| self.undo(), LiveError::is_transient).0
    }

    pub(super) fn register(&mut self, frames: &[u64]) -> Result<(), LiveError> {
        if frames.is_empty() {
            return Ok(());
        }
        let pid = self.process.pid();
        let Some(unwinder) = Unwinder::of(&self.process)? else { return Ok(()) };
        let area = self.generations().last().and_then(|last| last.areas.first()).copied();
        let Some(area) = area else {
            return Err(LiveError::wrong_state(pid, "has no reserved memory"));
        };
        if frames.len() > unwind::MAX_LISTS {
            let state = format!("would get too many lists of frames ({})", frames.len());
            return Err(LiveError::wrong_state(pid, &state));
        }
        // Recorded first, because memory that the unwinder uses must not be unmapped.
        self.change_last(|generation| generation.frames = frames.to_vec())?;
        let maps = self.maps();
        let original = |address| original_address(&maps, address);
        let calls = unwinder.register(&area.data_range(), frames);
        unwind::call(&self.process, &area, &calls, &original)
    }
}

impl Attachment {
    /// As [`Attachment::reserve`], with writable memory for counters.
    pub(crate) fn reserve_counting(
        &mut self,
        near: &Range<u64>,
        size: u64,
        counters: u64,
    ) -> Result<Area, LiveError> {
        let mut area = self.find_free(near, size + counters, false, &[])?;
        // At the end of the free range, behind the data for the unwinder.
        let counters = counters.next_multiple_of(PAGE);
        area.code -= counters;
        area.data += counters;
        self.add(area, false)?;
        Ok(area)
    }

    /// As [`Attachment::install`], for code that counts.
    pub(crate) fn install_counting(&mut self, patch: &Patch) -> Result<Switched, LiveError> {
        self.change_last(|generation| generation.counts = true)?;
        self.install(patch)
    }

    /// Activates the original code if code that counts is active, because the dbdyno that activated it was
    /// killed. Also in descendants. Returns whether it was.
    pub fn end_abandoned_counting(&mut self) -> Result<bool, LiveError> {
        let abandoned = self.is_counting();
        if abandoned {
            retry_while_busy(|| self.undo(), LiveError::is_transient).0?;
            self.end_counting_of_descendants(&[]);
        }
        Ok(abandoned)
    }

    /// Activates the original code in descendants in which code that counts is active, because they were forked
    /// meanwhile. `others` are left out.
    pub(crate) fn end_counting_of_descendants(&self, others: &[u32]) {
        for pid in descendants(self.process.pid()) {
            if others.contains(&pid) || !self.counts_in(pid).unwrap_or(false) {
                continue;
            }
            match self.end_counting_of(pid) {
                Ok(()) | Err(LiveError::Exited { .. }) => {}
                Err(error) => tracing::warn!(%error, pid, "a descendant still counts executions"),
            }
        }
    }

    /// Whether code of this process that counts is active in a descendant.
    fn counts_in(&self, pid: u32) -> Result<bool, LiveError> {
        let process =
            Process::open_unchecked(&identify(pid)?, Path::new(""), ProbeOptions::default())?;
        for generation in self.generations().iter().filter(|it| it.counts) {
            if redirected(&process, generation)?.1 != Activation::Inactive {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end_counting_of(&self, pid: u32) -> Result<(), LiveError> {
        let process = Process::open(pid, ProbeOptions::WITHOUT_CALLS)?;
        let state = self.directory().parent().unwrap_or(Path::new(""));
        Self::open(process, state, self.max_pause)?.end_abandoned_counting()?;
        Ok(())
    }

    /// Whether code that counts is active, or may be, according to the journal.
    pub(crate) fn is_counting(&self) -> bool {
        self.generations().iter().any(|it| it.counts && it.state.may_be_active())
    }

    /// The active generation according to the journal, unless it counts.
    pub fn active_number(&self) -> Option<u32> {
        let is_active = |it: &&Generation| it.state == GenerationState::Active && !it.counts;
        self.generations().iter().rfind(is_active).map(|it| it.number)
    }

    /// Activates code that counts again.
    ///
    /// # Errors
    /// Its memory is not mapped any more, the process did not stop, or another program has changed some of the
    /// bytes.
    pub(crate) fn resume_counting(&mut self, number: u32) -> Result<Switched, LiveError> {
        self.forget_unloaded()?;
        self.activate_again(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_an_unloaded_library_are_unloaded() {
        let entry = BytePatch { address: 0x1000, original: vec![1], patch: vec![2] };
        let found = |now: u8, unloaded: bool| Found::new(&entry, &[now], || unloaded);
        assert_eq!(found(1, false), Found::Original);
        assert_eq!(found(2, false), Found::Patch);
        assert_eq!(found(3, false), Found::Other(vec![3]));
        // Another file may have a function with the same first bytes.
        assert_eq!(found(1, true), Found::Unloaded);
        assert_eq!(found(3, true), Found::Unloaded);
        // A jump to the new code is always kept.
        assert_eq!(found(2, true), Found::Patch);
    }

    fn copied(function: u64, copy: u64) -> Arc<AddressMap> {
        Arc::new(AddressMap::new(vec![(function, copy)], vec![(copy, function)]))
    }

    #[test]
    fn threads_move_to_the_active_generation_from_everywhere_else() {
        let moving = Moving { from: vec![copied(1, 11), copied(2, 22)], to: copied(1, 31) };
        assert_eq!([1, 11, 31].map(|at| moving.target(at)), [Some(31), Some(31), None]);
        // Not in the new code, so in the original code.
        assert_eq!([2, 22].map(|at| moving.target(at)), [None, Some(2)]);
    }
}
