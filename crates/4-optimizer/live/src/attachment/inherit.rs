//! Journals of processes that were forked from an optimized process: they have its code, but no
//! journal.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::{Activation, Attachment};
use crate::journal::{
    Area, Generation, GenerationState, JournalRecord, directory, live_records, read_map,
};
use crate::patch::BytePatch;
use crate::replace::Switched;
use crate::{LiveError, unwind};
use dbdyno_machine::ProcessIdentity;

/// A generation of another process, as found in this one.
#[derive(Clone, Copy, Debug)]
struct SeenGeneration {
    /// Its state in the other process.
    original: GenerationState,
    /// How much of it is active here.
    activation: Activation,
    /// Whether all of its code is registered with the unwinder.
    is_registered: bool,
}

/// The generations of another process that are in this one.
struct Inherited {
    identity: ProcessIdentity,
    generations: Vec<Generation>,
    /// Number of entries that lead to them here.
    patched: usize,
}

impl Attachment {
    /// Copies the journal that matches the process's memory best: the one with the most entries redirected
    /// here, then with the most code. The process may have been forked before all code was written or while
    /// it was inactive, and changed independently since. So only its memory shows what is active.
    pub(super) fn inherit(&mut self, state: &Path) -> Result<(), LiveError> {
        let mut best: Option<Inherited> = None;
        let mut examined: Vec<Vec<Generation>> = Vec::new();
        for other in live_records(state) {
            // Sessions of one parent have the same code.
            let is_examined = examined.iter().any(|it| has_same_code(it, &other.generations));
            let is_same = not_deleted(&other.program) == not_deleted(self.process.program());
            if !is_same || is_examined {
                continue;
            }
            examined.push(other.generations.clone());
            let found = self.inherited_from(other)?;
            let rank = |it: &Inherited| (it.patched, it.generations.len());
            if best.as_ref().map_or((0, 0), rank) < rank(&found) {
                best = Some(found);
            }
        }
        let Some(inherited) = best else { return Ok(()) };
        for generation in &inherited.generations {
            let map = read_map(&directory(state, &inherited.identity), generation.number);
            self.journal.maps().store(generation.number, &map)?;
        }
        self.journal.change(|record| record.generations = inherited.generations)
    }

    /// Activates a generation, or the rest of it, that the process got by a fork before it was completely active.
    /// `None` if there is none that `is_requested`, or it was forked before the code was complete.
    pub(crate) fn activate_inherited(
        &mut self,
        is_requested: impl Fn(&Generation) -> bool,
    ) -> Result<Option<Switched>, LiveError> {
        let found = self.generations().iter().rfind(|it| it.digest.is_some() && is_requested(it));
        let Some(generation) = found else { return Ok(None) };
        if !self.has_code_of(generation)? || !self.is_registered(generation)? {
            return Ok(None);
        }
        self.activate_generation(generation.number).map(Some)
    }

    /// The generations in another process's journal that are in this process, with their states here.
    fn inherited_from(&self, other: JournalRecord) -> Result<Inherited, LiveError> {
        let (mut generations, mut seen, mut patched) = (Vec::new(), Vec::new(), 0);
        for generation in other.generations {
            if !self.has_code_of(&generation)? {
                continue;
            }
            patched += self.patched_entries(&generation)?;
            seen.push(SeenGeneration {
                original: generation.state,
                activation: self.activation_of(&generation)?,
                is_registered: self.is_registered(&generation)?,
            });
            generations.push(generation);
        }
        for (generation, state) in generations.iter_mut().zip(states(&seen)) {
            generation.state = state;
        }
        Ok(Inherited { identity: other.identity, generations, patched })
    }

