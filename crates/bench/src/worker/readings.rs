//! What a thread of clients spends during the timed part of a slice.

use dbdyno_machine::{ThreadUsage, clock};
use dbdyno_record::SliceMeasured;
use dbdyno_units::Nanos;

/// The readings at the start.
pub(super) struct Readings {
    usage: ThreadUsage,
    cpu: Nanos,
    /// On the monotonic clock.
    pub started: Nanos,
}

impl Readings {
    /// Reads the clocks, the one that times the slice last.
    pub fn now() -> Self {
        let usage = ThreadUsage::now();
        let cpu = clock::thread_cpu();
        Self { usage, cpu, started: clock::monotonic() }
    }

    /// Writes what the thread has spent since into `measured`.
    pub fn finish(&self, measured: &mut SliceMeasured) {
        measured.started = self.started;
        measured.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let usage = ThreadUsage::now().since(&self.usage);
        measured.context_switches = usage.context_switches;
        measured.page_faults = usage.page_faults;
    }
}
