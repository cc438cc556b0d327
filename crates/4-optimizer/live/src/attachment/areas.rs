//! Memory for new code: reserved near the original code, with huge pages, and freed.
//!
//! MariaDB's server sets `PR_SET_THP_DISABLE`, which also holds for memory with `MADV_HUGEPAGE`. The flag
//! counts when a page is first touched. So it is reset for as long as it takes to map the memory and to
//! write one byte to each huge page.

use std::ops::Range;
use std::time::{Duration, Instant};
use std::{fs, thread};

use dbdyno_units::Bytes;

use crate::attachment::{Activation, Attachment, FREE_PAUSE, original_address};
use crate::journal::{Area, Generation, GenerationState, PatchedMapping};
use crate::memory::{Mapping, Maps};
use crate::patch::PAGE;
use crate::probe::Status;
use crate::replace::{in_use, is_in_use};
use crate::trace::{KnownCode, SystemCall, check_filters, find_unused_code, make_system_calls};
use crate::unwind::Unwinder;
use crate::{LiveError, symbols, unwind};

pub(super) const HUGE_PAGE: u64 = 2 << 20;
/// Maximum size of all new code in a process, including replaced code that is kept.
pub const MAX_CODE: Bytes = Bytes::from_mib(32);

/// Maximum time of checks whether threads have left borrowed code. Each takes two seconds if a thread cannot be stopped.
const BORROWED_TIME: Duration = Duration::from_secs(4);

/// Maximum number of system calls per stub: borrowed code is small.
const CALLS_AT_ONCE: usize = 4;

const READ_EXECUTE: u64 = (libc::PROT_READ | libc::PROT_EXEC) as u64;
const READ_WRITE: u64 = (libc::PROT_READ | libc::PROT_WRITE) as u64;
const ANONYMOUS: u64 = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE) as u64;

impl Attachment {
    /// Adds memory for code to the new generation, within reach of `near`. `huge` requests huge pages.
    pub fn reserve(&mut self, near: &Range<u64>, size: u64, huge: bool) -> Result<Area, LiveError> {
        let area = self.find_free(near, size, huge, &[])?;
        self.add(area, huge)?;
        Ok(area)
    }

    /// Finds free addresses as [`Attachment::reserve`] does, outside of `taken`. Changes nothing.
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
        let address = maps.free_range(near, whole, alignment).ok_or_else(|| {
            let near = near.start;
            let state = format!("has no {whole} bytes of free addresses within 2 GiB of {near:#x}");
            LiveError::wrong_state(pid, &state)
        })?;
        Ok(Area { address, code, data: unwind::DATA_SIZE })
    }

    /// Checks that the system call filters of the process, if it has any, permit what an optimization needs.
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
        Ok(are_mapped_in(&self.process.maps()?, generation))
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
        let start = Instant::now();
        loop {
            let used = in_use(&self.process, std::slice::from_ref(&range), self.max_pause);
            let is_last = start.elapsed() > BORROWED_TIME;
            match used {
                Ok(used) if !used.contains(&true) => break,
                Ok(_) if !is_last => thread::sleep(FREE_PAUSE),
                Err(error) if error.is_pause_too_long() && !is_last => thread::sleep(FREE_PAUSE),
                Ok(_) => {
                    return Err(LiveError::wrong_state(
                        self.process.pid(),
                        "has a thread in code of an interrupted dbdyno; try again",
                    ));
                }
                Err(error) => return Err(error),
            }
        }
        // After an interruption its library may have been unloaded, and others may be there now.
        let maps = self.process.maps()?;
        let is_gone = |it: PatchedMapping| it.was_replaced_at(borrowed.address, &maps);
        if !borrowed.mapping.is_some_and(is_gone) {
            self.process.memory().write(borrowed.address, &borrowed.original)?;
        }
        self.journal.change(|record| record.borrowed = None)
    }
}

