//! One microbenchmark: its blocks, stored slice by slice.

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::measure::{
    Blocks, Ended, Flow, Observer, Runner, SliceError, SliceRecord, run_blocks,
};
use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::schedule::{Pace, start_order};
use dbdyno_bench::slice::SliceRequest;
use dbdyno_bench::worker::WorkerError;
use dbdyno_record::SliceMeasured;
use dbdyno_results::{FailureKind, FailureRecord, ResultsError, RunWriter, SliceRow};
use dbdyno_spec::experiment;
use dbdyno_units::Nanos;
use dbdyno_workloads::definition::Microbenchmark;

use crate::answer_check::AnswerCheck;
use crate::error::RunError;
use crate::error_share::ErrorShare;
use crate::instances::{Instance, RunContext, arranged};
use crate::live_training::LiveTraining;
use crate::plan;
use crate::progress::{InterimEstimate, Progress, RunEvent};
use crate::stopping_rule::StoppingRule;

/// One microbenchmark of a run, about to be measured.
pub(crate) struct Measuring<'a> {
    pub context: &'a RunContext<'a>,
    pub microbenchmark: &'a Microbenchmark,
    /// Clients at work at once.
    pub clients: u32,
    /// Its number: position in the running order.
    pub id: u32,
    /// What earlier sessions measured of it.
    pub before: Vec<SliceRow>,
    /// What servers are optimized with before; `None` where none is.
    pub training: Option<LiveTraining<'a>>,
    pub cancel: &'a AtomicBool,
    pub progress: Progress<'a>,
    /// How long the microbenchmarks after this one will take, at most.
    pub time_after: Nanos,
}

/// How a microbenchmark went.
#[derive(Debug, Default)]
pub(crate) struct Measured {
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Candidates that failed.
    pub failures: usize,
    /// What was measured, in earlier sessions, too.
    pub rule: StoppingRule,
}

