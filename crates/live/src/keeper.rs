//! One process's optimizations: put in force, taken back, replaced, freed.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dbdyno_units::Bytes;
use serde::Serialize;

use crate::LiveError;
use crate::journal::{Area, Generation, Journal, Lent, State, all, look_up_map};
use crate::look::Process;
use crate::patch::{Entry, Equivalence, Patch};
use crate::switch::{Edit, Moves, Switched, in_use, is_in_use, replace};
use crate::trace::{Call, Scratch, make_system_calls};
use crate::unwind::{self, Unwinder};

/// A process and its journal, ready to be changed.
#[derive(Debug)]
pub struct Keeper {
    process: Process,
    journal: Journal,
    bound: Duration,
    /// Processes that are to get the same code at the same addresses.
    siblings: Vec<u32>,
}

/// How long threads may stand still unless something else is asked for.
pub const STOP_BOUND: Duration = Duration::from_millis(50);

/// What of an optimization is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum InForce {
    /// Nothing.
    No,
    /// Some entries lead to new code: it was interrupted, or threads were in the way.
    Partly,
    /// All of it.
    Yes,
}

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// All code that is in a process because of us, at most: what is in force and what threads have
/// not left yet.
const MOST_BYTES: u64 = 32 << 20;
/// How long threads are waited for that are inside code which is to be freed, between two looks.
const FREE_PAUSE: Duration = Duration::from_millis(50);

/// How often it is looked whether a thread has left what was lent.
const SCRATCH_LOOKS: u32 = 40;

impl Keeper {
    /// Opens the journal, and finishes what an interrupted dbdyno left half done.
    ///
    /// # Errors
    /// Another dbdyno is at work on the process, or the journal cannot be used.
    pub fn open(process: Process, state: &Path, bound: Duration) -> Result<Self, LiveError> {
        let journal = Journal::open(state, process.identity(), process.program())?;
        let mut keeper = Self { process, journal, bound, siblings: Vec::new() };
        if keeper.generations().is_empty() {
            keeper.inherit(state)?;
        }
        keeper.give_back_scratch()?;
        Ok(keeper)
    }

    /// A process that was split off from an optimized one has its code, and no journal: finds the
    /// one that fits its memory. It may have been split off before all code was written, or when
    /// none of it was in force: what is not whole there can only be freed.
    fn inherit(&mut self, state: &Path) -> Result<(), LiveError> {
        for other in all(state) {
            let same_program = other.program == self.process.program();
            let mut inherited = Vec::new();
            if same_program {
                for generation in &other.generations {
                    if !self.are_mapped(generation)? {
                        continue;
                    }
                    let whole = generation.digest == Some(self.digest(generation)?);
                    let state = if whole { generation.state } else { State::Retired };
                    inherited.push(Generation { state, ..generation.clone() });
                }
            }
            if !inherited.is_empty() {
                for generation in &inherited {
                    let map = look_up_map(state, &other.identity, generation.number);
                    self.journal.keep_map(generation.number, &map)?;
                }
                return self.journal.change(|record| record.generations = inherited);
            }
        }
        Ok(())
    }

    /// Has memory reserved only where these processes have none either, as far as they live.
    pub fn share_with(&mut self, siblings: Vec<u32>) {
        self.siblings = siblings;
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// What is on record.
    #[must_use]
    pub fn generations(&self) -> &[Generation] {
        &self.journal.record().generations
    }

    /// Where other files about the process may be kept.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.journal.directory()
    }

    /// Starts a new generation. Memory that nobody uses any more is freed first.
    ///
    /// # Errors
    /// The process did not stop, or no thread could unmap what is free.
    pub fn begin(&mut self) -> Result<(), LiveError> {
        self.retire_unused()?;
        self.free()?;
        let number = self.generations().last().map_or(1, |last| last.number + 1);
        let made = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        self.journal.change(|record| {
            record.generations.push(Generation {
                number,
                made,
                state: State::Preparing,
                areas: Vec::new(),
                entries: Vec::new(),
                exits: Vec::new(),
                frames: Vec::new(),
                digest: None,
            });
        })
    }

