//! The microbenchmarks of a run, in running order.

use dbdyno_bench::schedule::start_order;
use dbdyno_bench::worker::WorkerError;
use dbdyno_machine::IdlePreventer;
use dbdyno_results::StateSnapshotRecord;
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Nanos;
use dbdyno_workloads::definition::Stage;

use super::Session;
use crate::cases::{
    MicrobenchmarkCase, cases, instance_count, interleaved_sets, shrinks_repeatedly,
};
use crate::context::RunContext;
use crate::error::RunError;
use crate::instance::{Instance, in_order, running};
use crate::live_plan::training_case;
use crate::live_training::LiveTraining;
use crate::microbenchmark::{MicrobenchmarkRun, NumberedCase};
use crate::progress::{InterimEstimate, RunEvent};
use crate::recorder::{Completion, Phase};
use crate::resolved_candidate::ResolvedCandidate;
use crate::statement_check;
use crate::timing::{block_range, block_time, slice_length};

impl Session<'_> {
    /// Starts the instances and measures all microbenchmarks that are not done.
    pub(super) fn run_microbenchmarks(
        &mut self,
        context: &RunContext<'_>,
        candidates: Vec<ResolvedCandidate>,
    ) -> Result<Completion, RunError> {
        let _idle_preventer = IdlePreventer::start(&self.idle_prevention)?;
        self.recorder.stage("starting the instances");
        let mut instances: Vec<Instance> =
            candidates.into_iter().map(|candidate| Instance::new(context, candidate)).collect();
        let order = start_order(self.experiment.seed, None, 0, instances.len());
        let all = in_order(&mut instances, &order);
        self.recorder
            .each(all, &Phase::of_session("starting"), |_, instance| instance.start(context))?;
        for (number, instance) in instances.iter().enumerate() {
            self.store_version(number, instance)?;
        }
        self.check_statements(&mut instances)?;
        self.record.counting = instances.iter().map(|one| one.counting().cloned()).collect();
        self.recorder.results.update_session(&self.record)?;
        self.store_state_snapshots(&mut instances, "at the start of the session")?;
        if self.measure_all(context, &mut instances)? == Completion::Interrupted {
            return Ok(Completion::Interrupted);
        }
        self.store_state_snapshots(&mut instances, "after the last microbenchmark")?;
        // Everything is stored: errors on shutdown do not matter.
        instances.iter_mut().for_each(Instance::stop);
        Ok(Completion::Complete)
    }

    /// Prepares all statements on every running instance, unless something was measured already.
    fn check_statements(&mut self, instances: &mut [Instance]) -> Result<(), RunError> {
        if self.state.has_measured() {
            return Ok(());
        }
        let mut problems = Vec::new();
        let experiment = self.experiment;
        self.each(instances, "preparing all statements", |instance| {
            problems.extend(statement_check::problems(experiment, instance)?);
            Ok(())
        })?;
        if problems.is_empty() { Ok(()) } else { Err(RunError::Statements(problems)) }
    }

    fn measure_all(
        &mut self,
        context: &RunContext<'_>,
        instances: &mut [Instance],
    ) -> Result<Completion, RunError> {
        let all = cases(self.experiment);
        let mut settled = true;
        for set in interleaved_sets(self.experiment, &all) {
            let cases: Vec<NumberedCase<'_>> = (set.start as u32..)
                .zip(&all[set.clone()])
                .map(|(id, case)| NumberedCase { id, case })
                .filter(|one| !self.state.done[one.id as usize])
                .collect();
            let Some(NumberedCase { id: first, case }) = cases.first().copied() else { continue };
            let writes = case.microbenchmark.writes();
            let reads_after_writes =
                !settled && case.microbenchmark.stage >= Stage::Post && !writes;
            if writes || reads_after_writes {
                self.settle(instances, reads_after_writes)?;
            }
            if reads_after_writes {
                self.store_state_snapshots(instances, "after the writes")?;
            }
            settled = (settled || reads_after_writes) && !writes;
            let keeps_copy = self.keeps_copy(case);
            if keeps_copy {
                self.each(instances, "copying its data", |instance| instance.keep_copy(context))?;
            }
            let (number, of) = (first as usize + 1, all.len());
            let name = &title(self.experiment, &cases);
            tracing::info!(number, of, name, "measuring a microbenchmark");
            self.recorder.report(RunEvent::Microbenchmark { number, of, name });
            let time_after = self.time_after(&all, set.end);
            let training = training_case(self.experiment, first as usize);
            let live_training = training.map(|id| LiveTraining {
                context,
                case: all[id as usize].clone(),
                id,
                before: first,
            });
            let run = MicrobenchmarkRun { context, cases: &cases, live_training, time_after };
            let completion = run.run(instances, &mut self.state.histories, &mut self.recorder)?;
            if keeps_copy {
                self.each(instances, "restoring its data", |instance| {
                    instance.restore_copy(context)
                })?;
            }
            if completion == Completion::Interrupted {
                return Ok(Completion::Interrupted);
            }
            for NumberedCase { id, case } in &cases {
                self.recorder.results.set_done(*id)?;
                self.state.done[*id as usize] = true;
                self.report_done(instances, (*id as usize + 1, of), case, time_after);
            }
            self.store_elapsed()?;
        }
        Ok(Completion::Complete)
    }

    fn report_done(
        &self,
        instances: &[Instance],
        (number, of): (usize, usize),
        case: &MicrobenchmarkCase,
        time_left: Nanos,
    ) {
        let name = &case.title(self.experiment);
        let rule = &self.state.histories[number - 1].rule;
        tracing::info!(name, blocks = rule.blocks(), "completed a microbenchmark");
        let mut estimates = Vec::new();
        for (number, instance) in (0..).zip(instances).skip(1) {
            let candidate = &instance.candidate.name;
            estimates.push(InterimEstimate { candidate, estimate: rule.estimate(number) });
        }
        self.recorder.report(RunEvent::MicrobenchmarkDone {
            number,
            of,
            name,
            blocks: rule.blocks(),
            estimates: &estimates,
            time_left,
        });
    }

    /// Whether instances keep a copy of their data before a case, to restore it for each restart
    /// and each number of clients.
    pub(super) fn keeps_copy(&self, case: &MicrobenchmarkCase) -> bool {
        case.microbenchmark.shrinks_tables() && shrinks_repeatedly(self.experiment)
    }

    /// Writes pending changes back on all instances.
    fn settle(&mut self, instances: &mut [Instance], warm: bool) -> Result<(), RunError> {
        self.each(instances, "settling", |instance| {
            let worker = instance.worker_mut()?;
            worker.free_statements()?;
            worker.settle()?;
            if warm { worker.warm() } else { Ok(()) }
        })
    }

    /// Stores the state of every running instance.
    fn store_state_snapshots(
        &mut self,
        instances: &mut [Instance],
        at: &str,
    ) -> Result<(), RunError> {
        let mut records = Vec::new();
        let phase = Phase::of_session("reading the state");
        self.recorder.each(running(instances), &phase, |number, instance| {
            let state_snapshot = instance.worker_mut()?.state_snapshot()?;
            let (candidate, at) = (number as u32, at.to_owned());
            records.push(StateSnapshotRecord { candidate, at, state_snapshot });
            Ok(())
        })?;
        for record in &records {
            self.recorder.results.add_state_snapshot(record)?;
        }
        Ok(())
    }

    /// Runs `work` on every running instance.
    fn each(
        &mut self,
        instances: &mut [Instance],
        doing: &str,
        mut work: impl FnMut(&mut Instance) -> Result<(), WorkerError>,
    ) -> Result<(), RunError> {
        let phase = Phase::of_session(doing);
        self.recorder.each(running(instances), &phase, |_, instance| work(instance))
    }

    /// Maximum time of the cases from this one on.
    fn time_after(&self, all: &[MicrobenchmarkCase], next: usize) -> Nanos {
        let schedule = &self.experiment.schedule;
        let instances = instance_count(self.experiment) as u64;
        let left = (next..all.len()).filter(|index| !self.state.done[*index]);
        left.map(|index| {
            if let Some(left) = self.state.histories[index].rule.time_left_of_extension() {
                return left;
            }
            let case = &all[index];
            let slice = slice_length(schedule, &case.microbenchmark);
            let (_, most) = block_range(schedule, slice);
            block_time(schedule, slice, most, instances)
        })
        .sum()
    }
}

/// The title of cases that are measured together: `NAME, 1, 4 and 16 clients`.
fn title(experiment: &Experiment, cases: &[NumberedCase<'_>]) -> String {
    let (Some(first), Some(last)) = (cases.first(), cases.last()) else { return String::new() };
    let numbers: Vec<String> =
        cases[..cases.len() - 1].iter().map(|one| one.case.clients.to_string()).collect();
    if numbers.is_empty() {
        return first.case.title(experiment);
    }
    let name = &first.case.microbenchmark.name;
    format!("{name}, {} and {} clients", numbers.join(", "), last.case.clients)
}
