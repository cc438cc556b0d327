//! The insert benchmark: runs all steps of one candidate before the next candidate starts.
//!
//! Candidates do not alternate: background work that a step leaves behind, such as compaction and
//! write-back, would run while another candidate is measured.

use dbdyno_results::{
    FailureKind, InsertPlanRecord, InsertStepPlan, InsertStepRecord, ResultsError, StartedFrom,
    StateSnapshotRecord,
};
use dbdyno_spec::experiment::{Experiment, InsertBenchmark};
use dbdyno_types::insert::StepMeasured;
use dbdyno_units::Share;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::InsertStep;
use dbdyno_worker::schedule::repeat_order;
use dbdyno_workloads::insert::{Plan, Task};

use crate::candidates::ResolvedCandidate;
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::data::DataLocation;
use crate::instance::{Instance, data};
use crate::plan::cases::instance_count;
use crate::record::Phase;
use crate::session::Session;
use crate::session::progress::{InsertPlace, RunEvent};

/// Why a step is not complete.
enum StepError {
    Candidate(WorkerError),
    Run(RunError),
}

impl From<WorkerError> for StepError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Stopped => Self::Run(RunError::Interrupted),
            error => Self::Candidate(error),
        }
    }
}

impl From<RunError> for StepError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}

impl From<ResultsError> for StepError {
    fn from(error: ResultsError) -> Self {
        Self::Run(error.into())
    }
}

