//! The record of an insert benchmark's plan in the run directory.

use dbdyno_results::{InsertPlanRecord, InsertStepPlan};
use dbdyno_spec::experiment::{Experiment, InsertBenchmark};
use dbdyno_units::Share;
use dbdyno_workloads::insert::Task;

use crate::cases::instance_count;

/// A step that inserts less than this share of its rate did not sustain it, as in the published
/// benchmark.
const SUSTAINED: Share = Share::from_fraction(0.95);

/// The plan; `None` for microbenchmarks.
pub(super) fn plan_record(experiment: &Experiment) -> Option<InsertPlanRecord> {
    let InsertBenchmark { plan, repeats, stall, .. } = experiment.insert_benchmark.as_ref()?;
    let steps = plan.steps.iter().map(|step| InsertStepPlan {
        name: step.name.clone(),
        what: step.task.describe(plan.delete_per_insert && may_delete(&step.task)),
        queries: matches!(step.task, Task::Mix(_)),
        inserts: matches!(step.task, Task::Insert(_) | Task::Mix(_)),
        rate: step.task.rate().map(|rate| u64::from(rate) * u64::from(plan.clients)),
    });
    Some(InsertPlanRecord {
        clients: plan.clients,
        tables: plan.tables,
        repeats: *repeats,
        stall: *stall,
        sustained: SUSTAINED,
        steps: steps.collect(),
    })
}

/// Whether a step may delete old rows: only if there are indexes.
const fn may_delete(task: &Task) -> bool {
    match task {
        Task::Insert(inserts) => inserts.indexed,
        Task::Mix(_) => true,
        Task::Index | Task::Settle => false,
    }
}

/// The number of steps of all candidates in all repeats; 0 for microbenchmarks.
pub(super) fn step_count(experiment: &Experiment) -> usize {
    experiment.insert_benchmark.as_ref().map_or(0, |benchmark| {
        instance_count(experiment) * benchmark.plan.steps.len() * benchmark.repeats as usize
    })
}