impl Measuring<'_> {
    /// Measures to the end, or until the user or a failure of the baseline stops it.
    pub fn run(
        &self,
        instances: &mut [Instance],
        results: &mut RunWriter,
    ) -> Result<Measured, RunError> {
        let schedule = &self.context.experiment.schedule;
        let mut observer = Storing {
            measuring: self,
            restart: self.before.iter().map(|slice| slice.restart + 1).max().unwrap_or(0),
            names: instances.iter().map(|i| i.candidate.name.clone()).collect(),
            alive: Vec::new(),
            rule: StoppingRule::of(&self.before),
            answer_check: AnswerCheck::with_foreign(foreign(instances)),
            errors: self.errors_before(instances.len()),
            results,
            next_block: self.before.iter().map(|slice| slice.block + 1).max().unwrap_or(0),
            failures: 0,
            baseline_failure: None,
            interrupted: false,
        };
        loop {
            if self.train(instances, &mut observer)? {
                break;
            }
            observer.failures += self.prepare(instances, observer.results)?;
            observer.alive = instances.iter().map(Instance::is_alive).collect();
            // Starting anew may have brought back data from before a loss.
            let differing = (0..instances.len()).filter(|number| instances[*number].differs());
            observer.answer_check.set_differing(differing.collect());
            let ended = self.blocks(instances, observer.next_block, &mut observer)?;
            for (instance, alive) in instances.iter_mut().zip(&observer.alive) {
                if !alive {
                    instance.kill();
                }
            }
            self.store_retuned(instances, observer.results)?;
            if ended == Ended::BaselineFailed {
                return Err(RunError::Baseline {
                    candidate: instances[0].candidate.name.clone(),
                    reason: format!(
                        "in {}, {}",
                        self.microbenchmark.name,
                        observer.baseline_failure.unwrap_or_default()
                    ),
                });
            }
            if observer.interrupted {
                break;
            }
            observer.rule.restart();
            if observer.rule.after_restart(schedule, &observer.compared()) == Flow::Stop {
                break;
            }
            observer.restart += 1;
            observer.failures += self.restart(instances, observer.restart, observer.results)?;
        }
        // Of what was interrupted it is judged when it is whole.
        if !observer.interrupted {
            observer.check_error_shares()?;
        }
        let Storing { rule, failures, interrupted, .. } = observer;
        Ok(Measured { interrupted, failures, rule })
    }

    /// What went wrong in earlier sessions, of each candidate.
    fn errors_before(&self, candidates: usize) -> Vec<ErrorShare> {
        let mut errors = vec![ErrorShare::default(); candidates];
        for slice in &self.before {
            errors[slice.candidate as usize].add(&slice.measured);
        }
        errors
    }

    /// Warms up and optimizes servers, where that is to be done; says whether the user stopped it.
    fn train(
        &self,
        instances: &mut [Instance],
        observer: &mut Storing<'_, '_>,
    ) -> Result<bool, RunError> {
        let wanted = self.training.as_ref().filter(|training| training.is_needed(instances));
        let Some(training) = wanted else { return Ok(false) };
        let (restart, first) = if training.id == self.id {
            (observer.restart, observer.next_block)
        } else {
            let before = observer.results.reader()?.slices(training.id)?;
            let restart = before.iter().map(|slice| slice.restart + 1).max().unwrap_or(0);
            (restart, before.iter().map(|slice| slice.block + 1).max().unwrap_or(0))
        };
        let trained = training.run(instances, restart, first, observer.results)?;
        observer.failures += trained.failures;
        observer.interrupted |= trained.interrupted;
        if training.id == self.id {
            observer.next_block = trained.next_block;
        }
        Ok(observer.interrupted)
    }

    /// Servers that were started again in the middle were optimized again.
    fn store_retuned(
        &self,
        instances: &mut [Instance],
        results: &mut RunWriter,
    ) -> Result<(), RunError> {
        for (number, instance) in (0..).zip(instances) {
            for mut record in instance.take_retuned() {
                (record.candidate, record.measured_next) = (number, self.id);
                results.add_optimization(&record)?;
                let candidate = &instance.candidate.name;
                (self.progress)(RunEvent::Optimized { candidate, record: &record });
            }
        }
        Ok(())
    }

    fn blocks(
        &self,
        instances: &mut [Instance],
        first: u32,
        observer: &mut Storing<'_, '_>,
    ) -> Result<Ended, RunError> {
        let experiment = self.context.experiment;
        let schedule = &experiment.schedule;
        let blocks = Blocks {
            seed: experiment.seed,
            microbenchmark: self.id,
            first,
            warmup: schedule.warmup_blocks,
            slice: plan::slice(schedule, self.microbenchmark),
            pace: match schedule.pace {
                experiment::Pace::Events => Pace::Events,
                experiment::Pace::Time => Pace::Time,
            },
            baseline: 0,
        };
        let prepare = self.prepare_request();
        let mut runners: Vec<Option<Lent<'_>>> = instances
            .iter_mut()
            .map(|instance| {
                let (context, prepare) = (self.context, &prepare);
                instance.is_alive().then_some(Lent { instance, context, prepare })
            })
            .collect();
        Ok(run_blocks(&mut runners, &blocks, observer)?)
    }

    /// Starts all instances anew: another draw of their layout.
    ///
    /// All have ended before the first starts: one that starts while the others run would get the
    /// very memory back that it had before.
    fn restart(
        &self,
        instances: &mut [Instance],
        restart: u32,
        results: &mut RunWriter,
    ) -> Result<usize, RunError> {
        let shrinks = self.microbenchmark.shrinks_tables();
        let (seed, count) = (self.context.experiment.seed, instances.len());
        let order = start_order(seed, Some(self.id), restart, count);
        let mut alive = arranged(instances, &order);
        alive.retain(|(_, instance)| instance.is_alive());
        alive.iter_mut().for_each(|(_, instance)| instance.stop());
        self.each(alive, results, "restarting", |instance, context| {
            if shrinks {
                instance.restore(context)?;
            }
            if instance.is_alive() { Ok(()) } else { instance.start(context) }
        })
    }

    fn prepare(
        &self,
        instances: &mut [Instance],
        results: &mut RunWriter,
    ) -> Result<usize, RunError> {
        let prepare = self.prepare_request();
        let alive = (0..).zip(instances).filter(|(_, instance)| instance.is_alive());
        self.each(alive, results, "preparing statements", |instance, _| {
            instance.worker_mut()?.prepare(prepare.clone())
        })
    }

    fn prepare_request(&self) -> Prepare {
        Prepare {
            microbenchmark: self.microbenchmark.clone(),
            position: self.id,
            clients: self.clients,
        }
    }

    /// Does something with each of the instances; one that fails is out.
    fn each<'i>(
        &self,
        instances: impl IntoIterator<Item = (u32, &'i mut Instance)>,
        results: &mut RunWriter,
        doing: &str,
        mut work: impl FnMut(&mut Instance, &RunContext<'_>) -> Result<(), WorkerError>,
    ) -> Result<usize, RunError> {
        let mut failures = 0;
        for (number, instance) in instances {
            let Err(error) = work(instance, self.context) else { continue };
            instance.kill();
            failures += 1;
            let reason = error.to_string();
            let candidate = instance.candidate.name.clone();
            let at = format!("{} ({doing})", self.microbenchmark.name);
            (self.progress)(RunEvent::Failure { candidate: &candidate, at: &at, reason: &reason });
            let microbenchmark = Some(self.id);
            results.add_failure(&FailureRecord {
                kind: FailureKind::Ended,
                recovered: false,
                candidate: number,
                microbenchmark,
                at,
                reason: reason.clone(),
            })?;
            if number == 0 {
                return Err(RunError::Baseline { candidate, reason });
            }
        }
        Ok(failures)
    }
}

