//! A server with a process per session: its parent was optimized, so that new sessions inherit
//! it; here are those that run already.

use std::path::Path;
use std::time::Duration;

use crate::LiveError;
use crate::attachment::{Activation, Attachment};
use crate::journal::GenerationState;
use crate::optimize::{PreparedPatch, optimize_like};
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::sample::family_of;

/// How a process came to what its parent has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOutcome {
    /// It was split off from its parent after that had been optimized.
    Inherited,
    /// It was changed while it ran.
    Switched(Switched),
}

/// Puts in force, in all processes that descend from `root`, what was prepared in `root`. Each
/// one's outcome is handed to `each`; sessions may end at any time, and others go on without.
pub fn optimize_descendants(
    root: u32,
    prepared: &PreparedPatch,
    state: &Path,
    probe: ProbeOptions,
    max_pause: Duration,
    mut each: impl FnMut(u32, Result<MemberOutcome, LiveError>),
) {
    for pid in descendants(root) {
        match join(pid, prepared, state, probe, max_pause) {
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
    prepared: &PreparedPatch,
    state: &Path,
    probe: ProbeOptions,
    max_pause: Duration,
) -> Result<MemberOutcome, LiveError> {
    let mut attachment = Attachment::open(Process::open(pid, probe)?, state, max_pause)?;
    let newest = attachment.generations().last();
    let has_it = newest
        .is_some_and(|it| it.state == GenerationState::Active && prepared.is_in(it.areas.iter()));
    if has_it && attachment.now()? == Activation::Full {
        return Ok(MemberOutcome::Inherited);
    }
    let switched = optimize_like(&mut attachment, prepared)?;
    switched.map(MemberOutcome::Switched).ok_or_else(|| {
        LiveError::refused(
            pid,
            "its memory is not laid out as that of its parent; optimize it by itself",
        )
    })
}
