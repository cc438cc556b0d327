//! The stages of a session, in order.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use dbdyno_machine::{
    CpuSet, HostFacts, Needs, Root, Severity, Split, Topology, check, clock, pin_current_thread,
};
use dbdyno_results::{
    CertificateRecord, FailureKind, FailureRecord, MicrobenchmarkRecord, NewRun, RunReader,
    RunWriter, SessionRecord, Warning,
};
use dbdyno_spec::experiment::{Experiment, Pace};
use dbdyno_units::{Bytes, Nanos};
use dbdyno_workloads::definition::{Microbenchmark, Stage, Throughput};

use crate::candidates::{Contender, build_all};
use crate::data;
use crate::error::RunError;
use crate::instances::{Instance, Site, WorkerProgram};
use crate::microbenchmark::{Measured, Measuring};
use crate::plan::{self, Plan};
use crate::progress::{Event, LiveEstimate, Outcome, Progress};
use crate::settings;

/// How long the machine is watched for load by others before a run.
const WATCH: Duration = Duration::from_millis(500);

/// What a session needs besides the experiment.
pub struct Options<'a> {
    /// How workers are started.
    pub worker: WorkerProgram,
    /// Where builds are cached; the user's cache directory where there is none.
    pub cache: Option<PathBuf>,
    /// Whether the instances' data stays after a complete run.
    pub keep_data: bool,
    /// Set when the user wants to stop.
    pub cancel: Arc<AtomicBool>,
    /// Where events go.
    pub progress: Progress<'a>,
    /// dbdyno's version.
    pub version: String,
    /// The present time, RFC 3339.
    pub now: String,
}

/// Starts a run in a new directory.
///
/// Call it on the main thread: workers end with the thread that started them.
///
/// # Errors
/// The run cannot start or go on; what was measured until then is kept.
pub fn start_run(
    experiment: &Experiment,
    experiment_text: &str,
    directory: &Path,
    options: &Options<'_>,
) -> Result<Outcome, RunError> {
    let results = RunWriter::create(directory, &new_run(experiment, experiment_text))?;
    Session::new(experiment, options, results)?.run()
}

/// Continues the run in a directory where it stopped.
///
/// Call it on the main thread: workers end with the thread that started them.
///
/// # Errors
/// The run cannot go on; what was measured until then is kept.
pub fn continue_run(directory: &Path, options: &Options<'_>) -> Result<Outcome, RunError> {
    let results = RunWriter::resume(directory)?;
    let experiment: Experiment = results.reader()?.experiment()?;
    Session::new(&experiment, options, results)?.run()
}

fn new_run(experiment: &Experiment, text: &str) -> NewRun {
    let rows = experiment.workload.rows;
    let record = |microbenchmark: &Microbenchmark| MicrobenchmarkRecord {
        name: microbenchmark.name.clone(),
        group: microbenchmark.group.name().to_owned(),
        three_group: microbenchmark.group.name_of_three().to_owned(),
        rows_read_per_statement: match microbenchmark.throughput {
            Throughput::Statements => None,
            Throughput::MillionRowsRead => Some(rows),
        },
    };
    NewRun {
        name: experiment.name.clone(),
        baseline: experiment.baseline.clone(),
        experiment_text: text.to_owned(),
        experiment: serde_json::to_value(experiment).expect("an experiment is plain data"),
        settings: settings::of_experiment(experiment),
        microbenchmarks: experiment.workload.microbenchmarks.iter().map(record).collect(),
        pace: match experiment.schedule.pace {
            Pace::Events => "events".to_owned(),
            Pace::Time => "time".to_owned(),
        },
    }
}

struct Session<'a> {
    experiment: &'a Experiment,
    options: &'a Options<'a>,
    results: RunWriter,
    started: Nanos,
    failures: usize,
    facts: HostFacts,
}

