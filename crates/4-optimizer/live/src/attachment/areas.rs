//! Memory added to a process: reserve it, check it, make the process map it.

use std::ops::Range;
use std::thread;

use dbdyno_units::Bytes;

use super::{Attachment, FREE_PAUSE};
use crate::journal::{Area, Generation};
use crate::maps::{Mapping, Maps};
use crate::patch::PAGE;
use crate::replace::in_use;
use crate::trace::{SystemCall, check_filters, find_unused_code, make_system_calls};
use crate::{LiveError, unwind};

pub(super) const HUGE_PAGE: u64 = 2 << 20;
/// Maximum size of all new code in a process, including replaced code that is kept.
pub const MAX_CODE: Bytes = Bytes::from_mib(32);

/// Maximum number of checks whether a thread has left borrowed code.
const BORROWED_CHECKS: u32 = 40;

/// Maximum number of system calls per stub: borrowed code is small.
const CALLS_AT_ONCE: usize = 4;

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

impl Attachment {
    /// Adds memory for code to the new generation, within reach of `near`. `huge` requests huge pages.
    ///
    /// # Errors
    /// There are no free addresses, no thread could map the memory, or it would exceed the limit
    /// together with older code that is still in use.
    pub fn reserve(&mut self, near: &Range<u64>, size: u64, huge: bool) -> Result<Area, LiveError> {
        let area = self.find_free(near, size, huge, &[])?;
        self.add(area, huge)?;
        Ok(area)
    }

    /// Finds free addresses as [`Attachment::reserve`] does, outside of `taken`. Changes nothing.
    ///
    /// # Errors
    /// There are none, or the memory would exceed the limit together with older code that is still in
    /// use.
    pub(crate) fn find_free(
        &self,
        near: &Range<u64>,
        size: u64,
        huge: bool,
        taken: &[Area],
    ) -> Result<Area, LiveError> {
        let pid = self.process.pid();
        let alignment = if huge { HUGE_PAGE } else { PAGE };
        // One page for stubs, followed by the data.
        let code = (size + PAGE).next_multiple_of(alignment);
        let whole = code + unwind::DATA_SIZE;
        self.check_limit(taken.iter().map(|area| area.code).sum::<u64>() + code)?;
        let siblings = self.siblings.iter().filter_map(|pid| Maps::of(*pid).ok());
        let maps = siblings.fold(self.process.maps()?, Maps::with);
        let maps = maps.with(Maps::reserved(taken.iter().map(Area::range)));
        let address = maps.free_range(near, whole, alignment).ok_or(LiveError::NoFreeRange {
            pid,
            size: whole,
            address: near.start,
        })?;
        Ok(Area { address, code, data: unwind::DATA_SIZE })
    }

    /// Checks that the system call filters of the process, if it has any, permit what an optimization needs.
    ///
    /// # Errors
    /// They do not, or cannot be read.
    pub fn check_filters(&self) -> Result<(), LiveError> {
        let any = Area { address: 0x1_0000, code: HUGE_PAGE, data: unwind::DATA_SIZE };
        let allow_unreadable = self.process.options().allow_seccomp;
        let calls = [&map(&any, true)[..], &unmap(&any)].concat();
        check_filters(&self.process, &calls, allow_unreadable)
    }

    /// Makes the process map free memory.
    pub(super) fn add(&mut self, area: Area, huge: bool) -> Result<(), LiveError> {
        self.change_last(|generation| generation.areas.push(area))?;
        let is_enabled = huge && self.enable_huge_pages()?;
        let calls = map(&area, huge);
        let mapped = self.make_calls(&calls).and_then(|()| self.is_mapped(&area));
        if is_enabled {
            let touched = match mapped {
                Ok(true) => self.touch_huge_pages(&area),
                _ => Ok(()),
            };
            self.disable_huge_pages()?;
            touched?;
        }
        if !mapped? {
            self.unmap_parts(&area)?;
            return Err(LiveError::refused(
                self.process.pid(),
                "it could not map executable memory; a limit of its address space (ulimit -v) or \
                 a security policy forbids it",
            ));
        }
        Ok(())
    }

    /// Makes the process unmap the part of an area that was mapped although the other one could not be mapped.
    fn unmap_parts(&mut self, area: &Area) -> Result<(), LiveError> {
        let maps = self.process.maps()?;
        let parts = [(area.data_range(), READ_WRITE), (area.code_range(), READ_EXECUTE)];
        let own = parts.iter().filter(|(range, protection)| is_own(&maps, range, *protection));
        let calls: Vec<SystemCall> = own.map(|(range, _)| unmap_range(range)).collect();
        self.make_calls(&calls)
    }