/// As [`Attachment::are_mapped`], for many generations, each of which has mappings.
pub(super) fn are_mapped_in(maps: &Maps, generation: &Generation) -> bool {
    let areas = &generation.areas;
    !areas.is_empty() && areas.iter().all(|area| is_mapped_in(maps, area))
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

impl Attachment {
    /// Enables huge pages if the process, but not the machine, has disabled them, and its system call filters are
    /// known to permit that. Returns whether it did.
    pub(super) fn enable_huge_pages(&mut self) -> Result<bool, LiveError> {
        let is_disabled = Status::of(self.process.pid())?.field("THP_enabled") == Some("0");
        if !is_disabled || !may_be_used() {
            return Ok(false);
        }
        // Huge pages are not required, so no filter is risked for them: `--allow-seccomp` confirms other calls.
        let calls = [disable_huge_pages(false), disable_huge_pages(true)];
        match check_filters(&self.process, &calls, false) {
            Ok(()) => {}
            Err(error @ LiveError::Exited { .. }) => return Err(error),
            Err(_) => return Ok(false),
        }
        // First, so that the next dbdyno disables them again if this one is killed.
        self.journal.change(|record| record.enabled_huge_pages = true)?;
        self.make_calls(&[disable_huge_pages(false)])?;
        Ok(true)
    }

    /// Touches each huge page of new code.
    pub(super) fn touch_huge_pages(&self, area: &Area) -> Result<(), LiveError> {
        let mut pages = area.code_range().step_by(HUGE_PAGE as usize);
        pages.try_for_each(|page| self.process.memory().write(page, &[0]))
    }

    /// Disables huge pages again, if they were enabled.
    pub(super) fn disable_huge_pages(&mut self) -> Result<(), LiveError> {
        if !self.journal.record().enabled_huge_pages {
            return Ok(());
        }
        // The process may have installed a filter since.
        check_filters(&self.process, &[disable_huge_pages(true)], false)?;
        self.make_calls(&[disable_huge_pages(true)])?;
        self.journal.change(|record| record.enabled_huge_pages = false)
    }
}

/// Whether the machine has huge pages for memory that requests them.
fn may_be_used() -> bool {
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    enabled.is_ok_and(|text| !text.contains("[never]"))
}

fn disable_huge_pages(disable: bool) -> SystemCall {
    let arguments = [libc::PR_SET_THP_DISABLE as u64, disable.into(), 0, 0, 0, 0];
    SystemCall { number: libc::SYS_prctl, arguments }
}

impl Attachment {
    /// Frees the memory of replaced generations that no thread uses. Returns the number of bytes. An
    /// undone generation stays until another one replaces it.
    pub fn free(&mut self) -> Result<u64, LiveError> {
        self.free_if(|_| true)
    }

    /// Retires unused generations except the one to redo, and frees those that may be unmapped without a doubt:
    /// that were never active, so that no thread has ever entered them. All of them if the options say so.
    pub(crate) fn clean_up(&mut self) -> Result<(), LiveError> {
        self.retire_unused(self.redoable()?)?;
        let all = self.process.options().unmap;
        self.free_if(|generation| all || !generation.was_activated())?;
        Ok(())
    }

    /// Retires unused generations except the one to redo, and frees those that were never active.
    pub(crate) fn free_never_active(&mut self) -> Result<(), LiveError> {
        self.retire_unused(self.redoable()?)?;
        self.free_if(|generation| !generation.was_activated())?;
        Ok(())
    }

    fn free_if(&mut self, may_be_freed: impl Fn(&Generation) -> bool) -> Result<u64, LiveError> {
        let mut freed = 0;
        let mut in_use = Vec::new();
        for number in self.numbers_in(GenerationState::Freeing) {
            if self.is_entered(number)? {
                // Marked by an earlier version according to the journal of another process.
                self.set_state(number, GenerationState::Retired)?;
            } else if !self.is_unused(number)? {
                // A thread may still be in the stub of an interrupted attempt, which the next one overwrites.
                in_use.push(number);
            }
        }
        for number in self.numbers_in(GenerationState::Retired) {
            let is_chosen = self.generation(number).is_some_and(&may_be_freed);
            if is_chosen && !self.is_entered(number)? && self.is_unused(number)? {
                self.set_state(number, GenerationState::Freeing)?;
            }
        }
        for number in self.numbers_in(GenerationState::Freeing) {
            if !in_use.contains(&number) {
                freed += self.free_generation(number)?;
            }
        }
        Ok(freed)
    }

    /// Marks generations that are undone or were never active to be freed, except one.
    pub fn retire_unused(&mut self, kept: Option<u32>) -> Result<(), LiveError> {
        let mut idle = Vec::new();
        for generation in self.generations() {
            let is_retired =
                matches!(generation.state, GenerationState::Retired | GenerationState::Freeing);
            let is_kept = kept == Some(generation.number);
            if !is_retired && !is_kept && self.activation_of(generation)? == Activation::Inactive {
                idle.push(generation.number);
            }
        }
        if idle.is_empty() {
            return Ok(());
        }
        self.journal.change(|record| {
            for generation in &mut record.generations {
                if idle.contains(&generation.number) {
                    generation.state = GenerationState::Retired;
                }
            }
        })
    }

    fn is_entered(&self, number: u32) -> Result<bool, LiveError> {
        self.generation(number).map_or(Ok(false), |generation| self.may_be_entered(generation))
    }

    /// Whether no thread uses its code, in two checks at different times. Unknown, so false, if threads do
    /// not stop, and after a tracing tool has attached a uprobe: return addresses may then be in the kernel instead of on the
    /// stack.
    fn is_unused(&self, number: u32) -> Result<bool, LiveError> {
        let Some(generation) = self.generation(number) else { return Ok(false) };
        if self.process.maps()?.has_uprobes() {
            return Ok(false);
        }
        let code = self.known_code(generation)?;
        for check in 0..2 {
            if code.is_empty() {
                return Ok(true);
            }
            if check > 0 {
                thread::sleep(FREE_PAUSE);
            }
            match is_in_use(&self.process, &code, self.max_pause) {
                Ok(false) => {}
                Ok(true) => return Ok(false),
                // Later, when no thread is in uninterruptible sleep.
                Err(error) if error.is_pause_too_long() => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The code of a generation, without its exits: a thread may return to behind a call that one of them has
    /// overwritten since.
    fn known_code(&self, generation: &Generation) -> Result<Vec<KnownCode>, LiveError> {
        // A thread may have stored the address of a virtual function before it calls it.
        let slots = generation.entries.iter().filter(|entry| !entry.is_jump());
        let mut called: Vec<u64> = slots
            .filter_map(|slot| Some(u64::from_le_bytes(slot.patch.clone().try_into().ok()?)))
            .collect();
        called.sort_unstable();
        let mut code = Vec::new();
        for area in &generation.areas {
            if self.is_mapped(area)? || self.is_half_unmapped(area)? {
                let range = area.code_range();
                let bytes = self.code(generation, &range)?;
                code.push(KnownCode { start: range.start, bytes, called: called.clone() });
            }
        }
        Ok(code)
    }

    fn free_generation(&mut self, number: u32) -> Result<u64, LiveError> {
        let Some(generation) = self.generation(number).cloned() else { return Ok(0) };
        let (mut areas, mut half_unmapped) = (Vec::new(), Vec::new());
        for area in &generation.areas {
            if self.is_mapped(area)? {
                areas.push(*area);
            } else if self.is_half_unmapped(area)? {
                half_unmapped.push(area.code_range());
            }
        }
        if let Some(first) = generation.areas.first()
            && areas.contains(first)
            && !generation.frames.is_empty()
        {
            self.deregister(first, &generation.frames)?;
        }
        let mut calls: Vec<SystemCall> = areas.iter().flat_map(unmap).collect();
        calls.extend(half_unmapped.iter().map(unmap_range));
        self.make_calls(&calls)?;
        self.journal.change(|record| record.generations.retain(|it| it.number != number))?;
        self.journal.maps().remove(number);
        symbols::forget_symbols(self.journal.directory(), number);
        let left: u64 = half_unmapped.iter().map(|code| code.end - code.start).sum();
        Ok(areas.iter().map(|area| area.code + area.data).sum::<u64>() + left)
    }

    /// Removes the lists that the unwinder still has. The process counts each list when it is
    /// registered and when it is removed.
    fn deregister(&self, area: &Area, frames: &[u64]) -> Result<(), LiveError> {
        let Some(unwinder) = Unwinder::of(&self.process)? else { return Ok(()) };
        let done = unwind::calls_done(&self.process, &area.data_range())?;
        let registered = done.min(frames.len());
        let removed = done - registered;
        let left = frames.get(removed..registered).unwrap_or_default();
        if left.is_empty() {
            return Ok(());
        }
        let maps = self.maps();
        let original = |address| original_address(&maps, address);
        unwind::call(&self.process, area, &unwinder.deregister(left), &original)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    use crate::process::testing::KillOnDrop;
    use crate::process::{ProbeOptions, Process};

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

    #[test]
    fn code_of_an_interrupted_unmapping_is_unmapped() {
        let pipe = Stdio::piped;
        let mut child =
            KillOnDrop(Command::new("cat").stdin(pipe()).stdout(pipe()).spawn().unwrap());
        // It has started when it responds.
        child.0.stdin.as_ref().unwrap().write_all(b"a").unwrap();
        child.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        let process = Process::open(child.0.id(), ProbeOptions::default()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let pause = Duration::from_millis(500);
        let mut attachment = Attachment::open(process, state.path(), pause).unwrap();
        let before = attachment.process.maps().unwrap();
        attachment.begin().unwrap();
        let near = before.all()[0].range.clone();
        let area = attachment.reserve(&near, 64 << 10, false).unwrap();
        attachment.make_calls(&[unmap_range(&area.data_range())]).unwrap();
        attachment.retire_unused(None).unwrap();
        assert_eq!(attachment.free().unwrap(), area.code);
        assert_eq!(attachment.process.maps().unwrap(), before);
        assert_eq!(attachment.generations(), []);
    }
}
