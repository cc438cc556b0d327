//! What a run will do and how long it may take.

use dbdyno_spec::experiment::{Candidate, Experiment, Schedule};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::schema::ROW_BYTES;

/// What a run will do and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Instances that are measured, the control among them.
    pub instances: usize,
    /// The fewest and the most slices that count.
    pub slices: (u64, u64),
    /// The shortest and the longest time of measuring, warm-up included, if every slice takes
    /// what it should. Events longer than a slice come on top.
    pub measuring: (Nanos, Nanos),
    /// The disk space that the data needs, roughly.
    pub data_size: Bytes,
    /// The experiment's settings: label and value.
    pub settings: Vec<(String, String)>,
}

impl Plan {
    /// The plan of an experiment.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let schedule = &experiment.schedule;
        let instances = instances(experiment);
        let mut slices = (0, 0);
        let mut measuring = (Nanos::ZERO, Nanos::ZERO);
        for microbenchmark in &experiment.workload.microbenchmarks {
            let slice = slice(schedule, microbenchmark);
            let most = most_blocks(schedule, slice);
            let warmup = schedule.warmup_blocks * schedule.restarts;
            let fewest = if schedule.restarts > 1 { most } else { schedule.min_blocks };
            let of = |blocks: u32| u64::from(blocks) * instances as u64;
            slices.0 += of(fewest);
            slices.1 += of(most);
            measuring.0 += slice.times(of(fewest + warmup));
            measuring.1 += slice.times(of(most + warmup));
        }
        Self {
            instances,
            slices,
            measuring,
            data_size: data_size(experiment, instances as u64 + 1),
            settings: crate::settings::of_experiment(experiment),
        }
    }

    /// How a candidate is set up: label and value.
    #[must_use]
    pub fn configuration(candidate: &Candidate) -> Vec<(String, String)> {
        crate::settings::of_candidate(candidate)
    }
}

/// Instances that are measured.
pub(crate) fn instances(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// The length of a slice of this microbenchmark.
pub(crate) fn slice(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    if microbenchmark.writes() { schedule.write_slice } else { schedule.slice }
}

/// The most blocks that count: what the budget allows, but at least the least.
pub(crate) fn most_blocks(schedule: &Schedule, slice: Nanos) -> u32 {
    let by_budget = schedule.budget.as_nanos().div_ceil(slice.as_nanos().max(1));
    u32::try_from(by_budget).unwrap_or(u32::MAX).max(schedule.min_blocks)
}

/// The space that `copies` of the data need.
fn data_size(experiment: &Experiment, copies: u64) -> Bytes {
    let workload = &experiment.workload;
    let rows = u64::from(workload.tables) * workload.rows;
    // Pages are not full and have headers: a SQLite table of 100,000 rows takes 1.15 times its
    // rows, and writes add to it.
    Bytes::from_bytes(rows * ROW_BYTES * 13 / 10 * copies)
}
