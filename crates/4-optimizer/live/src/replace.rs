//! Writing to code while all threads are stopped: what is to be written, and the stops.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use std::{fmt, thread};

use dbdyno_units::{Nanos, Share, counted};
use serde::Serialize;

use crate::LiveError;
use crate::patch::{BytePatch, JUMP_SIZE, PAGE};
use crate::process::{Process, check_alive};
use crate::trace::{
    BlockedThreads, KnownCode, Stacks, StoppedProcess, is_code_in_use, is_in_critical_section,
    ranges_in_use,
};
use crate::watchdog::watched;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Switched {
    /// The longest time for which threads were stopped.
    pub longest_stop: Nanos,
    /// The total time for which threads were stopped.
    pub stopped: Nanos,
    pub stops: u32,
    pub threads: usize,
    /// Number of threads among them that were in uninterruptible sleep and were left there.
    pub blocked: usize,
    /// Number of changed addresses.
    pub replaced: usize,
    /// Number of functions to redirect or to restore, and of those for which it was done. The other addresses are jumps
    /// out of copies.
    pub entries: usize,
    pub entries_done: usize,
    /// Addresses that were not changed, because threads were inside the bytes to replace, or did not stop in time.
    pub busy: Vec<u64>,
    /// Number of threads moved to the equivalent instruction.
    pub moved: usize,
}

/// With a smaller share of the functions redirected, a switch has practically no effect.
const LEAST_EFFECTIVE: f64 = 0.1;

impl Switched {
    /// Share of the functions to redirect or to restore for which it was done; all of them if there were none.
    pub fn applied(&self) -> Share {
        Share::from_fraction(match self.entries {
            0 => 1.0,
            all => self.entries_done as f64 / all as f64,
        })
    }

    /// Whether no function, or nearly none, was redirected or restored, although there were some.
    pub fn is_ineffective(&self) -> bool {
        self.applied().as_fraction() < LEAST_EFFECTIVE
    }
}

impl fmt::Display for Switched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stops == 0 {
            return f.write_str("nothing to change");
        }
        let Self { replaced, threads, longest_stop, .. } = self;
        let addresses = if *replaced == 1 { "address" } else { "addresses" };
        let were = if *threads == 1 { "was" } else { "were" };
        let threads = counted(*threads as u64, "thread");
        write!(
            f,
            "{replaced} {addresses} changed while {threads} {were} stopped for {longest_stop}"
        )?;
        if self.stops > 1 {
            write!(f, " at most, {} times", self.stops)?;
        }
        if self.blocked > 0 {
            let threads = counted(self.blocked as u64, "thread");
            write!(f, "; {threads} left in uninterruptible sleep")?;
        }
        if self.moved > 0 {
            write!(f, "; {} moved", counted(self.moved as u64, "thread"))?;
        }
        match self.busy.len() {
            0 => Ok(()),
            n => {
                let all = self.replaced + n;
                write!(f, "; {n} of {all} addresses skipped: in use, or no time left")
            }
        }
    }
}

/// Maps the address of a thread to an equivalent one, if there is one.
pub(crate) type Moves<'a> = &'a (dyn Fn(u64) -> Option<u64> + Sync);

/// The watchdog ends a stop after the maximum pause times this, or [`crate::watchdog::MIN_LIMIT`].
const WATCHDOG_FACTOR: u32 = 4;
/// Number of attempts for addresses that are in use by threads, or with time for one write at most, and the pause
/// between stops.
const ATTEMPTS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

/// The part of the maximum pause, as a divisor, that is left for resuming threads.
const RESUMING: u32 = 5;

/// Writes edits in the given order, in several stops if one would take longer than `max_pause`. Edits at
/// addresses in use by threads are retried.
///
/// # Errors
/// The process did not stop within `max_pause`, or a thread was in a restartable sequence at each attempt:
/// nothing was changed then, except with [`LiveError::ChangedInPart`].
pub(crate) fn replace(
    process: &Process,
    edits: &[CodeEdit],
    moves: Moves<'_>,
    max_pause: Duration,
) -> Result<Switched, LiveError> {
    let changed_in_part =
        || LiveError::ChangedInPart { pid: process.pid(), max_pause: Nanos::from(max_pause) };
    replace_in_stops(edits, changed_in_part, |left, outcome| {
        replace_once(process, left, moves, max_pause, outcome)
    })
}

