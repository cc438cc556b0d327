//! One microbenchmark: the restarts of the instances, and the blocks of each: run a slice, store it,
//! check answers, decide whether to stop.
//!
//! With several numbers of clients, a round has one block of each, in random order, so that drift of
//! the machine affects all of them. All blocks of a round have the same number.

pub(crate) mod checks;
mod instructions;
pub(crate) mod profile;
pub(crate) mod slice_history;
mod waits;

use dbdyno_engines::server::says_disk_full;
use dbdyno_machine::clock;
use dbdyno_results::{FailureKind, Role};
use dbdyno_spec::experiment::Pace;
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::{Prepare, lead_in_time};
use dbdyno_worker::schedule::{
    BASELINE, BlockPlan, Schedule, ScheduledSlice, clients_order, start_order,
};

use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::{Instance, KeptCopy, SliceError, in_order, running};
use crate::measure::checks::{AnswerCheck, Difference};
use crate::measure::slice_history::{BlockTimes, SliceHistory};
use crate::plan::cases::{MicrobenchmarkCase, instance_count, plain_blocks, slice_length};
use crate::plan::elapsed::{CaseLeft, TimeRange, times};
use crate::record::{Phase, Recorder};
use crate::session::progress::{InterimEstimate, RunEvent};
use crate::training::live::LiveTraining;

/// Blocks of a microbenchmark in which the engines' own counters are read.
const COUNTED_BLOCKS: u32 = 12;

/// A case with its position in the running order.
#[derive(Clone, Copy)]
pub(crate) struct NumberedCase<'a> {
    pub id: u32,
    pub case: &'a MicrobenchmarkCase,
}

pub(crate) struct MicrobenchmarkRun<'a> {
    pub context: &'a RunContext<'a>,
    /// At least one. Several differ only in the number of clients and are interleaved.
    pub cases: &'a [NumberedCase<'a>],
    /// Training of the live optimizer; `None` if no candidate uses it.
    pub live_training: Option<LiveTraining<'a>>,
    /// The cases that need more starts.
    left: Vec<NumberedCase<'a>>,
    answers: AnswerCheck,
    /// Instances whose servers refuse its script: they continue with the next microbenchmark.
    left_out: Vec<usize>,
}

