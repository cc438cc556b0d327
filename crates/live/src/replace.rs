//! Replacing entries while everything stands still.

use std::ops::Range;
use std::thread;
use std::time::Duration;

use dbdyno_units::Nanos;
use serde::Serialize;

use crate::LiveError;
use crate::process::Process;
use crate::switch_plan::CodeEdit;
use crate::trace::{KnownCode, Stacks, StoppedProcess, is_code_in_use, ranges_in_use};
use crate::watchdog::watched;

/// What switching did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// The longest time for which threads stood still.
    pub longest_stop: Nanos,
    /// For how long they stood in all.
    pub stopped: Nanos,
    /// How often they were stopped.
    pub stops: u32,
    /// How many threads there were.
    pub threads: usize,
    /// Entries that were replaced.
    pub replaced: usize,
    /// Entries that were left as they were, because threads stayed inside their first bytes.
    pub busy: Vec<u64>,
    /// Threads that were moved to the equivalent instruction of new code.
    pub moved: usize,
}

/// Where a thread may be moved that stands at an address.
pub(crate) type Moves<'a> = &'a (dyn Fn(u64) -> Option<u64> + Sync);

/// The stop ends at this time, or at [`crate::watchdog::LEAST_LIMIT`], even if this process is
/// stopped itself.
const WATCHDOG_FACTOR: u32 = 4;
/// How often threads that stand in the way are waited for, and how long each time.
const ATTEMPTS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Replaces bytes in the given order, all that nobody stands in at once, the others a little later.
///
/// # Errors
/// The process did not stop in `bound`; nothing was changed then.
pub(crate) fn replace(
    process: &Process,
    edits: &[CodeEdit],
    moves: Moves<'_>,
    max_pause: Duration,
) -> Result<Switched, LiveError> {
    let mut outcome = Switched::default();
    let mut left: Vec<&CodeEdit> = edits.iter().collect();
    for attempt in 0..ATTEMPTS {
        if left.is_empty() {
            break;
        }
        if attempt > 0 {
            thread::sleep(PAUSE);
        }
        let busy = match once(process, &left, moves, max_pause, &mut outcome) {
            Ok(busy) => busy,
            // Threads may be busy in the kernel for a moment.
            Err(LiveError::NotStopped { .. }) if attempt + 1 < ATTEMPTS => continue,
            // What has been switched stays; the rest is as if threads stood in it.
            Err(LiveError::NotStopped { .. }) if outcome.replaced > 0 => break,
            Err(error) => return Err(error),
        };
        left = left.into_iter().zip(busy).filter(|(_, busy)| *busy).map(|(edit, _)| edit).collect();
    }
    outcome.busy = left.iter().map(|edit| edit.address).collect();
    Ok(outcome)
}

/// One stop; says of each edit whether it had to be left out.
fn once(
    process: &Process,
    edits: &[&CodeEdit],
    moves: Moves<'_>,
    max_pause: Duration,
    outcome: &mut Switched,
) -> Result<Vec<bool>, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    let mut splitting: Vec<usize> = (0..edits.len())
        .filter(|index| edits[*index].splits && edits[*index].bytes.len() > 1)
        .collect();
    splitting.sort_by_key(|index| edits[*index].address);
    let inside: Vec<Range<u64>> = splitting.iter().map(|index| edits[*index].inside()).collect();
    let done = stopped(process, max_pause, |stopped| {
        let used = ranges_in_use(&stacks, memory, &stopped.threads, &inside);
        stopped.check_max_pause(0)?;
        let mut busy = vec![false; edits.len()];
        for (index, used) in splitting.iter().zip(used) {
            busy[*index] = used;
        }
        for (edit, _) in edits.iter().zip(&busy).filter(|(_, busy)| !**busy) {
            memory.write(edit.address, &edit.bytes)?;
        }
        let mut moved = 0;
        for index in 0..stopped.threads.len() {
            let standing = &stopped.threads[index];
            if standing.is_plain()
                && standing.is_in_user_code()
                && let Some(to) = moves(standing.registers.rip)
            {
                stopped.move_thread(index, to)?;
                moved += 1;
            }
        }
        Ok((busy, moved, stopped.threads.len()))
    })?;
    let ((busy, moved, threads), time) = done;
    outcome.stops += 1;
    outcome.stopped += time;
    outcome.longest_stop = outcome.longest_stop.max(time);
    outcome.threads = outcome.threads.max(threads);
    outcome.replaced += busy.iter().filter(|busy| !**busy).count();
    outcome.moved += moved;
    Ok(busy)
}

/// Which of these ranges (ascending) some thread is in or will return to.
pub(crate) fn in_use(
    process: &Process,
    ranges: &[Range<u64>],
    max_pause: Duration,
) -> Result<Vec<bool>, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    let (used, _) = stopped(process, max_pause, |stopped| {
        Ok(ranges_in_use(&stacks, memory, &stopped.threads, ranges))
    })?;
    Ok(used)
}

/// Whether some thread is in this code or will return to it.
pub(crate) fn is_in_use(
    process: &Process,
    ranges: &[Range<u64>],
    max_pause: Duration,
) -> Result<bool, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    let code = ranges
        .iter()
        .map(|range| {
            let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
            Ok(KnownCode { start: range.start, bytes: memory.read(range.start, size)? })
        })
        .collect::<Result<Vec<_>, LiveError>>()?;
    let (used, _) = stopped(process, max_pause, |stopped| {
        Ok(is_code_in_use(&stacks, memory, &stopped.threads, &code))
    })?;
    Ok(used)
}

/// Does something while all threads stand still; says for how long they stood, too.
fn stopped<T: Send>(
    process: &Process,
    max_pause: Duration,
    work: impl FnOnce(&mut StoppedProcess<'_>) -> Result<T, LiveError> + Send,
) -> Result<(T, Nanos), LiveError> {
    process.identity().check()?;
    let pid = process.pid();
    watched(pid, max_pause * WATCHDOG_FACTOR, |watchdog| {
        let mut stopped = StoppedProcess::stop(pid, max_pause, watchdog)?;
        let done = work(&mut stopped);
        let time = stopped.release();
        Ok((done?, time))
    })
}