/// An instance that is lent for the blocks of one microbenchmark.
pub(crate) struct Lent<'a> {
    pub instance: &'a mut Instance,
    pub context: &'a RunContext<'a>,
    pub prepare: &'a Prepare,
}

impl Runner for Lent<'_> {
    fn slice(&mut self, order: SliceRequest) -> Result<SliceMeasured, SliceError> {
        let error = match self.instance.worker_mut().and_then(|worker| worker.slice(order)) {
            Ok(measured) => return Ok(measured),
            Err(error) => error,
        };
        let why = self.instance.why(error);
        match self.instance.revive(self.context, self.prepare) {
            Ok(true) => Err(SliceError::Lost(why)),
            Ok(false) => Err(SliceError::Failed(why)),
            Err(again) => {
                let words =
                    |why: &str, again: &str| format!("{why}; starting it again failed: {again}");
                Err(SliceError::Failed(WorkerError::Server {
                    brief: words(&why.brief(), &again.brief()),
                    whole: words(&why.to_string(), &again.to_string()),
                }))
            }
        }
    }
}

/// Instances of another system than the baseline's.
fn foreign(instances: &[Instance]) -> Vec<usize> {
    let system = |instance: &Instance| instance.candidate.spec.system.name();
    let Some(baseline) = instances.first().map(system) else { return Vec::new() };
    (0..instances.len()).filter(|number| system(&instances[*number]) != baseline).collect()
}

/// Stores slices as they end, and decides when it is enough.
struct Storing<'a, 'r> {
    measuring: &'a Measuring<'a>,
    restart: u32,
    names: Vec<String>,
    alive: Vec<bool>,
    rule: StoppingRule,
    answer_check: AnswerCheck,
    errors: Vec<ErrorShare>,
    results: &'r mut RunWriter,
    next_block: u32,
    failures: usize,
    /// Why the baseline failed.
    baseline_failure: Option<String>,
    interrupted: bool,
}

impl Storing<'_, '_> {
    fn add_failure(
        &mut self,
        candidate: usize,
        kind: FailureKind,
        reason: String,
    ) -> Result<(), ResultsError> {
        let measuring = self.measuring;
        let at = &measuring.microbenchmark.name;
        let name = &self.names[candidate];
        (measuring.progress)(RunEvent::Failure { candidate: name, at, reason: &reason });
        self.failures += 1;
        self.results.add_failure(&FailureRecord {
            kind,
            recovered: false,
            candidate: candidate as u32,
            microbenchmark: Some(measuring.id),
            at: at.clone(),
            reason,
        })
    }

