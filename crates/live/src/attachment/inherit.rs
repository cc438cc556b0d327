//! A process that was split off from an optimized one has its code, and no journal.

use std::path::Path;

use super::{Activation, Attachment};
use crate::LiveError;
use crate::journal::{Generation, GenerationState, find_map, live_records};
use crate::unwind;

/// A generation of another process, as it is found in this one.
#[derive(Clone, Copy, Debug)]
struct SeenGeneration {
    /// Its state there.
    there: GenerationState,
    /// What of it is in force here.
    in_force: Activation,
    /// All of its code is here, and the unwinder knows of it.
    whole: bool,
}

impl Attachment {
    /// Finds the journal that fits the process's memory. It may have been split off before all
    /// code was written, or when none of it was in force, and has been on its own since then: what
    /// is in force tells its memory alone.
    pub(super) fn inherit(&mut self, state: &Path) -> Result<(), LiveError> {
        for other in live_records(state) {
            let (mut inherited, mut seen) = (Vec::new(), Vec::new());
            if other.program == self.process.program() {
                for generation in other.generations {
                    if !self.are_mapped(&generation)? {
                        continue;
                    }
                    seen.push(SeenGeneration {
                        there: generation.state,
                        in_force: self.in_force(&generation)?,
                        whole: self.is_whole(&generation)?,
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
                    self.journal.keep_map(generation.number, &map)?;
                }
                return self.journal.change(|record| record.generations = inherited);
            }
        }
        Ok(())
    }

    fn is_whole(&self, generation: &Generation) -> Result<bool, LiveError> {
        let known = match generation.areas.first().filter(|_| !generation.frames.is_empty()) {
            Some(area) => unwind::calls_done(&self.process, &area.data_range())?,
            None => 0,
        };
        Ok(known == generation.frames.len() && generation.digest == Some(self.digest(generation)?))
    }
}

/// The states of generations here, oldest first. None is `Freeing`: whether threads are in it was
/// found out in the other process.
fn states(seen: &[SeenGeneration]) -> Vec<GenerationState> {
    let in_force = seen.iter().filter(|it| it.in_force != Activation::Inactive).count();
    let can_be_redone = |it: &SeenGeneration| {
        it.whole
            && matches!(
                it.there,
                GenerationState::Inactive | GenerationState::Active | GenerationState::Switching
            )
    };
    let undone = seen.iter().rposition(can_be_redone).filter(|_| in_force == 0);
    let state = |(index, it): (usize, &SeenGeneration)| match (it.in_force, in_force) {
        (Activation::Inactive, _) if undone == Some(index) => GenerationState::Inactive,
        (Activation::Inactive, _) => GenerationState::Retired,
        (_, 1) => GenerationState::Active,
        // Split off in the middle of a switch.
        _ => GenerationState::Switching,
    };
    seen.iter().enumerate().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(there: GenerationState, in_force: Activation) -> SeenGeneration {
        SeenGeneration { there, in_force, whole: true }
    }

    #[test]
    fn what_is_in_force_here_is_active_whatever_it_is_there() {
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
    fn what_is_not_in_force_here_can_be_redone_if_it_is_whole() {
        use GenerationState::{Active, Freeing, Inactive, Preparing, Retired};
        assert_eq!(states(&[seen(Active, Activation::Inactive)]), [Inactive]);
        assert_eq!(states(&[seen(Inactive, Activation::Inactive)]), [Inactive]);
        let part = SeenGeneration { whole: false, ..seen(Active, Activation::Inactive) };
        assert_eq!(states(&[part]), [Retired]);
        for there in [Preparing, Retired, Freeing] {
            assert_eq!(states(&[seen(there, Activation::Inactive)]), [Retired]);
        }
        let two = [seen(Inactive, Activation::Inactive), seen(Active, Activation::Inactive)];
        assert_eq!(states(&two), [Retired, Inactive]);
    }
}
