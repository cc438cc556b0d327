//! Training of the live optimizer: a warm-up during which servers are sampled, and after which
//! their code gets a new layout.
//!
//! All candidates run the same warm-up, so that those without the optimizer are not at a
//! disadvantage.

use dbdyno_hosts::ServerKey;
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::Prepare;
use dbdyno_worker::schedule::{BASELINE, BlockPlan, Schedule};

use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::{Instance, SliceError, running};
use crate::measure::slice_history::SliceHistory;
use crate::plan::cases::{
    MicrobenchmarkCase, counting_slice, plain_blocks, slice_length, warmup_time,
};
use crate::record::{Phase, Recorder};

/// The shortest slice of the warm-up: shorter ones would mostly be overhead.
const SHORTEST_SLICE: Nanos = Nanos::from_millis(250);

const AGAIN: &str = "warming up again: a sampled server was restarted";

#[derive(Clone, Copy)]
struct Warmup {
    blocks: u32,
    slice: Nanos,
    restart: u32,
}

/// The training before one microbenchmark.
pub(crate) struct LiveTraining<'a> {
    pub context: &'a RunContext<'a>,
    /// The work of the warm-up.
    pub case: MicrobenchmarkCase,
    /// Its position in the running order.
    pub id: u32,
    /// The position of the microbenchmark that is measured next.
    pub before: u32,
}

impl LiveTraining<'_> {
    /// Whether a server is not optimized with this training yet, or was restarted since.
    pub fn is_needed(&self, instances: &[Instance]) -> bool {
        instances.iter().any(|instance| instance.needs_training(self.id))
    }

    /// Warms all candidates up, and optimizes the servers that are to be optimized.
    pub fn run(
        &self,
        instances: &mut [Instance],
        history: &mut SliceHistory,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let MicrobenchmarkCase { microbenchmark, clients } = self.case.clone();
        let name = &self.case.microbenchmark.name;
        recorder.stage(format!("warming up with {name} for the live optimizer"));
        let prepare = Prepare { microbenchmark, position: self.id, clients };
        recorder.each(running(instances), &self.phase(), |_, instance| {
            instance.worker_mut()?.prepare(prepare.clone())
        })?;
        let restart = history.next_restart;
        // The number of repetitions is limited by the number of restarts after a loss.
        let sampled = loop {
            let servers = self.start_sampling(instances, recorder)?;
            let sampled = Warmup { blocks: self.sampling_blocks(), slice: self.slice(), restart };
            self.warm_up(instances, &prepare, sampled, history, recorder)?;
            if has_restarted(instances, &servers) {
                recorder.stage(AGAIN);
                continue;
            }
            if self.end_sampling(instances, &servers, recorder)? {
                recorder.stage("counting executions for the live optimizer");
                let slice = counting_slice(self.context.experiment);
                let counted = Warmup { blocks: 1, slice, restart };
                self.warm_up(instances, &prepare, counted, history, recorder)?;
            }
            if !has_restarted(instances, &servers) {
                break servers;
            }
            recorder.stage(AGAIN);
        };
        recorder.stage("optimizing the layout of server code");
        let mut records = Vec::new();
        recorder.each(running(instances), &self.phase(), |number, instance| {
            if let Some(mut record) = instance.optimize(sampled[number].is_some(), self.id)? {
                (record.candidate, record.measured_next) = (number as u32, self.before);
                records.push(record);
            }
            Ok(())
        })?;
        for record in &records {
            let name = &instances[record.candidate as usize].candidate.name;
            recorder.optimized(name, record)?;
        }
        Ok(())
    }

    fn phase(&self) -> Phase {
        let at = format!("{} (warm-up)", self.case.microbenchmark.name);
        Phase { at, microbenchmark: Some(self.before) }
    }

    /// Starts sampling the servers that are to be sampled; returns them.
    fn start_sampling(
        &self,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<Vec<Option<ServerKey>>, RunError> {
        let mut servers: Vec<_> = instances.iter().map(|_| None).collect();
        recorder.each(running(instances), &self.phase(), |number, instance| {
            servers[number] = instance.start_sampling()?;
            Ok(())
        })?;
        Ok(servers)
    }

    /// Ends the sampling of these servers. Returns whether executions are to be counted in one of them.
    fn end_sampling(
        &self,
        instances: &mut [Instance],
        servers: &[Option<ServerKey>],
        recorder: &mut Recorder<'_>,
    ) -> Result<bool, RunError> {
        let mut counts = false;
        recorder.each(running(instances), &self.phase(), |number, instance| {
            if servers[number].is_some() {
                counts |= instance.end_sampling()?;
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// Runs and stores warm-up blocks, in which executions are counted where that is prepared.
    fn warm_up(
        &self,
        instances: &mut [Instance],
        prepare: &Prepare,
        warmup: Warmup,
        history: &mut SliceHistory,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let phase = self.phase();
        let running = instances.iter().map(Instance::is_running).collect();
        let plan = BlockPlan {
            warmup_blocks: warmup.blocks,
            clients: self.case.clients,
            ..plain_blocks(self.context.experiment, self.id, history.next_block, warmup.slice)
        };
        let mut schedule = Schedule::new(plan, running);
        while let Some(slice) = schedule.next() {
            if !slice.warmup {
                return Ok(());
            }
            let candidate = slice.candidate;
            let instance = &mut instances[candidate];
            match instance.run_training_slice(self.context, slice.request, prepare) {
                Ok(measured) => {
                    schedule.calibrate(&measured);
                    let of = (self.id, warmup.restart);
                    history.add(&recorder.add_slice(of, &slice, measured)?);
                    recorder.check_cancelled()?;
                }
                Err(SliceError::Lost(lost)) => {
                    recorder.lost(&instance.candidate.name, candidate, &phase, &lost)?;
                }
                Err(SliceError::Failed(error)) => {
                    schedule.remove(candidate);
                    recorder.instance_failed(instance, candidate, &phase, &error)?;
                }
            }
        }
        let baseline = &instances[BASELINE].candidate.name;
        Err(RunError::baseline(baseline, &phase.at, "it is not running", true))
    }

    /// Length of a slice while servers are sampled.
    fn slice(&self) -> Nanos {
        slice_length(&self.context.experiment.schedule, &self.case.microbenchmark)
            .max(SHORTEST_SLICE)
    }

    /// Number of blocks that take the configured time.
    fn sampling_blocks(&self) -> u32 {
        let time = warmup_time(self.context.experiment).as_nanos();
        let blocks = time.div_ceil(self.slice().as_nanos().max(1));
        u32::try_from(blocks).unwrap_or(u32::MAX).max(1)
    }
}

/// Whether a server that runs is not the sampled one any more: samples are of addresses in the old process.
fn has_restarted(instances: &[Instance], sampled: &[Option<ServerKey>]) -> bool {
    instances.iter().zip(sampled).any(|(instance, key)| {
        instance.optimized_server().is_some() && key.is_some_and(|key| !instance.has_server(key))
    })
}
