//! A session: the stages of a run, in order.

mod extension;
mod in_force;
pub(crate) mod insert_benchmark;
pub(crate) mod microbenchmarks;
pub(crate) mod progress;
pub(crate) mod readiness;
pub(crate) mod resume;
pub(crate) mod start;
pub(crate) mod stored_run;

use std::path::Path;

use dbdyno_engines::SchemaRemoval;
use dbdyno_machine::{CpuAssignment, CpuSet, clock, while_pinned};
use dbdyno_results::{FailureKind, ResultsError, RunDirectory, RunWriter, SessionRecord, Warning};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Nanos;

use crate::building::resolve_all;
use crate::candidates::hosts::Hosts;
use crate::candidates::{Deployment, ResolvedCandidate, auditing};
use crate::error::RunError;
use crate::instance::context::RunContext;
use crate::instance::cpus::allowed_cpus;
use crate::instance::{Instance, data};
use crate::measure::checks::with_lines;
use crate::measure::profile::warnings_of_candidates;
use crate::options::Options;
use crate::plan::RunPlan;
use crate::plan::cases::cases;
use crate::plan::elapsed::{Costs, StartCosts};
use crate::plan::inserts::InsertTimes;
use crate::plan::script_data;
use crate::record::{Phase, Recorder, candidate_record};
use crate::session::extension::Extension;
use crate::session::progress::{Outcome, RunEvent};
use crate::session::resume::RunState;
use crate::session::stored_run::{
    StoredData, end_statements, open_stored_run, register, remove_loaded, remove_schemas,
    remove_used_schemas,
};
use crate::training::PgoTrainer;

/// Starts a run in a new directory.
///
/// Call it on the main thread: workers end with the thread that started them.
pub fn start_run(
    experiment: &Experiment,
    experiment_text: &str,
    directory: &Path,
    options: &Options<'_>,
) -> Result<Outcome, RunError> {
    readiness::check_platform(experiment)?;
    data::check_links(directory)?;
    if stored_run::remove_empty_run(directory, experiment_text, &options.worker)? {
        let directory = directory.display();
        (options.progress)(RunEvent::Stage(format!(
            "replacing the run in {directory}, which measured nothing"
        )));
    }
    let mut experiment = experiment.clone();
    script_data::assign(&mut experiment, &options.worker.cancel, options.progress)?;
    let experiment = &experiment;
    let new_run = start::new_run(experiment, experiment_text);
    // Recording its scripts takes a while.
    data::check_links(directory)?;
    let mut results = RunWriter::create(directory, &new_run)?;
    data::check_links(directory)?;
    register(directory, results.identity().id.as_str());
    // Until the first is created.
    results.set_may_have_schemas(false)?;
    tracing::info!(directory = %directory.display(), "started a run");
    let done = Session::start(experiment, options, results).and_then(Session::run);
    unless_removed(directory, done).map_err(|error| error.with_places(experiment))
}

/// Resumes the run in a directory.
///
/// Call it on the main thread: workers end with the thread that started them.
pub fn continue_run(directory: &Path, options: &Options<'_>) -> Result<Outcome, RunError> {
    let (results, experiment) = open_stored_run(directory, options.trust)?;
    tracing::info!(directory = %directory.display(), "resumed a run");
    let done = Session::start(&experiment, options, results).and_then(Session::run);
    unless_removed(directory, done).map_err(|error| error.with_places(&experiment))
}

/// Extends the complete run in a directory: measures microbenchmarks for `more` time in all, first
/// those in which no difference was found. An interrupted extension is resumed with
/// [`continue_run`].
///
/// Call it on the main thread: workers end with the thread that started them.
pub fn extend_run(
    directory: &Path,
    more: Nanos,
    options: &Options<'_>,
) -> Result<Outcome, RunError> {
    let (results, experiment) = open_stored_run(directory, options.trust)?;
    let extension = resume::plan_extension(&results, &experiment, more)?;
    tracing::info!(directory = %directory.display(), %more, "extended a run");
    let mut session = Session::start(&experiment, options, results)?;
    session.extension = Some(extension);
    unless_removed(directory, session.run())
}

/// How the session ended, unless its run was removed: whatever failed then, failed because of that, and there
/// is nothing to resume.
fn unless_removed(directory: &Path, done: Result<Outcome, RunError>) -> Result<Outcome, RunError> {
    match RunDirectory::at(directory).database().try_exists() {
        Ok(false) => Err(ResultsError::Gone(directory.to_owned()).into()),
        _ => done,
    }
}