impl Session<'_> {
    /// Runs all steps that are not done. Returns false if some candidate failed.
    pub(super) fn run_insert_benchmark(
        &mut self,
        context: &RunContext<'_>,
        benchmark: &InsertBenchmark,
        candidates: &[ResolvedCandidate],
    ) -> Result<bool, RunError> {
        let mut is_complete = true;
        for repeat in 0..benchmark.repeats {
            let order = repeat_order(self.experiment.seed, repeat, candidates.len());
            for (position, number) in (0..).zip(order) {
                self.recorder.check_cancelled()?;
                let candidate = &candidates[number];
                let one = CandidateRepeat { benchmark, repeat, position, number, candidate };
                if !self.run_repeat(context, one)? {
                    is_complete = false;
                    self.remove_unusable_data(context, one)?;
                } else if !(self.options.keep_data && one.is_last_repeat()) {
                    one.remove(context)?;
                }
            }
        }
        Ok(is_complete)
    }

    /// Runs all steps of one candidate in one repeat that are not done. Returns whether they are complete; the others
    /// continue if the candidate failed.
    fn run_repeat(
        &mut self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
    ) -> Result<bool, RunError> {
        let before = StoredSteps::of(one, &self.state.insert_steps);
        if before.done == one.plan().steps.len() {
            return Ok(true);
        }
        let mut instance = Instance::at(one.candidate.clone(), one.data(context));
        let mut at = "starting".to_owned();
        match self.run_steps(context, one, before, &mut instance, &mut at) {
            Ok(()) => Ok(true),
            Err(StepError::Run(error)) => Err(error),
            Err(StepError::Candidate(error)) => {
                let error = instance.cause(error);
                instance.kill_failed(&error)?;
                let reason = error.to_string();
                self.fail(one, &at, FailureKind::Ended, reason)?;
                Ok(false)
            }
        }
    }

    /// Removes the data of a candidate that failed, but not what a resumed run continues with: the copy from before
    /// the failed step or, if it failed between two steps and there is no copy, the data itself.
    fn remove_unusable_data(
        &self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
    ) -> Result<(), RunError> {
        let stored = StoredSteps::of(one, &self.recorder.results.reader()?.insert_steps()?);
        let data = one.data(context);
        let is_needed = stored.is_between_steps(one)
            && data.outlives_session()
            && !one.copy(context, stored.done).exists();
        if is_needed { Ok(()) } else { data.remove_data() }
    }

    /// Runs the steps that are not done. `at` is set to the name of the current step.
    fn run_steps(
        &mut self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
        before: StoredSteps,
        instance: &mut Instance,
        at: &mut String,
    ) -> Result<(), StepError> {
        let (mut next, mut from, mut rows) = (before.done, StartedFrom::Copy, before.rows);
        if self.find_data(context, one, &before)? {
            instance.open(context, 1, false)?;
            self.check_uncounted_rows(one, before.done, rows, instance)?;
        } else {
            (next, from, rows) = (0, StartedFrom::Step, 0);
            self.create_database(context, one, instance)?;
        }
        self.store_reported(one.number, instance)?;
        while let Some(step) = one.plan().steps.get(next) {
            if self.recorder.is_cancelled() {
                instance.stop();
                return Err(RunError::Interrupted.into());
            }
            step.name.clone_into(at);
            let Some(measured) = self.run_step(one, next, from, instance)? else {
                instance.kill();
                return Err(RunError::Interrupted.into());
            };
            rows += growth(&measured);
            next += 1;
            let is_last = next == one.plan().steps.len();
            if is_last || are_rows_counted_after(&step.name) {
                self.check_row_count(one, instance, &step.name, rows)?;
            }
            if !is_last {
                self.copy_after(context, one, next, instance)?;
            }
            from = StartedFrom::Step;
        }
        if !self.options.keep_data {
            instance.remove_schema();
        }
        // Everything is stored: errors on shutdown do not matter.
        instance.stop();
        Ok(())
    }

    /// Restores the data as of the last complete step. Returns false if there is none: all steps
    /// must then run again.
    fn find_data(
        &mut self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
        before: &StoredSteps,
    ) -> Result<bool, RunError> {
        let done = before.done;
        let name = &one.candidate.name;
        let (data, copy) = (one.data(context), one.copy(context, done));
        if before.is_between_steps(one) && data.can_be_copied() && data.exists() {
            self.recorder.stage(format!("continuing {name} where it stopped, between steps"));
            return Ok(true);
        }
        if done > 0 && data.can_be_copied() && copy.exists() {
            let step = &one.plan().steps[done].name;
            self.recorder
                .stage(format!("continuing {name} from the copy of its data made before {step}"));
            copy.copy_to(&data)?;
            return Ok(true);
        }
        if done > 0 || before.is_broken_off {
            self.recorder.stage(format!(
                "restarting {name} from its first step: there is no copy of its data"
            ));
            let steps = one.plan().steps.iter();
            let counted: Vec<String> =
                steps.map(|step| after_step(&step.name, one.repeat)).collect();
            self.recorder.results.forget_insert_steps(one.repeat, one.number as u32, &counted)?;
        }
        one.remove(context)?;
        Ok(false)
    }

    /// Creates an empty database with the tables, and opens it.
    fn create_database(
        &mut self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
        instance: &mut Instance,
    ) -> Result<(), StepError> {
        let location = one.data(context);
        self.recorder.stage(format!("creating a database for {}", one.candidate.name));
        data::check_free_space(context, [one.candidate])?;
        location.make()?;
        data::initialise_server(one.candidate, &location)?;
        instance.open(context, 1, true)?;
        Ok(instance.worker_mut()?.insert_tables()?)
    }

    /// Runs one step and stores each second of it. `None` if the user stopped it.
    fn run_step(
        &mut self,
        one: CandidateRepeat<'_>,
        number: usize,
        started_from: StartedFrom,
        instance: &mut Instance,
    ) -> Result<Option<StepMeasured>, StepError> {
        let CandidateRepeat { repeat, position, .. } = one;
        let step = &one.plan().steps[number];
        let id = self.recorder.results.begin_insert_step(&InsertStepRecord {
            id: 0,
            repeat,
            position,
            candidate: one.number as u32,
            step: number as u32,
            name: step.name.clone(),
            started_from,
            measured: None,
        })?;
        let at = InsertPlace {
            repeat,
            repeats: one.benchmark.repeats,
            candidate: &one.candidate.name,
            step: &step.name,
            number: number + 1,
            of: one.plan().steps.len(),
        };
        let recorder = &mut self.recorder;
        recorder.report(RunEvent::InsertStep { at, task: &step.task });
        let request = InsertStep { step: number as u32, repeat, data: instance.location.files() };
        let measured = instance.insert_step(request, |second| {
            recorder.results.add_insert_second(id, &second)?;
            recorder.report(RunEvent::InsertSecond { at, task: &step.task, second: &second });
            Ok::<bool, StepError>(!recorder.is_cancelled())
        })?;
        let Some(measured) = measured else { return Ok(None) };
        self.recorder.results.finish_insert_step(id, &measured)?;
        self.store_elapsed()?;
        self.recorder.report(RunEvent::InsertStepDone { at, measured: &measured });
        self.check_answers(one, &step.name, &measured)?;
        Ok(Some(measured))
    }

    /// Stores a failure if the share of wrong row counts is larger than allowed.
    fn check_answers(
        &mut self,
        one: CandidateRepeat<'_>,
        step: &str,
        measured: &StepMeasured,
    ) -> Result<(), RunError> {
        let all = measured.inserts.count + measured.queries.count;
        let share = Share::from_fraction(measured.wrong as f64 / all.max(1) as f64);
        if share <= self.experiment.checks.max_error_share {
            return Ok(());
        }
        let what = measured.first_complaint.as_deref().unwrap_or("wrong row counts");
        let reason = format!("{} of {all} statements answered wrongly: {what}", measured.wrong);
        self.fail(one, step, FailureKind::Wrong, reason)
    }

    fn fail(
        &mut self,
        one: CandidateRepeat<'_>,
        at: &str,
        kind: FailureKind,
        reason: String,
    ) -> Result<(), RunError> {
        let phase = Phase::of_session(format!("{at}, repeat {}", one.repeat + 1));
        let failure = phase.failure(kind, one.number, reason);
        Ok(self.recorder.fail(&one.candidate.name, &failure)?)
    }

    /// Checks the row count after the last complete step if the session that ran this step ended before it did.
    fn check_uncounted_rows(
        &mut self,
        one: CandidateRepeat<'_>,
        done: usize,
        rows: i128,
        instance: &mut Instance,
    ) -> Result<(), StepError> {
        let last = done.checked_sub(1).and_then(|last| one.plan().steps.get(last));
        let Some(step) = last.filter(|step| are_rows_counted_after(&step.name)) else {
            return Ok(());
        };
        let stored = self.recorder.results.reader()?.state_snapshots()?;
        if !is_counted(&stored, one.number, &step.name, one.repeat) {
            self.check_row_count(one, instance, &step.name, rows)?;
        }
        Ok(())
    }

    /// Stores the state of the instance, and checks that it has all rows that were inserted and not
    /// deleted.
    fn check_row_count(
        &mut self,
        one: CandidateRepeat<'_>,
        instance: &mut Instance,
        step: &str,
        rows: i128,
    ) -> Result<(), StepError> {
        self.recorder.stage(format!("counting the rows of {}", one.candidate.name));
        let state_snapshot = instance.worker_mut()?.state_snapshot()?;
        let found = state_snapshot.rows;
        self.recorder.results.add_state_snapshot(&StateSnapshotRecord {
            candidate: one.number as u32,
            at: after_step(step, one.repeat),
            state_snapshot,
        })?;
        if i128::from(found) != rows {
            let reason =
                format!("its tables have {found} rows, but {rows} were inserted and not deleted");
            self.fail(one, step, FailureKind::Wrong, reason)?;
        }
        Ok(())
    }

    /// Copies the data after a step, and removes older copies.
    fn copy_after(
        &mut self,
        context: &RunContext<'_>,
        one: CandidateRepeat<'_>,
        steps: usize,
        instance: &Instance,
    ) -> Result<(), RunError> {
        let data = one.data(context);
        if !one.benchmark.copies || !data.can_be_copied() || !data.outlives_session() {
            return Ok(());
        }
        let name = &one.candidate.name;
        self.recorder.stage(format!("copying the data of {name}"));
        let unfinished = context.data_location(one.candidate, &format!(".copying-{name}"));
        let copy = one.copy(context, steps);
        unfinished.remove()?;
        copy.remove()?;
        let copied = instance.copy_live(&unfinished).and_then(|()| unfinished.move_to(&copy));
        if let Err(error) = copied {
            // The run continues: the copy only saves time after an interruption.
            unfinished.remove()?;
            self.recorder.stage(format!(
                "{name} has no copy of its data to resume from after an interruption: {error}"
            ));
        }
        for older in 0..steps {
            one.copy(context, older).remove()?;
        }
        Ok(())
    }
}

