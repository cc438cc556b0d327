//! Activation of new code: check a patch, redirect entries, restore them, and detect what is active from the memory of
//! the process.

use std::collections::HashSet;
use std::sync::Arc;

use dbdyno_relayout::AddressMap;

use crate::attachment::{Activation, Attachment, original_address};
use crate::journal::{Area, Generation, GenerationState};
use crate::memory::{Maps, PagedReader};
use crate::patch::{BytePatch, Patch};
use crate::process::Process;
use crate::replace::{GenerationTarget, Moves, SwitchPlan, Switched, replace};
use crate::threads::retry_while_busy;
use crate::unwind::Unwinder;
use crate::{LiveError, unwind};

/// The current bytes at the address of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    /// The jump to the new code.
    Patch,
    /// The original bytes.
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

    /// The number of redirected functions of a generation, and how much of it is active.
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

/// The number of redirected functions of a generation, and how much of it is active.
///
/// # Errors
/// The process exited.
pub fn redirected(
    process: &Process,
    generation: &Generation,
) -> Result<(usize, Activation), LiveError> {
    MemorySnapshot::of(process)?.redirected(generation)
}

impl Attachment {
    /// How much of a generation is active.
    pub(super) fn activation_of(&self, generation: &Generation) -> Result<Activation, LiveError> {
        redirected(&self.process, generation).map(|(_, activation)| activation)
    }

    /// Number of entries of a generation that lead to its code.
    pub(super) fn patched_entries(&self, generation: &Generation) -> Result<usize, LiveError> {
        let found = MemorySnapshot::of(&self.process)?.found(generation)?;
        Ok(found.iter().filter(|it| **it == Found::Patch).count())
    }

    /// How much of each generation is active.
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
        for generation in self.generations() {
            // Its code may already be unmapped if dbdyno was killed while it was freed.
            let is_mapped = self.are_mapped(generation)?;
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
            _ => switched = replace(&self.process, &plan.edits, moves, self.max_pause)?,
        }
        // Restoring the other entries is better than nothing.
        modified.map_or(Ok(switched), Err)
    }

    /// The generation that a redo activates: the active one, else the newest that was undone, also if dbdyno was
    /// killed before it recorded that.
    pub(super) fn newest_redoable(&self) -> Result<Option<usize>, LiveError> {
        use GenerationState::{Active, Inactive, Switching};
        let is_undone =
            |it: &Generation| !it.counts && matches!(it.state, Active | Inactive | Switching);
        let newest = self.activations()?.iter().rposition(|it| *it != Activation::Inactive);
        let newest = newest.or_else(|| self.generations().iter().rposition(is_undone));
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
                let is_replaced = match generation.state {
                    GenerationState::Active | GenerationState::Switching => true,
                    GenerationState::Inactive => replaces,
                    _ => false,
                };
                if generation.number == number {
                    generation.state = GenerationState::Active;
                } else if is_replaced {
                    generation.state = GenerationState::Retired;
                }
            }
        })?;
        Ok(switched)
    }

    /// Activates the generation that was active before, or the original code if there was none or it cannot be
    /// activated. Retries while the process is too busy to be stopped.
    ///
    /// # Errors
    /// As those of [`Attachment::undo`].
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
