//! Warm-up under whose load servers are sampled, and after which their code is laid out anew.
//! Candidates that stay as they are get the same slices.

use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_bench::measure::{Blocks, Ended, Flow, Observer, SliceRecord, run_blocks};
use dbdyno_bench::protocol::Prepare;
use dbdyno_bench::schedule::Pace;
use dbdyno_bench::worker::WorkerError;
use dbdyno_results::{FailureKind, FailureRecord, ResultsError, RunWriter, SliceRow};
use dbdyno_spec::experiment::{self, Experiment, Live, Train};
use dbdyno_units::Nanos;

use crate::error::RunError;
use crate::instances::{Instance, RunContext};
use crate::live_optimize::Sampler;
use crate::microbenchmark::Lent;
use crate::plan::{self, MicrobenchmarkCase, cases};
use crate::progress::{Progress, RunEvent};

/// Slices that are as short as those that count would be mostly bookkeeping.
const SLICE: Nanos = Nanos::from_millis(250);

/// The warm-up for one microbenchmark.
pub(crate) struct LiveTraining<'a> {
    pub context: &'a RunContext<'a>,
    /// What is run.
    pub case: MicrobenchmarkCase,
    /// Its number: position in the running order.
    pub id: u32,
    /// What is measured next.
    pub before: u32,
    pub cancel: &'a AtomicBool,
    pub progress: Progress<'a>,
}

/// How it went.
#[derive(Debug)]
pub(crate) struct WarmUpOutcome {
    /// Whether the user stopped it.
    pub interrupted: bool,
    /// Candidates that failed.
    pub failures: usize,
    /// The first block that is free now.
    pub next_block: u32,
}

/// The number of the microbenchmark that servers are trained with before this one is measured;
/// `None` where no server is optimized.
pub(crate) fn trained_with(experiment: &Experiment, measured: usize) -> Option<u32> {
    // One warm-up serves all: that of the first candidate that says how.
    let live = experiment.candidates.iter().find_map(|candidate| candidate.live.as_ref())?;
    let cases = cases(experiment);
    let of = match live.train {
        Train::Each => cases.get(measured)?,
        Train::Once => cases.first()?,
    };
    let clients = live.clients.unwrap_or(of.clients);
    let name = &of.microbenchmark.name;
    let found = cases
        .iter()
        .position(|case| case.clients == clients && case.microbenchmark.name == *name)?;
    u32::try_from(found).ok()
}

/// For how long each candidate is warmed up each time.
pub(crate) fn time(experiment: &Experiment) -> Nanos {
    let lives = experiment.candidates.iter().filter_map(|candidate| candidate.live.as_ref());
    lives.map(|live| live.profile).max().unwrap_or_default()
}

/// How often all of it happens when nothing is started again.
pub(crate) fn times(experiment: &Experiment) -> u64 {
    let mut all: Vec<u32> = (0..cases(experiment).len())
        .filter_map(|measured| trained_with(experiment, measured))
        .collect();
    all.dedup();
    all.len() as u64
}