    /// Adds memory for code to the generation that was begun, within reach of `near`, and
    /// returns its addresses. `huge` asks for huge pages.
    ///
    /// # Errors
    /// There is no room, no thread could map it, or older code is still in use and would make it
    /// too much.
    pub fn reserve(
        &mut self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
    ) -> Result<Range<u64>, LiveError> {
        let pid = self.process.pid();
        let alignment = if huge { HUGE_PAGE } else { PAGE };
        // A page for our stubs, then the data.
        let code = (size + PAGE).next_multiple_of(alignment);
        let whole = code + unwind::DATA_SIZE;
        self.check_room(code)?;
        let siblings = self.siblings.iter().filter_map(|pid| crate::Maps::of(*pid).ok());
        let maps = siblings.fold(self.process.maps()?, crate::Maps::with);
        let address = maps.gap(near, whole, alignment).ok_or(LiveError::NoRoom {
            pid,
            size: whole,
            address: near.start,
        })?;
        self.add(Area { address, code, data: unwind::DATA_SIZE }, huge)?;
        Ok(address..address + code - PAGE)
    }

    /// Has the process map memory that is free.
    fn add(&mut self, area: Area, huge: bool) -> Result<(), LiveError> {
        self.change_last(|generation| generation.areas.push(area))?;
        let calls = map(&area, huge);
        self.make_calls(&calls)?;
        if !self.is_mapped(&area)? {
            return Err(LiveError::refused(
                self.process.pid(),
                "it could not map executable memory; a limit of its address space (ulimit -v) or \
                 a security policy forbids it",
            ));
        }
        Ok(())
    }

    /// That so much more code is not too much.
    fn check_room(&self, code: u64) -> Result<(), LiveError> {
        let there: u64 = self.areas().map(|area| area.code).sum();
        if there + code > MOST_BYTES {
            return Err(LiveError::WrongState {
                pid: self.process.pid(),
                state: format!(
                    "has {} of optimized code already that threads have not left, and would get \
                     {} more, above the limit of {}; try again later, or optimize less",
                    Bytes::from_bytes(there),
                    Bytes::from_bytes(code),
                    Bytes::from_bytes(MOST_BYTES),
                ),
            });
        }
        Ok(())
    }

    /// Adds the same memory to the generation that was begun as another process of the family
    /// has; false where something else is there.
    ///
    /// # Errors
    /// As [`Keeper::reserve`].
    pub fn reserve_same(&mut self, area: &Area, huge: bool) -> Result<bool, LiveError> {
        let range = area.range();
        let maps = self.process.maps()?;
        let overlaps =
            |it: &crate::Mapping| it.range.start < range.end && range.start < it.range.end;
        if maps.all().iter().any(overlaps) {
            return Ok(false);
        }
        self.check_room(area.code)?;
        self.add(*area, huge)?;
        Ok(true)
    }

    /// Puts a patch in force that was made for the reserved memory, in place of the one before.
    ///
    /// # Errors
    /// Nothing leads to the new code then, or the journal says what does.
    pub fn install(&mut self, patch: &Patch) -> Result<Switched, LiveError> {
        self.check(patch)?;
        for block in &patch.blocks {
            self.process.memory().write(block.address, &block.bytes)?;
        }
        self.register(&patch.frames)?;
        let digest = self.generations().last().map(|last| self.digest(last)).transpose()?;
        let (entries, exits) = (patch.entries.clone(), patch.exits.clone());
        let number = self.generations().last().map_or(0, |last| last.number);
        let old = self.active();
        let old_map = old.map(|old| self.journal.map(self.generations()[old].number));
        self.journal.keep_map(number, &patch.map)?;
        self.journal.change(|record| {
            if let Some(last) = record.generations.last_mut() {
                (last.entries, last.exits, last.digest) = (entries, exits, digest);
                last.state = State::Switching;
            }
            if let Some(old) = old {
                record.generations[old].state = State::Switching;
            }
        })?;
        let moves = |from: u64| {
            let original = old_map.as_ref().and_then(|map| map.to_original(from));
            let copy = patch.map.to_copy(original.unwrap_or(from));
            // From what is no longer in force to the program, where the new code does not have it.
            copy.or(original)
        };
        let switched = self.switch_to(Some(number), &moves)?;
        self.journal.change(|record| {
            if let Some(old) = old {
                record.generations[old].state = State::Retired;
            }
            if let Some(last) = record.generations.last_mut() {
                last.state = State::Active;
            }
        })?;
        Ok(switched)
    }

