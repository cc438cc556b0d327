//! Memory of ours in a process: where it is, what is in it, and how the process comes to map it.

use std::ops::Range;
use std::thread;

use dbdyno_units::Bytes;

use super::{Attachment, FREE_PAUSE};
use crate::journal::{Area, BorrowedCode, Generation};
use crate::replace::in_use;
use crate::trace::{Scratch, SystemCall, make_system_calls};
use crate::{LiveError, unwind};

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// All code that is in a process because of us, at most: what is in force and what threads have
/// not left yet.
const MOST_BYTES: u64 = 32 << 20;

/// How often it is looked whether a thread has left what was lent.
const SCRATCH_LOOKS: u32 = 40;

/// System calls that one stub makes at most: the place that is lent is small.
const CALLS_AT_ONCE: usize = 4;

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

impl Attachment {
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
    pub(super) fn add(&mut self, area: Area, huge: bool) -> Result<(), LiveError> {
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
    pub(super) fn check_room(&self, code: u64) -> Result<(), LiveError> {
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
    /// As [`Attachment::reserve`].
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

    /// Whether an area is there and ours. Code and data were mapped side by side, and are
    /// unmapped with the code last.
    pub(super) fn is_mapped(&self, area: &Area) -> Result<bool, LiveError> {
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
    pub(super) fn are_mapped(&self, generation: &Generation) -> Result<bool, LiveError> {
        for area in &generation.areas {
            if !self.is_mapped(area)? {
                return Ok(false);
            }
        }
        Ok(!generation.areas.is_empty())
    }

    /// A digest of a generation's code in memory, as it is while nothing leads out of it.
    pub(super) fn digest(&self, generation: &Generation) -> Result<u64, LiveError> {
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
    pub(super) fn make_calls(&mut self, calls: &[SystemCall]) -> Result<(), LiveError> {
        let pid = self.process.pid();
        // After an error, what was lent is not what it was.
        self.give_back_scratch()?;
        for calls in calls.chunks(CALLS_AT_ONCE) {
            let size = crate::trace::size_of_system_calls(calls.len());
            let scratch = Scratch::find(pid, self.process.memory(), size)?;
            let lent = BorrowedCode { address: scratch.address, original: scratch.original };
            self.journal.change(|record| record.scratch = Some(lent))?;
            make_system_calls(&self.process, scratch.address, calls)?;
            self.give_back_scratch()?;
        }
        Ok(())
    }

    /// Puts back what was lent, when nobody is there any more.
    pub(super) fn give_back_scratch(&mut self) -> Result<(), LiveError> {
        let Some(lent) = self.journal.record().scratch.clone() else { return Ok(()) };
        let range = lent.address..lent.address + lent.original.len() as u64;
        let is_in_use = || in_use(&self.process, std::slice::from_ref(&range), self.max_pause);
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

/// Never writable and executable at once: we write to it from outside, with no need to make it
/// writable for the process.
fn map(area: &Area, huge: bool) -> Vec<SystemCall> {
    let map = |range: Range<u64>, protection| SystemCall {
        number: libc::SYS_mmap,
        arguments: [range.start, range.end - range.start, protection, ANONYMOUS, u64::MAX, 0],
    };
    let mut calls = vec![map(area.code_range(), READ_EXECUTE), map(area.data_range(), READ_WRITE)];
    if huge {
        calls.push(SystemCall {
            number: libc::SYS_madvise,
            arguments: [area.address, area.code, libc::MADV_HUGEPAGE as u64, 0, 0, 0],
        });
    }
    calls
}

pub(super) fn unmap(area: &Area) -> [SystemCall; 2] {
    [area.data_range(), area.code_range()].map(|range| SystemCall {
        number: libc::SYS_munmap,
        arguments: [range.start, range.end - range.start, 0, 0, 0, 0],
    })
}
