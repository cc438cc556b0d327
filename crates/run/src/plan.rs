//! What a run will do and how long it may take.

use dbdyno_bench::slice::Quota;
use dbdyno_spec::experiment::{Candidate, Experiment, InsertBenchmark, Schedule};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::Microbenchmark;
use dbdyno_workloads::insert::Task;
use dbdyno_workloads::schema::ROW_BYTES;

use crate::training;

/// What a run will do and how long it may take.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Instances that are measured, the control among them.
    pub instances: usize,
    /// The fewest and the most slices that count.
    pub slices: (u64, u64),
    /// The shortest and the longest time of measuring, warm-up and lead-in included, if every
    /// slice takes what it should. Events longer than a slice come on top.
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
        if let Some(benchmark) = &experiment.insert_benchmark {
            return Self::of_inserts(experiment, benchmark);
        }
        let schedule = &experiment.schedule;
        let instances = instances(experiment);
        let mut slices = (0, 0);
        let mut measuring = (Nanos::ZERO, Nanos::ZERO);
        for unit in units(experiment) {
            let slice = slice(schedule, &unit.microbenchmark);
            let (fewest, most) = blocks(schedule, slice);
            slices.0 += u64::from(fewest) * instances as u64;
            slices.1 += u64::from(most) * instances as u64;
            measuring.0 += time(schedule, slice, fewest, instances as u64);
            measuring.1 += time(schedule, slice, most, instances as u64);
        }
        let training =
            training::time(experiment).times(training::times(experiment) * instances as u64);
        measuring = (measuring.0 + training, measuring.1 + training);
        Self {
            instances,
            slices,
            measuring,
            data_size: data_size(experiment, instances as u64 + 1),
            settings: crate::settings::of_experiment(experiment),
        }
    }

    /// How long loading takes nobody knows before: the times are those of the steps that end by
    /// time.
    fn of_inserts(experiment: &Experiment, benchmark: &InsertBenchmark) -> Self {
        let instances = instances(experiment);
        let timed = benchmark.plan.steps.iter().map(|step| match step.task {
            Task::Mix(mix) => mix.time,
            Task::Insert(_) | Task::Index | Task::Settle => Nanos::ZERO,
        });
        let time = timed.sum::<Nanos>().times(instances as u64 * u64::from(benchmark.repeats));
        // One candidate's data at a time: its own, its copy, and the next copy being made.
        let copies = if benchmark.copies { 3 } else { 1 };
        let data = benchmark.plan.data_bytes().saturating_mul(13) / 10;
        Self {
            instances,
            slices: (0, 0),
            measuring: (time, time),
            data_size: Bytes::from_bytes(data.saturating_mul(copies)),
            settings: crate::settings::of_experiment(experiment),
        }
    }

    /// How a candidate is set up, as far as the experiment says it: label and value.
    #[must_use]
    pub fn configuration(candidate: &Candidate) -> Vec<(String, String)> {
        crate::settings::of_candidate(candidate)
    }
}

/// What is measured at a time: a microbenchmark with a number of clients.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    pub microbenchmark: Microbenchmark,
    pub clients: u32,
}

/// All that is measured, in running order.
pub(crate) fn units(experiment: &Experiment) -> Vec<Unit> {
    let workload = &experiment.workload;
    let of = |microbenchmark: &Microbenchmark| {
        let unit = |clients: &u32| Unit {
            microbenchmark: microbenchmark.clone().for_clients(*clients),
            clients: *clients,
        };
        workload.clients.iter().map(unit).collect::<Vec<_>>()
    };
    workload.microbenchmarks.iter().flat_map(of).collect()
}

/// Instances that are measured.
pub(crate) fn instances(experiment: &Experiment) -> usize {
    experiment.candidates.len() + usize::from(experiment.control)
}

/// The length of a slice of this microbenchmark.
pub(crate) fn slice(schedule: &Schedule, microbenchmark: &Microbenchmark) -> Nanos {
    if microbenchmark.writes() { schedule.write_slice } else { schedule.slice }
}

/// The fewest and the most blocks that count. Without restarts the most is what the budget
/// allows; with restarts, half of the budget is always spent.
pub(crate) fn blocks(schedule: &Schedule, slice: Nanos) -> (u32, u32) {
    let slices_in = |time: u64| {
        let slices = time.div_ceil(slice.as_nanos().max(1));
        u32::try_from(slices).unwrap_or(u32::MAX)
    };
    let most = slices_in(schedule.budget.as_nanos()).max(schedule.min_blocks);
    let fewest = match schedule.restarts {
        1 => schedule.min_blocks,
        _ => slices_in(schedule.budget.as_nanos() / 2).max(schedule.min_blocks),
    };
    (fewest, most)
}

/// The time that so many blocks take, with the warm-up after each start and the lead-in of each
/// slice. Starting the instances comes on top.
pub(crate) fn time(schedule: &Schedule, slice: Nanos, blocks: u32, instances: u64) -> Nanos {
    let (_, most) = self::blocks(schedule, slice);
    // Half of the budget is for the restarts that are asked for, the rest for as many again.
    let starts = match schedule.restarts {
        1 => 1,
        restarts if blocks < most => restarts,
        restarts => 2 * restarts,
    };
    let with_warmup = u64::from(blocks) + u64::from(schedule.warmup_blocks * starts);
    let lead_in = Quota::Time(slice).lead_in();
    let with_lead_in = match lead_in {
        Some(Quota::Time(time)) => slice + time,
        _ => slice,
    };
    with_lead_in.times(with_warmup * instances)
}

/// The space that `copies` of the data need.
fn data_size(experiment: &Experiment, copies: u64) -> Bytes {
    let workload = &experiment.workload;
    let rows = u64::from(workload.tables) * workload.rows;
    // Pages are not full and have headers: a SQLite table of 100,000 rows takes 1.15 times its
    // rows, and writes add to it.
    Bytes::from_bytes(rows * ROW_BYTES * 13 / 10 * copies)
}
