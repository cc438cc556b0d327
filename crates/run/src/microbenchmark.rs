//! One microbenchmark: the restarts of the instances, and the blocks of each.

mod blocks;

use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::schedule::start_order;
use dbdyno_results::FailureKind;
use dbdyno_units::Nanos;

use crate::answer_check::AnswerCheck;
use crate::cases::MicrobenchmarkCase;
use crate::context::RunContext;
use crate::error::RunError;
use crate::instance::{Instance, in_order, running};
use crate::live_training::LiveTraining;
use crate::recorder::{Completion, Phase, Recorder};
use crate::slice_history::SliceHistory;

use blocks::Blocks;

/// The measurement of one microbenchmark with one number of clients.
pub(crate) struct MicrobenchmarkRun<'a> {
    pub context: &'a RunContext<'a>,
    pub case: &'a MicrobenchmarkCase,
    /// Position in the running order.
    pub id: u32,
    /// Training of the live optimizer; `None` if no candidate uses it.
    pub live_training: Option<LiveTraining<'a>>,
    /// Maximum time of the microbenchmarks after this one.
    pub time_after: Nanos,
}

impl MicrobenchmarkRun<'_> {
    /// Measures until there are enough blocks, or until the user stops it.
    ///
    /// # Errors
    /// The baseline failed, or the results cannot be stored.
    pub fn run(
        &self,
        instances: &mut [Instance],
        histories: &mut [SliceHistory],
        recorder: &mut Recorder<'_>,
    ) -> Result<Completion, RunError> {
        let own = self.id as usize;
        let schedule = &self.context.experiment.schedule;
        let mut restart = histories[own].next_restart;
        let mut answers = AnswerCheck::new(of_other_systems(instances));
        loop {
            if let Some(training) = &self.live_training
                && training.is_needed(instances)
            {
                let history = &mut histories[training.id as usize];
                if training.run(instances, history, recorder)? == Completion::Interrupted {
                    return Ok(Completion::Interrupted);
                }
            }
            self.prepare(instances, recorder)?;
            // A restart may have restored data from before a loss.
            let diverged = (0..instances.len()).filter(|number| instances[*number].has_diverged());
            answers.set_diverged(diverged.collect());
            let completion = Blocks {
                run: self,
                restart,
                history: &mut histories[own],
                answers: &mut answers,
                recorder: &mut *recorder,
            }
            .run(instances);
            self.store_reoptimizations(instances, recorder)?;
            if completion? == Completion::Interrupted {
                return Ok(Completion::Interrupted);
            }
            let rule = &mut histories[own].rule;
            rule.end_restart();
            if rule.has_enough_restarts(schedule, &compared(instances)) {
                break;
            }
            restart += 1;
            self.restart(instances, restart, recorder)?;
        }
        self.check_error_shares(instances, &histories[own], recorder)?;
        Ok(Completion::Complete)
    }

    fn phase(&self, doing: &str) -> Phase {
        let at = format!("{} ({doing})", self.case.microbenchmark.name);
        Phase { at, microbenchmark: Some(self.id) }
    }

    fn measuring(&self) -> Phase {
        Phase { at: self.case.microbenchmark.name.clone(), microbenchmark: Some(self.id) }
    }

    fn prepare_request(&self) -> Prepare {
        let MicrobenchmarkCase { microbenchmark, clients } = self.case.clone();
        Prepare { microbenchmark, position: self.id, clients }
    }

    fn prepare(
        &self,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let request = self.prepare_request();
        recorder.each(running(instances), &self.phase("preparing statements"), |_, instance| {
            instance.worker_mut()?.prepare(request.clone())
        })
    }

    /// Restarts all instances, so that their memory layout changes.
    ///
    /// All are stopped before the first starts: otherwise an instance would get the same memory
    /// again.
    fn restart(
        &self,
        instances: &mut [Instance],
        restart: u32,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let seed = self.context.experiment.seed;
        let order = start_order(seed, Some(self.id), restart, instances.len());
        let mut running = in_order(instances, &order);
        running.retain(|(_, instance)| instance.is_running());
        running.iter_mut().for_each(|(_, instance)| instance.stop());
        recorder.each(running, &self.phase("restarting"), |_, instance| {
            if self.case.microbenchmark.shrinks_tables() {
                instance.restore_copy(self.context)?;
            }
            if instance.is_running() { Ok(()) } else { instance.start(self.context) }
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
                (record.candidate, record.measured_next) = (number, self.id);
                recorder.optimized(&instance.candidate.name, &record)?;
            }
        }
        Ok(())
    }

    fn check_error_shares(
        &self,
        instances: &[Instance],
        history: &SliceHistory,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let allowed = self.context.experiment.checks.max_error_share;
        for (number, (instance, errors)) in instances.iter().zip(history.errors()).enumerate() {
            if let Some(reason) = errors.beyond(allowed) {
                let failure = self.measuring().failure(FailureKind::Wrong, number, reason);
                recorder.fail(&instance.candidate.name, &failure)?;
            }
        }
        Ok(())
    }
}

/// The running candidates that are compared with the baseline.
fn compared(instances: &[Instance]) -> Vec<u32> {
    (0..)
        .zip(instances)
        .skip(1)
        .filter_map(|(number, instance)| instance.is_running().then_some(number))
        .collect()
}

/// Instances of another system than the baseline's.
fn of_other_systems(instances: &[Instance]) -> Vec<usize> {
    let system = |instance: &Instance| instance.candidate.spec.system.name();
    let Some(baseline) = instances.first().map(system) else { return Vec::new() };
    (0..instances.len()).filter(|number| system(&instances[*number]) != baseline).collect()
}