impl<'a> MicrobenchmarkRun<'a> {
    pub fn new(
        context: &'a RunContext<'a>,
        cases: &'a [NumberedCase<'a>],
        live_training: Option<LiveTraining<'a>>,
        instances: &[Instance],
    ) -> Self {
        let control = instances.iter().position(|one| one.candidate.role == Role::Control);
        let microbenchmark = &cases[0].case.microbenchmark;
        let answers = AnswerCheck::new(microbenchmark, of_other_systems(instances), control);
        Self { context, cases, live_training, left: cases.to_vec(), answers, left_out: Vec::new() }
    }

    /// Whether it has enough starts.
    pub const fn is_complete(&self) -> bool {
        self.left.is_empty()
    }

    /// The number of complete starts of the case that has fewest.
    pub fn complete_starts(&self, histories: &[SliceHistory]) -> u32 {
        let starts = |one: &NumberedCase<'_>| histories[one.id as usize].rule.complete_starts();
        self.left.iter().map(starts).min().unwrap_or_default()
    }

    /// The number of its next start.
    pub fn next_start(&self, histories: &[SliceHistory]) -> u32 {
        let next = self.cases.iter().map(|one| histories[one.id as usize].next_restart);
        next.max().unwrap_or_default()
    }

    /// Measures with the instances as they were started, until there are enough blocks for this start,
    /// or until the user stops it. `time_after` is the time of everything but the blocks of these cases.
    pub fn measure_start(
        &mut self,
        time_after: TimeRange,
        instances: &mut [Instance],
        histories: &mut [SliceHistory],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let restart = self.next_start(histories);
        if let Some(training) = &self.live_training
            && training.is_needed(instances)
        {
            let history = &mut histories[training.id as usize];
            training.run(instances, history, recorder)?;
        }
        self.prepare(instances, recorder)?;
        self.store_plans(restart, instances, recorder)?;
        // A restart may have restored data from before a loss.
        let diverged = (0..instances.len()).filter(|number| instances[*number].has_diverged);
        self.answers.diverged = diverged.collect();
        let cases = self.left.clone();
        let measured = Blocks {
            run: &mut *self,
            cases: &cases,
            restart,
            histories: &mut *histories,
            recorder: &mut *recorder,
            time_after,
        }
        .run(instances);
        self.store_reoptimizations(instances, recorder)?;
        measured?;
        self.profile(restart, instances, recorder)?;
        let schedule = &self.context.experiment.schedule;
        let compared = compared(instances, &self.left_out);
        self.left.retain(|one| {
            let rule = &mut histories[one.id as usize].rule;
            rule.end_restart();
            !rule.has_enough_restarts(schedule, &compared)
        });
        Ok(())
    }

    /// Checks the shares of errors in a complete microbenchmark.
    pub fn check(
        &self,
        instances: &[Instance],
        histories: &[SliceHistory],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let allowed = self.context.experiment.checks.max_error_share;
        for case in self.cases {
            let errors = &histories[case.id as usize].errors;
            for (number, (instance, errors)) in instances.iter().zip(errors).enumerate() {
                if let Some(reason) = errors.beyond(allowed) {
                    let failure = self.measuring(*case).failure(FailureKind::Wrong, number, reason);
                    recorder.fail(&instance.candidate.name, &failure)?;
                }
            }
        }
        Ok(())
    }

    /// The first case, which stands for all where the number of clients does not matter.
    pub const fn first(&self) -> NumberedCase<'a> {
        self.cases[0]
    }

    /// A phase of the first case that needs more starts.
    pub fn phase(&self, doing: &str) -> Phase {
        let NumberedCase { id, case } = self.left.first().copied().unwrap_or(self.first());
        let at = format!("{} ({doing})", case.microbenchmark.name);
        Phase { at, microbenchmark: Some(id) }
    }

    fn measuring(&self, NumberedCase { id, case }: NumberedCase<'_>) -> Phase {
        Phase { at: case.microbenchmark.name.clone(), microbenchmark: Some(id) }
    }

    /// Prepares the most clients; each slice then uses the first of them.
    fn prepare_request(&self) -> Prepare {
        let NumberedCase { id, case } = self.first();
        let clients = self.cases.iter().map(|one| one.case.clients).max();
        Prepare {
            microbenchmark: case.microbenchmark.clone(),
            position: id,
            clients: clients.unwrap_or(case.clients),
        }
    }

    fn prepare(
        &mut self,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let request = self.prepare_request();
        let phase = self.phase("preparing statements");
        for (number, instance) in running(instances) {
            if self.left_out.contains(&number) {
                continue;
            }
            let prepared = instance.worker_mut().and_then(|worker| worker.prepare(request.clone()));
            if let Err(error) = prepared {
                self.fail(number, instance, &phase, &error, recorder)?;
            }
        }
        Ok(())
    }

    /// Stores how the instances execute the statements. A server that does not explain them is measured all the same.
    fn store_plans(
        &self,
        restart: u32,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let NumberedCase { id, case } = self.first();
        if case.microbenchmark.script.is_some() {
            return Ok(());
        }
        for (number, instance) in running(instances) {
            let plans = instance.worker_mut().and_then(|worker| worker.plans(&case.microbenchmark));
            if let Ok(plans) = plans {
                recorder.results.set_plans((id, number as u32, restart), &plans)?;
            }
        }
        Ok(())
    }

    /// Stores the failure of an instance and stops it, unless its server only refused the script, as other systems do
    /// that speak other SQL: then it is left out of this microbenchmark.
    fn fail(
        &mut self,
        number: usize,
        instance: &mut Instance,
        phase: &Phase,
        error: &WorkerError,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let microbenchmark = &self.first().case.microbenchmark;
        let is_refused = matches!(error, WorkerError::Failed { lost_connection: false, .. })
            && !says_disk_full(&error.to_string());
        let has_others = self.context.experiment.workload.microbenchmarks.len() > 1;
        if microbenchmark.script.is_none() || !is_refused || !has_others || number == BASELINE {
            return recorder.instance_failed(instance, number, phase, error);
        }
        let mut reason = format!("{error}; it is left out of this microbenchmark");
        if microbenchmark.writes() {
            instance.has_diverged = true;
            self.answers.exclude(number);
            reason.push_str(", and its answers are not compared from then on");
        }
        let failure = phase.failure(FailureKind::Ended, number, reason);
        recorder.fail(&instance.candidate.name, &failure)?;
        self.left_out.push(number);
        Ok(())
    }

    /// Keeps or restores a copy of the data of each instance, which restarts all of them. Does nothing if no data can
    /// be copied.
    pub fn copy(
        &self,
        copy: KeptCopy,
        instances: &mut [Instance],
        histories: &[SliceHistory],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        if !running(instances).any(|(_, instance)| instance.location.can_be_copied()) {
            return Ok(());
        }
        let phase = Phase::of_session(match copy {
            KeptCopy::Keep => "copying its data",
            KeptCopy::Restore => "restoring its data",
        });
        self.restart(self.next_start(histories), Some(copy), &phase, instances, recorder)
    }

    /// Restarts all instances, so that their memory layout changes, and keeps or restores a copy of their data
    /// meanwhile.
    ///
    /// All are stopped before the first starts: otherwise an instance would get the same memory
    /// again.
    pub fn restart(
        &self,
        restart: u32,
        copy: Option<KeptCopy>,
        phase: &Phase,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let seed = self.context.experiment.seed;
        let order = start_order(seed, Some(self.first().id), restart, instances.len());
        let mut running = in_order(instances, &order);
        running.retain(|(_, instance)| instance.is_running());
        recorder.restart(match copy {
            None => "restarting the instances",
            Some(KeptCopy::Keep) => "restarting the instances, and copying their data",
            Some(KeptCopy::Restore) => "restarting the instances, and restoring their data",
        });
        running.iter_mut().for_each(|(_, instance)| instance.stop());
        recorder.each(running, phase, |_, instance| {
            copy.map_or(Ok(()), |copy| instance.copy_stopped(self.context, copy))?;
            instance.start(self.context)
        })
    }

    /// Stores the optimizations of servers that were restarted after a loss.
    fn store_reoptimizations(
        &self,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        for (number, instance) in (0..).zip(instances) {
            for mut record in instance.take_reoptimizations() {
                (record.candidate, record.measured_next) = (number, self.first().id);
                recorder.optimized(&instance.candidate.name, &record)?;
            }
        }
        Ok(())
    }
}

