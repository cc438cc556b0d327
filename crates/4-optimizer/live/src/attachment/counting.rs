//! Code that counts executions: active in short bursts, never redone by a user.

use std::ops::Range;
use std::path::Path;

use super::{Activation, Attachment, redirected};
use crate::LiveError;
use crate::journal::{Area, Generation, GenerationState};
use crate::patch::{PAGE, Patch};
use crate::process::{ProbeOptions, Process};
use crate::replace::Switched;
use crate::target::descendants;
use crate::threads::{identify, retry_while_busy};

impl Attachment {
    /// As [`Attachment::reserve`], with writable memory for counters.
    ///
    /// # Errors
    /// As those of [`Attachment::reserve`].
    pub(crate) fn reserve_counting(
        &mut self,
        near: &Range<u64>,
        size: u64,
        counters: u64,
    ) -> Result<Area, LiveError> {
        let mut area = self.find_free(near, size + counters, false, &[])?;
        // At the end of the free range, behind the data for the unwinder.
        let counters = counters.next_multiple_of(PAGE);
        area.code -= counters;
        area.data += counters;
        self.add(area, false)?;
        Ok(area)
    }

    /// As [`Attachment::install`], for code that counts.
    ///
    /// # Errors
    /// As those of [`Attachment::install`].
    pub(crate) fn install_counting(&mut self, patch: &Patch) -> Result<Switched, LiveError> {
        self.change_last(|generation| generation.counts = true)?;
        self.install(patch)
    }

    /// Activates the original code if code that counts is active, because the dbdyno that activated it was
    /// killed. Also in descendants. Returns whether it was.
    ///
    /// # Errors
    /// As those of [`Attachment::undo`].
    pub fn end_abandoned_counting(&mut self) -> Result<bool, LiveError> {
        let abandoned = self.is_counting();
        if abandoned {
            retry_while_busy(|| self.undo(), LiveError::is_transient).0?;
            self.end_counting_of_descendants(&[]);
        }
        Ok(abandoned)
    }

    /// Activates the original code in descendants in which code that counts is active, because they were forked
    /// meanwhile. `others` are left out.
    pub(crate) fn end_counting_of_descendants(&self, others: &[u32]) {
        for pid in descendants(self.process.pid()) {
            if others.contains(&pid) || !self.counts_in(pid).unwrap_or(false) {
                continue;
            }
            match self.end_counting_of(pid) {
                Ok(()) | Err(LiveError::Exited { .. }) => {}
                Err(error) => tracing::warn!(%error, pid, "a descendant still counts executions"),
            }
        }
    }

    /// Whether code of this process that counts is active in a descendant.
    fn counts_in(&self, pid: u32) -> Result<bool, LiveError> {
        let process = Process::open_unchecked(&identify(pid)?, Path::new(""))?;
        for generation in self.generations().iter().filter(|it| it.counts) {
            if redirected(&process, generation)?.1 != Activation::Inactive {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn end_counting_of(&self, pid: u32) -> Result<(), LiveError> {
        // The process executes no call for that.
        let options = ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() };
        let process = Process::open(pid, options)?;
        let state = self.directory().parent().unwrap_or(Path::new(""));
        Self::open(process, state, self.max_pause)?.end_abandoned_counting()?;
        Ok(())
    }

    /// Whether code that counts is active, or may be, according to the journal.
    pub(crate) fn is_counting(&self) -> bool {
        let is_active =
            |state| matches!(state, GenerationState::Active | GenerationState::Switching);
        self.generations().iter().any(|it| it.counts && is_active(it.state))
    }

    /// The active generation according to the journal, unless it counts.
    #[must_use]
    pub fn active_number(&self) -> Option<u32> {
        let is_active = |it: &&Generation| it.state == GenerationState::Active && !it.counts;
        self.generations().iter().rfind(is_active).map(|it| it.number)
    }

    /// Activates code that counts again.
    ///
    /// # Errors
    /// Its memory is not mapped any more, the process did not stop, or another program has changed some of the
    /// bytes.
    pub(crate) fn resume_counting(&mut self, number: u32) -> Result<Switched, LiveError> {
        self.forget_unloaded()?;
        let before = self.generations().to_vec();
        self.set_state(number, GenerationState::Switching)?;
        self.activate(number, before)
    }
}
