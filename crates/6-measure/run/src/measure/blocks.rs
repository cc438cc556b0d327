//! The blocks between two restarts: run a slice, store it, check answers, decide whether to stop.
//!
//! With several numbers of clients, a round has one block of each, in random order, so that drift of
//! the machine affects all of them. All blocks of a round have the same number.

use dbdyno_results::{FailureKind, SliceRecord};
use dbdyno_spec::experiment::Pace;
use dbdyno_types::SliceMeasured;
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::Prepare;
use dbdyno_worker::schedule::{BASELINE, BlockPlan, Schedule, ScheduledSlice, clients_order};

use crate::error::RunError;
use crate::instance::{Instance, SliceError};
use crate::measure::checks::AnswerCheck;
use crate::measure::slice_history::SliceHistory;
use crate::measure::{MicrobenchmarkRun, NumberedCase, compared};
use crate::plan::cases::{block_range, block_time, pace, slice_length};
use crate::record::Recorder;
use crate::session::progress::{InterimEstimate, RunEvent};

/// The blocks of one microbenchmark between two restarts.
pub(super) struct Blocks<'a, 'r> {
    pub run: &'a MicrobenchmarkRun<'a>,
    /// The cases that need more blocks.
    pub cases: &'a [NumberedCase<'a>],
    pub restart: u32,
    /// Of all cases of the experiment.
    pub histories: &'a mut [SliceHistory],
    pub answers: &'a mut AnswerCheck,
    pub recorder: &'a mut Recorder<'r>,
    /// Maximum time of all other microbenchmarks.
    pub time_after: Nanos,
}

impl Blocks<'_, '_> {
    /// Runs blocks until there are enough of each case, or until the user stops it.
    pub fn run(mut self, instances: &mut [Instance]) -> Result<(), RunError> {
        let prepare = self.run.prepare_request();
        let running: Vec<bool> = instances.iter().map(Instance::is_running).collect();
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
                    is_done[number] = self.block(number, &mut schedules, &prepare, instances)?;
                }
            }
            if is_done.iter().all(|done| *done) {
                break;
            }
        }
        Ok(())
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
                    if instance.has_diverged() {
                        self.answers.exclude(number);
                    }
                }
                Err(SliceError::Failed(error)) => {
                    schedules.iter_mut().for_each(|schedule| schedule.remove(number));
                    self.recorder.instance_failed(instance, number, &phase, &error)?;
                }
            }
            if schedules[number_of_case].is_block_complete() {
                return self.end_block(case, &slice, instances);
            }
        }
        let baseline = &instances[BASELINE].candidate.name;
        Err(RunError::baseline(baseline, &phase.at, "it is not running"))
    }

    fn block_plan(
        &self,
        NumberedCase { id, case }: NumberedCase<'_>,
        first_block: u32,
    ) -> BlockPlan {
        let experiment = self.run.context.experiment;
        BlockPlan {
            seed: experiment.seed,
            microbenchmark: id,
            first_block,
            warmup_blocks: experiment.schedule.warmup_blocks,
            clients: case.clients,
            slice: slice_length(&experiment.schedule, &case.microbenchmark),
            pace: pace(&experiment.schedule),
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
        let row = SliceRecord {
            microbenchmark: case.id,
            restart: self.restart,
            block,
            position,
            candidate: candidate as u32,
            warmup,
            measured,
        };
        self.recorder.results.add_slice(&row)?;
        if self.run.context.experiment.schedule.pace == Pace::Events {
            self.answers.add(candidate, &row.measured);
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
            for (number, reason) in self.answers.end_block() {
                let failure = self.run.measuring(case).failure(FailureKind::Wrong, number, reason);
                self.recorder.fail(&instances[number].candidate.name, &failure)?;
            }
        }
        if slice.warmup {
            return Ok(false);
        }
        let rule = &mut self.histories[case.id as usize].rule;
        rule.end_block();
        let compared = compared(instances);
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
        let (_, at_most) = block_range(schedule, slice);
        // Number of blocks, and their time.
        let left = |one: &NumberedCase<'_>| {
            let rule = rule(one);
            if let Some(left) = rule.time_left_of_extension() {
                let per_block = rule.time().as_secs_f64() / f64::from(rule.blocks().max(1));
                return ((left.as_secs_f64() / per_block).ceil() as u32, left);
            }
            let blocks = at_most.saturating_sub(rule.blocks());
            (blocks, block_time(schedule, slice, blocks, compared.len() as u64 + 1))
        };
        let (blocks_left, times_left): (Vec<u32>, Vec<Nanos>) = self.cases.iter().map(left).unzip();
        let blocks_left = blocks_left.into_iter().fold(0, u32::saturating_add);
        let time_left: Nanos = times_left.into_iter().sum();
        self.recorder.report(RunEvent::Block {
            blocks,
            at_most: blocks.saturating_add(blocks_left),
            estimates: &estimates,
            time_left: time_left + self.time_after,
        });
    }
}