impl LiveTraining<'_> {
    /// Whether some server has not been optimized with this, or was started again since.
    pub fn is_needed(&self, instances: &[Instance]) -> bool {
        instances.iter().any(|instance| instance.wants_training(self.id))
    }

    /// Warms all up, and optimizes the servers that ask for it.
    pub fn run(
        &self,
        instances: &mut [Instance],
        restart: u32,
        first: u32,
        results: &mut RunWriter,
    ) -> Result<WarmUpOutcome, RunError> {
        (self.progress)(RunEvent::Stage(format!(
            "warming up with {} for the live optimizer",
            self.case.microbenchmark.name
        )));
        let mut trained = WarmUpOutcome { interrupted: false, failures: 0, next_block: first };
        let prepare = Prepare {
            microbenchmark: self.case.microbenchmark.clone(),
            position: self.id,
            clients: self.case.clients,
        };
        self.each(instances, results, &mut trained, |instance, _| {
            instance.worker_mut()?.prepare(prepare.clone())
        })?;
        let mut samplers = loop {
            let samplers = self.samplers(instances);
            self.warm_up(instances, &prepare, restart, results, &mut trained)?;
            if trained.interrupted {
                return Ok(trained);
            }
            if !self.has_lost_samples(instances, &samplers) {
                break samplers;
            }
            // That ends: how often a server is started again is limited.
            (self.progress)(RunEvent::Stage("warming up once more, with a new server".to_owned()));
        };
        (self.progress)(RunEvent::Stage("laying code out anew".to_owned()));
        let mut records = Vec::new();
        self.each(instances, results, &mut trained, |instance, number| {
            let mut optimize = || match samplers[number].take() {
                Some(sampler) => instance.optimize(self.context, &sampler.finish()?, self.id),
                None => instance.optimize_as_given(self.context, self.id),
            };
            let failed = |message| WorkerError::Failed { doing: "optimizing it", message };
            let record = optimize().map_err(failed)?;
            records.extend(record.map(|mut record| {
                (record.candidate, record.measured_next) = (number as u32, self.before);
                record
            }));
            Ok(())
        })?;
        for record in &records {
            results.add_optimization(record)?;
            let name = &instances[record.candidate as usize].candidate.name;
            (self.progress)(RunEvent::Optimized { candidate: name, record });
        }
        Ok(trained)
    }

    /// Starts to sample the servers that ask for it.
    fn samplers(&self, instances: &[Instance]) -> Vec<Option<Sampler>> {
        let sampler = |instance: &Instance| {
            let optimizer = instance.optimizer(self.context)?;
            optimizer.live.samples_of.is_none().then(|| Sampler::start(&optimizer))
        };
        instances.iter().map(sampler).collect()
    }

    /// Whether a server was started again while it was sampled: what is known is of the one before,
    /// at addresses of its own.
    fn has_lost_samples(&self, instances: &[Instance], samplers: &[Option<Sampler>]) -> bool {
        instances.iter().zip(samplers).any(|(instance, sampler)| {
            let now = instance.optimizer(self.context);
            sampler.as_ref().zip(now).is_some_and(|(sampler, now)| sampler.pid() != now.pid)
        })
    }

    fn warm_up(
        &self,
        instances: &mut [Instance],
        prepare: &Prepare,
        restart: u32,
        results: &mut RunWriter,
        trained: &mut WarmUpOutcome,
    ) -> Result<(), RunError> {
        let experiment = self.context.experiment;
        let slice = plan::slice(&experiment.schedule, &self.case.microbenchmark).max(SLICE);
        let count = time(experiment).as_nanos().div_ceil(slice.as_nanos().max(1));
        let count = u32::try_from(count).unwrap_or(u32::MAX).max(1);
        let blocks = Blocks {
            seed: experiment.seed,
            microbenchmark: self.id,
            first: trained.next_block,
            warmup: count,
            slice,
            pace: match experiment.schedule.pace {
                experiment::Pace::Events => Pace::Events,
                experiment::Pace::Time => Pace::Time,
            },
            baseline: 0,
        };
        let names = instances.iter().map(|i| i.candidate.name.clone()).collect();
        let alive = instances.iter().map(Instance::is_alive).collect();
        let last = trained.next_block + count - 1;
        let mut observer = WarmingUp {
            training: self,
            results,
            names,
            alive,
            restart,
            last,
            trained,
            baseline_failure: None,
        };
        let mut runners: Vec<Option<Lent<'_>>> = instances
            .iter_mut()
            .map(|instance| {
                let context = self.context;
                instance.is_alive().then_some(Lent { instance, context, prepare })
            })
            .collect();
        let ended = run_blocks(&mut runners, &blocks, &mut observer)?;
        let (alive, reason) = (observer.alive, observer.baseline_failure);
        for (instance, _) in instances.iter_mut().zip(alive).filter(|(_, alive)| !alive) {
            instance.kill();
        }
        if ended == Ended::BaselineFailed {
            let candidate = instances[0].candidate.name.clone();
            return Err(RunError::Baseline { candidate, reason: reason.unwrap_or_default() });
        }
        Ok(())
    }

    /// Does something with every instance that is alive; one that fails is out.
    fn each(
        &self,
        instances: &mut [Instance],
        results: &mut RunWriter,
        trained: &mut WarmUpOutcome,
        mut work: impl FnMut(&mut Instance, usize) -> Result<(), WorkerError>,
    ) -> Result<(), RunError> {
        for (number, instance) in instances.iter_mut().enumerate() {
            if !instance.is_alive() {
                continue;
            }
            let Err(error) = work(instance, number) else { continue };
            instance.kill();
            let candidate = instance.candidate.name.clone();
            let reason = error.to_string();
            trained.failures += 1;
            results.add_failure(&self.failure(number, FailureKind::Ended, &candidate, &reason))?;
            if number == 0 {
                return Err(RunError::Baseline { candidate, reason });
            }
        }
        Ok(())
    }

    fn failure(
        &self,
        candidate: usize,
        kind: FailureKind,
        name: &str,
        reason: &str,
    ) -> FailureRecord {
        let at = format!("{} (warm-up)", self.case.microbenchmark.name);
        (self.progress)(RunEvent::Failure { candidate: name, at: &at, reason });
        FailureRecord {
            kind,
            recovered: false,
            candidate: candidate as u32,
            microbenchmark: Some(self.before),
            at,
            reason: reason.to_owned(),
        }
    }
}

