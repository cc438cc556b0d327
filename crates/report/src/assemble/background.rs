//! What servers did between their slices, as a part of what each statement cost.

use std::collections::BTreeMap;

use dbdyno_results::SliceRow;
use dbdyno_units::Nanos;

/// CPU time in the background per statement, by candidate and start of the instances.
///
/// It is spread evenly over the statements of a start. Compaction and automatic vacuums come in
/// bursts: charged to the slices that they happen to follow, they would be in a few blocks only,
/// and the median over blocks would leave out most of what they cost.
#[derive(Debug, Default)]
pub(super) struct Background {
    by_start: BTreeMap<(u32, u32), Sum>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    cpu: Nanos,
    statements: u64,
}

impl Background {
    /// Of slices that count. Those before which nobody looked tell nothing.
    pub(super) fn of(slices: &[SliceRow]) -> Self {
        let mut background = Self::default();
        for slice in slices {
            let used = slice.measured.server.and_then(|server| server.background_cpu);
            let Some(cpu) = used else { continue };
            let sum = background.by_start.entry((slice.candidate, slice.restart)).or_default();
            sum.cpu += cpu;
            sum.statements += slice.measured.statements;
        }
        background
    }

    /// Whether it is known of a candidate.
    pub(super) fn is_known(&self, candidate: u32) -> bool {
        self.by_start.keys().any(|(of, _)| *of == candidate)
    }

    /// Per statement, in µs; 0 where it is unknown.
    pub(super) fn per_query(&self, candidate: u32, restart: u32) -> f64 {
        let sum = self.by_start.get(&(candidate, restart));
        let sum = sum.filter(|sum| sum.statements > 0);
        sum.map_or(0.0, |sum| sum.cpu.as_micros_f64() / sum.statements as f64)
    }
}