impl<'a> Session<'a> {
    fn new(
        experiment: &'a Experiment,
        options: &'a Options<'a>,
        results: RunWriter,
    ) -> Result<Self, RunError> {
        let started = clock::monotonic();
        (options.progress)(Event::Stage("looking at the machine".to_owned()));
        let facts = HostFacts::gather_over(results.directory().path(), WATCH);
        let mut session = Self { experiment, options, results, started, failures: 0, facts };
        let warnings = session.warnings();
        (options.progress)(Event::Warnings(&warnings));
        session.results.start_session(&SessionRecord {
            started: options.now.clone(),
            version: options.version.clone(),
            host: session.facts.rows(),
            facts: serde_json::to_value(&session.facts).unwrap_or_default(),
            warnings,
            elapsed: Nanos::ZERO,
        })?;
        Ok(session)
    }

    fn warnings(&self) -> Vec<Warning> {
        let plan = Plan::of(self.experiment);
        // Each instance caches its data once per client, and the files are cached by the kernel.
        let caches = plan.data_size.as_bytes() * u64::from(self.experiment.workload.clients + 1);
        let needs = Needs {
            memory: Some(Bytes::from_bytes(caches)),
            disk: Some(plan.data_size),
            cpus: Some(self.experiment.workload.clients as usize + 1),
        };
        check(&self.facts, &needs)
            .into_iter()
            .filter(|finding| finding.severity == Severity::Warning)
            .map(|finding| Warning {
                what: finding.what,
                advice: finding.advice.unwrap_or_default(),
            })
            .collect()
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        let outcome = self.stages();
        // However it ended, the time was spent.
        self.note_time()?;
        outcome
    }

    fn stages(&mut self) -> Result<Outcome, RunError> {
        let done = self.done()?;
        if done.iter().all(|done| *done) {
            return self.complete();
        }
        let options = self.options;
        let contenders =
            build_all(self.experiment, options.cache.clone(), &options.cancel, options.progress);
        if self.cancelled() {
            return Ok(Outcome::Interrupted);
        }
        let contenders = contenders?;
        self.store_candidates(&contenders)?;
        let cpus = self.divide_cpus()?;
        let site = Site {
            experiment: self.experiment,
            directory: self.results.directory().clone(),
            worker: &options.worker,
            cpus: Some(cpus.system.to_string()),
        };
        self.prepare_data(&site, &contenders)?;
        if self.cancelled() {
            return Ok(Outcome::Interrupted);
        }
        // Compilers ran on all CPUs; from here on dbdyno keeps out of the way.
        pin_current_thread(&cpus.dbdyno).map_err(|error| RunError::Cpus {
            given: error.to_string(),
            allowed: allowed_cpus().to_string(),
        })?;
        (options.progress)(Event::Stage("starting the instances".to_owned()));
        let mut instances: Vec<Instance> =
            contenders.into_iter().map(|contender| Instance { contender, worker: None }).collect();
        self.start(&site, &mut instances)?;
        self.certify(&mut instances, "at the start of the session")?;
        if self.measure_all(&site, &done, &mut instances)?.interrupted {
            return Ok(Outcome::Interrupted);
        }
        self.certify(&mut instances, "after the last microbenchmark")?;
        for instance in &mut instances {
            if let Some(worker) = instance.worker.take() {
                // Its work is done and stored; how it closes changes nothing.
                let _ = worker.close();
            }
        }
        self.complete()
    }

    fn complete(&mut self) -> Result<Outcome, RunError> {
        if !self.options.keep_data {
            data::remove(self.results.directory())?;
        }
        Ok(Outcome::Complete { failures: self.failures })
    }

    /// Which microbenchmarks are done.
    fn done(&self) -> Result<Vec<bool>, RunError> {
        let microbenchmarks = self.results.reader()?.microbenchmarks()?;
        Ok(microbenchmarks.into_iter().map(|(_, done)| done).collect())
    }

