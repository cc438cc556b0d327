//! What leads into new code: checked, put in force, taken back.

use dbdyno_relayout::AddressMap;

use super::{Activation, Attachment, map_to_original};
use crate::LiveError;
use crate::journal::{Area, Generation, GenerationState};
use crate::patch::Patch;
use crate::replace::{Moves, Switched, replace};
use crate::switch_plan::{GenerationTarget, SwitchPlan};
use crate::unwind::{self, Unwinder};

/// Where threads go that stand in instructions of which the program and a generation have one each.
pub(super) struct Moving {
    /// Out of these generations.
    pub(super) from: Vec<AddressMap>,
    /// Into this one; empty where the program's own code is to run.
    pub(super) to: AddressMap,
}

impl Moving {
    pub(super) fn target(&self, from: u64) -> Option<u64> {
        let original = self.from.iter().find_map(|map| map.to_original(from));
        let copy = self.to.to_copy(original.unwrap_or(from));
        // From what is no longer in force to the program, where the new code does not have it.
        copy.or(original)
    }
}

impl Attachment {
    /// That a patch keeps to what was reserved for it.
    pub(super) fn check(&self, patch: &Patch) -> Result<(), LiveError> {
        let pid = self.process.pid();
        let wrong = |state: String| Err(LiveError::WrongState { pid, state });
        let last =
            self.generations().last().filter(|last| last.state == GenerationState::Preparing);
        let Some(last) = last else { return wrong("has no memory reserved".to_owned()) };
        for block in &patch.blocks {
            let end = block.address + block.bytes.len() as u64;
            let inside = |area: &Area| area.address <= block.address && end <= area.stub();
            if !last.areas.iter().any(inside) {
                return wrong(format!("has no memory reserved for {:#x}", block.address));
            }
        }
        let mut all = patch.entries.iter().chain(&patch.exits);
        if let Some(entry) = all.find(|entry| !entry.is_on_one_page()) {
            return wrong(format!(
                "cannot be patched safely at {:#x}, where a page ends",
                entry.address
            ));
        }
        Ok(())
    }

    /// Has one generation in force, or none: its entries lead into it, all others of ours are as
    /// they were, and the exits of all other generations lead out of them.
    ///
    /// # Errors
    /// The process did not stop. Or somebody else has changed some of the bytes: nothing was put
    /// in force then, but all else taken back if that was wanted.
    pub(super) fn switch_to(
        &self,
        number: Option<u32>,
        moves: Moves<'_>,
    ) -> Result<Switched, LiveError> {
        let mut switched = Switched::default();
        let mut parts = Vec::new();
        for generation in self.generations() {
            // Its code may be unmapped already, when a dbdyno was killed while it freed it.
            let there = self.are_mapped(generation)?;
            parts.push(GenerationTarget {
                entries: &generation.entries,
                exits: if there { &generation.exits } else { &[] },
                in_force: Some(generation.number) == number,
            });
        }
        let plan =
            SwitchPlan::new(&parts, |address, size| self.process.memory().read(address, size))?;
        let pid = self.process.pid();
        let foreign = plan.foreign.first().map(|&address| LiveError::Foreign { pid, address });
        match foreign {
            Some(error) if number.is_some() => return Err(error),
            _ if plan.edits.is_empty() => {}
            _ => switched = replace(&self.process, &plan.edits, moves, self.max_pause)?,
        }
        // To take back some of it is better than nothing.
        foreign.map_or(Ok(switched), Err)
    }

    /// The generation that a redo puts in force: the one that is in force, also when an undo is
    /// about to begin, or the one that was.
    pub(super) fn to_be_redone(&self) -> Result<Option<usize>, LiveError> {
        let in_force = self.each_in_force()?;
        let is_undone = |it: &Generation| it.state == GenerationState::Inactive;
        let newest = in_force.iter().rposition(|it| *it != Activation::Inactive);
        let newest = newest.or_else(|| self.generations().iter().rposition(is_undone));
        Ok(newest.or_else(|| self.generations().iter().rposition(|it| !it.entries.is_empty())))
    }

    /// Switches to a generation that is on record as about to be switched to. Where that changes
    /// nothing, the record is as `before`.
    pub(super) fn put_in_force(
        &mut self,
        number: u32,
        to: AddressMap,
        before: Vec<Generation>,
    ) -> Result<Switched, LiveError> {
        let in_force = self.each_in_force()?;
        let others = self.generations().iter().filter(|it| it.number != number);
        let from = others.map(|it| self.journal.map(it.number)).collect();
        let moving = Moving { from, to };
        let switched = self.switch_to(Some(number), &|from| moving.target(from));
        if switched.is_err() && self.each_in_force().is_ok_and(|now| now == in_force) {
            // The error that led here says more than one of the journal would.
            let _ = self.journal.change(|record| record.generations = before);
        }
        let switched = switched?;
        self.journal.change(|record| {
            for generation in &mut record.generations {
                if generation.number == number {
                    generation.state = GenerationState::Active;
                } else if matches!(
                    generation.state,
                    GenerationState::Active | GenerationState::Switching
                ) {
                    generation.state = GenerationState::Retired;
                }
            }
        })?;
        Ok(switched)
    }

    pub(super) fn register(&mut self, frames: &[u64]) -> Result<(), LiveError> {
        if frames.is_empty() {
            return Ok(());
        }
        let pid = self.process.pid();
        let Some(unwinder) = Unwinder::of(&self.process)? else { return Ok(()) };
        let area = self.generations().last().and_then(|last| last.areas.first()).copied();
        let Some(area) = area else {
            let state = "has no memory reserved".to_owned();
            return Err(LiveError::WrongState { pid, state });
        };
        if frames.len() > unwind::MOST_LISTS {
            let state = format!("would get {} lists of frames, too many", frames.len());
            return Err(LiveError::WrongState { pid, state });
        }
        // On record first: what the unwinder knows of must not be unmapped.
        self.change_last(|generation| generation.frames = frames.to_vec())?;
        let maps = self.maps();
        let original = |address| map_to_original(&maps, address);
        unwinder.register(&self.process, area.stub(), &area.data_range(), frames, &original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copied(function: u64, copy: u64) -> AddressMap {
        AddressMap::new(vec![(function, copy)], vec![(copy, function)])
    }

    #[test]
    fn threads_go_to_what_comes_into_force_from_everywhere_else() {
        let moving = Moving { from: vec![copied(1, 11), copied(2, 22)], to: copied(1, 31) };
        assert_eq!([1, 11, 31].map(|at| moving.target(at)), [Some(31), Some(31), None]);
        // The new code does not have it: the program does.
        assert_eq!([2, 22].map(|at| moving.target(at)), [None, Some(2)]);
    }
}