/// How long it took to start all instances, with stopping them and settling their data: time and count, after reads and
/// after writes.
#[derive(Clone, Copy, Debug, Default)]
struct Starts([(Nanos, u32); 2]);

impl Starts {
    fn add(&mut self, after_writes: bool, time: Nanos, count: u32) {
        let (all, counted) = &mut self.0[usize::from(after_writes)];
        *all += time;
        *counted += count;
    }

    fn count(self) -> u32 {
        self.0.iter().map(|(_, count)| count).sum()
    }

    /// The means; what is not known yet is typical.
    fn costs(self, typical: StartCosts) -> StartCosts {
        let [after_reads, after_writes] = self.0.map(|(time, count)| {
            (count > 0).then(|| Nanos::from_nanos(time.as_nanos() / u64::from(count)))
        });
        let after_reads = after_reads.unwrap_or(typical.after_reads);
        let after_writes = after_writes.unwrap_or(typical.after_writes.max(after_reads));
        StartCosts { after_reads, after_writes }
    }
}

/// Data that took this long to load is kept for a resumed run, though nothing was measured yet.
const LONG_LOADING: Nanos = Nanos::from_secs(60);

/// One uninterrupted part of a run.
struct Session<'a> {
    experiment: &'a Experiment,
    options: &'a Options<'a>,
    recorder: Recorder<'a>,
    record: SessionRecord,
    state: RunState,
    /// An extension that has not begun.
    extension: Option<Extension>,
    /// Whether the data of earlier sessions must not be used.
    needs_new_data: bool,
    started: Nanos,
    /// The upper end of the announced time; `None` if there is none, or if it was reported that the run takes longer.
    planned: Option<Nanos>,
    /// How many times as long starts and loading take at most because of what others run on this machine, by an estimate.
    contention: f64,
    /// When all builds were there and loading began.
    loading_began: Nanos,
    starts: Starts,
    cpus: CpuAssignment,
    /// CPUs that are kept from idling while microbenchmarks run.
    idle_prevention: CpuSet,
}

impl<'a> Session<'a> {
    fn run(mut self) -> Result<Outcome, RunError> {
        let outcome = match self.stages() {
            Err(RunError::Interrupted) => {
                Ok(Outcome::Interrupted { if_resumed: self.warning_if_resumed() })
            }
            ended => ended,
        };
        self.store_elapsed()?;
        outcome
    }

    fn stages(&mut self) -> Result<Outcome, RunError> {
        let (experiment, options) = (self.experiment, self.options);
        if self.extension.is_none() && self.state.is_complete(experiment) {
            return self.complete();
        }
        self.check_before_work()?;
        self.report_planned();
        let trainer = PgoTrainer {
            experiment,
            directory: self.recorder.results.directory().clone(),
            worker: &options.worker,
            cpus: self.cpus.clone(),
            progress: options.progress,
        };
        let hosts = self.connect_hosts()?;
        let candidates = resolve_all(experiment, options.cache.clone(), &trainer, &hosts)
            .inspect(|all| self.record.loses_data = !data::outlives_session(all));
        self.recorder.check_cancelled()?;
        let mut candidates = candidates?;
        self.find_server_processes(&mut candidates)?;
        self.warn_once(warnings_of_candidates(experiment, &candidates))?;
        self.warn_once(auditing::warnings(&candidates))?;
        self.store_candidates(&candidates)?;
        self.warn_once(in_force::planned(&candidates)?)?;
        self.begin_extension()?;
        let mut context = self.context();
        let is_here = |one: &ResolvedCandidate| {
            matches!(one.deployment, Deployment::Private(_)) && one.host.is_none()
        };
        if candidates.iter().any(is_here) {
            context.open_local()?;
        }
        let had_schemas = self.recorder.results.reader()?.may_have_schemas()?;
        if candidates.iter().any(|one| matches!(one.deployment, Deployment::Existing(_))) {
            self.recorder.results.set_may_have_schemas(true)?;
        }
        let had_data = !StoredData::of(context.directory.path()).places.is_empty();
        let end = self.load_and_measure(&context, candidates);
        if matches!(end, Err(RunError::Interrupted)) {
            end_statements(&context);
        }
        let is_needed = matches!(end, Ok(true) | Err(RunError::Interrupted));
        if !is_needed && !options.keep_data {
            // A resumed run could not use them.
            if remove_used_schemas(&context, had_schemas) {
                self.recorder.results.set_may_have_schemas(false)?;
            }
            let is_refused = matches!(end, Err(RunError::Settings(_) | RunError::Statements(_)));
            // How long an earlier session loaded is unknown.
            let is_soon_loaded_again =
                !had_data && clock::monotonic() - self.loading_began < LONG_LOADING;
            let measured = self.recorder.results.reader().and_then(|run| run.has_measured());
            if !measured.unwrap_or(true) && (is_refused || is_soon_loaded_again) {
                // A new run is as good as a resumed one. What cannot be removed is reported.
                let _ = remove_loaded(&context);
            }
        }
        let text = || self.recorder.results.reader().and_then(|run| run.experiment_text());
        let is_complete = end.map_err(|error| with_lines(error, &text().unwrap_or_default()))?;
        if !is_complete {
            return Ok(Outcome::Complete { failures: self.recorder.failures });
        }
        if let Some(local) = context.local.filter(|_| !options.keep_data) {
            local.remove_all()?;
        }
        self.complete()
    }

