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
    CertificateRecord, FailureKind, FailureRecord, InsertPlanRecord, InsertStepRecord,
    InsertStepRow, ResultsError, StartedFrom,
};
use dbdyno_spec::experiment::{Experiment, InsertBenchmark};
use dbdyno_units::Share;
use dbdyno_workloads::insert::{Plan, Task};

use super::Session;
use crate::candidates::{Contender, Subject};
use crate::error::RunError;
use crate::homes::Home;
use crate::instances::{Instance, Site};
use crate::progress::{Event, InsertPlace, Outcome};

/// A step that inserts less than this share of its rate did not sustain it: the published limit.
const SUSTAINED: Share = Share::from_fraction(0.95);

/// What a report wants to know of the plan.
pub(super) fn plan_record(experiment: &Experiment) -> Option<InsertPlanRecord> {
    let InsertBenchmark { plan, repeats, stall, .. } = experiment.insert_benchmark.as_ref()?;
    let steps = plan.steps.iter().map(|step| InsertStepRecord {
        name: step.name.clone(),
        what: step.task.describe(plan.delete_per_insert && deletes(&step.task)),
        asks: matches!(step.task, Task::Mix(_)),
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
    candidate: u32,
    contender: &'a Contender,
}

impl Turn<'_> {
    fn plan(&self) -> &Plan {
        &self.benchmark.plan
    }

    /// Where the copy is that was made after so many steps.
    fn copy(&self, site: &Site<'_>, steps: usize) -> Home {
        let name = &self.contender.name;
        site.home(self.contender, &format!(".after-{steps}-of-{}-{name}", self.repeat))
    }

    /// Each repeat has a home of its own: a resumed one must not go on with another's data. The last
    /// one's may be kept, under the candidate's name.
    fn home(&self, site: &Site<'_>) -> Home {
        let name = &self.contender.name;
        if self.repeat + 1 == self.benchmark.repeats {
            return site.home(self.contender, name);
        }
        site.home(self.contender, &format!(".repeat-{}-of-{name}", self.repeat))
    }

    /// Removes its data with all copies.
    fn remove(&self, site: &Site<'_>) -> Result<(), RunError> {
        for steps in 0..=self.plan().steps.len() {
            self.copy(site, steps).remove()?;
        }
        self.home(site).remove()
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
        site: &Site<'_>,
        benchmark: &InsertBenchmark,
        contenders: &[Contender],
    ) -> Result<Outcome, RunError> {
        let mut interrupted = false;
        'all: for repeat in 0..benchmark.repeats {
            let order = repeat_order(self.experiment.seed, repeat, contenders.len());
            for (place, number) in (0..).zip(order) {
                if self.cancelled() {
                    interrupted = true;
                    break 'all;
                }
                let contender = &contenders[number];
                let turn = Turn { benchmark, repeat, place, candidate: number as u32, contender };
                match self.turn(site, turn)? {
                    Went::Through => {
                        let keeps = self.options.keep_data && repeat + 1 == benchmark.repeats;
                        if !keeps {
                            turn.remove(site)?;
                        }
                    }
                    // A copy of the step before stays, for those who repair what failed.
                    Went::Failed => turn.home(site).remove()?,
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
    fn turn(&mut self, site: &Site<'_>, turn: Turn<'_>) -> Result<Went, RunError> {
        let mine: Vec<InsertStepRow> = self
            .results
            .reader()?
            .insert_steps()?
            .into_iter()
            .filter(|row| row.repeat == turn.repeat && row.candidate == turn.candidate)
            .collect();
        let done = mine.iter().take_while(|row| row.measured.is_some()).count();
        if done == turn.plan().steps.len() {
            return Ok(Went::Through);
        }
        let broken = mine.len() > done;
        let mut rows: i128 = mine.iter().filter_map(|row| row.measured.as_ref()).map(growth).sum();
        let mut instance = Instance::at(turn.contender.clone(), turn.home(site));
        let (mut next, mut from) = (done, StartedFrom::Copy);
        let ready = match self.data_of(site, turn, done, broken)? {
            Data::Found => instance.open(site, 1, false),
            Data::Fresh => {
                (next, from, rows) = (0, StartedFrom::Step, 0);
                self.make(site, turn, &mut instance)?
            }
        };
        if let Err(error) = ready {
            return self.turn_failed(turn, &mut instance, "starting", error);
        }
        self.store_version(turn.candidate, &instance)?;
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
            if counted && let Err(error) = self.certify_rows(turn, &mut instance, &name, rows)? {
                return self.turn_failed(turn, &mut instance, &name, error);
            }
            if !last {
                self.copy_after(site, turn, next, &instance)?;
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
        site: &Site<'_>,
        turn: Turn<'_>,
        done: usize,
        broken: bool,
    ) -> Result<Data, RunError> {
        let progress = self.options.progress;
        let name = &turn.contender.name;
        let (home, copy) = (turn.home(site), turn.copy(site, done));
        if done > 0 && !broken && home.can_be_copied() && home.exists() {
            progress(Event::Stage(format!("going on with {name} where it stopped, between steps")));
            return Ok(Data::Found);
        }
        if done > 0 && home.can_be_copied() && copy.exists() {
            let step = &turn.plan().steps[done].name;
            progress(Event::Stage(format!(
                "going on with {name} from a copy of its data, made before {step}"
            )));
            copy.copy_to(&home)?;
            return Ok(Data::Found);
        }
        if done > 0 || broken {
            progress(Event::Stage(format!(
                "starting {name} again from its first step: there is no copy of its data"
            )));
            self.results.forget_insert_steps(turn.repeat, turn.candidate)?;
        }
        turn.remove(site)?;
        Ok(Data::Fresh)
    }

    /// An empty database with the tables.
    fn make(
        &mut self,
        site: &Site<'_>,
        turn: Turn<'_>,
        instance: &mut Instance,
    ) -> Result<Result<(), WorkerError>, RunError> {
        let home = turn.home(site);
        let progress = self.options.progress;
        progress(Event::Stage(format!("making a database for {}", turn.contender.name)));
        crate::data::check_room(site)?;
        home.make()?;
        if let (Subject::Private(plan), Home::ServerDir(server_dir)) =
            (&turn.contender.subject, &home)
        {
            initialise(plan, server_dir)?;
        }
        let mut work = || {
            if matches!(home, Home::Schema) {
                // What an interrupted run left there.
                instance.open(site, 0, false)?;
                instance.worker_mut()?.remove()?;
            }
            instance.open(site, 1, true)?;
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
        let Turn { repeat, place, candidate, .. } = turn;
        let step = &turn.plan().steps[number];
        let place = InsertStepRow {
            id: 0,
            repeat,
            place,
            candidate,
            step: number as u32,
            name: step.name.clone(),
            started_from,
            measured: None,
        };
        let id = self.results.begin_insert_step(&place)?;
        let at = InsertPlace {
            repeat,
            repeats: turn.benchmark.repeats,
            candidate: &turn.contender.name,
            step: &step.name,
            number: number + 1,
            of: turn.plan().steps.len(),
        };
        let progress = self.options.progress;
        progress(Event::InsertStep { at, task: &step.task });
        let data = instance.files();
        let results = &mut self.results;
        let cancel = &self.options.cancel;
        let order = InsertStep { step: number as u32, repeat, data };
        let measured = instance.worker_mut()?.insert_step(order, |second| {
            results.add_insert_second(id, &second)?;
            progress(Event::InsertSecond { at, task: &step.task, second: &second });
            Ok::<bool, StepError>(!cancel.load(std::sync::atomic::Ordering::Relaxed))
        })?;
        let Some(measured) = measured else { return Ok(None) };
        self.results.finish_insert_step(id, &measured)?;
        self.note_time().map_err(StepError::Run)?;
        (self.options.progress)(Event::InsertStepDone { at, measured: &measured });
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
        let name = &turn.contender.name;
        (self.options.progress)(Event::Failure { candidate: name, at, reason: &reason });
        self.failures += 1;
        Ok(self.results.add_failure(&FailureRecord {
            kind: FailureKind::Wrong,
            recovered: false,
            candidate: turn.candidate,
            microbenchmark: None,
            at: format!("{at}, repeat {}", turn.repeat + 1),
            reason,
        })?)
    }

    /// Stores where the instance stands; it must have all rows that were inserted and not deleted.
    fn certify_rows(
        &mut self,
        turn: Turn<'_>,
        instance: &mut Instance,
        step: &str,
        rows: i128,
    ) -> Result<Result<(), WorkerError>, RunError> {
        let progress = self.options.progress;
        progress(Event::Stage(format!("counting the rows of {}", turn.contender.name)));
        let certificate = match instance.worker_mut().and_then(|worker| worker.certify()) {
            Ok(certificate) => certificate,
            Err(error) => return Ok(Err(error)),
        };
        let found = certificate.rows;
        let at = format!("after {step}, repeat {}", turn.repeat + 1);
        let candidate = turn.candidate;
        self.results.add_certificate(&CertificateRecord { candidate, at, certificate })?;
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
        site: &Site<'_>,
        turn: Turn<'_>,
        steps: usize,
        instance: &Instance,
    ) -> Result<(), RunError> {
        if !turn.benchmark.copies || !turn.home(site).can_be_copied() {
            return Ok(());
        }
        let progress = self.options.progress;
        let name = &turn.contender.name;
        progress(Event::Stage(format!("keeping a copy of {name}'s data")));
        let unfinished = site.home(turn.contender, &format!(".copying-{name}"));
        let copy = turn.copy(site, steps);
        unfinished.remove()?;
        copy.remove()?;
        let copied = instance.copy_live(&unfinished).and_then(|()| unfinished.move_to(&copy));
        if let Err(error) = copied {
            // The run can go on without: only an interruption would cost more.
            unfinished.remove()?;
            progress(Event::Stage(format!(
                "there is no copy of {name}'s data to go on from after an interruption: {error}"
            )));
        }
        for older in 0..steps {
            turn.copy(site, older).remove()?;
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
        self.fail(turn.candidate, &turn.contender.name, &at, reason)?;
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
