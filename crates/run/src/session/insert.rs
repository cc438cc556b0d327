//! The insert benchmark: candidates one after another, each alone from its first step to its last.
//!
//! Never at once and never in turns: what an engine owes after a step, such as compaction and
//! write-back, it would pay while others run.

use dbdyno_bench::protocol::InsertStep;
use dbdyno_bench::schedule::repeat_order;
use dbdyno_bench::worker::WorkerError;
use dbdyno_engines::server::initialise;
use dbdyno_record::insert::StepMeasured;
use dbdyno_results::{
    FailureKind, FailureRecord, InsertPlanRecord, InsertStepRecord, InsertStepRow, ResultsError,
    StartedFrom, StateSnapshotRecord,
};
use dbdyno_spec::experiment::{Experiment, InsertBenchmark};
use dbdyno_units::Share;
use dbdyno_workloads::insert::{Plan, Task};

use super::Session;
use crate::candidates::{Deployment, ResolvedCandidate};
use crate::data_location::DataLocation;
use crate::error::RunError;
use crate::instances::{Instance, RunContext};
use crate::progress::{InsertPlace, Outcome, RunEvent};

/// A step that inserts less than this share of its rate did not sustain it: the published limit.
const SUSTAINED: Share = Share::from_fraction(0.95);

/// What a report wants to know of the plan.
pub(super) fn plan_record(experiment: &Experiment) -> Option<InsertPlanRecord> {
    let InsertBenchmark { plan, repeats, stall, .. } = experiment.insert_benchmark.as_ref()?;
    let steps = plan.steps.iter().map(|step| InsertStepRecord {
        name: step.name.clone(),
        what: step.task.describe(plan.delete_per_insert && deletes(&step.task)),
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

/// Whether old rows may be deleted in a step: only once there are indexes.
const fn deletes(task: &Task) -> bool {
    match task {
        Task::Insert(inserts) => inserts.indexed,
        Task::Mix(_) => true,
        Task::Index | Task::Settle => false,
    }
}

/// Whether all steps of all candidates in all repeats are done.
pub(super) fn is_done(experiment: &Experiment, steps: &[InsertStepRow]) -> bool {
    experiment.insert_benchmark.as_ref().is_none_or(|benchmark| {
        let candidates = experiment.candidates.len() + usize::from(experiment.control);
        let of_repeat = candidates * benchmark.plan.steps.len();
        let done = steps.iter().filter(|step| step.measured.is_some()).count();
        done >= of_repeat * benchmark.repeats as usize
    })
}

/// One candidate in one repeat.
#[derive(Clone, Copy)]
struct Turn<'a> {
    benchmark: &'a InsertBenchmark,
    repeat: u32,
    place: u32,
    number: u32,
    candidate: &'a ResolvedCandidate,
}

impl Turn<'_> {
    fn plan(&self) -> &Plan {
        &self.benchmark.plan
    }

    /// Where the copy is that was made after so many steps.
    fn copy(&self, context: &RunContext<'_>, steps: usize) -> DataLocation {
        let name = &self.candidate.name;
        context.home(self.candidate, &format!(".after-{steps}-of-{}-{name}", self.repeat))
    }

    /// Each repeat has a home of its own: a resumed one must not go on with another's data. The last
    /// one's may be kept, under the candidate's name.
    fn home(&self, context: &RunContext<'_>) -> DataLocation {
        let name = &self.candidate.name;
        if self.repeat + 1 == self.benchmark.repeats {
            return context.home(self.candidate, name);
        }
        context.home(self.candidate, &format!(".repeat-{}-of-{name}", self.repeat))
    }

    /// Removes its data with all copies.
    fn remove(&self, context: &RunContext<'_>) -> Result<(), RunError> {
        for steps in 0..=self.plan().steps.len() {
            self.copy(context, steps).remove()?;
        }
        self.home(context).remove()
    }
}

/// How a turn went.
enum Went {
    /// To its end.
    Through,
    /// The candidate failed; the others go on.
    Failed,
    /// The user stopped it.
    Interrupted,
}

/// Why a step was not run to its end.
enum StepError {
    Worker(WorkerError),
    Run(RunError),
}

impl From<WorkerError> for StepError {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

impl From<ResultsError> for StepError {
    fn from(error: ResultsError) -> Self {
        Self::Run(error.into())
    }
}

impl Session<'_> {
    /// Goes through all repeats.
    pub(super) fn run_inserts(
        &mut self,
        context: &RunContext<'_>,
        benchmark: &InsertBenchmark,
        candidates: &[ResolvedCandidate],
    ) -> Result<Outcome, RunError> {
        let mut interrupted = false;
        'all: for repeat in 0..benchmark.repeats {
            let order = repeat_order(self.experiment.seed, repeat, candidates.len());
            for (place, number) in (0..).zip(order) {
                if self.cancelled() {
                    interrupted = true;
                    break 'all;
                }
                let candidate = &candidates[number];
                let turn = Turn { benchmark, repeat, place, number: number as u32, candidate };
                match self.turn(context, turn)? {
                    Went::Through => {
                        let keeps = self.options.keep_data && repeat + 1 == benchmark.repeats;
                        if !keeps {
                            turn.remove(context)?;
                        }
                    }
                    // A copy of the step before stays, for those who repair what failed.
                    Went::Failed => turn.home(context).remove()?,
                    Went::Interrupted => {
                        interrupted = true;
                        break 'all;
                    }
                }
            }
        }
        Ok(if interrupted {
            Outcome::Interrupted
        } else {
            Outcome::Complete { failures: self.failures }
        })
    }

    /// All steps of one candidate that are not done.
    fn turn(&mut self, context: &RunContext<'_>, turn: Turn<'_>) -> Result<Went, RunError> {
        let mine: Vec<InsertStepRow> = self
            .results
            .reader()?
            .insert_steps()?
            .into_iter()
            .filter(|row| row.repeat == turn.repeat && row.candidate == turn.number)
            .collect();
        let done = mine.iter().take_while(|row| row.measured.is_some()).count();
        if done == turn.plan().steps.len() {
            return Ok(Went::Through);
        }
        let broken = mine.len() > done;
        let mut rows: i128 = mine.iter().filter_map(|row| row.measured.as_ref()).map(growth).sum();
        let mut instance = Instance::at(turn.candidate.clone(), turn.home(context));
        let (mut next, mut from) = (done, StartedFrom::Copy);
        let ready = match self.data_of(context, turn, done, broken)? {
            Data::Found => instance.open(context, 1, false),
            Data::Fresh => {
                (next, from, rows) = (0, StartedFrom::Step, 0);
                self.make(context, turn, &mut instance)?
            }
        };
        if let Err(error) = ready {
            return self.turn_failed(turn, &mut instance, "starting", error);
        }
        self.store_version(turn.number, &instance)?;
        while next < turn.plan().steps.len() {
            if self.cancelled() {
                instance.stop();
                return Ok(Went::Interrupted);
            }
            let name = turn.plan().steps[next].name.clone();
            match self.step(turn, next, from, &mut instance) {
                Ok(Some(measured)) => rows += growth(&measured),
                Ok(None) => {
                    instance.kill();
                    return Ok(Went::Interrupted);
                }
                Err(StepError::Worker(error)) => {
                    return self.turn_failed(turn, &mut instance, &name, error);
                }
                Err(StepError::Run(error)) => return Err(error),
            }
            next += 1;
            let last = next == turn.plan().steps.len();
            let counted = name == "settle" || last;
            if counted && let Err(error) = self.check_row_count(turn, &mut instance, &name, rows)? {
                return self.turn_failed(turn, &mut instance, &name, error);
            }
            if !last {
                self.copy_after(context, turn, next, &instance)?;
            }
            from = StartedFrom::Step;
        }
        if !self.options.keep_data {
            instance.remove_schema();
        }
        // Its work is done and stored; how it closes changes nothing.
        instance.stop();
        Ok(Went::Through)
    }

    /// Finds the data as it stood after the steps that are done.
    fn data_of(
        &mut self,
        context: &RunContext<'_>,
        turn: Turn<'_>,
        done: usize,
        broken: bool,
    ) -> Result<Data, RunError> {
        let progress = self.options.progress;
        let name = &turn.candidate.name;
        let (home, copy) = (turn.home(context), turn.copy(context, done));
        if done > 0 && !broken && home.can_be_copied() && home.exists() {
            progress(RunEvent::Stage(format!(
                "going on with {name} where it stopped, between steps"
            )));
            return Ok(Data::Found);
        }
        if done > 0 && home.can_be_copied() && copy.exists() {
            let step = &turn.plan().steps[done].name;
            progress(RunEvent::Stage(format!(
                "going on with {name} from a copy of its data, made before {step}"
            )));
            copy.copy_to(&home)?;
            return Ok(Data::Found);
        }
        if done > 0 || broken {
            progress(RunEvent::Stage(format!(
                "starting {name} again from its first step: there is no copy of its data"
            )));
            self.results.forget_insert_steps(turn.repeat, turn.number)?;
        }
        turn.remove(context)?;
        Ok(Data::Fresh)
    }

    /// An empty database with the tables.
    fn make(
        &mut self,
        context: &RunContext<'_>,
        turn: Turn<'_>,
        instance: &mut Instance,
    ) -> Result<Result<(), WorkerError>, RunError> {
        let home = turn.home(context);
        let progress = self.options.progress;
        progress(RunEvent::Stage(format!("making a database for {}", turn.candidate.name)));
        crate::data::check_room(context)?;
        home.make()?;
        if let (Deployment::Private(plan), DataLocation::ServerDir(place)) =
            (&turn.candidate.deployment, &home)
        {
            initialise(plan, place)?;
        }
        let mut work = || {
            if matches!(home, DataLocation::Schema) {
                // What an interrupted run left there.
                instance.open(context, 0, false)?;
                instance.worker_mut()?.remove()?;
            }
            instance.open(context, 1, true)?;
            instance.worker_mut()?.insert_tables()
        };
        Ok(work())
    }

    /// Runs one step, and stores each second of it. `None` where the user stopped it.
    fn step(
        &mut self,
        turn: Turn<'_>,
        number: usize,
        started_from: StartedFrom,
        instance: &mut Instance,
    ) -> Result<Option<StepMeasured>, StepError> {
        let Turn { repeat, place, number: candidate, .. } = turn;
        let step = &turn.plan().steps[number];
        let row = InsertStepRow {
            id: 0,
            repeat,
            place,
            candidate,
            step: number as u32,
            name: step.name.clone(),
            started_from,
            measured: None,
        };
        let id = self.results.begin_insert_step(&row)?;
        let at = InsertPlace {
            repeat,
            repeats: turn.benchmark.repeats,
            candidate: &turn.candidate.name,
            step: &step.name,
            number: number + 1,
            of: turn.plan().steps.len(),
        };
        let progress = self.options.progress;
        progress(RunEvent::InsertStep { at, task: &step.task });
        let data = instance.files();
        let results = &mut self.results;
        let cancel = &self.options.cancel;
        let order = InsertStep { step: number as u32, repeat, data };
        let measured = instance.worker_mut()?.insert_step(order, |second| {
            results.add_insert_second(id, &second)?;
            progress(RunEvent::InsertSecond { at, task: &step.task, second: &second });
            Ok::<bool, StepError>(!cancel.load(std::sync::atomic::Ordering::Relaxed))
        })?;
        let Some(measured) = measured else { return Ok(None) };
        self.results.finish_insert_step(id, &measured)?;
        self.note_time().map_err(StepError::Run)?;
        (self.options.progress)(RunEvent::InsertStepDone { at, measured: &measured });
        self.check_answers(turn, &step.name, &measured).map_err(StepError::Run)?;
        Ok(Some(measured))
    }

    /// Wrong counts beyond the share that is allowed are a failure.
    fn check_answers(
        &mut self,
        turn: Turn<'_>,
        step: &str,
        measured: &StepMeasured,
    ) -> Result<(), RunError> {
        let all = measured.inserts.count + measured.queries.count;
        let share = Share::from_fraction(measured.wrong as f64 / all.max(1) as f64);
        if share <= self.experiment.checks.max_error_share {
            return Ok(());
        }
        let what = measured.first_complaint.as_deref().unwrap_or("wrong counts");
        let reason = format!("{} of {all} statements answered wrongly: {what}", measured.wrong);
        self.wrong(turn, step, reason)
    }

    fn wrong(&mut self, turn: Turn<'_>, at: &str, reason: String) -> Result<(), RunError> {
        let name = &turn.candidate.name;
        (self.options.progress)(RunEvent::Failure { candidate: name, at, reason: &reason });
        self.failures += 1;
        Ok(self.results.add_failure(&FailureRecord {
            kind: FailureKind::Wrong,
            recovered: false,
            candidate: turn.number,
            microbenchmark: None,
            at: format!("{at}, repeat {}", turn.repeat + 1),
            reason,
        })?)
    }

    /// Stores where the instance stands; it must have all rows that were inserted and not deleted.
    fn check_row_count(
        &mut self,
        turn: Turn<'_>,
        instance: &mut Instance,
        step: &str,
        rows: i128,
    ) -> Result<Result<(), WorkerError>, RunError> {
        let progress = self.options.progress;
        progress(RunEvent::Stage(format!("counting the rows of {}", turn.candidate.name)));
        let state_snapshot = match instance.worker_mut().and_then(|worker| worker.state_snapshot())
        {
            Ok(state_snapshot) => state_snapshot,
            Err(error) => return Ok(Err(error)),
        };
        let found = state_snapshot.rows;
        let at = format!("after {step}, repeat {}", turn.repeat + 1);
        let candidate = turn.number;
        self.results.add_state_snapshot(&StateSnapshotRecord { candidate, at, state_snapshot })?;
        if i128::from(found) != rows {
            let reason =
                format!("its tables have {found} rows, and {rows} were inserted and not deleted");
            self.wrong(turn, step, reason)?;
        }
        Ok(Ok(()))
    }

    /// Keeps a copy of the data as it stands after a step, in place of the one before.
    fn copy_after(
        &mut self,
        context: &RunContext<'_>,
        turn: Turn<'_>,
        steps: usize,
        instance: &Instance,
    ) -> Result<(), RunError> {
        if !turn.benchmark.copies || !turn.home(context).can_be_copied() {
            return Ok(());
        }
        let progress = self.options.progress;
        let name = &turn.candidate.name;
        progress(RunEvent::Stage(format!("keeping a copy of {name}'s data")));
        let unfinished = context.home(turn.candidate, &format!(".copying-{name}"));
        let copy = turn.copy(context, steps);
        unfinished.remove()?;
        copy.remove()?;
        let copied = instance.copy_live(&unfinished).and_then(|()| unfinished.move_to(&copy));
        if let Err(error) = copied {
            // The run can go on without: only an interruption would cost more.
            unfinished.remove()?;
            progress(RunEvent::Stage(format!(
                "there is no copy of {name}'s data to go on from after an interruption: {error}"
            )));
        }
        for older in 0..steps {
            turn.copy(context, older).remove()?;
        }
        Ok(())
    }

    fn store_version(&mut self, number: u32, instance: &Instance) -> Result<(), RunError> {
        let record = self.results.reader()?.candidates()?.into_iter().nth(number as usize);
        let (Some(mut record), Some(version)) = (record, instance.version()) else {
            return Ok(());
        };
        if record.version.is_empty() {
            version.clone_into(&mut record.version);
            self.results.update_candidate(number, &record)?;
        }
        Ok(())
    }

    fn turn_failed(
        &mut self,
        turn: Turn<'_>,
        instance: &mut Instance,
        at: &str,
        error: WorkerError,
    ) -> Result<Went, RunError> {
        let reason = instance.why(error).to_string();
        instance.kill();
        let at = format!("{at}, repeat {}", turn.repeat + 1);
        self.fail(turn.number, &turn.candidate.name, &at, reason)?;
        Ok(Went::Failed)
    }
}

/// Where a turn's data comes from.
enum Data {
    Found,
    Fresh,
}

/// By how many rows a step made the tables grow.
fn growth(measured: &StepMeasured) -> i128 {
    i128::from(measured.inserts.rows) - i128::from(measured.deletes.rows)
}