/// As [`replace`], with `stop` for each stop.
fn replace_in_stops(
    edits: &[CodeEdit],
    changed_in_part: impl Fn() -> LiveError,
    mut stop: impl FnMut(&[&CodeEdit], &mut Switched) -> Result<Round, LiveError>,
) -> Result<Switched, LiveError> {
    let mut outcome = Switched::default();
    let mut left: Vec<&CodeEdit> = edits.iter().collect();
    let mut attempts = 0;
    while !left.is_empty() && attempts < ATTEMPTS {
        if attempts > 0 || outcome.stops > 0 {
            thread::sleep(PAUSE);
        }
        attempts += 1;
        let round = match stop(&left, &mut outcome) {
            Ok(round) => round,
            // Threads may be busy in the kernel.
            Err(error) if is_busy(&error) && attempts < ATTEMPTS => continue,
            // Keep the changes; the remaining edits count as busy.
            Err(error) if is_busy(&error) && outcome.replaced > 0 => break,
            Err(error) => return Err(error),
        };
        if round.reached < left.len() && round.writes > 1 {
            // There was no time for the others, which is no failed attempt. But if there is time for one write only,
            // there would be hundreds of stops.
            attempts = 0;
        }
        let is_left = |(index, _): &(usize, &CodeEdit)| round.is_left(*index);
        left = left.into_iter().enumerate().filter(is_left).map(|(_, edit)| edit).collect();
    }
    if left.iter().any(|edit| edit.removes_patch) {
        return Err(changed_in_part());
    }
    outcome.busy = left.iter().map(|edit| edit.address).collect();
    outcome.entries = edits.iter().filter(|edit| edit.is_entry).count();
    outcome.entries_done = outcome.entries - left.iter().filter(|edit| edit.is_entry).count();
    Ok(outcome)
}

fn is_busy(error: &LiveError) -> bool {
    error.is_pause_too_long() || matches!(error, LiveError::InCriticalSection { .. })
}

/// What was done in one stop.
struct Round {
    /// For each edit, whether its address was in use by a thread.
    busy: Vec<bool>,
    /// The number of edits for which there was time.
    reached: usize,
    writes: usize,
}

impl Round {
    fn is_left(&self, edit: usize) -> bool {
        self.busy[edit] || edit >= self.reached
    }
}

