//! Resource usage of a client thread in the timed part of a slice.

use dbdyno_machine::{ThreadUsage, clock};
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;

use super::meter::{Meter, MeterReading};

/// Readings at the start of the timed part.
pub(super) struct Readings<'a> {
    meter: &'a Meter,
    reading: MeterReading,
    usage: ThreadUsage,
    cpu: Nanos,
    /// On the monotonic clock.
    pub started: Nanos,
}

impl<'a> Readings<'a> {
    /// Reads counters, usage and clocks.
    ///
    /// The wall clock is read last. Counters are read first here and last in [`Self::finish`], so
    /// that reading them is not part of the measured CPU time.
    pub fn now(meter: &'a Meter) -> Self {
        let reading = meter.read();
        let usage = ThreadUsage::now();
        let cpu = clock::thread_cpu();
        Self { meter, reading, usage, cpu, started: clock::monotonic() }
    }

    /// Writes the thread's usage since [`Self::now`] to `measured`.
    pub fn finish(&self, measured: &mut SliceMeasured) {
        measured.started = self.started;
        measured.cpu = clock::thread_cpu().saturating_sub(self.cpu);
        let usage = ThreadUsage::now().since(&self.usage);
        measured.context_switches = usage.context_switches;
        measured.page_faults = usage.page_faults;
        (measured.counts, measured.energy) = self.meter.since(&self.reading);
    }
}