/// The running candidates that are compared with the baseline, without those that are left out.
fn compared(instances: &[Instance], left_out: &[usize]) -> Vec<u32> {
    let takes_part = |number: &usize| instances[*number].is_running() && !left_out.contains(number);
    (1..instances.len()).filter(takes_part).map(|number| number as u32).collect()
}

/// Instances of another system than the baseline's.
fn of_other_systems(instances: &[Instance]) -> Vec<usize> {
    let system = |instance: &Instance| instance.candidate.spec.system.name();
    let Some(baseline) = instances.first().map(system) else { return Vec::new() };
    (0..instances.len()).filter(|number| system(&instances[*number]) != baseline).collect()
}

/// The time of the blocks of a case relative to the plan, by what this session has measured.
pub(crate) fn relative_time(histories: &[SliceHistory], case: usize) -> f64 {
    let of_case = histories[case].block_times.ratio();
    of_case.or_else(|| BlockTimes::of(histories).ratio()).unwrap_or(1.0)
}

/// Blocks of each start in which the engines' own counters are read: together enough for an interval.
fn counted_blocks(schedule: &dbdyno_spec::experiment::Schedule) -> u32 {
    if schedule.counters { COUNTED_BLOCKS.div_ceil(schedule.restarts.max(1)) } else { 0 }
}

/// The blocks of one microbenchmark between two restarts.
struct Blocks<'a, 'c, 'r> {
    pub run: &'a mut MicrobenchmarkRun<'c>,
    /// The cases that need more blocks.
    pub cases: &'a [NumberedCase<'c>],
    pub restart: u32,
    /// Of all cases of the experiment.
    pub histories: &'a mut [SliceHistory],
    pub recorder: &'a mut Recorder<'r>,
    /// The time of everything but the blocks of these cases.
    pub time_after: TimeRange,
}