/// Stops the process once.
fn replace_once(
    process: &Process,
    edits: &[&CodeEdit],
    moves: Moves<'_>,
    max_pause: Duration,
    outcome: &mut Switched,
) -> Result<Round, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    let mut splitting: Vec<usize> = (0..edits.len())
        .filter(|index| edits[*index].splits && edits[*index].bytes.len() > 1)
        .collect();
    splitting.sort_by_key(|index| edits[*index].address);
    let inside: Vec<Range<u64>> = splitting.iter().map(|index| edits[*index].inside()).collect();
    let writes = writes(edits, |address, size| memory.read(address, size))?;
    let done = while_stopped(process, max_pause, BlockedThreads::Leave, |stopped| {
        let all_stopped = stopped.since.elapsed();
        let used = stopped.search_stacks(|threads, is_over| {
            ranges_in_use(&stacks, memory, threads, &inside, is_over)
        })?;
        let stacks_read = stopped.since.elapsed();
        if stopped.threads.iter().any(|thread| is_in_critical_section(memory, thread)) {
            return Err(LiveError::InCriticalSection { pid: stopped.pid });
        }
        let mut busy = vec![false; edits.len()];
        for (index, used) in splitting.iter().zip(used) {
            busy[*index] = used;
        }
        let is_over = || stopped.since.elapsed() >= max_pause - max_pause / RESUMING;
        let mut changed = Vec::new();
        let write = |write: &Write| {
            // Until it was stopped, the process could do anything, such as unload a library.
            if memory.read(write.address, write.before.len())? == write.before {
                return memory.write(write.address, &write.bytes);
            }
            if !edits[write.edits.start].is_address() {
                let address = write.address;
                return Err(LiveError::ModifiedByOthers { pid: process.pid(), address });
            }
            changed.push(write.edits.clone());
            Ok(())
        };
        let (unreached, made) = write_until(&writes, &busy, write, is_over)?;
        changed.into_iter().for_each(|edits| busy[edits].fill(true));
        let round = Round { busy, reached: unreached.unwrap_or(edits.len()), writes: made };
        let written = stopped.since.elapsed();
        tracing::debug!(
            ?all_stopped,
            ?stacks_read,
            ?written,
            threads = stopped.threads.len(),
            writes = writes.len(),
            "replacing code"
        );
        let mut moved = 0;
        let kept = kept_jumps(edits, &round);
        let is_inside = |to: &u64| kept.iter().any(|jump| jump.contains(to));
        for index in 0..stopped.threads.len() {
            let thread = &stopped.threads[index];
            if thread.is_plain()
                && thread.is_in_user_code()
                && let Some(to) = moves(thread.registers.rip).filter(|to| !is_inside(to))
            {
                stopped.move_thread(index, to)?;
                moved += 1;
            }
        }
        Ok((round, moved, stopped.threads.len(), stopped.blocked.len()))
    })?;
    let ((round, moved, threads, blocked), time) = done;
    outcome.stops += 1;
    outcome.stopped += time;
    outcome.longest_stop = outcome.longest_stop.max(time);
    outcome.threads = outcome.threads.max(threads + blocked);
    outcome.blocked = outcome.blocked.max(blocked);
    outcome.replaced += (0..edits.len()).filter(|edit| !round.is_left(*edit)).count();
    outcome.moved += moved;
    Ok(round)
}

/// The insides of jumps that may stay after this round. An instruction of the original code, or of a copy, that starts there
/// is overwritten: no thread may be moved to it. It stays where it is, at an equivalent one.
fn kept_jumps(edits: &[&CodeEdit], round: &Round) -> Vec<Range<u64>> {
    let all = edits.iter().enumerate();
    let kept = all.filter(|(index, edit)| round.is_left(*index) && !edit.is_address());
    kept.map(|(_, edit)| edit.inside()).collect()
}

/// Bytes to write at once.
#[derive(Debug, PartialEq, Eq)]
struct Write {
    address: u64,
    /// What is there now, as far as it is known.
    before: Vec<u8>,
    bytes: Vec<u8>,
    /// The edits.
    edits: Range<usize>,
}

/// The writes for these edits, in their order. Consecutive addresses on one page of data are written together, with
/// what is between them: virtual tables have thousands, and threads are stopped meanwhile.
fn writes(
    edits: &[&CodeEdit],
    read: impl Fn(u64, usize) -> Result<Vec<u8>, LiveError>,
) -> Result<Vec<Write>, LiveError> {
    let page = |edit: &CodeEdit| edit.is_address().then_some(edit.address / PAGE);
    let mut writes = Vec::new();
    let mut first = 0;
    for run in edits.chunk_by(|one, next| page(one).is_some() && page(one) == page(next)) {
        let address = run[0].address;
        let (before, bytes) = match run {
            [edit] => (edit.before.clone(), edit.bytes.clone()),
            [.., last] => {
                let size = last.address + last.bytes.len() as u64 - address;
                let mut before = read(address, size as usize)?;
                let mut bytes = before.clone();
                for edit in run {
                    let at = (edit.address - address) as usize;
                    let place = at..at + edit.bytes.len();
                    before[place.clone()].copy_from_slice(&edit.before);
                    bytes[place].copy_from_slice(&edit.bytes);
                }
                (before, bytes)
            }
            [] => continue,
        };
        writes.push(Write { address, before, bytes, edits: first..first + run.len() });
        first += run.len();
    }
    Ok(writes)
}

