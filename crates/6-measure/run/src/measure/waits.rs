//! Recording of where threads wait, in blocks after those whose stacks are sampled: both would disturb each other.

use dbdyno_results::Warning;
use dbdyno_worker::WorkerHandle;
use dbdyno_worker::schedule::{BlockPlan, Schedule};

use super::profile::{BLOCKS_OF_START, FIRST_PROFILED};
use super::{MicrobenchmarkRun, NumberedCase};
use crate::error::RunError;
use crate::instance::{Instance, running};
use crate::plan::cases::{ProfiledBlocks, plain_blocks, profiled_slice};
use crate::record::Recorder;

impl MicrobenchmarkRun<'_> {
    /// Records the waits of the instances that are sampled, for the time that is planned for samples. The first failure
    /// ends it.
    pub(super) fn record_waits(
        &mut self,
        NumberedCase { id, case }: NumberedCase<'_>,
        restart: u32,
        sampled: &[bool],
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let experiment = self.context.experiment;
        if !experiment.profile.as_ref().is_some_and(|profiling| profiling.waits) {
            return Ok(());
        }
        let phase = self.phase("recording waits");
        let wanted = ProfiledBlocks::of(experiment, &case.microbenchmark).planned;
        let first = FIRST_PROFILED.saturating_add(restart.saturating_mul(BLOCKS_OF_START));
        let first = first.saturating_add(BLOCKS_OF_START / 2);
        let slice = profiled_slice(&experiment.schedule, &case.microbenchmark);
        let plan =
            BlockPlan { clients: case.clients, ..plain_blocks(experiment, id, first, slice) };
        let mut blocks = Schedule::new(plan, self.taking_part(instances));
        let mut complete = 0;
        while complete < wanted {
            let Some(slice) = blocks.next() else { break };
            let number = slice.candidate;
            let instance = &mut instances[number];
            let is_recorded = !slice.warmup && sampled[number] && instance.candidate.host.is_none();
            let outcome = instance.worker_mut().and_then(|worker| match is_recorded {
                true => worker.slice_with_waits(slice.request),
                false => worker.slice(slice.request),
            });
            match outcome {
                Ok(measured) => blocks.calibrate(&measured),
                Err(error) => {
                    recorder.check_cancelled()?;
                    let name = &instance.candidate.name;
                    let what = format!("where {name} waits is not recorded: {error}");
                    let advice = "everything else is measured".to_owned();
                    recorder.warnings.push(Warning { what, advice });
                    if error.is_loss() {
                        self.fail(number, instance, &phase, &error, recorder)?;
                    }
                    break;
                }
            }
            recorder.check_cancelled()?;
            complete += u32::from(blocks.is_block_complete() && !slice.warmup);
        }
        for (number, instance) in running(instances) {
            if let Ok(Some(waits)) = instance.worker_mut().and_then(WorkerHandle::waits) {
                recorder.results.set_waits((id, number as u32, restart), &waits)?;
            }
        }
        Ok(())
    }
}
