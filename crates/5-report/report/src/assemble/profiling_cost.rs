//! What sampling stacks and recording waits costs.

use dbdyno_results::{ProfileRecord, WaitsRecord};
use dbdyno_stats::interval_of_repeats;
use dbdyno_types::profile::{SliceWaits, StatementCpu};
use dbdyno_units::{Nanos, Ratio};

use super::Measured;
use crate::model::ProfilingCost;

/// The slices of a start in which something was sampled or recorded, and those among them in which nothing was.
struct Start {
    restart: u32,
    profiled: StatementCpu,
    others: Option<StatementCpu>,
}

impl Measured {
    pub(super) fn cost_of_sampling(&self, candidate: usize) -> Option<ProfilingCost> {
        let starts = self.records(candidate).map(|record| {
            let ProfileRecord { restart, statements, cpu, profile, .. } = record;
            let profiled = StatementCpu { statements: *statements, cpu: *cpu };
            Start { restart: *restart, profiled, others: profile.unsampled }
        });
        self.cost_of_profiling(candidate, starts)
    }

    pub(super) fn cost_of_waits(&self, candidate: usize) -> Option<ProfilingCost> {
        let starts = self.waits.iter().filter(|one| one.candidate as usize == candidate);
        let starts = starts.map(|WaitsRecord { restart, waits, .. }| {
            let slices = waits.slices.iter();
            let sum =
                |of: fn(&SliceWaits) -> u64| slices.clone().map(of).fold(0, u64::saturating_add);
            let cpu = Nanos::from_nanos(sum(|slice| slice.cpu.as_nanos()));
            let profiled = StatementCpu { statements: sum(|slice| slice.statements), cpu };
            Start { restart: *restart, profiled, others: waits.unrecorded }
        });
        self.cost_of_profiling(candidate, starts)
    }

    fn cost_of_profiling(
        &self,
        candidate: usize,
        starts: impl Iterator<Item = Start>,
    ) -> Option<ProfilingCost> {
        let (mut profiled, mut others, mut of_starts) = (0.0, 0.0, Vec::new());
        for start in starts.filter(|start| start.profiled.statements > 0) {
            let beside = start.others.filter(|sum| sum.statements > 0);
            let beside = beside.map(|sum| sum.cpu.as_micros_f64() / sum.statements as f64);
            let per_query = beside.or_else(|| self.cpu_of_start(candidate, start.restart))?;
            let without = per_query * start.profiled.statements as f64;
            let with = start.profiled.cpu.as_micros_f64();
            profiled += with;
            others += without;
            of_starts.push(with / without);
        }
        (others > 0.0).then(|| ProfilingCost {
            relative_cpu: Ratio::new(profiled / others),
            interval: interval_of_repeats(&of_starts).map(|(low, high)| [low, high]),
        })
    }
}