    /// Takes back all that leads into our code. The code stays, for threads that are in it and
    /// for [`Keeper::redo`].
    ///
    /// # Errors
    /// The process did not stop, or somebody else has changed the same bytes.
    pub fn undo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        if self.generations().is_empty() {
            return Err(LiveError::WrongState { pid, state: "is not optimized".to_owned() });
        }
        let maps = self.maps();
        let moves = |from: u64| maps.iter().find_map(|map| map.to_original(from));
        let switched = self.switch_to(None, &moves)?;
        self.journal.change(|record| {
            let newest = record.generations.iter().rposition(|it| !it.entries.is_empty());
            for (index, generation) in record.generations.iter_mut().enumerate() {
                match generation.state {
                    State::Freeing => {}
                    _ if Some(index) == newest => generation.state = State::Undone,
                    _ => generation.state = State::Retired,
                }
            }
        })?;
        Ok(switched)
    }

    /// Puts in force again what was undone.
    ///
    /// # Errors
    /// Nothing was undone; the rest as in [`Keeper::undo`].
    pub fn redo(&mut self) -> Result<Switched, LiveError> {
        let pid = self.process.pid();
        let last = self.generations().iter().rposition(|generation| {
            matches!(generation.state, State::Undone | State::Switching | State::Active)
        });
        let Some(last) = last else {
            let state = "has no optimization that could be redone".to_owned();
            return Err(LiveError::WrongState { pid, state });
        };
        let number = self.generations()[last].number;
        self.journal.change(|record| record.generations[last].state = State::Switching)?;
        let map = self.journal.map(number);
        let switched = self.switch_to(Some(number), &|from| map.to_copy(from))?;
        self.journal.change(|record| record.generations[last].state = State::Active)?;
        Ok(switched)
    }

    /// Frees memory of generations that are in force no more, where nobody is in it; returns how
    /// many bytes. What was undone stays until something takes its place.
    ///
    /// # Errors
    /// The process did not stop, or no thread could unmap it.
    pub fn free(&mut self) -> Result<u64, LiveError> {
        let mut freed = 0;
        for number in self.numbers_in(State::Retired) {
            if self.is_unused(number)? {
                self.set_state(number, State::Freeing)?;
            }
        }
        for number in self.numbers_in(State::Freeing) {
            freed += self.free_generation(number)?;
        }
        Ok(freed)
    }

    /// Marks what was undone, or never put in force, to be freed. The journal goes with the last.
    ///
    /// # Errors
    /// As [`Keeper::free`].
    pub fn retire_unused(&mut self) -> Result<(), LiveError> {
        let entries = self.generations().iter().flat_map(|it| &it.entries);
        let in_force = self.in_force(&entries.cloned().collect::<Vec<_>>())?;
        self.journal.change(|record| {
            for generation in &mut record.generations {
                let idle = matches!(generation.state, State::Preparing | State::Undone)
                    || (generation.state == State::Switching && in_force == InForce::No);
                if idle {
                    generation.state = State::Retired;
                }
            }
        })
    }

    /// What of the newest generation is in force, by the bytes that are in the memory.
    ///
    /// # Errors
    /// The process is gone.
    pub fn now(&self) -> Result<InForce, LiveError> {
        let newest = self.generations().iter().rev().find(|it| !it.entries.is_empty());
        newest.map_or(Ok(InForce::No), |newest| self.in_force(&newest.entries))
    }

    fn in_force(&self, entries: &[Entry]) -> Result<InForce, LiveError> {
        let mut patched = 0;
        for entry in entries {
            let now = self.process.memory().read(entry.address, entry.patch.len())?;
            patched += usize::from(now == entry.patch);
        }
        Ok(match patched {
            0 => InForce::No,
            n if n == entries.len() => InForce::Yes,
            _ => InForce::Partly,
        })
    }

    /// All memory of ours, as far as is on record.
    pub fn areas(&self) -> impl Iterator<Item = &Area> {
        self.generations().iter().flat_map(|generation| &generation.areas)
    }

    /// Which instruction of a generation stands for which of the program.
    #[must_use]
    pub fn map(&self, number: u32) -> Equivalence {
        self.journal.map(number)
    }

    fn active(&self) -> Option<usize> {
        let before_last = self.generations().len().checked_sub(1)?;
        (0..before_last).rev().find(|index| {
            matches!(self.generations()[*index].state, State::Active | State::Switching)
        })
    }

    fn numbers_in(&self, state: State) -> Vec<u32> {
        let found = self.generations().iter().filter(|it| it.state == state);
        found.map(|generation| generation.number).collect()
    }

    fn generation(&self, number: u32) -> Option<&Generation> {
        self.generations().iter().find(|it| it.number == number)
    }

    fn set_state(&mut self, number: u32, state: State) -> Result<(), LiveError> {
        self.journal.change(|record| {
            for generation in record.generations.iter_mut().filter(|it| it.number == number) {
                generation.state = state;
            }
        })
    }

    fn change_last(&mut self, change: impl FnOnce(&mut Generation)) -> Result<(), LiveError> {
        self.journal.change(|record| {
            if let Some(last) = record.generations.last_mut() {
                change(last);
            }
        })
    }

    /// That a patch keeps to what was reserved for it.
    fn check(&self, patch: &Patch) -> Result<(), LiveError> {
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
    fn switch_to(&self, number: Option<u32>, moves: Moves<'_>) -> Result<Switched, LiveError> {
        let mut places: BTreeMap<u64, Place> = BTreeMap::new();
        for generation in self.generations() {
            let in_force = Some(generation.number) == number;
            let entries = generation.entries.iter().map(|entry| (entry, in_force));
            // Its code may be unmapped already, when a dbdyno was killed while it freed it.
            let there = self.are_mapped(generation)?;
            let exits = generation.exits.iter().filter(|_| there).map(|exit| (exit, !in_force));
            for (entry, patched) in entries.chain(exits) {
                // All generations have the same original for an address.
                let place = places.entry(entry.address).or_insert_with(|| Place {
                    original: &entry.original,
                    wanted: &entry.original,
                    patches: Vec::new(),
                });
                place.patches.push(&entry.patch);
                if patched {
                    place.wanted = &entry.patch;
                }
            }
        }
        let mut edits = Vec::new();
        for (address, place) in places {
            let now = self.process.memory().read(address, place.original.len())?;
            if now != place.original && !place.patches.contains(&now.as_slice()) {
                return Err(LiveError::Foreign { pid: self.process.pid(), address });
            }
            if now != place.wanted {
                let splits = now == place.original;
                edits.push(Edit { address, bytes: place.wanted.to_vec(), splits });
            }
        }
        if edits.is_empty() {
            return Ok(Switched::default());
        }
        replace(&self.process, &edits, moves, self.bound)
    }

    fn register(&mut self, frames: &[u64]) -> Result<(), LiveError> {
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

    /// Which instruction stands for which, for each generation.
    fn maps(&self) -> Vec<Equivalence> {
        self.generations().iter().map(|it| self.journal.map(it.number)).collect()
    }

    /// Nobody is in its code, at two different times.
    fn is_unused(&self, number: u32) -> Result<bool, LiveError> {
        let Some(generation) = self.generation(number) else { return Ok(false) };
        let mut ranges = Vec::new();
        for area in &generation.areas {
            if self.is_mapped(area)? {
                ranges.push(area.code_range());
            }
        }
        ranges.sort_by_key(|range| range.start);
        for look in 0..2 {
            if ranges.is_empty() {
                return Ok(true);
            }
            if look > 0 {
                thread::sleep(FREE_PAUSE);
            }
            if is_in_use(&self.process, &ranges, self.bound)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn free_generation(&mut self, number: u32) -> Result<u64, LiveError> {
        let Some(generation) = self.generation(number).cloned() else { return Ok(0) };
        let mut areas = Vec::new();
        for area in &generation.areas {
            if self.is_mapped(area)? {
                areas.push(*area);
            }
        }
        if let Some(first) = generation.areas.first()
            && areas.contains(first)
            && !generation.frames.is_empty()
        {
            self.deregister(first, &generation.frames)?;
        }
        if !areas.is_empty() {
            let calls: Vec<Call> = areas.iter().flat_map(unmap).collect();
            self.make_calls(&calls)?;
        }
        self.journal.change(|record| record.generations.retain(|it| it.number != number))?;
        self.journal.forget_map(number);
        Ok(areas.iter().map(|area| area.code + area.data).sum())
    }

    /// Has the unwinder forget the lists that it still knows. Each list is counted once when it
    /// became known and once when it was forgotten.
    fn deregister(&self, area: &Area, frames: &[u64]) -> Result<(), LiveError> {
        let Some(unwinder) = Unwinder::of(&self.process)? else { return Ok(()) };
        let done = unwind::calls_done(&self.process, &area.data_range())?;
        let known = done.min(frames.len());
        let forgotten = done - known;
        let left = frames.get(forgotten..known).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        let maps = self.maps();
        let original = |address| led_back(&maps, address);
        unwinder.deregister(&self.process, area.stub(), &area.data_range(), left, &original)
    }

    /// Whether an area is there and ours. Code and data were mapped side by side, and are
    /// unmapped with the code last.
    fn is_mapped(&self, area: &Area) -> Result<bool, LiveError> {
        let maps = self.process.maps()?;
        let code = maps.at(area.address).is_some_and(|mapping| {
            mapping.executable
                && !mapping.writable
                && mapping.inode == 0
                && mapping.range == area.code_range()
        });
        Ok(code && maps.at(area.data_range().start).is_some_and(|mapping| mapping.writable))
    }

    /// Whether a generation has memory, and all of it is there.
    fn are_mapped(&self, generation: &Generation) -> Result<bool, LiveError> {
        for area in &generation.areas {
            if !self.is_mapped(area)? {
                return Ok(false);
            }
        }
        Ok(!generation.areas.is_empty())
    }

    /// A digest of a generation's code in memory, as it is while nothing leads out of it.
    fn digest(&self, generation: &Generation) -> Result<u64, LiveError> {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let mut digest = OFFSET;
        for area in &generation.areas {
            let size = usize::try_from(area.stub() - area.address).unwrap_or(usize::MAX);
            let mut bytes = self.process.memory().read(area.address, size)?;
            for exit in &generation.exits {
                let place = exit.address.checked_sub(area.address).and_then(|at| {
                    let start = usize::try_from(at).ok()?;
                    bytes.get_mut(start..start + exit.original.len())
                });
                if let Some(place) = place
                    && *place == *exit.patch
                {
                    place.copy_from_slice(&exit.original);
                }
            }
            // FNV-1a, by words: it has to notice code that is missing, not to resist anybody.
            for word in bytes.chunks(8) {
                let word = word.iter().rev().fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
                digest = (digest ^ word).wrapping_mul(PRIME);
            }
        }
        Ok(digest)
    }

    /// Has the process make system calls with code in a place lent from it.
    fn make_calls(&mut self, calls: &[Call]) -> Result<(), LiveError> {
        let pid = self.process.pid();
        for calls in calls.chunks(CALLS_AT_ONCE) {
            let size = crate::trace::size_of_system_calls(calls.len());
            let scratch = Scratch::find(pid, self.process.memory(), size)?;
            let lent = Lent { address: scratch.address, original: scratch.original };
            self.journal.change(|record| record.scratch = Some(lent))?;
            make_system_calls(&self.process, scratch.address, calls)?;
            self.give_back_scratch()?;
        }
        Ok(())
    }

    /// Puts back what was lent, when nobody is there any more.
    fn give_back_scratch(&mut self) -> Result<(), LiveError> {
        let Some(lent) = self.journal.record().scratch.clone() else { return Ok(()) };
        let range = lent.address..lent.address + lent.original.len() as u64;
        let is_in_use = || in_use(&self.process, std::slice::from_ref(&range), self.bound);
        // The thread of an interrupted dbdyno leaves as soon as it comes to run.
        let mut attempt = 0;
        while is_in_use()?.contains(&true) {
            attempt += 1;
            if attempt == SCRATCH_LOOKS {
                return Err(LiveError::WrongState {
                    pid: self.process.pid(),
                    state: "has a thread in code of an interrupted dbdyno; try again".to_owned(),
                });
            }
            thread::sleep(FREE_PAUSE);
        }
        self.process.memory().write(lent.address, &lent.original)?;
        self.journal.change(|record| record.scratch = None)
    }
}

/// The instruction of the program for one of any generation's code; itself for any other.
fn led_back(maps: &[Equivalence], address: u64) -> u64 {
    maps.iter().find_map(|map| map.to_original(address)).unwrap_or(address)
}

/// A place that we have patched, or are about to.
struct Place<'a> {
    original: &'a [u8],
    wanted: &'a [u8],
    patches: Vec<&'a [u8]>,
}

/// System calls that one stub makes at most: the place that is lent is small.
const CALLS_AT_ONCE: usize = 4;

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

/// Never writable and executable at once: we write to it from outside, with no need to make it
/// writable for the process.
fn map(area: &Area, huge: bool) -> Vec<Call> {
    let map = |range: Range<u64>, protection| Call {
        number: libc::SYS_mmap,
        arguments: [range.start, range.end - range.start, protection, ANONYMOUS, u64::MAX, 0],
    };
    let mut calls = vec![map(area.code_range(), READ_EXECUTE), map(area.data_range(), READ_WRITE)];
    if huge {
        calls.push(Call {
            number: libc::SYS_madvise,
            arguments: [area.address, area.code, libc::MADV_HUGEPAGE as u64, 0, 0, 0],
        });
    }
    calls
}

fn unmap(area: &Area) -> [Call; 2] {
    [area.data_range(), area.code_range()].map(|range| Call {
        number: libc::SYS_munmap,
        arguments: [range.start, range.end - range.start, 0, 0, 0, 0],
    })
}