    /// Whether all code of a generation is in this process. Other code may be at the same addresses: that of
    /// the process it was forked from, while `generation` is of another one.
    fn has_code_of(&self, generation: &Generation) -> Result<bool, LiveError> {
        if !self.are_mapped(generation)? {
            return Ok(false);
        }
        match generation.digest {
            Some(digest) => Ok(digest == self.digest(generation)?),
            // Never activated, or in a journal of an old version.
            None => Ok(self.activation_of(generation)? != Activation::Inactive),
        }
    }

    /// Whether all code of a generation is registered with the unwinder.
    fn is_registered(&self, generation: &Generation) -> Result<bool, LiveError> {
        let registered = match generation.areas.first().filter(|_| !generation.frames.is_empty()) {
            Some(area) => unwind::calls_done(&self.process, &area.data_range())?,
            None => 0,
        };
        Ok(registered == generation.frames.len())
    }
}

/// The path of a program as it was before an upgrade of its package replaced the file: the kernel adds a mark then.
fn not_deleted(program: &Path) -> &[u8] {
    let path = program.as_os_str().as_bytes();
    path.strip_suffix(b" (deleted)").unwrap_or(path)
}

/// Whether two journals have the same generations, apart from their states.
fn has_same_code(some: &[Generation], others: &[Generation]) -> bool {
    fn code(it: &Generation) -> (Option<u64>, &[Area], &[BytePatch], &[BytePatch]) {
        (it.digest, &it.areas, &it.entries, &it.exits)
    }
    some.iter().map(code).eq(others.iter().map(code))
}

/// The states of generations here, oldest first. Never `Freeing`, because only threads of the other
/// process were checked.
fn states(seen: &[SeenGeneration]) -> Vec<GenerationState> {
    let active = seen.iter().filter(|it| it.activation != Activation::Inactive).count();
    let is_redoable = |it: &SeenGeneration| {
        let state = it.original;
        it.is_registered && (state.may_be_active() || state == GenerationState::Inactive)
    };
    let redoable = seen.iter().rposition(is_redoable).filter(|_| active == 0);
    let state = |(index, it): (usize, &SeenGeneration)| match (it.activation, active) {
        (Activation::Inactive, _) if redoable == Some(index) => GenerationState::Inactive,
        (Activation::Inactive, _) => GenerationState::Retired,
        (_, 1) => GenerationState::Active,
        // Forked during a switch.
        _ => GenerationState::Switching,
    };
    seen.iter().enumerate().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(original: GenerationState, activation: Activation) -> SeenGeneration {
        SeenGeneration { original, activation, is_registered: true }
    }

    #[test]
    fn generation_active_here_is_active_whatever_its_state_in_the_other_process() {
        use GenerationState::{Active, Freeing, Inactive, Retired, Switching};
        for there in [Active, Inactive, Retired, Freeing, Switching] {
            assert_eq!(states(&[seen(there, Activation::Full)]), [Active]);
            assert_eq!(states(&[seen(there, Activation::Partial)]), [Active]);
        }
        let replaced = [seen(Retired, Activation::Full), seen(Active, Activation::Inactive)];
        assert_eq!(states(&replaced), [Active, Retired]);
        let half = [seen(Switching, Activation::Partial), seen(Switching, Activation::Partial)];
        assert_eq!(states(&half), [Switching, Switching]);
    }

    #[test]
    fn generation_inactive_here_is_redoable_if_registered() {
        use GenerationState::{Active, Freeing, Inactive, Preparing, Retired};
        assert_eq!(states(&[seen(Active, Activation::Inactive)]), [Inactive]);
        assert_eq!(states(&[seen(Inactive, Activation::Inactive)]), [Inactive]);
        let part = SeenGeneration { is_registered: false, ..seen(Active, Activation::Inactive) };
        assert_eq!(states(&[part]), [Retired]);
        for there in [Preparing, Retired, Freeing] {
            assert_eq!(states(&[seen(there, Activation::Inactive)]), [Retired]);
        }
        let two = [seen(Inactive, Activation::Inactive), seen(Active, Activation::Inactive)];
        assert_eq!(states(&two), [Retired, Inactive]);
    }
}
