//! What a thread of clients spends during the timed part of a slice.

use dbdyno_machine::{ThreadUsage, clock};
use dbdyno_record::SliceMeasured;
use dbdyno_units::Nanos;

use super::meter::{Meter, Shown};

/// The readings at the start.
pub(super) struct Readings<'a> {
    meter: &'a Meter,
    shown: Shown,
    usage: ThreadUsage,
    cpu: Nanos,
    /// On the monotonic clock.
    pub started: Nanos,
}

impl<'a> Readings<'a> {
    /// Reads the clocks, the one that times the slice last.
    ///
    /// Counters come first, and last at the end: reading them is in no CPU time.
    pub fn now(meter: &'a Meter) -> Self {
        let shown = meter.read();
        let usage = ThreadUsage::now();
        let cpu = clock::thread_cpu();
        Self { meter, shown, usage, cpu, started: clock::monotonic() }
    }

    /// Writes what the thread has spent since into `measured`.
    pub fn finish(&self, measured: &mut SliceMeasured) {
        measured.started = self.started;
        measured.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let usage = ThreadUsage::now().since(&self.usage);
        measured.context_switches = usage.context_switches;
        measured.page_faults = usage.page_faults;
        (measured.counts, measured.energy) = self.meter.since(&self.shown);
    }
}
