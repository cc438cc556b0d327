//! CPU time that servers used between their slices, as part of the cost per statement.

use std::collections::BTreeMap;

use dbdyno_results::SliceRecord;
use dbdyno_units::Nanos;

/// Background CPU time per statement, by candidate and by restart of the instances.
///
/// It is divided evenly over the statements of a restart. Compaction and autovacuum run in bursts:
/// if a burst were attributed to the slice after it, only a few blocks would contain it, and the
/// median over blocks would ignore most of its cost.
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
    /// From counted slices. Slices without a reading of background CPU are ignored.
    pub(super) fn of(slices: &[SliceRecord]) -> Self {
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

    /// Whether it is known for a candidate.
    pub(super) fn is_known(&self, candidate: u32) -> bool {
        self.by_start.keys().any(|(of, _)| *of == candidate)
    }

    /// Microseconds per statement; 0 if unknown.
    pub(super) fn per_query(&self, candidate: u32, restart: u32) -> f64 {
        let sum = self.by_start.get(&(candidate, restart));
        let sum = sum.filter(|sum| sum.statements > 0);
        sum.map_or(0.0, |sum| sum.cpu.as_micros_f64() / sum.statements as f64)
    }
}
