//! A server with a process per session: its parent was optimized, so that new sessions inherit
//! it; here are those that run already.

use std::path::Path;
use std::time::Duration;

use crate::LiveError;
use crate::journal::State;
use crate::keeper::{InForce, Keeper};
use crate::look::{Permit, Process};
use crate::optimize::{Prepared, optimize_like};
use crate::sample::family_of;
use crate::switch::Switched;

/// How a process came to what its parent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Joined {
    /// It was split off from its parent after that had been optimized.
    Inherited,
    /// It was changed while it ran.
    Switched(Switched),
}

/// Puts in force, in all processes that descend from `root`, what was prepared in `root`. Each
/// one's outcome is handed to `each`; sessions may end at any time, and others go on without.
pub fn optimize_descendants(
    root: u32,
    prepared: &Prepared,
    state: &Path,
    permit: Permit,
    bound: Duration,
    mut each: impl FnMut(u32, Result<Joined, LiveError>),
) {
    for pid in descendants(root) {
        match join(pid, prepared, state, permit, bound) {
            // It has ended meanwhile.
            Err(LiveError::Gone { .. }) => {}
            outcome => each(pid, outcome),
        }
    }
}

/// The processes that descend from one.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let mut members: Vec<u32> = family_of(root).into_iter().filter(|pid| *pid != root).collect();
    members.sort_unstable();
    members
}

fn join(
    pid: u32,
    prepared: &Prepared,
    state: &Path,
    permit: Permit,
    bound: Duration,
) -> Result<Joined, LiveError> {
    let mut keeper = Keeper::open(Process::open(pid, permit)?, state, bound)?;
    let newest = keeper.generations().last();
    let has_it =
        newest.is_some_and(|it| it.state == State::Active && prepared.is_in(it.areas.iter()));
    if has_it && keeper.now()? == InForce::Yes {
        return Ok(Joined::Inherited);
    }
    let switched = optimize_like(&mut keeper, prepared)?;
    switched.map(Joined::Switched).ok_or_else(|| {
        LiveError::refused(
            pid,
            "its memory is not laid out as that of its parent; optimize it by itself",
        )
    })
}