    fn store_candidates(&mut self, contenders: &[Contender]) -> Result<(), RunError> {
        let records: Vec<_> = contenders.iter().map(Contender::record).collect();
        let before = self.results.reader()?.candidates()?;
        if before.is_empty() {
            self.results.add_candidates(&records)?;
            return Ok(());
        }
        for (number, (before, now)) in (0..).zip(before.iter().zip(&records)) {
            let (old, new) = (&before.build.fingerprint, &now.build.fingerprint);
            if old != new {
                let reason = format!(
                    "its build was {old} when the run began and is {new} now: the compiler, the \
                     source or the CPU has changed; start a new run instead"
                );
                self.fail(number, &now.name, "resuming", reason.clone())?;
                return Err(RunError::Baseline { candidate: now.name.clone(), reason });
            }
        }
        Ok(())
    }

    fn divide_cpus(&self) -> Result<Split, RunError> {
        let allowed = allowed_cpus();
        let topology = Topology::read(&Root::this_machine());
        let chosen = Split::choose(&allowed, &topology, self.experiment.workload.clients, true);
        let named = |given: &Option<String>, otherwise: CpuSet| match given {
            None => Ok(otherwise),
            Some(given) => match given.parse::<CpuSet>() {
                Ok(set) if set.iter().all(|cpu| allowed.contains(cpu)) => Ok(set),
                _ => Err(RunError::Cpus { given: given.clone(), allowed: allowed.to_string() }),
            },
        };
        Ok(Split {
            system: named(&self.experiment.cpus.system, chosen.system)?,
            dbdyno: named(&self.experiment.cpus.dbdyno, chosen.dbdyno)?,
        })
    }

    fn prepare_data(&self, site: &Site<'_>, contenders: &[Contender]) -> Result<(), RunError> {
        let progress = self.options.progress;
        let reader = self.results.reader()?;
        let written = self.wrote_before(&reader)?;
        if written && data::from_baseline(site, contenders)? {
            return Ok(());
        }
        if written {
            progress(Event::Stage(
                "going on from newly loaded data: that of the interrupted run cannot be used"
                    .into(),
            ));
        }
        data::fresh(site, contenders, progress)
    }