/// What earlier sessions stored of one candidate in one repeat.
struct StoredSteps {
    done: usize,
    /// Whether another step was started.
    is_broken_off: bool,
    /// Rows that the complete steps left in the tables.
    rows: i128,
}

impl StoredSteps {
    fn of(one: CandidateRepeat<'_>, all: &[InsertStepRecord]) -> Self {
        let is_own = |row: &&InsertStepRecord| {
            (row.repeat, row.candidate) == (one.repeat, one.number as u32)
        };
        let stored: Vec<&InsertStepRecord> = all.iter().filter(is_own).collect();
        let done = stored.iter().take_while(|row| row.measured.is_some()).count();
        Self {
            done,
            is_broken_off: stored.len() > done,
            rows: stored.iter().filter_map(|row| row.measured.as_ref()).map(growth).sum(),
        }
    }

    /// Whether the next step can continue with the data as it is.
    fn is_between_steps(&self, one: CandidateRepeat<'_>) -> bool {
        (1..one.plan().steps.len()).contains(&self.done) && !self.is_broken_off
    }
}

/// The number of rows by which a step increased the tables.
fn growth(measured: &StepMeasured) -> i128 {
    i128::from(measured.inserts.rows) - i128::from(measured.deletes.rows)
}

/// Whether the rows are counted after a step of this name; they are after the last step, too.
fn are_rows_counted_after(step: &str) -> bool {
    step == "settle"
}