/// Makes the writes, at least one of them, until the time is over. Those that are busy are left out. Returns the
/// first edit that was not reached, if there is one, and the number of writes made.
fn write_until<E>(
    writes: &[Write],
    busy: &[bool],
    mut write: impl FnMut(&Write) -> Result<(), E>,
    mut is_over: impl FnMut() -> bool,
) -> Result<(Option<usize>, usize), E> {
    let mut made = 0;
    for next in writes.iter().filter(|write| !busy[write.edits.start]) {
        if made > 0 && is_over() {
            return Ok((Some(next.edits.start), made));
        }
        write(next)?;
        made += 1;
    }
    Ok((None, made))
}

/// For each of these ranges (ascending), whether a thread is in it or will return to it.
pub(crate) fn in_use(
    process: &Process,
    ranges: &[Range<u64>],
    max_pause: Duration,
) -> Result<Vec<bool>, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    let (used, _) = while_stopped(process, max_pause, BlockedThreads::Leave, |stopped| {
        stopped.search_stacks(|threads, is_over| {
            ranges_in_use(&stacks, memory, threads, ranges, is_over)
        })
    })?;
    Ok(used)
}

/// Whether a thread is in this code, will return to it, or has an address in it to call.
pub(crate) fn is_in_use(
    process: &Process,
    code: &[KnownCode],
    max_pause: Duration,
) -> Result<bool, LiveError> {
    let memory = process.memory();
    let stacks = Stacks::of(process)?;
    // All registers must be known.
    let (used, _) = while_stopped(process, max_pause, BlockedThreads::Wait, |stopped| {
        stopped.search_stacks(|threads, is_over| {
            is_code_in_use(&stacks, memory, threads, code, is_over)
        })
    })?;
    Ok(used)
}

/// Calls `work` while all threads are stopped. Also returns the duration of the stop.
fn while_stopped<T: Send>(
    process: &Process,
    max_pause: Duration,
    blocked: BlockedThreads,
    work: impl FnOnce(&mut StoppedProcess<'_>) -> Result<T, LiveError> + Send,
) -> Result<(T, Nanos), LiveError> {
    check_alive(process.identity())?;
    let pid = process.pid();
    watched(pid, max_pause * WATCHDOG_FACTOR, |watchdog| {
        let mut stopped = StoppedProcess::stop(process, max_pause, blocked, watchdog)?;
        let done = work(&mut stopped);
        let time = stopped.release();
        Ok((done?, time))
    })
}

/// Bytes to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeEdit {
    pub(crate) address: u64,
    /// The bytes to overwrite.
    pub(crate) before: Vec<u8>,
    pub(crate) bytes: Vec<u8>,
    /// The bytes to overwrite are several instructions: no thread may be between them or return there. Not so
    /// for an address in data.
    pub(crate) splits: bool,
    /// The bytes to overwrite are a patch, so that no thread can be in the way. While they stay, a generation is
    /// active in part, or cannot be activated.
    pub(crate) removes_patch: bool,
    /// Whether it redirects or restores a function, or an address in data; otherwise it is a jump out of a copy.
    pub(crate) is_entry: bool,
}

impl CodeEdit {
    /// Whether it is an address in data, not a jump.
    pub(crate) fn is_address(&self) -> bool {
        self.bytes.len() != JUMP_SIZE
    }

    /// Addresses inside the new instruction where old instructions may start.
    pub(crate) fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.bytes.len() as u64
    }
}

/// A generation and its requested state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GenerationTarget<'a> {
    pub(crate) entries: &'a [BytePatch],
    pub(crate) exits: &'a [BytePatch],
    /// Whether its entries are to jump to it; otherwise its exits are to jump out of it.
    pub(crate) active: bool,
}