    /// Checks what can be checked before anything is compiled or loaded: the architecture, free disk space, and the
    /// access to all existing servers.
    fn check_before_work(&self) -> Result<(), RunError> {
        readiness::check_platform(self.experiment)?;
        let directory = self.recorder.results.directory().path();
        if StoredData::of(directory).places.is_empty() {
            data::check_spaces(data::planned_space(self.experiment, directory))?;
        }
        let run = self.recorder.results.identity();
        let checked = readiness::check_all(self.experiment, &self.options.worker, run);
        self.recorder.check_cancelled()?;
        let failed =
            |(candidate, checked): (String, Result<_, _>)| Some((candidate, checked.err()?));
        let failures: Vec<_> = checked.into_iter().filter_map(failed).collect();
        if failures.is_empty() { Ok(()) } else { Err(RunError::access(&failures)) }
    }

    /// Reports the estimated time; of a resumed run, that of what is left.
    fn report_planned(&mut self) {
        if self.extension.is_some() {
            // When it has begun.
            return;
        }
        let experiment = self.experiment;
        let inserts = InsertTimes::left(experiment, &self.state.insert_steps);
        let planned = if inserts.is_none() && self.state.has_measured() {
            let directory = self.recorder.results.directory().path();
            let is_loaded = !StoredData::of(directory).places.is_empty();
            let left = self.time_left(&cases(experiment), &[]);
            Some(left.after(Costs::typical(experiment, is_loaded)))
        } else {
            RunPlan::of(experiment).time
        };
        let planned = planned.map(|time| time.under_load(self.contention));
        self.planned = planned.map(|time| time.total().most);
        let inserts = inserts.map(|times| times.under_load(self.contention).to_string());
        if let Some(planned) = inserts.or_else(|| Some(planned?.to_string())) {
            self.recorder.report(RunEvent::Planned(planned));
        }
    }

    /// Connects to the hosts of private servers, and stores how long answers take from there.
    fn connect_hosts(&mut self) -> Result<Hosts, RunError> {
        let names: Vec<&str> = self.experiment.hosts.iter().map(|host| &*host.name).collect();
        if names.is_empty() {
            return Ok(Hosts::default());
        }
        self.recorder.stage(format!("connecting to {}", names.join(", ")));
        let logs = self.recorder.results.directory().logs();
        let hosts = Hosts::connect(self.experiment, &self.options.worker, Some(&logs))?;
        for (name, timing) in hosts.rows() {
            self.recorder.stage(format!("{name}: {timing}"));
        }
        self.record.host.extend(hosts.rows());
        self.warn(hosts.warnings())?;
        // Before anything is compiled or copied.
        data::check_space_on_hosts(self.experiment, hosts.all())?;
        Ok(hosts)
    }

