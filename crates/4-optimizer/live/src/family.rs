//! Running sessions of an optimized parent, for servers with a process per session.

use std::path::Path;
use std::time::Duration;

use crate::LiveError;
use crate::attachment::{Activation, Attachment};
use crate::journal::GenerationState;
use crate::optimize::{PreparedPatch, optimize_like};
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::sample::family_of;

/// How a descendant got the optimization of its parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberOutcome {
    /// It was forked after its parent had been optimized.
    Inherited,
    /// It was optimized while it ran.
    Switched(Switched),
}

/// Activates the patch that was prepared in `root` in all its descendants, and passes each outcome to
/// `each`. Descendants that exit meanwhile are skipped.
pub fn optimize_descendants(
    root: u32,
    prepared: &PreparedPatch,
    state: &Path,
    probe: ProbeOptions,
    max_pause: Duration,
    mut each: impl FnMut(u32, Result<MemberOutcome, LiveError>),
) {
    for pid in descendants(root) {
        match optimize_member(pid, prepared, state, probe, max_pause) {
            Err(LiveError::Exited { .. }) => {}
            outcome => each(pid, outcome),
        }
    }
}

/// The descendants of a process, by process ID.
#[must_use]
pub fn descendants(root: u32) -> Vec<u32> {
    let mut members: Vec<u32> = family_of(root).into_iter().filter(|pid| *pid != root).collect();
    members.sort_unstable();
    members
}

fn optimize_member(
    pid: u32,
    prepared: &PreparedPatch,
    state: &Path,
    probe: ProbeOptions,
    max_pause: Duration,
) -> Result<MemberOutcome, LiveError> {
    let mut attachment = Attachment::open(Process::open(pid, probe)?, state, max_pause)?;
    let newest = attachment.generations().last();
    let has_patch = newest
        .is_some_and(|it| it.state == GenerationState::Active && prepared.is_in(it.areas.iter()));
    if has_patch && attachment.activation()? == Activation::Full {
        return Ok(MemberOutcome::Inherited);
    }
    if let Some(switched) = attachment.activate_inherited(|it| prepared.is_generation(it))? {
        return Ok(MemberOutcome::Switched(switched));
    }
    if let Some(switched) = optimize_like(&mut attachment, prepared)? {
        return Ok(MemberOutcome::Switched(switched));
    }
    Err(LiveError::refused(
        pid,
        match prepared.is_mapped_in(&attachment)? {
            true => {
                "it was forked while its parent was being optimized; the next optimization includes it"
            }
            false => "its memory layout differs from its parent's; optimize it separately",
        },
    ))
}
