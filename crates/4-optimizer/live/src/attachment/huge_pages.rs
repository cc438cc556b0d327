//! Huge pages for new code in a process that has disabled them.
//!
//! MariaDB's server sets `PR_SET_THP_DISABLE`, which also holds for memory with `MADV_HUGEPAGE`. The flag
//! counts when a page is first touched. So it is reset for as long as it takes to map the memory and to
//! write one byte to each huge page.

use std::fs;

use super::Attachment;
use super::areas::HUGE_PAGE;
use crate::LiveError;
use crate::journal::Area;
use crate::probe::Status;
use crate::trace::{SystemCall, check_filters};

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