/// The time of the state snapshot after a step.
fn after_step(step: &str, repeat: u32) -> String {
    format!("after {step}, repeat {}", repeat + 1)
}

/// Whether there is a state snapshot of a candidate after a step.
fn is_counted(stored: &[StateSnapshotRecord], candidate: usize, step: &str, repeat: u32) -> bool {
    let at = after_step(step, repeat);
    stored.iter().any(|one| one.candidate as usize == candidate && one.at == at)
}

#[derive(Clone, Copy)]
pub(super) struct CandidateRepeat<'a> {
    pub benchmark: &'a InsertBenchmark,
    pub repeat: u32,
    /// Position of the candidate in the repeat, from 0.
    pub position: u32,
    pub number: usize,
    pub candidate: &'a ResolvedCandidate,
}

impl CandidateRepeat<'_> {
    pub fn plan(&self) -> &Plan {
        &self.benchmark.plan
    }

    pub fn is_last_repeat(&self) -> bool {
        self.repeat + 1 == self.benchmark.repeats
    }

    /// The location of its data: one per repeat, so that a resumed repeat does not continue with
    /// the data of another. That of the last repeat may be kept, under the candidate's name.
    pub fn data(&self, context: &RunContext<'_>) -> DataLocation {
        let name = &self.candidate.name;
        if self.is_last_repeat() {
            return context.data_location(self.candidate, name);
        }
        context.data_location(self.candidate, &format!(".repeat-{}-of-{name}", self.repeat))
    }

    /// The location of the copy that was made after `steps` steps.
    pub fn copy(&self, context: &RunContext<'_>, steps: usize) -> DataLocation {
        let Self { candidate, repeat, .. } = self;
        let name = format!(".after-{steps}-of-{repeat}-{}", candidate.name);
        context.data_location(candidate, &name)
    }

    /// Removes its data and all copies.
    pub fn remove(&self, context: &RunContext<'_>) -> Result<(), RunError> {
        for steps in 0..=self.plan().steps.len() {
            self.copy(context, steps).remove()?;
        }
        self.data(context).remove()
    }
}

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

#[cfg(test)]
mod tests {
    use dbdyno_types::StateSnapshot;
    use dbdyno_units::Bytes;

    use super::*;

    #[test]
    fn rows_are_counted_again_without_a_snapshot_of_the_same_step() {
        let state_snapshot = StateSnapshot { rows: 1, data_size: Bytes::default(), state: vec![] };
        let stored = [StateSnapshotRecord {
            candidate: 1,
            at: "after settle, repeat 2".to_owned(),
            state_snapshot,
        }];
        assert!(is_counted(&stored, 1, "settle", 1));
        assert!(!is_counted(&stored, 0, "settle", 1), "another candidate");
        assert!(!is_counted(&stored, 1, "settle", 0), "another repeat");
        assert!(!is_counted(&stored, 1, "q100", 1), "another step");
    }
}