    /// Loads the data and measures everything that is not done. Returns false if some candidate failed in the insert
    /// benchmark.
    fn load_and_measure(
        &mut self,
        context: &RunContext<'_>,
        candidates: Vec<ResolvedCandidate>,
    ) -> Result<bool, RunError> {
        let experiment = self.experiment;
        self.loading_began = clock::monotonic();
        if experiment.insert_benchmark.is_none() {
            self.check_settings_before_loading(context, &candidates)?;
            self.prepare_data(context, &candidates)?;
        }
        self.recorder.check_cancelled()?;
        if experiment.insert_benchmark.is_some() {
            self.check_settings_before_inserts(context, &candidates)?;
        }
        let cpus = self.cpus.clone();
        tracing::info!(dbdyno = %cpus.dbdyno, systems = %cpus.system, "assigned CPUs");
        // Not earlier, nor longer: compilers run on all CPUs, also those of a bisect's next run.
        let measured = while_pinned(&cpus.dbdyno, || match &experiment.insert_benchmark {
            Some(benchmark) => self.run_insert_benchmark(context, benchmark, &candidates),
            None => {
                self.run_microbenchmarks(context, candidates)?;
                Ok(true)
            }
        });
        measured.unwrap_or_else(|error| {
            let (given, allowed) = (error.to_string(), allowed_cpus().to_string());
            Err(RunError::Cpus { given, allowed })
        })
    }

    fn complete(&mut self) -> Result<Outcome, RunError> {
        if !self.options.keep_data {
            self.remove_schemas()?;
            data::remove(self.recorder.results.directory())?;
        }
        Ok(Outcome::Complete { failures: self.recorder.failures })
    }

    /// Removes the run's schemas from existing servers, unless none are left.
    fn remove_schemas(&mut self) -> Result<(), RunError> {
        if !self.recorder.results.reader()?.may_have_schemas()? {
            return Ok(());
        }
        let context = self.context();
        let mut all_removed = true;
        let mut dropped = Vec::new();
        // All of them before a failure is stored, which may fail.
        let all: Vec<_> = remove_schemas(&context).collect();
        for (candidate, schemas, removed) in all {
            match removed {
                Ok(SchemaRemoval::Dropped) => dropped.extend(schemas),
                Ok(SchemaRemoval::Absent) => {}
                Ok(SchemaRemoval::LeftAlone(reason)) => {
                    self.recorder.report(RunEvent::Line(format!("left alone: {reason}")));
                }
                Err(error) => {
                    all_removed = false;
                    let number = self.state.candidates.iter().position(|one| one.name == candidate);
                    let directory = context.directory.path().display();
                    let reason = format!("{error}; run `dbdyno clean {directory}` to try again");
                    let phase = Phase::of_session("removing its tables");
                    let failure = phase.failure(FailureKind::Ended, number.unwrap_or(0), reason);
                    self.recorder.fail(&candidate, &failure)?;
                }
            }
        }
        if !dropped.is_empty() {
            self.recorder.report(RunEvent::Line(format!(
                "dropped dbdyno's schemas: {}; no other schema and no global setting was changed",
                dropped.join("; ")
            )));
        }
        if all_removed {
            self.recorder.results.set_may_have_schemas(false)?;
        }
        Ok(())
    }

    fn context(&self) -> RunContext<'a> {
        let directory = self.recorder.results.directory().clone();
        let run = Some(self.recorder.results.identity().clone());
        let (worker, cpus) = (&self.options.worker, self.cpus.clone());
        let context = RunContext::new(self.experiment, run, directory, worker, cpus);
        RunContext { client_wait: self.record.client_wait.unwrap_or_default(), ..context }
    }

    /// Stores what an instance reports about its system, if it was not known before. A warning lists
    /// what changed on an existing server since an earlier session.
    fn store_reported(&mut self, number: usize, instance: &Instance) -> Result<(), RunError> {
        let with_settings = candidate_record::with_settings(self.experiment);
        let record = self.state.candidates.get_mut(number);
        let (Some(record), Some(opened)) = (record, &instance.opened) else { return Ok(()) };
        let settings: &[_] = if with_settings { &opened.options } else { &[] };
        let before = record.clone();
        let warning = candidate_record::update(record, &opened.version, settings);
        if *record != before {
            self.recorder.results.update_candidate(number as u32, record)?;
        }
        self.warn_once(warning.into_iter().collect())
    }

    /// Reports warnings, and stores the record of the session with them.
    fn warn(&mut self, warnings: Vec<Warning>) -> Result<(), RunError> {
        self.recorder.report(RunEvent::Warnings(&warnings));
        self.record.warnings.extend(warnings);
        Ok(self.recorder.results.update_session(&self.record)?)
    }

    fn store_elapsed(&mut self) -> Result<(), RunError> {
        Ok(self.recorder.results.session_elapsed(clock::monotonic() - self.started)?)
    }
}