/// Stores the slices of the warm-up.
struct WarmingUp<'a, 'r> {
    training: &'a LiveTraining<'a>,
    results: &'r mut RunWriter,
    names: Vec<String>,
    alive: Vec<bool>,
    restart: u32,
    /// The last block.
    last: u32,
    trained: &'r mut WarmUpOutcome,
    baseline_failure: Option<String>,
}

impl WarmingUp<'_, '_> {
    fn add_failure(
        &mut self,
        candidate: usize,
        kind: FailureKind,
        reason: &str,
    ) -> Result<(), ResultsError> {
        let record = self.training.failure(candidate, kind, &self.names[candidate], reason);
        self.results.add_failure(&record)
    }
}

impl Observer for WarmingUp<'_, '_> {
    type Error = ResultsError;

    fn slice(&mut self, record: SliceRecord) -> Result<Flow, ResultsError> {
        let SliceRecord { block, place, candidate, measured, .. } = record;
        self.trained.next_block = block + 1;
        self.results.add_slice(&SliceRow {
            microbenchmark: self.training.id,
            restart: self.restart,
            block,
            place,
            candidate: candidate as u32,
            warmup: true,
            measured,
        })?;
        self.trained.interrupted = self.training.cancel.load(Ordering::Relaxed);
        Ok(if self.trained.interrupted { Flow::Stop } else { Flow::Continue })
    }

    fn lost(&mut self, candidate: usize, why: &WorkerError) -> Result<(), ResultsError> {
        let reason = format!("{why}; it was started again and goes on");
        self.add_failure(candidate, FailureKind::Lost, &reason)
    }

    fn failed(&mut self, candidate: usize, why: &WorkerError) -> Result<(), ResultsError> {
        let reason = why.to_string();
        self.alive[candidate] = false;
        self.trained.failures += 1;
        self.add_failure(candidate, FailureKind::Ended, &reason)?;
        if candidate == 0 {
            self.baseline_failure = Some(reason);
        }
        Ok(())
    }

    fn block(&mut self, block: u32, _: bool) -> Result<Flow, ResultsError> {
        Ok(if block >= self.last { Flow::Stop } else { Flow::Continue })
    }
}

/// In words, for reports.
pub(crate) fn describe(live: &Live) -> String {
    let Live { profile, frequency, samples_of, train, clients, max_pause, keep_order } = live;
    let order = if *keep_order { "; code keeps its order" } else { "" };
    if let Some(name) = samples_of {
        return format!("by the samples of {name}; stopped for {max_pause} at most{order}");
    }
    let with = match train {
        Train::Each => "each microbenchmark",
        Train::Once => "the first microbenchmark, once",
    };
    let clients = clients.map_or_else(String::new, |clients| format!(" at {clients} clients"));
    format!(
        "trained with {with}{clients}: {profile} under load, {frequency} samples per second; \
         stopped for {max_pause} at most{order}"
    )
}
