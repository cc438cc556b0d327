//! Freeing the memory of inactive generations.

use std::thread;

use super::areas::{unmap, unmap_range};
use super::{Activation, Attachment, FREE_PAUSE, original_address};
use crate::LiveError;
use crate::journal::{Area, Generation, GenerationState};
use crate::replace::is_in_use;
use crate::symbols::symbol_files;
use crate::trace::{KnownCode, SystemCall};
use crate::unwind::{self, Unwinder};

impl Attachment {
    /// Frees the memory of replaced generations that no thread uses. Returns the number of bytes. An
    /// undone generation stays until another one replaces it.
    ///
    /// # Errors
    /// The process exited, or no thread could unmap the memory.
    pub fn free(&mut self) -> Result<u64, LiveError> {
        self.free_if(|_| true)
    }

    /// Retires unused generations except the one to redo, and frees those that may be unmapped without a doubt:
    /// that were never active, so that no thread has ever entered them. All of them if the options say so.
    ///
    /// # Errors
    /// As [`Attachment::free`].
    pub(crate) fn clean_up(&mut self) -> Result<(), LiveError> {
        self.retire_unused_except(self.redoable()?)?;
        let all = self.process.options().unmap;
        self.free_if(|generation| all || !generation.was_activated())?;
        Ok(())
    }

    /// Retires unused generations except the one to redo, and frees those that were never active.
    ///
    /// # Errors
    /// As [`Attachment::free`].
    pub(crate) fn free_never_active(&mut self) -> Result<(), LiveError> {
        self.retire_unused_except(self.redoable()?)?;
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

    /// Marks generations that are undone or were never active to be freed.
    ///
    /// # Errors
    /// As [`Attachment::free`].
    pub fn retire_unused(&mut self) -> Result<(), LiveError> {
        self.retire_unused_except(None)
    }

    fn retire_unused_except(&mut self, kept: Option<u32>) -> Result<(), LiveError> {
        let mut idle = Vec::new();
        for generation in self.generations() {
            let is_retired =
                matches!(generation.state, GenerationState::Retired | GenerationState::Freeing);
            let is_kept = kept == Some(generation.number);
            if !is_retired && !is_kept && self.activation_of(generation)? == Activation::Inactive {
                idle.push(generation.number);
            }
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
        symbol_files::forget(self.journal.directory(), number);
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

    use super::*;
    use crate::process::{ProbeOptions, Process};
    use crate::testing::KillOnDrop;

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
        attachment.retire_unused().unwrap();
        assert_eq!(attachment.free().unwrap(), area.code);
        assert_eq!(attachment.process.maps().unwrap(), before);
        assert_eq!(attachment.generations(), []);
    }
}
