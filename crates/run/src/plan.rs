//! The work of a run and its estimated time.

use dbdyno_spec::experiment::{Candidate, Experiment};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::insert::Task;

use crate::cases::{cases, instance_count};
use crate::disk_space::DiskSpace;
use crate::timing::{block_range, block_time, slice_length};
use crate::{live_plan, settings};

/// The work of a run and its estimated time.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Number of instances that are measured, the control included.
    pub instances: usize,
    /// Minimum and maximum number of counted slices.
    pub slices: (u64, u64),
    /// Minimum and maximum measuring time, with warm-up and lead-in, if no event is longer than a
    /// slice. For the insert benchmark, the time of the steps that end by time.
    pub measuring: (Nanos, Nanos),
    /// Estimated disk space for data on this machine, with copies and the logs of private servers.
    pub data_size: Bytes,
    /// Estimated size of tables and indexes on existing servers.
    pub data_on_existing_servers: Bytes,
    /// Estimated size of tables and indexes on this machine; caches should hold this amount.
    pub tables_size: Bytes,
    /// The experiment's settings: label and value.
    pub settings: Vec<(String, String)>,
}

impl RunPlan {
    /// The plan of an experiment.
    #[must_use]
    pub fn of(experiment: &Experiment) -> Self {
        let (slices, measuring) = if experiment.insert_benchmark.is_some() {
            ((0, 0), insert_benchmark_time(experiment))
        } else {
            microbenchmark_work(experiment)
        };
        let space = DiskSpace::of(experiment);
        Self {
            instances: instance_count(experiment),
            slices,
            measuring,
            data_size: space.embedded + space.servers,
            data_on_existing_servers: space.existing,
            tables_size: space.tables,
            settings: settings::of_experiment(experiment),
        }
    }

    /// The configuration of a candidate as given in the experiment: label and value.
    #[must_use]
    pub fn configuration(candidate: &Candidate) -> Vec<(String, String)> {
        settings::of_candidate(candidate)
    }
}

/// Minimum and maximum number of slices of all cases, and minimum and maximum time.
fn microbenchmark_work(experiment: &Experiment) -> ((u64, u64), (Nanos, Nanos)) {
    let schedule = &experiment.schedule;
    let instances = instance_count(experiment) as u64;
    let training =
        live_plan::warmup_time(experiment).times(live_plan::training_count(experiment) * instances);
    let mut slices = (0, 0);
    let mut time = (training, training);
    for case in cases(experiment) {
        let slice = slice_length(schedule, &case.microbenchmark);
        let (fewest, most) = block_range(schedule, slice);
        slices.0 += u64::from(fewest) * instances;
        slices.1 += u64::from(most) * instances;
        time.0 += block_time(schedule, slice, fewest, instances);
        time.1 += block_time(schedule, slice, most, instances);
    }
    (slices, time)
}

/// The time of the steps that end by time; the duration of the others is unknown.
fn insert_benchmark_time(experiment: &Experiment) -> (Nanos, Nanos) {
    let Some(benchmark) = &experiment.insert_benchmark else { return (Nanos::ZERO, Nanos::ZERO) };
    let timed = benchmark.plan.steps.iter().map(|step| match step.task {
        Task::Mix(mix) => mix.time,
        Task::Insert(_) | Task::Index | Task::Settle => Nanos::ZERO,
    });
    let runs = instance_count(experiment) as u64 * u64::from(benchmark.repeats);
    let time = timed.sum::<Nanos>().times(runs);
    (time, time)
}