impl Blocks<'_, '_, '_> {
    /// Runs blocks until there are enough of each case, or until the user stops it.
    pub fn run(mut self, instances: &mut [Instance]) -> Result<(), RunError> {
        let prepare = self.run.prepare_request();
        let running = self.run.taking_part(instances);
        let next = self.cases.iter().map(|one| self.histories[one.id as usize].next_block);
        let first_round = next.max().unwrap_or_default();
        let schedule = |one| Schedule::new(self.block_plan(one, first_round), running.clone());
        let mut schedules: Vec<Schedule> = self.cases.iter().copied().map(schedule).collect();
        let mut is_done = vec![false; self.cases.len()];
        for round in first_round.. {
            let seed = self.run.context.experiment.seed;
            let order = clients_order(seed, self.run.first().id, round, self.cases.len());
            for number in order {
                if !is_done[number] {
                    let started = clock::monotonic();
                    is_done[number] = self.block(number, &mut schedules, &prepare, instances)?;
                    self.add_block_time(self.cases[number], clock::monotonic() - started);
                }
            }
            if is_done.iter().all(|done| *done) {
                break;
            }
        }
        Ok(())
    }

    /// Adds a block that took this time.
    fn add_block_time(&mut self, NumberedCase { id, case }: NumberedCase<'_>, time: Nanos) {
        let experiment = self.run.context.experiment;
        let slice = slice_length(&experiment.schedule, &case.microbenchmark);
        let planned = slice + lead_in_time(slice);
        let instances = instance_count(experiment) as u64;
        self.histories[id as usize].block_times.add(time, planned.times(instances));
    }

    /// Runs one block of a case, and returns whether it has enough.
    fn block(
        &mut self,
        number_of_case: usize,
        schedules: &mut [Schedule],
        prepare: &Prepare,
        instances: &mut [Instance],
    ) -> Result<bool, RunError> {
        let case = self.cases[number_of_case];
        let phase = self.run.measuring(case);
        while let Some(slice) = schedules[number_of_case].next() {
            let number = slice.candidate;
            let instance = &mut instances[number];
            match instance.run_slice(self.run.context, slice.request, prepare) {
                Ok(measured) => {
                    schedules[number_of_case].calibrate(&measured);
                    // Storing takes longer than the way to the host.
                    if let Some(next) = schedules[number_of_case].upcoming() {
                        instances[next].announce_slice();
                    }
                    self.store(case, &slice, measured)?;
                    self.recorder.check_cancelled()?;
                }
                Err(SliceError::Lost(lost)) => {
                    self.recorder.lost(&instance.candidate.name, number, &phase, &lost)?;
                    if instance.has_diverged {
                        self.run.answers.exclude(number);
                    }
                }
                Err(SliceError::Failed(error)) => {
                    schedules.iter_mut().for_each(|schedule| schedule.remove(number));
                    self.run.fail(number, instance, &phase, &error, self.recorder)?;
                }
            }
            if schedules[number_of_case].is_block_complete() {
                return self.end_block(case, &slice, instances);
            }
        }
        let baseline = &instances[BASELINE].candidate.name;
        Err(RunError::baseline(baseline, &phase.at, "it is not running", true))
    }

    fn block_plan(
        &self,
        NumberedCase { id, case }: NumberedCase<'_>,
        first_block: u32,
    ) -> BlockPlan {
        let experiment = self.run.context.experiment;
        let slice = slice_length(&experiment.schedule, &case.microbenchmark);
        BlockPlan {
            warmup_blocks: experiment.schedule.warmup_blocks,
            warmup_time: experiment.schedule.warmup_time,
            counted_blocks: counted_blocks(&experiment.schedule),
            clients: case.clients,
            ..plain_blocks(experiment, id, first_block, slice)
        }
    }

    fn store(
        &mut self,
        case: NumberedCase<'_>,
        slice: &ScheduledSlice,
        measured: SliceMeasured,
    ) -> Result<(), RunError> {
        let ScheduledSlice { block, position, warmup, candidate, .. } = *slice;
        // Between slices: no clock of a measurement is running.
        tracing::trace!(block, position, warmup, candidate, "slice");
        let row = self.recorder.add_slice((case.id, self.restart), slice, measured)?;
        if self.run.context.experiment.schedule.pace == Pace::Events {
            self.run.answers.add(candidate, &row.measured);
        }
        self.histories[case.id as usize].add(&row);
        Ok(())
    }

    /// Checks the block's answers, reports progress, and returns whether there are enough blocks.
    fn end_block(
        &mut self,
        case: NumberedCase<'_>,
        slice: &ScheduledSlice,
        instances: &[Instance],
    ) -> Result<bool, RunError> {
        let schedule = &self.run.context.experiment.schedule;
        self.histories[case.id as usize].next_block = slice.block + 1;
        if schedule.pace == Pace::Events {
            for Difference { candidate: number, reason, is_by_nature } in
                self.run.answers.end_block()
            {
                let phase = self.run.measuring(case);
                if is_by_nature {
                    self.recorder.undetermined(&phase, number, reason)?;
                } else {
                    let failure = phase.failure(FailureKind::Wrong, number, reason);
                    self.recorder.fail(&instances[number].candidate.name, &failure)?;
                }
            }
        }
        if slice.warmup {
            return Ok(false);
        }
        let rule = &mut self.histories[case.id as usize].rule;
        rule.end_block();
        let compared = compared(instances, &self.run.left_out);
        let enough = rule.has_enough_blocks(schedule, &compared);
        self.report_block(case, instances, &compared);
        Ok(enough)
    }

    /// Reports the blocks of all numbers of clients, and the estimates of this one.
    fn report_block(&self, case: NumberedCase<'_>, instances: &[Instance], compared: &[u32]) {
        let schedule = &self.run.context.experiment.schedule;
        let rule = |one: &NumberedCase<'_>| &self.histories[one.id as usize].rule;
        let estimate = |number: &u32| InterimEstimate {
            candidate: &instances[*number as usize].candidate.name,
            estimate: rule(&case).estimate(*number),
        };
        let estimates: Vec<InterimEstimate<'_>> = compared.iter().map(estimate).collect();
        let blocks: u32 = self.run.cases.iter().map(|one| rule(one).blocks()).sum();
        let slice = slice_length(schedule, &case.case.microbenchmark);
        let instances = compared.len() as u64 + 1;
        let left = |one: &NumberedCase<'_>| {
            let left = CaseLeft::of(schedule, slice, rule(one), instances);
            let relative = relative_time(self.histories, one.id as usize);
            times(left.time(slice, instances), relative)
        };
        let time_left: TimeRange = self.cases.iter().map(left).sum();
        let time_left = time_left + self.time_after;
        self.recorder.report(RunEvent::Block { blocks, estimates: &estimates, time_left });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use dbdyno_machine::CpuAssignment;
    use dbdyno_results::RunDirectory;
    use dbdyno_spec::parse;

    use super::*;
    use crate::options::WorkerProgram;
    use crate::plan::cases::cases;

    #[test]
    fn phase_is_of_a_case_that_needs_more_starts() {
        let text = "name = 'test'\nbaseline = 'a'\n[workload]\nclients = [1, 4]\n\
                    microbenchmarks = ['point-query.pre_range=100']\n\
                    [[candidate]]\nname = 'a'\nsystem = 'mariadb'\n\
                    [[candidate]]\nname = 'b'\nsystem = 'mariadb'\n";
        let experiment = parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let worker = WorkerProgram {
            program: "/bin/false".into(),
            args: Vec::new(),
            cancel: Arc::default(),
        };
        let all = || "0".parse().unwrap();
        let cpus = CpuAssignment { system: all(), dbdyno: all() };
        let directory = RunDirectory::at(Path::new("/none"));
        let context = RunContext::new(&experiment, None, directory, &worker, cpus);
        let all = cases(&experiment);
        let numbered: Vec<NumberedCase<'_>> =
            (0..).zip(&all).map(|(id, case)| NumberedCase { id, case }).collect();
        let mut run = MicrobenchmarkRun::new(&context, &numbered, None, &[]);
        assert_eq!(run.phase("restarting").microbenchmark, Some(0));
        run.left.remove(0);
        assert_eq!(run.phase("restarting").microbenchmark, Some(1));
    }
}
