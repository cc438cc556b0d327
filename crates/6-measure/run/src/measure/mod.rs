//! One microbenchmark: the restarts of the instances, and the blocks of each; with several numbers of
//! clients, their blocks take turns.

pub(crate) mod blocks;
pub(crate) mod checks;
pub(crate) mod slice_history;

use dbdyno_results::FailureKind;
use dbdyno_units::Nanos;
use dbdyno_worker::protocol::Prepare;
use dbdyno_worker::schedule::start_order;

use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::{Instance, KeptCopy, in_order, running};
use crate::measure::blocks::Blocks;
use crate::measure::checks::AnswerCheck;
use crate::measure::slice_history::SliceHistory;
use crate::plan::cases::MicrobenchmarkCase;
use crate::record::{Phase, Recorder};
use crate::training::live::LiveTraining;

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
}

impl<'a> MicrobenchmarkRun<'a> {
    pub fn new(
        context: &'a RunContext<'a>,
        cases: &'a [NumberedCase<'a>],
        live_training: Option<LiveTraining<'a>>,
        instances: &[Instance],
    ) -> Self {
        let answers = AnswerCheck::new(of_other_systems(instances));
        Self { context, cases, live_training, left: cases.to_vec(), answers }
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
    /// or until the user stops it. `time_after` is the maximum time of all other microbenchmarks.
    pub fn measure_start(
        &mut self,
        time_after: Nanos,
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
        // A restart may have restored data from before a loss.
        let diverged = (0..instances.len()).filter(|number| instances[*number].has_diverged());
        let mut answers = std::mem::take(&mut self.answers);
        answers.set_diverged(diverged.collect());
        let measured = Blocks {
            run: self,
            cases: &self.left,
            restart,
            histories: &mut *histories,
            answers: &mut answers,
            recorder: &mut *recorder,
            time_after,
        }
        .run(instances);
        self.answers = answers;
        self.store_reoptimizations(instances, recorder)?;
        measured?;
        let schedule = &self.context.experiment.schedule;
        self.left.retain(|one| {
            let rule = &mut histories[one.id as usize].rule;
            rule.end_restart();
            !rule.has_enough_restarts(schedule, &compared(instances))
        });
        Ok(())
    }

    /// Checks a complete microbenchmark.
    pub fn check(
        &self,
        instances: &[Instance],
        histories: &[SliceHistory],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        for one in self.cases {
            self.check_error_shares(*one, instances, &histories[one.id as usize], recorder)?;
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
        &self,
        instances: &mut [Instance],
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let request = self.prepare_request();
        recorder.each(running(instances), &self.phase("preparing statements"), |_, instance| {
            instance.worker_mut()?.prepare(request.clone())
        })
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
        if !running(instances).any(|(_, instance)| instance.can_be_copied()) {
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

    fn check_error_shares(
        &self,
        case: NumberedCase<'_>,
        instances: &[Instance],
        history: &SliceHistory,
        recorder: &mut Recorder<'_>,
    ) -> Result<(), RunError> {
        let allowed = self.context.experiment.checks.max_error_share;
        for (number, (instance, errors)) in instances.iter().zip(history.errors()).enumerate() {
            if let Some(reason) = errors.beyond(allowed) {
                let failure = self.measuring(case).failure(FailureKind::Wrong, number, reason);
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use dbdyno_machine::CpuAssignment;
    use dbdyno_results::RunDirectory;
    use dbdyno_spec::parse;

    use super::*;
    use crate::instance::context::WorkerProgram;
    use crate::plan::cases::cases;

    #[test]
    fn phase_is_of_a_case_that_needs_more_starts() {
        let text = "name = 'test'\nbaseline = 'a'\n[workload]\nclients = [1, 4]\n\
                    microbenchmarks = ['point-query.pre_range=100']\n\
                    [[candidate]]\nname = 'a'\nsystem = 'mariadb'\n\
                    [[candidate]]\nname = 'b'\nsystem = 'mariadb'\n";
        let experiment = parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let worker = WorkerProgram { program: "/bin/false".into(), args: Vec::new() };
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
