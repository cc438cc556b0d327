//! Activation of new code: check a patch, redirect entries, restore them.

use std::sync::Arc;

use dbdyno_relayout::AddressMap;

use super::{Activation, Attachment, original_address};
use crate::LiveError;
use crate::journal::{Area, Generation, GenerationState};
use crate::memory::PagedReader;
use crate::patch::Patch;
use crate::replace::{Moves, Switched, replace};
use crate::retry::retry_while_busy;
use crate::switch_plan::{GenerationTarget, SwitchPlan};
use crate::unwind::{self, Unwinder};

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
        let wrong = |state: String| Err(LiveError::WrongState { pid, state });
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

    /// The generation that a redo activates: the active one, else the newest inactive one.
    pub(super) fn newest_redoable(&self) -> Result<Option<usize>, LiveError> {
        let is_inactive = |it: &Generation| it.state == GenerationState::Inactive;
        let newest = self.activations()?.iter().rposition(|it| *it != Activation::Inactive);
        let newest = newest.or_else(|| self.generations().iter().rposition(is_inactive));
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
            let state = "has no reserved memory".to_owned();
            return Err(LiveError::WrongState { pid, state });
        };
        if frames.len() > unwind::MAX_LISTS {
            let state = format!("would get too many lists of frames ({})", frames.len());
            return Err(LiveError::WrongState { pid, state });
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
