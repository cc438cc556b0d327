//! The blocks between two restarts: run a slice, store it, check answers, decide whether to stop.

use dbdyno_bench::schedule::{BASELINE, BlockPlan, Schedule, ScheduledSlice};
use dbdyno_record::SliceMeasured;
use dbdyno_results::{FailureKind, SliceRecord};
use dbdyno_spec::experiment::Pace;

use super::{MicrobenchmarkRun, compared};
use crate::answer_check::AnswerCheck;
use crate::error::RunError;
use crate::instance::{Instance, SliceError};
use crate::progress::{InterimEstimate, RunEvent};
use crate::recorder::{Completion, Recorder};
use crate::slice_history::SliceHistory;
use crate::timing::{block_range, block_time, pace, slice_length};

/// The blocks of one microbenchmark between two restarts.
pub(super) struct Blocks<'a, 'r> {
    pub run: &'a MicrobenchmarkRun<'a>,
    pub restart: u32,
    pub history: &'a mut SliceHistory,
    pub answers: &'a mut AnswerCheck,
    pub recorder: &'a mut Recorder<'r>,
}

impl Blocks<'_, '_> {
    /// Runs blocks until there are enough, or until the user stops it.
    ///
    /// # Errors
    /// The baseline failed, or the results cannot be stored.
    pub fn run(mut self, instances: &mut [Instance]) -> Result<Completion, RunError> {
        let phase = self.run.measuring();
        let prepare = self.run.prepare_request();
        let running = instances.iter().map(Instance::is_running).collect();
        let mut schedule = Schedule::new(self.block_plan(), running);
        while let Some(slice) = schedule.next() {
            let number = slice.candidate;
            let instance = &mut instances[number];
            match instance.run_slice(self.run.context, slice.request, &prepare) {
                Ok(measured) => {
                    schedule.calibrate(&measured);
                    self.store(&slice, measured)?;
                    if self.recorder.is_cancelled() {
                        return Ok(Completion::Interrupted);
                    }
                }
                Err(SliceError::Lost(error)) => {
                    self.recorder.lost(instance, number, &phase, &error)?;
                    self.exclude_from_comparison(number)?;
                }
                Err(SliceError::Failed(error)) => {
                    schedule.remove(number);
                    self.recorder.instance_failed(instance, number, &phase, &error)?;
                }
            }
            if schedule.is_block_complete() && self.end_block(&slice, instances)? {
                return Ok(Completion::Complete);
            }
        }
        Err(RunError::Baseline {
            candidate: instances[BASELINE].candidate.name.clone(),
            at: phase.at,
            reason: "it is not running".to_owned(),
        })
    }

    fn block_plan(&self) -> BlockPlan {
        let experiment = self.run.context.experiment;
        BlockPlan {
            seed: experiment.seed,
            microbenchmark: self.run.id,
            first_block: self.history.next_block,
            warmup_blocks: experiment.schedule.warmup_blocks,
            slice: slice_length(&experiment.schedule, &self.run.case.microbenchmark),
            pace: pace(&experiment.schedule),
        }
    }

    fn store(&mut self, slice: &ScheduledSlice, measured: SliceMeasured) -> Result<(), RunError> {
        let ScheduledSlice { block, position, warmup, candidate, .. } = *slice;
        // Between slices: no clock of a measurement is running.
        tracing::trace!(block, position, warmup, candidate, "slice");
        let row = SliceRecord {
            microbenchmark: self.run.id,
            restart: self.restart,
            block,
            position,
            candidate: candidate as u32,
            warmup,
            measured,
        };
        self.recorder.results.add_slice(&row)?;
        self.answers.add(candidate, &row.measured);
        self.history.add(&row);
        Ok(())
    }

    /// After a lost slice of writes, the candidate's data and answers differ from the others'.
    fn exclude_from_comparison(&mut self, number: usize) -> Result<(), RunError> {
        if self.run.case.microbenchmark.writes() && self.answers.exclude(number) {
            let reason = "a slice of writes was lost: its data differs from then on".to_owned();
            let failure = self.run.measuring().failure(FailureKind::Differs, number, reason);
            self.recorder.results.add_failure(&failure)?;
        }
        Ok(())
    }

    /// Checks the block's answers, reports progress, and returns whether there are enough blocks.
    fn end_block(
        &mut self,
        slice: &ScheduledSlice,
        instances: &[Instance],
    ) -> Result<bool, RunError> {
        let schedule = &self.run.context.experiment.schedule;
        self.history.next_block = slice.block + 1;
        if schedule.pace == Pace::Events {
            for (number, reason) in self.answers.end_block() {
                let failure = self.run.measuring().failure(FailureKind::Wrong, number, reason);
                self.recorder.fail(&instances[number].candidate.name, &failure)?;
            }
        }
        if slice.warmup {
            return Ok(false);
        }
        self.history.rule.end_block();
        let compared = compared(instances);
        let enough = self.history.rule.has_enough_blocks(schedule, &compared);
        self.report_block(instances, &compared);
        Ok(enough)
    }

    fn report_block(&self, instances: &[Instance], compared: &[u32]) {
        let schedule = &self.run.context.experiment.schedule;
        let rule = &self.history.rule;
        let estimate = |number: &u32| InterimEstimate {
            candidate: &instances[*number as usize].candidate.name,
            estimate: rule.estimate(*number),
        };
        let estimates: Vec<InterimEstimate<'_>> = compared.iter().map(estimate).collect();
        let slice = slice_length(schedule, &self.run.case.microbenchmark);
        let (_, at_most) = block_range(schedule, slice);
        let blocks_left = at_most.saturating_sub(rule.blocks());
        let time_left = block_time(schedule, slice, blocks_left, compared.len() as u64 + 1);
        self.recorder.report(RunEvent::Block {
            blocks: rule.blocks(),
            at_most: at_most.max(rule.blocks()),
            estimates: &estimates,
            time_left: time_left + self.run.time_after,
        });
    }
}