    /// Whether the code of an area is mapped and its data is not: dbdyno was killed while it unmapped the area.
    pub(super) fn is_half_unmapped(&self, area: &Area) -> Result<bool, LiveError> {
        let maps = self.process.maps()?;
        Ok(!is_mapped_in(&maps, area) && is_own(&maps, &area.code_range(), READ_EXECUTE))
    }

    /// Checks that additional code does not exceed the limit.
    pub(super) fn check_limit(&self, code: u64) -> Result<(), LiveError> {
        let there: u64 = self.areas().map(|area| area.code).sum();
        if there + code > MAX_CODE.as_bytes() {
            let reason = format!(
                "it already has {} of new code, including replaced code that is kept, and would get {} more, \
                 above the limit of {MAX_CODE}; --unmap removes replaced code that no thread uses",
                Bytes::from_bytes(there),
                Bytes::from_bytes(code),
            );
            return Err(LiveError::refused(self.process.pid(), reason));
        }
        Ok(())
    }

    /// Adds the same memory to the new generation as another process of the family has. Returns false
    /// if the addresses are not free.
    ///
    /// # Errors
    /// As [`Attachment::reserve`].
    pub fn reserve_same(&mut self, area: &Area, huge: bool) -> Result<bool, LiveError> {
        let range = area.range();
        let maps = self.process.maps()?;
        let overlaps = |it: &Mapping| it.range.start < range.end && range.start < it.range.end;
        if maps.all().iter().any(overlaps) {
            return Ok(false);
        }
        self.check_limit(area.code)?;
        self.add(*area, huge)?;
        Ok(true)
    }

    /// Whether an area is mapped as it was added.
    pub(crate) fn is_mapped(&self, area: &Area) -> Result<bool, LiveError> {
        Ok(is_mapped_in(&self.process.maps()?, area))
    }

    /// Whether a generation has memory and all of it is mapped.
    pub(super) fn are_mapped(&self, generation: &Generation) -> Result<bool, LiveError> {
        let maps = self.process.maps()?;
        let areas = &generation.areas;
        Ok(!areas.is_empty() && areas.iter().all(|area| is_mapped_in(&maps, area)))
    }

    /// A digest of a generation's code in memory, without its exits.
    pub(super) fn digest(&self, generation: &Generation) -> Result<u64, LiveError> {
        const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
        const PRIME: u64 = 0x0100_0000_01b3;
        let mut digest = OFFSET;
        for area in &generation.areas {
            let bytes = self.code(generation, &(area.address..area.stub()))?;
            // FNV-1a by words: it only has to detect missing code.
            for word in bytes.chunks(8) {
                let word = word.iter().rev().fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
                digest = (digest ^ word).wrapping_mul(PRIME);
            }
        }
        Ok(digest)
    }

    /// A generation's code in memory, as it is without its exits.
    pub(super) fn code(
        &self,
        generation: &Generation,
        range: &Range<u64>,
    ) -> Result<Vec<u8>, LiveError> {
        let size = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let mut bytes = self.process.memory().read(range.start, size)?;
        for exit in generation.exits.iter() {
            let found = exit.address.checked_sub(range.start).and_then(|at| {
                let start = usize::try_from(at).ok()?;
                bytes.get_mut(start..start + exit.original.len())
            });
            if let Some(found) = found
                && *found == *exit.patch
            {
                found.copy_from_slice(&exit.original);
            }
        }
        Ok(bytes)
    }

    /// Makes the process execute system calls, in code borrowed from it.
    pub(super) fn make_calls(&mut self, calls: &[SystemCall]) -> Result<(), LiveError> {
        let pid = self.process.pid();
        // After an earlier error, borrowed code may not be restored.
        self.restore_borrowed()?;
        for calls in calls.chunks(CALLS_AT_ONCE) {
            let size = crate::trace::size_of_system_calls(calls.len());
            let borrowed = find_unused_code(pid, self.process.memory(), size)?;
            let address = borrowed.address;
            self.journal.change(|record| record.borrowed = Some(borrowed))?;
            make_system_calls(&self.process, address, calls)?;
            self.restore_borrowed()?;
        }
        Ok(())
    }

