//! A process that was split off from an optimized one has its code, and no journal.

use std::path::Path;

use super::{InForce, Keeper};
use crate::LiveError;
use crate::journal::{Generation, State, all, look_up_map};
use crate::unwind;

/// A generation of another process, as it is found in this one.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Its state there.
    there: State,
    /// What of it is in force here.
    in_force: InForce,
    /// All of its code is here, and the unwinder knows of it.
    whole: bool,
}

impl Keeper {
    /// Finds the journal that fits the process's memory. It may have been split off before all
    /// code was written, or when none of it was in force, and has been on its own since then: what
    /// is in force tells its memory alone.
    pub(super) fn inherit(&mut self, state: &Path) -> Result<(), LiveError> {
        for other in all(state) {
            let (mut inherited, mut seen) = (Vec::new(), Vec::new());
            if other.program == self.process.program() {
                for generation in other.generations {
                    if !self.are_mapped(&generation)? {
                        continue;
                    }
                    seen.push(Seen {
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
                    let map = look_up_map(state, &other.identity, generation.number);
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
fn states(seen: &[Seen]) -> Vec<State> {
    let in_force = seen.iter().filter(|it| it.in_force != InForce::No).count();
    let can_be_redone = |it: &Seen| {
        it.whole && matches!(it.there, State::Undone | State::Active | State::Switching)
    };
    let undone = seen.iter().rposition(can_be_redone).filter(|_| in_force == 0);
    let state = |(index, it): (usize, &Seen)| match (it.in_force, in_force) {
        (InForce::No, _) if undone == Some(index) => State::Undone,
        (InForce::No, _) => State::Retired,
        (_, 1) => State::Active,
        // Split off in the middle of a switch.
        _ => State::Switching,
    };
    seen.iter().enumerate().map(state).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(there: State, in_force: InForce) -> Seen {
        Seen { there, in_force, whole: true }
    }

    #[test]
    fn what_is_in_force_here_is_active_whatever_it_is_there() {
        use State::{Active, Freeing, Retired, Switching, Undone};
        for there in [Active, Undone, Retired, Freeing, Switching] {
            assert_eq!(states(&[seen(there, InForce::Yes)]), [Active]);
            assert_eq!(states(&[seen(there, InForce::Partly)]), [Active]);
        }
        let replaced = [seen(Retired, InForce::Yes), seen(Active, InForce::No)];
        assert_eq!(states(&replaced), [Active, Retired]);
        let half = [seen(Switching, InForce::Partly), seen(Switching, InForce::Partly)];
        assert_eq!(states(&half), [Switching, Switching]);
    }

    #[test]
    fn what_is_not_in_force_here_can_be_redone_if_it_is_whole() {
        use State::{Active, Freeing, Preparing, Retired, Undone};
        assert_eq!(states(&[seen(Active, InForce::No)]), [Undone]);
        assert_eq!(states(&[seen(Undone, InForce::No)]), [Undone]);
        let part = Seen { whole: false, ..seen(Active, InForce::No) };
        assert_eq!(states(&[part]), [Retired]);
        for there in [Preparing, Retired, Freeing] {
            assert_eq!(states(&[seen(there, InForce::No)]), [Retired]);
        }
        let two = [seen(Undone, InForce::No), seen(Active, InForce::No)];
        assert_eq!(states(&two), [Retired, Undone]);
    }
}