/// The writes of a switch.
///
/// An entry jumps to a copy; the exit of an inactive copy jumps back to the entry. Both together would be an endless loop,
/// and dbdyno may be killed between any two writes. Therefore the exits of the generation to activate are removed first,
/// then all entries are changed, and the exits of inactive generations are written last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchPlan {
    /// In the order of writing. After each of them there is no jump cycle, even if edits were
    /// skipped because their addresses were in use by threads.
    pub(crate) edits: Vec<CodeEdit>,
    /// Addresses that another program has changed.
    pub(crate) modified: Vec<u64>,
}

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Remove the exits of the generation to activate.
    RemoveExits,
    /// Redirect entries to the generation to activate, or restore them.
    Entries,
    /// Write the exits of inactive generations.
    WriteExits,
}

/// An address with patches of one or more generations.
struct PatchSite<'a> {
    step: Step,
    original: &'a [u8],
    requested: &'a [u8],
    patches: Vec<&'a [u8]>,
}

impl<'a> PatchSite<'a> {
    fn new(step: Step, original: &'a [u8]) -> Self {
        Self { step, original, requested: original, patches: Vec::new() }
    }

    fn add(&mut self, patch: &'a [u8], is_requested: bool) {
        self.patches.push(patch);
        if is_requested {
            self.requested = patch;
        }
    }
}