    /// Whether an earlier session changed the data.
    fn wrote_before(&self, reader: &RunReader) -> Result<bool, RunError> {
        for (id, microbenchmark) in (0..).zip(&self.experiment.workload.microbenchmarks) {
            if microbenchmark.writes() && !reader.slices(id)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn start(&mut self, site: &Site<'_>, instances: &mut [Instance]) -> Result<(), RunError> {
        self.each(instances, "starting", |instance| instance.start(site))
    }

    /// Stores where every instance stands.
    fn certify(&mut self, instances: &mut [Instance], at: &str) -> Result<(), RunError> {
        let mut certificates = Vec::new();
        self.each(instances, "certifying", |instance| {
            certificates.push(None);
            if let (Some(worker), Some(last)) = (&mut instance.worker, certificates.last_mut()) {
                *last = Some(worker.certify()?);
            }
            Ok(())
        })?;
        for (candidate, certificate) in (0..).zip(certificates) {
            if let Some(certificate) = certificate {
                let at = at.to_owned();
                self.results.add_certificate(&CertificateRecord { candidate, at, certificate })?;
            }
        }
        Ok(())
    }

    /// Writes back what the writes left, on all instances.
    fn settle(&mut self, instances: &mut [Instance], warm: bool) -> Result<(), RunError> {
        self.each(instances, "settling", |instance| match &mut instance.worker {
            Some(worker) => {
                worker.forget()?;
                worker.settle()?;
                if warm { worker.warm() } else { Ok(()) }
            }
            None => Ok(()),
        })
    }

    fn measure_all(
        &mut self,
        site: &Site<'_>,
        done: &[bool],
        instances: &mut [Instance],
    ) -> Result<Measured, RunError> {
        let all = &self.experiment.workload.microbenchmarks;
        let mut settled = true;
        for (index, microbenchmark) in all.iter().enumerate() {
            if done[index] {
                continue;
            }
            let reads_after_writes = !settled && microbenchmark.stage >= Stage::Post;
            if microbenchmark.writes() || reads_after_writes {
                let warm = reads_after_writes;
                self.settle(instances, warm)?;
                if reads_after_writes {
                    self.certify(instances, "after the writes")?;
                    settled = true;
                }
            }
            if microbenchmark.writes() {
                settled = false;
            }
            if microbenchmark.shrinks_tables() {
                self.each(instances, "keeping its data", |instance| instance.keep(site))?;
            }
            let (number, of) = (index + 1, all.len());
            let name = &microbenchmark.name;
            (self.options.progress)(Event::Microbenchmark { number, of, name });
            let time_after = self.time_after(done, index);
            let measured = Measuring {
                site,
                microbenchmark,
                id: index as u32,
                before: self.results.reader()?.slices(index as u32)?,
                cancel: &self.options.cancel,
                progress: self.options.progress,
                time_after,
            }
            .run(instances, &mut self.results)?;
            self.failures += measured.failures;
            if microbenchmark.shrinks_tables() {
                self.each(instances, "restoring its data", |instance| instance.restore(site))?;
            }
            if measured.interrupted {
                return Ok(measured);
            }
            self.results.set_done(index as u32)?;
            self.note_time()?;
            let estimates = estimates(&measured, instances);
            let (blocks, estimates) = (measured.live.blocks(), &estimates[..]);
            (self.options.progress)(Event::MicrobenchmarkDone {
                number,
                of,
                name,
                blocks,
                estimates,
                time_left: time_after,
            });
        }
        Ok(Measured::default())
    }

    /// How long the microbenchmarks after this one will take, at most.
    fn time_after(&self, done: &[bool], index: usize) -> Nanos {
        let schedule = &self.experiment.schedule;
        let instances = plan::instances(self.experiment) as u64;
        self.experiment.workload.microbenchmarks[index + 1..]
            .iter()
            .zip(&done[index + 1..])
            .filter(|(_, done)| !**done)
            .map(|(microbenchmark, _)| {
                let slice = plan::slice(schedule, microbenchmark);
                let (_, most) = plan::blocks(schedule, slice);
                plan::time(schedule, slice, most, instances)
            })
            .sum()
    }

    /// Does something with every instance that is alive; one that fails is out.
    fn each(
        &mut self,
        instances: &mut [Instance],
        doing: &str,
        mut work: impl FnMut(&mut Instance) -> Result<(), dbdyno_bench::worker::WorkerError>,
    ) -> Result<(), RunError> {
        for (number, instance) in (0..).zip(instances) {
            let Err(error) = work(instance) else { continue };
            instance.worker = None;
            let candidate = instance.contender.name.clone();
            let reason = error.to_string();
            self.fail(number, &candidate, doing, reason.clone())?;
            if number == 0 {
                return Err(RunError::Baseline { candidate, reason });
            }
        }
        Ok(())
    }

    fn fail(
        &mut self,
        number: u32,
        candidate: &str,
        at: &str,
        reason: String,
    ) -> Result<(), RunError> {
        (self.options.progress)(Event::Failure { candidate, at, reason: &reason });
        self.failures += 1;
        let at = at.to_owned();
        Ok(self.results.add_failure(&FailureRecord {
            kind: FailureKind::Ended,
            recovered: false,
            candidate: number,
            microbenchmark: None,
            at,
            reason,
        })?)
    }

    fn cancelled(&self) -> bool {
        self.options.cancel.load(Ordering::Relaxed)
    }

    fn note_time(&mut self) -> Result<(), RunError> {
        Ok(self.results.session_elapsed(clock::monotonic() - self.started)?)
    }
}

fn estimates<'a>(measured: &Measured, instances: &'a [Instance]) -> Vec<LiveEstimate<'a>> {
    (0..)
        .zip(instances)
        .skip(1)
        .map(|(number, instance)| LiveEstimate {
            candidate: &instance.contender.name,
            estimate: measured.live.estimate(number),
        })
        .collect()
}

/// The CPUs that this process may use; where even that is unknown, the first.
fn allowed_cpus() -> CpuSet {
    CpuSet::allowed().unwrap_or_else(|_| std::iter::once(0).collect())
}