    fn check_error_shares(&mut self) -> Result<(), ResultsError> {
        let allowed = self.measuring.context.experiment.checks.max_error_share;
        for (candidate, errors) in std::mem::take(&mut self.errors).iter().enumerate() {
            if let Some(reason) = errors.beyond(allowed) {
                self.add_failure(candidate, FailureKind::Wrong, reason)?;
            }
        }
        Ok(())
    }

    fn stopped_by_user(&mut self) -> bool {
        self.interrupted = self.measuring.cancel.load(Ordering::Relaxed);
        self.interrupted
    }

    /// The candidates that are compared with the baseline.
    fn compared(&self) -> Vec<u32> {
        (1..self.alive.len()).filter(|i| self.alive[*i]).map(|i| i as u32).collect()
    }
}

impl Observer for Storing<'_, '_> {
    type Error = ResultsError;

    fn slice(&mut self, record: SliceRecord) -> Result<Flow, ResultsError> {
        let SliceRecord { block, place, warmup, candidate, measured } = record;
        // Between slices: no clock of a measurement is running.
        tracing::trace!(block, place, warmup, candidate = self.names[candidate], "slice");
        let row = SliceRow {
            microbenchmark: self.measuring.id,
            restart: self.restart,
            block,
            place,
            candidate: candidate as u32,
            warmup,
            measured,
        };
        self.results.add_slice(&row)?;
        self.answer_check.add(candidate, &row.measured);
        self.errors[candidate].add(&row.measured);
        if !warmup {
            self.rule.add(&row);
        }
        Ok(if self.stopped_by_user() { Flow::Stop } else { Flow::Continue })
    }

    fn lost(&mut self, candidate: usize, why: &WorkerError) -> Result<(), ResultsError> {
        let measuring = self.measuring;
        let (candidate_name, at) = (&self.names[candidate], &measuring.microbenchmark.name);
        let reason = format!("{why}; it was started again and goes on");
        let brief = &why.brief();
        (measuring.progress)(RunEvent::Lost { candidate: candidate_name, at, reason: brief });
        let lost = FailureRecord {
            kind: FailureKind::Lost,
            recovered: false,
            candidate: candidate as u32,
            microbenchmark: Some(measuring.id),
            at: at.clone(),
            reason,
        };
        self.results.add_failure(&lost)?;
        if !measuring.microbenchmark.writes() || self.answer_check.is_differing(candidate) {
            return Ok(());
        }
        self.answer_check.differs(candidate);
        let reason = "a slice of writes was lost: its data differs from then on".to_owned();
        self.results.add_failure(&FailureRecord { kind: FailureKind::Differs, reason, ..lost })
    }

    fn failed(&mut self, candidate: usize, why: &WorkerError) -> Result<(), ResultsError> {
        self.alive[candidate] = false;
        if candidate == 0 {
            self.baseline_failure = Some(why.to_string());
        }
        self.add_failure(candidate, FailureKind::Ended, why.to_string())
    }

    fn block(&mut self, block: u32, warmup: bool) -> Result<Flow, ResultsError> {
        self.next_block = block + 1;
        if self.measuring.context.experiment.schedule.pace == experiment::Pace::Events {
            for (candidate, reason) in self.answer_check.check() {
                self.add_failure(candidate, FailureKind::Wrong, reason)?;
            }
        }
        if warmup {
            return Ok(Flow::Continue);
        }
        self.rule.block();
        let candidates = self.compared();
        let schedule = &self.measuring.context.experiment.schedule;
        let flow = self.rule.after_block(schedule, &candidates);
        let estimates: Vec<InterimEstimate<'_>> = candidates
            .iter()
            .map(|candidate| InterimEstimate {
                candidate: &self.names[*candidate as usize],
                estimate: self.rule.estimate(*candidate),
            })
            .collect();
        let slice = plan::slice(schedule, self.measuring.microbenchmark);
        let (_, at_most) = plan::blocks(schedule, slice);
        let left = at_most.saturating_sub(self.rule.blocks());
        let this = plan::time(schedule, slice, left, candidates.len() as u64 + 1);
        (self.measuring.progress)(RunEvent::Block {
            blocks: self.rule.blocks(),
            at_most: at_most.max(self.rule.blocks()),
            estimates: &estimates,
            time_left: this + self.measuring.time_after,
        });
        Ok(flow)
    }
}
