//! What leads into new code: checked, put in force, taken back.

use super::{Keeper, led_back};
use crate::LiveError;
use crate::journal::{Area, State};
use crate::patch::Patch;
use crate::plan::{Part, Plan};
use crate::switch::{Moves, Switched, replace};
use crate::unwind::{self, Unwinder};

impl Keeper {
    /// That a patch keeps to what was reserved for it.
    pub(super) fn check(&self, patch: &Patch) -> Result<(), LiveError> {
        let pid = self.process.pid();
        let wrong = |state: String| Err(LiveError::WrongState { pid, state });
        let last = self.generations().last().filter(|last| last.state == State::Preparing);
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
    pub(super) fn switch_to(
        &self,
        number: Option<u32>,
        moves: Moves<'_>,
    ) -> Result<Switched, LiveError> {
        let mut parts = Vec::new();
        for generation in self.generations() {
            // Its code may be unmapped already, when a dbdyno was killed while it freed it.
            let there = self.are_mapped(generation)?;
            parts.push(Part {
                entries: &generation.entries,
                exits: if there { &generation.exits } else { &[] },
                in_force: Some(generation.number) == number,
            });
        }
        let plan = Plan::new(&parts, |address, size| self.process.memory().read(address, size))?;
        if let Some(address) = plan.foreign.first() {
            return Err(LiveError::Foreign { pid: self.process.pid(), address: *address });
        }
        if plan.edits.is_empty() {
            return Ok(Switched::default());
        }
        replace(&self.process, &plan.edits, moves, self.bound)
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
        let original = |address| led_back(&maps, address);
        unwinder.register(&self.process, area.stub(), &area.data_range(), frames, &original)
    }
}
