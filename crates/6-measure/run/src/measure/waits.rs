//! Recording of where threads wait, in blocks after those whose stacks are sampled: both would disturb each other.

use dbdyno_results::Warning;
use dbdyno_types::profile::StatementCpu;
use dbdyno_worker::WorkerHandle;

use super::profile::{FIRST_RECORDED, add};
use super::{MicrobenchmarkRun, NumberedCase};
use crate::error::RunError;
use crate::instance::{Instance, running};
use crate::plan::cases::ProfiledBlocks;
use crate::record::Recorder;

impl MicrobenchmarkRun<'_> {
    /// Records the waits of the instances that are sampled, for the time that is planned for samples, except in blocks
    /// among them as when stacks are sampled. The first failure ends it.
    pub(super) fn record_waits(
        &mut self,
        numbered: NumberedCase<'_>,
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
        let wanted = ProfiledBlocks::of(experiment, &numbered.case.microbenchmark);
        let mut blocks = self.profiled_blocks(numbered, (FIRST_RECORDED, restart), instances);
        let mut unrecorded = vec![StatementCpu::default(); instances.len()];
        let mut complete = 0;
        while complete < wanted.planned {
            let Some(slice) = blocks.next() else { break };
            let number = slice.candidate;
            let instance = &mut instances[number];
            let is_measured = !slice.warmup && sampled[number] && instance.candidate.host.is_none();
            let is_recorded = is_measured && wanted.is_profiled(complete);
            let outcome = instance.worker_mut().and_then(|worker| match is_recorded {
                true => worker.slice_with_waits(slice.request),
                false => worker.slice(slice.request),
            });
            match outcome {
                Ok(measured) => {
                    blocks.calibrate(&measured);
                    if is_measured && !is_recorded {
                        add(&mut unrecorded[number], &measured);
                    }
                }
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
            if let Ok(Some(mut waits)) = instance.worker_mut().and_then(WorkerHandle::waits) {
                let unrecorded = unrecorded[number];
                waits.unrecorded = (unrecorded.statements > 0).then_some(unrecorded);
                recorder.results.set_waits((numbered.id, number as u32, restart), &waits)?;
            }
        }
        Ok(())
    }
}