impl SwitchPlan {
    /// Compares the requested bytes with the current ones, as returned by `read`.
    pub(crate) fn new(
        targets: &[GenerationTarget<'_>],
        read: impl Fn(u64, usize) -> Result<Vec<u8>, LiveError>,
    ) -> Result<Self, LiveError> {
        let mut sites: BTreeMap<u64, PatchSite<'_>> = BTreeMap::new();
        for target in targets {
            for entry in target.entries {
                // All generations have the same original for an address.
                let new = || PatchSite::new(Step::Entries, &entry.original);
                let site = sites.entry(entry.address).or_insert_with(new);
                site.add(&entry.patch, target.active);
            }
            let step = if target.active { Step::RemoveExits } else { Step::WriteExits };
            for exit in target.exits {
                let new = || PatchSite::new(step, &exit.original);
                sites.entry(exit.address).or_insert_with(new).add(&exit.patch, !target.active);
            }
        }
        let mut plan = Self::default();
        let mut steps = Vec::new();
        for (address, site) in sites {
            let now = read(address, site.original.len())?;
            if now != site.original && !site.patches.contains(&now.as_slice()) {
                plan.modified.push(address);
            } else if now != site.requested {
                let removes_patch = now != site.original;
                let splits = !removes_patch && now.len() == JUMP_SIZE;
                let bytes = site.requested.to_vec();
                let is_entry = site.step == Step::Entries;
                let edit =
                    CodeEdit { address, before: now, bytes, splits, removes_patch, is_entry };
                steps.push((site.step, edit));
            }
        }
        // The targets of another program's bytes are unknown, so no exit may jump there.
        steps.retain(|(step, edit)| {
            let target = jump_target(edit.address, &edit.bytes);
            *step != Step::WriteExits
                || target.is_none_or(|target| !plan.modified.contains(&target))
        });
        steps.sort_by_key(|(step, edit)| (*step, edit.address));
        plan.edits = steps.into_iter().map(|(_, edit)| edit).collect();
        Ok(plan)
    }
}

fn jump_target(address: u64, bytes: &[u8]) -> Option<u64> {
    let distance = bytes.strip_prefix(&[0xe9])?.try_into().ok().map(i32::from_le_bytes)?;
    (address + 5).checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn edit(address: u64, bytes: &[u8]) -> CodeEdit {
        let (before, bytes) = (vec![9; bytes.len()], bytes.to_vec());
        CodeEdit { address, before, bytes, splits: false, removes_patch: false, is_entry: true }
    }

    #[test]
    fn no_thread_is_moved_into_a_jump_that_stays() {
        let jumps = [0x1000, 0x1100, 0x1200].map(|address| edit(address, &[0xe9, 1, 2, 3, 4]));
        let address = edit(0x1300, &[1; 8]);
        let edits: Vec<&CodeEdit> = jumps.iter().chain([&address]).collect();
        let round = Round { busy: vec![false, true, false, false], reached: 2, writes: 1 };
        assert_eq!(kept_jumps(&edits, &round), [0x1101..0x1105, 0x1201..0x1205]);
    }

    #[test]
    fn addresses_on_one_page_are_written_together() {
        let jump = [0xe9, 1, 2, 3, 4];
        let edits = [
            edit(0x1000, &jump),
            edit(0x1008, &jump),
            edit(0x2ff0, &[1; 8]),
            edit(0x3000, &[2; 8]),
            edit(0x3010, &[3; 8]),
            edit(0x3018, &[4; 8]),
        ];
        let all: Vec<&CodeEdit> = edits.iter().collect();
        let writes = writes(&all, |_, size| Ok(vec![7; size])).unwrap();
        let found: Vec<(u64, usize, usize)> =
            writes.iter().map(|it| (it.address, it.bytes.len(), it.edits.start)).collect();
        assert_eq!(
            found,
            [(0x1000, 5, 0), (0x1008, 5, 1), (0x2ff0, 8, 2), (0x3000, 32, 3)],
            "jumps are separate, because each may be busy"
        );
        let expected = [[2; 8], [7; 8], [3; 8], [4; 8]].concat();
        assert_eq!(writes[3].bytes, expected);
        assert_eq!(writes[3].before, [[9; 8], [7; 8], [9; 8], [9; 8]].concat());
        assert_eq!(writes[3].edits, 3..6);
    }

    #[test]
    fn patches_that_are_not_removed_are_an_error_and_ones_that_are_not_written_are_busy() {
        let give_up = |removes_patch: bool| {
            let edits = [0x1000, 0x1008, 0x1010]
                .map(|address| CodeEdit { removes_patch, ..edit(address, &[0xe9, 1, 2, 3, 4]) });
            let error = || LiveError::ChangedInPart { pid: 1, max_pause: Nanos::ZERO };
            replace_in_stops(&edits, error, |left, outcome| {
                // The first stop ends after one edit; then the threads do not stop any more.
                if outcome.replaced > 0 {
                    return Err(LiveError::NotStopped {
                        pid: 1,
                        max_pause: Nanos::ZERO,
                        missing: 1,
                    });
                }
                outcome.replaced += 1;
                Ok(Round { busy: vec![false; left.len()], reached: 1, writes: 1 })
            })
        };
        let error = give_up(true).unwrap_err();
        assert!(matches!(error, LiveError::ChangedInPart { .. }) && error.is_transient());
        assert_eq!(give_up(false).unwrap().busy, [0x1008, 0x1010]);
    }

    #[test]
    fn switch_of_few_addresses_is_ineffective_and_says_how_many_were_skipped() {
        let switched = |replaced, skipped| Switched {
            replaced,
            entries: replaced + skipped,
            entries_done: replaced,
            busy: vec![0x1000; skipped],
            stops: 1,
            threads: 2,
            ..Switched::default()
        };
        assert!(switched(0, 5).is_ineffective() && switched(9, 91).is_ineffective());
        assert!(!switched(10, 90).is_ineffective() && !switched(0, 0).is_ineffective());
        assert_eq!(switched(30, 90).applied().as_fraction(), 0.25);
        let text = switched(30, 90).to_string();
        assert!(text.ends_with("; 90 of 120 addresses skipped: in use, or no time left"), "{text}");
    }

    #[test]
    fn one_thread_and_one_address_are_singular() {
        let switched = |n: usize| Switched {
            replaced: n,
            threads: n,
            blocked: n,
            moved: n,
            stops: 1,
            ..Switched::default()
        };
        assert_eq!(
            switched(1).to_string(),
            "1 address changed while 1 thread was stopped for 0 ns; 1 thread left in uninterruptible \
             sleep; 1 thread moved"
        );
        assert_eq!(
            switched(2).to_string(),
            "2 addresses changed while 2 threads were stopped for 0 ns; 2 threads left in \
             uninterruptible sleep; 2 threads moved"
        );
    }

    #[test]
    fn stops_with_time_for_one_write_only_are_limited() {
        let stops = |removes_patch: bool, writes: usize| {
            let edits: Vec<CodeEdit> = (0..100)
                .map(|at| CodeEdit { removes_patch, ..edit(0x1000 + 8 * at, &[0xe9, 1, 2, 3, 4]) })
                .collect();
            let error = || LiveError::ChangedInPart { pid: 1, max_pause: Nanos::ZERO };
            let mut stops = 0;
            let done = replace_in_stops(&edits, error, |left, outcome| {
                stops += 1;
                let reached = writes.min(left.len());
                outcome.replaced += reached;
                Ok(Round { busy: vec![false; left.len()], reached, writes: reached })
            });
            (stops, done)
        };
        let (count, late) = stops(true, 1);
        assert!(count == ATTEMPTS && matches!(late, Err(LiveError::ChangedInPart { .. })));
        let (count, late) = stops(false, 1);
        assert_eq!((count, late.unwrap().busy.len()), (ATTEMPTS, 90));
        let (count, in_time) = stops(true, 5);
        assert_eq!((count, in_time.unwrap().busy), (20, vec![]));
    }

    #[test]
    fn writes_end_in_time_and_make_progress() {
        let one = |edits: Range<usize>| Write {
            address: 0x1000 * edits.start as u64,
            before: vec![1],
            bytes: vec![0],
            edits,
        };
        let writes = [one(0..1), one(1..4), one(4..5), one(5..6)];
        let busy = [true, false, false, false, false, false];
        let until = |time: usize| {
            let (mut done, mut checks) = (Vec::new(), 0);
            let write = |write: &Write| -> Result<(), ()> {
                done.push(write.edits.start);
                Ok(())
            };
            let is_over = || {
                checks += 1;
                checks > time
            };
            let (unreached, made) = write_until(&writes, &busy, write, is_over).unwrap();
            assert_eq!(made, done.len());
            (done, unreached)
        };
        assert_eq!(until(0), (vec![1], Some(4)), "one is written however late it is");
        assert_eq!(until(1), (vec![1, 4], Some(5)));
        assert_eq!(until(2), (vec![1, 4, 5], None));
    }

    /// Two functions with copies in two generations, one below the program and one above.
    const FUNCTIONS: [u64; 2] = [0x10_0000, 0x10_0100];
    const COPIES: [[u64; 2]; 2] = [[0x1000, 0x1100], [0x20_0000, 0x20_0100]];
    const ORIGINAL: [u8; 5] = [0x55, 0x48, 0x89, 0xe5, 0x50];

    type Bytes = BTreeMap<u64, Vec<u8>>;

    fn jump(from: u64, to: u64) -> BytePatch {
        let distance = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
        let patch = [&[0xe9], &distance[..]].concat();
        BytePatch { address: from, original: ORIGINAL.to_vec(), patch }
    }

    /// The address that a thread at `from` reaches; `None` in an endless loop.
    fn end_of_path(memory: &Bytes, from: u64) -> Option<u64> {
        let mut at = from;
        for _ in 0..=memory.len() {
            match jump_target(at, &memory[&at]) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
        None
    }

    struct Fixture {
        entries: Vec<Vec<BytePatch>>,
        exits: Vec<Vec<BytePatch>>,
    }

    impl Fixture {
        fn new() -> Self {
            let each = |make: fn((u64, u64)) -> BytePatch| {
                let pairs = COPIES.iter().map(|copies| FUNCTIONS.into_iter().zip(*copies));
                pairs.map(|pairs| pairs.map(make).collect()).collect()
            };
            Self {
                entries: each(|(function, copy)| jump(function, copy)),
                exits: each(|(function, copy)| jump(copy, function)),
            }
        }

        fn untouched() -> Bytes {
            let all = COPIES.iter().flatten().chain(&FUNCTIONS);
            all.map(|address| (*address, ORIGINAL.to_vec())).collect()
        }

        fn plan(&self, memory: &Bytes, number: Option<usize>) -> SwitchPlan {
            let targets: Vec<GenerationTarget<'_>> = (0..COPIES.len())
                .map(|index| GenerationTarget {
                    entries: &self.entries[index],
                    exits: &self.exits[index],
                    active: Some(index) == number,
                })
                .collect();
            SwitchPlan::new(&targets, |address, _| Ok(memory[&address].clone())).unwrap()
        }
    }

    #[test]
    fn no_jump_cycle_exists_if_killed_after_any_write() {
        let fixture = Fixture::new();
        let mut seen = BTreeSet::from([Fixture::untouched()]);
        let mut left: Vec<Bytes> = seen.iter().cloned().collect();
        // From every reachable state, all switches, with all combinations of addresses in use.
        while let Some(memory) = left.pop() {
            for number in [None, Some(0), Some(1)] {
                let plan = fixture.plan(&memory, number);
                assert!(plan.modified.is_empty());
                for busy in 0..1_u32 << plan.edits.len() {
                    let is_busy = |index: usize| busy >> index & 1 == 1;
                    let (mut now, mut done) = (memory.clone(), true);
                    for (index, edit) in plan.edits.iter().enumerate() {
                        if is_busy(index) && edit.splits {
                            done = false;
                            continue;
                        }
                        now.insert(edit.address, edit.bytes.clone());
                        for address in now.keys() {
                            let end = end_of_path(&now, *address);
                            assert!(end.is_some(), "{number:?} from {address:#x}: {now:x?}");
                        }
                        if seen.insert(now.clone()) {
                            left.push(now.clone());
                        }
                    }
                    if done {
                        assert_active(&now, number);
                    }
                }
            }
        }
        assert!(seen.len() > 40, "{}", seen.len());
    }

    fn assert_active(memory: &Bytes, number: Option<usize>) {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let copy = number.map_or(*function, |number| COPIES[number][index]);
            let all = [*function, COPIES[0][index], COPIES[1][index]];
            let ends = all.map(|address| end_of_path(memory, address));
            assert_eq!(ends, [Some(copy); 3], "{number:?} {memory:x?}");
        }
    }

    #[test]
    fn redo_of_busy_functions_is_ineffective_although_exits_are_removed() {
        let fixture = Fixture::new();
        let mut memory = Fixture::untouched();
        for number in [Some(0), None] {
            for edit in fixture.plan(&memory, number).edits {
                memory.insert(edit.address, edit.bytes);
            }
        }
        let redo = fixture.plan(&memory, Some(0)).edits;
        let is_entry: Vec<bool> = redo.iter().map(|edit| edit.is_entry).collect();
        assert_eq!(is_entry, [false, false, true, true]);
        let error = || LiveError::ChangedInPart { pid: 1, max_pause: Nanos::ZERO };
        let switched = replace_in_stops(&redo, error, |left, outcome| {
            let busy: Vec<bool> = left.iter().map(|edit| edit.is_entry).collect();
            outcome.stops += 1;
            outcome.replaced += busy.iter().filter(|busy| !**busy).count();
            Ok(Round { reached: busy.len(), busy, writes: 1 })
        });
        let switched = switched.unwrap();
        assert_eq!((switched.replaced, switched.busy.len()), (2, 2));
        assert!(switched.is_ineffective(), "{switched:?}");
    }

    #[test]
    fn nothing_is_written_where_bytes_are_as_requested_or_modified_by_others() {
        let fixture = Fixture::new();
        let mut memory = Fixture::untouched();
        for edit in fixture.plan(&memory, Some(0)).edits {
            memory.insert(edit.address, edit.bytes);
        }
        assert_eq!(fixture.plan(&memory, Some(0)), SwitchPlan::default());
        memory.insert(FUNCTIONS[1], vec![0xcc; 5]);
        let plan = fixture.plan(&memory, None);
        assert_eq!(plan.modified, [FUNCTIONS[1]]);
        // Its copy gets no exit: after a breakpoint, execution may continue anywhere.
        let edited: Vec<u64> = plan.edits.iter().map(|edit| edit.address).collect();
        assert_eq!(edited, [FUNCTIONS[0], COPIES[0][0]]);
    }
}