    /// Restores borrowed code when no thread is in it.
    pub(super) fn restore_borrowed(&mut self) -> Result<(), LiveError> {
        let Some(borrowed) = self.journal.record().borrowed.clone() else { return Ok(()) };
        let range = borrowed.address..borrowed.address + borrowed.original.len() as u64;
        // A thread that an interrupted dbdyno used leaves the code as soon as it runs.
        for attempt in 1.. {
            match in_use(&self.process, std::slice::from_ref(&range), self.max_pause) {
                Ok(used) if !used.contains(&true) => break,
                Ok(_) if attempt < BORROWED_CHECKS => thread::sleep(FREE_PAUSE),
                Err(error) if error.is_pause_too_long() && attempt < BORROWED_CHECKS => {
                    thread::sleep(FREE_PAUSE);
                }
                Ok(_) => {
                    return Err(LiveError::WrongState {
                        pid: self.process.pid(),
                        state: "has a thread in code of an interrupted dbdyno; try again"
                            .to_owned(),
                    });
                }
                Err(error) => return Err(error),
            }
        }
        self.process.memory().write(borrowed.address, &borrowed.original)?;
        self.journal.change(|record| record.borrowed = None)
    }
}

/// Whether an area is mapped as it was added. Code and data are adjacent, and the code is unmapped last. The kernel
/// may merge the code with adjacent memory of the process.
fn is_mapped_in(maps: &Maps, area: &Area) -> bool {
    let code = maps.at(area.address).is_some_and(|mapping| {
        mapping.executable
            && !mapping.writable
            && mapping.inode == 0
            && area.code_range().end <= mapping.range.end
    });
    code && maps.at(area.data_range().start).is_some_and(|mapping| mapping.writable)
}

/// Whether a part of an area is mapped as it was added, as a mapping of its own: a larger one may be memory of the
/// process.
fn is_own(maps: &Maps, range: &Range<u64>, protection: u64) -> bool {
    let has = |access: libc::c_int| protection & access as u64 != 0;
    maps.at(range.start).is_some_and(|mapping| {
        mapping.range == *range
            && mapping.inode == 0
            && mapping.name.is_empty()
            && mapping.readable == has(libc::PROT_READ)
            && mapping.writable == has(libc::PROT_WRITE)
            && mapping.executable == has(libc::PROT_EXEC)
    })
}

/// The calls that map an area. Code is never writable for the process: dbdyno writes to it from
/// outside.
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
    [area.data_range(), area.code_range()].map(|range| unmap_range(&range))
}

pub(super) fn unmap_range(range: &Range<u64>) -> SystemCall {
    SystemCall {
        number: libc::SYS_munmap,
        arguments: [range.start, range.end - range.start, 0, 0, 0, 0],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn area_is_mapped_also_in_a_larger_mapping_but_not_in_a_part() {
        let area = Area { address: 0x40_2000, code: 0x2000, data: 0x1000 };
        let is_mapped = |start: u64, end: u64, access: &str| {
            let text = format!(
                "{start:08x}-{end:08x} {access} 00000000 00:00 0 \n\
                 {end:08x}-00406000 rw-p 00000000 00:00 0 \n"
            );
            is_mapped_in(&Maps::parse(&text).unwrap(), &area)
        };
        assert!(is_mapped(0x40_2000, 0x40_4000, "r-xp"));
        assert!(is_mapped(0x40_1000, 0x40_4000, "r-xp"));
        assert!(!is_mapped(0x40_2000, 0x40_3000, "r-xp"));
        assert!(!is_mapped(0x40_3000, 0x40_4000, "r-xp"));
        assert!(!is_mapped(0x40_2000, 0x40_4000, "rwxp"));
        assert!(!is_mapped(0x40_2000, 0x40_4000, "r--p"));
    }

    #[test]
    fn part_of_an_area_is_own_only_as_a_mapping_of_its_own() {
        let is_own =
            |line: &str| is_own(&Maps::parse(line).unwrap(), &(0x40_2000..0x40_4000), READ_WRITE);
        assert!(is_own("00402000-00404000 rw-p 00000000 00:00 0 \n"));
        for other in [
            "00402000-00405000 rw-p 00000000 00:00 0 \n",
            "00401000-00404000 rw-p 00000000 00:00 0 \n",
            "00402000-00404000 r-xp 00000000 00:00 0 \n",
            "00402000-00404000 rw-p 00000000 fe:00 7 /a\n",
            "00402000-00404000 rw-p 00000000 00:00 0 [heap]\n",
            "",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
