//! The block of a start in which executed instructions are counted by function.

use dbdyno_results::ProfileRecord;
use dbdyno_types::profile::Profile;
use dbdyno_worker::schedule::{BlockPlan, Schedule};

use crate::error::RunError;
use crate::instance::Instance;
use crate::instance::instructions::functions_to_count;
use crate::measure::{MicrobenchmarkRun, NumberedCase};
use crate::plan::cases::{
    INSTRUCTION_BLOCKS, STARTS_WITH_INSTRUCTIONS, instruction_slice, plain_blocks,
};
use crate::record::Recorder;

/// The number of the first block in which instructions are counted: no other has such a number.
const FIRST_COUNTED: u32 = 1 << 24;

impl MicrobenchmarkRun<'_> {
    /// Counts the instructions that all instances execute, in the functions that any of these profiles has. With one
    /// client, because threads that count at the same time lose counts.
    pub(super) fn count_instructions(
        &mut self,
        NumberedCase { id, case }: NumberedCase<'_>,
        profiles: &[ProfileRecord],
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let experiment = self.context.experiment;
        let Some(restart) = profiles.first().map(|profile| profile.restart) else { return Ok(()) };
        let is_wanted = experiment.profile.as_ref().is_some_and(|profiling| profiling.instructions);
        if !is_wanted || restart >= STARTS_WITH_INSTRUCTIONS {
            return Ok(());
        }
        let phase = self.phase("counting instructions");
        let first = FIRST_COUNTED + restart * INSTRUCTION_BLOCKS;
        let slice = instruction_slice(&experiment.schedule, &case.microbenchmark);
        let plan = BlockPlan {
            warmup_blocks: INSTRUCTION_BLOCKS - 1,
            ..plain_blocks(experiment, id, first, slice)
        };
        let mut schedule = Schedule::new(plan, self.taking_part(instances));
        let all: Vec<&Profile> = profiles.iter().map(|one| &one.profile).collect();
        while let Some(planned) = schedule.next() {
            let number = planned.candidate;
            let instance = &mut instances[number];
            let profile = profiles.iter().find(|one| one.candidate as usize == number);
            let outcome = match profile.filter(|_| !planned.warmup) {
                Some(ProfileRecord { profile, .. }) => {
                    let functions = functions_to_count(profile, &all);
                    let counted =
                        instance.run_counted_slice(self.context, &functions, planned.request);
                    counted.map(|(measured, executed)| (measured, Some(executed)))
                }
                None => instance
                    .worker_mut()
                    .and_then(|worker| worker.slice(planned.request))
                    .map(|measured| (measured, None)),
            };
            match outcome {
                Ok((measured, executed)) => {
                    schedule.calibrate(&measured);
                    if let Some(executed) = executed {
                        let of = (id, number as u32, restart);
                        recorder.results.set_executed(of, &executed)?;
                    }
                }
                Err(error) => {
                    schedule.remove(number);
                    self.fail(number, instance, &phase, &error, recorder)?;
                }
            }
            recorder.check_cancelled()?;
            if schedule.is_block_complete() && !planned.warmup {
                break;
            }
        }
        Ok(())
    }
}
