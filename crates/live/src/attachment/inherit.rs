//! Journals of processes that were forked from an optimized process: they have its code, but no
//! journal.

use std::path::Path;

use super::{Activation, Attachment};
use crate::LiveError;
use crate::journal::{Generation, GenerationState, find_map, live_records};
use crate::unwind;

/// A generation of another process, as found in this one.
#[derive(Clone, Copy, Debug)]
struct SeenGeneration {
    /// Its state in the other process.
    original: GenerationState,
    /// How much of it is active here.
    activation: Activation,
    /// Whether all of its code is here and registered with the unwinder.
    is_complete: bool,
}

impl Attachment {
    /// Copies the journal that matches the process's memory. The process may have been forked before
    /// all code was written or while it was inactive, and changed independently since. So only its
    /// memory shows what is active.
    pub(super) fn inherit(&mut self, state: &Path) -> Result<(), LiveError> {
        for other in live_records(state) {
            let (mut inherited, mut seen) = (Vec::new(), Vec::new());
            if other.program == self.process.program() {
                for generation in other.generations {
                    if !self.are_mapped(&generation)? {
                        continue;
                    }
                    seen.push(SeenGeneration {
                        original: generation.state,
                        activation: self.activation_of(&generation)?,
                        is_complete: self.is_complete(&generation)?,
                    });
                    inherited.push(generation);
                }
            }
            if !inherited.is_empty() {
                for (generation, state) in inherited.iter_mut().zip(states(&seen)) {
                    generation.state = state;
                }
                for generation in &inherited {
                    let map = find_map(state, &other.identity, generation.number);
                    self.journal.store_map(generation.number, &map)?;
                }
                return self.journal.change(|record| record.generations = inherited);
            }
        }
        Ok(())
    }

    fn is_complete(&self, generation: &Generation) -> Result<bool, LiveError> {
        let registered = match generation.areas.first().filter(|_| !generation.frames.is_empty()) {
            Some(area) => unwind::calls_done(&self.process, &area.data_range())?,
            None => 0,
        };
        Ok(registered == generation.frames.len()
            && generation.digest == Some(self.digest(generation)?))
    }
}

/// The states of generations here, oldest first. Never `Freeing`, because only threads of the other
/// process were checked.
fn states(seen: &[SeenGeneration]) -> Vec<GenerationState> {
    let active = seen.iter().filter(|it| it.activation != Activation::Inactive).count();
    let is_redoable = |it: &SeenGeneration| {
        it.is_complete
            && matches!(
                it.original,
                GenerationState::Inactive | GenerationState::Active | GenerationState::Switching
            )
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
        SeenGeneration { original, activation, is_complete: true }
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
    fn generation_inactive_here_is_redoable_if_complete() {
        use GenerationState::{Active, Freeing, Inactive, Preparing, Retired};
        assert_eq!(states(&[seen(Active, Activation::Inactive)]), [Inactive]);
        assert_eq!(states(&[seen(Inactive, Activation::Inactive)]), [Inactive]);
        let part = SeenGeneration { is_complete: false, ..seen(Active, Activation::Inactive) };
        assert_eq!(states(&[part]), [Retired]);
        for there in [Preparing, Retired, Freeing] {
            assert_eq!(states(&[seen(there, Activation::Inactive)]), [Retired]);
        }
        let two = [seen(Inactive, Activation::Inactive), seen(Active, Activation::Inactive)];
        assert_eq!(states(&two), [Retired, Inactive]);
    }
}
