//! Building the candidates: what is compiled or unpacked for the run, and the audits of it.

mod resolve;

pub(crate) use resolve::resolve_all;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, iter, process};

use dbdyno_audit::Audit;
use dbdyno_builds::{
    Bolt, Build, BuildError, Builder, Cache, CacheDir, CacheLease, Compiler, Fingerprint, Profiles,
    Profiling, RecipeOptions, Release, ReleaseOrigin, Releases, Request, SampleTools, Source,
    SourceOrigin, Sources, System, check_profile_tools,
};
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment;
use dbdyno_spec::experiment::{Candidate, Experiment, Training};
use dbdyno_types::build::{BoltProfileMethod, Pgo, Variant};
use dbdyno_types::server::StorageEngine;
use rustix::process::geteuid;

use crate::candidates::auditing::{audit_of, refusal};
use crate::error::RunError;
use crate::instance::cpus::divide_cpus;
use crate::options::Options;
use crate::session::progress::{Progress, RunEvent};
use crate::session::stored_run::subdirectories;
use crate::training::{PgoTrainer, TrainingTarget, sampling};

#[derive(Clone, Debug)]
pub(crate) struct BuiltCandidate {
    pub build: Build,
    pub audit: Arc<Audit>,
    /// The file with the samples that BOLT used, if it used any.
    pub samples: Option<PathBuf>,
    /// Keeps all builds of the experiment in the cache.
    pub held: Arc<Vec<CacheLease>>,
}

/// Builds the candidates that are to be compiled, in the order of the list; `None` for the others.
pub(crate) fn build(
    candidates: &[&Candidate],
    cache: Option<PathBuf>,
    trainer: &PgoTrainer<'_>,
) -> Result<Vec<Option<BuiltCandidate>>, RunError> {
    let mut built: Vec<Option<BuiltCandidate>> = vec![None; candidates.len()];
    if candidates.iter().all(|candidate| candidate.system.build().is_none()) {
        return Ok(built);
    }
    let mut pipeline = BuildPipeline::open(candidates, cache, trainer)?;
    pipeline.train_for_compilers()?;
    let mut all = pipeline.compile()?;
    pipeline.optimize_with_bolt(&mut all)?;
    let held = Arc::new(pipeline.held.take());
    for (planned, one) in pipeline.planned.iter().zip(all) {
        built[planned.position] = Some(BuiltCandidate { held: Arc::clone(&held), ..one });
    }
    Ok(built)
}

struct PlannedBuild<'a> {
    position: usize,
    candidate: &'a Candidate,
    build: &'a experiment::Build,
    request: Request,
    /// Tools that convert samples for its compiler; `None` if the compiler gets no samples.
    tools: Option<SampleTools>,
}

impl<'a> PlannedBuild<'a> {
    /// The training and the build for its compiler's profile; `None` if the compiler gets none.
    fn compiler_training(&self) -> Option<(&'a Training, Request)> {
        let variant = &self.request.variant;
        let profiling = match variant.pgo {
            Pgo::Instrument => Profiling::Collect,
            Pgo::Sample => Profiling::Sample,
            Pgo::Off => return None,
        };
        let variant = variant.without_bolt();
        let request = Request { variant, profiling, ..self.request.clone() };
        Some((self.build.training.as_ref()?, request))
    }

    /// The training for BOLT; `None` if BOLT is not used.
    fn bolt_training(&self) -> Option<&'a Training> {
        let is_for_bolt = self.request.variant.bolt && self.build.bolt;
        self.build.training.as_ref().filter(|_| is_for_bolt)
    }

    fn is_sampled(&self) -> bool {
        is_sampled(self.build, &self.request.variant)
    }
}

/// Whether a profile is made of samples.
pub(crate) fn is_sampled(build: &experiment::Build, variant: &Variant) -> bool {
    let for_bolt = build.training.as_ref().filter(|_| variant.bolt && build.bolt);
    let bolt = for_bolt.map(|training| training.bolt_profile);
    variant.pgo == Pgo::Sample || bolt == Some(BoltProfileMethod::Samples)
}

/// Builds the planned builds: trains, compiles, audits, optimizes with BOLT.
struct BuildPipeline<'a> {
    planned: Vec<PlannedBuild<'a>>,
    builder: Builder,
    cache: Cache,
    /// The directory of the cache, if it is not the default one.
    custom_cache: Option<String>,
    profiles: Profiles,
    /// Audits without a candidate's exceptions, by build.
    audits: RefCell<BTreeMap<Fingerprint, Audit>>,
    /// Locks that keep builds in the cache.
    held: RefCell<Vec<CacheLease>>,
    /// `None` if no candidate uses it.
    bolt: Option<Bolt>,
    trainer: &'a PgoTrainer<'a>,
}

impl<'a> BuildPipeline<'a> {
    /// Checks everything that can be checked before the first compilation.
    fn open(
        candidates: &[&'a Candidate],
        cache: Option<PathBuf>,
        trainer: &'a PgoTrainer<'a>,
    ) -> Result<Self, RunError> {
        let (cancel, progress) = (&trainer.worker.cancel, trainer.progress);
        let custom_cache = cache.as_ref().map(|cache| cache.display().to_string());
        let cache = CacheDir::chosen_or_default(cache.as_deref())?;
        let mut builder = Builder::new(cache.clone());
        builder.cancel = Arc::clone(cancel);

        let mut requests = Requests::new(Sources::new(&cache, Arc::clone(cancel)), progress);
        let planned = candidates.iter().enumerate().filter_map(|(position, &candidate)| {
            let build = candidate.system.build()?;
            let one = requests.request(candidate, build).and_then(|request| {
                check_profile_tools(&request.compiler, request.variant.pgo)?;
                let compiler = (request.variant.pgo == Pgo::Sample).then_some(&request.compiler);
                let tools = compiler.map(SampleTools::of).transpose()?;
                Ok(PlannedBuild { position, candidate, build, request, tools })
            });
            Some((candidate, one))
        });
        let planned = all_or_failures(planned)?;
        if let Some(PlannedBuild { candidate, .. }) = planned.iter().find(|one| one.is_sampled()) {
            sampling::check_permitted()
                .map_err(|source| RunError::sampling(&candidate.name, &source))?;
        }
        let first = planned.iter().find(|one| one.bolt_training().is_some());
        let bolt = first.map(|first| Bolt::find().map_err(|e| failed(first.candidate, e)));
        Ok(Self {
            bolt: bolt.transpose()?,
            planned,
            builder,
            profiles: Profiles::new(&cache),
            cache: Cache::new(&cache),
            custom_cache,
            audits: RefCell::default(),
            held: RefCell::default(),
            trainer,
        })
    }

    /// Collects the profiles for compilers.
    fn train_for_compilers(&mut self) -> Result<(), RunError> {
        let mut trained = Vec::new();
        for (number, planned) in self.planned.iter().enumerate() {
            trained.extend(
                planned.compiler_training().map(|(training, with)| (number, training, with)),
            );
        }
        let candidates: Vec<&Candidate> =
            trained.iter().map(|(number, ..)| self.planned[*number].candidate).collect();
        let requests: Vec<Request> = trained.iter().map(|(.., with)| with.clone()).collect();
        let builds = self.make(&requests, &candidates)?;
        self.audit(&candidates, &builds)?;
        for ((number, training, _), build) in trained.iter().zip(&builds) {
            let planned = &mut self.planned[*number];
            let target = TrainingTarget { candidate: planned.candidate, training, build };
            let tools = planned.tools.as_ref();
            let profile = self.trainer.compilers_profile(&target, tools, &self.profiles)?;
            planned.request.profiling = Profiling::Use(Box::new(profile));
        }
        Ok(())
    }

    /// Compiles, links and audits all builds.
    fn compile(&self) -> Result<Vec<BuiltCandidate>, RunError> {
        let candidates: Vec<&Candidate> = self.planned.iter().map(|one| one.candidate).collect();
        let requests: Vec<Request> = self.planned.iter().map(|one| one.request.clone()).collect();
        let builds = self.make(&requests, &candidates)?;
        let audits = self.audit(&candidates, &builds)?;
        let built =
            |(build, audit)| BuiltCandidate { build, audit, samples: None, held: Arc::default() };
        Ok(builds.into_iter().zip(audits).map(built).collect())
    }

    /// Optimizes builds with BOLT, whose profiles need the linked builds.
    fn optimize_with_bolt(&self, built: &mut [BuiltCandidate]) -> Result<(), RunError> {
        let Some(bolt) = &self.bolt else { return Ok(()) };
        let mut numbers = Vec::new();
        let mut candidates = Vec::new();
        let mut requests = Vec::new();
        for (number, planned) in self.planned.iter().enumerate() {
            let Some(training) = planned.bolt_training() else { continue };
            let candidate = planned.candidate;
            let target = TrainingTarget { candidate, training, build: &built[number].build };
            let profile = self.trainer.bolts_profile(&target, bolt, &self.profiles)?;
            built[number].samples = profile.samples();
            numbers.push(number);
            candidates.push(candidate);
            requests.push(Request { bolt: Some(profile), ..planned.request.clone() });
        }
        // The objects are the same, so the audits still hold.
        for (number, build) in numbers.into_iter().zip(self.make(&requests, &candidates)?) {
            built[number].build = build;
        }
        Ok(())
    }

    fn make(
        &self,
        requests: &[Request],
        candidates: &[&Candidate],
    ) -> Result<Vec<Build>, RunError> {
        // Audits each server before the next is compiled.
        let mut refused = None;
        let mut audit = |at: usize, build: &Build| {
            // The others may take hours, in which another process may shrink the cache.
            self.hold(build);
            if requests[at].bolt.is_some() || !build.system.is_server() {
                return ControlFlow::Continue(());
            }
            match self.audit(&[candidates[at]], std::slice::from_ref(build)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    refused = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let report =
            |event: dbdyno_builds::Event<'_>| (self.trainer.progress)(RunEvent::Build(event));
        let outcomes = self.builder.build_while(requests, &report, &mut audit);
        if let Some(error) = refused {
            return Err(error);
        }
        let builds = all_or_failures(candidates.iter().copied().zip(outcomes))?;
        builds.iter().for_each(|build| self.hold(build));
        Ok(builds)
    }

    /// Keeps a build, and the build that BOLT optimized, in the cache. From a read-only cache nothing
    /// is removed, so errors are ignored.
    fn hold(&self, build: &Build) {
        let base = build.bolt.as_ref().map(|bolt| bolt.base);
        for fingerprint in iter::once(build.fingerprint).chain(base) {
            let held = self.cache.lease(&fingerprint, &self.trainer.worker.cancel);
            self.held.borrow_mut().extend(held.ok().flatten());
        }
    }

    /// Audits the candidates' builds, each once. The error lists all builds that are refused.
    fn audit(
        &self,
        candidates: &[&Candidate],
        builds: &[Build],
    ) -> Result<Vec<Arc<Audit>>, RunError> {
        let mut audits = Vec::new();
        let mut refusals = Vec::new();
        for (candidate, build) in candidates.iter().zip(builds) {
            let name = &candidate.name;
            let audit = self.known_audit(name, build)?;
            let mut expected = audit.expected.clone();
            let build_spec = candidate.system.build();
            expected.ignored.extend(build_spec.iter().flat_map(|one| &one.audit_ignore));
            let audit = audit.checked_against(expected);
            if let Some(text) = refusal(build, &audit, self.custom_cache.as_deref()) {
                refusals.push((name.clone(), text));
            }
            audits.push(Arc::new(audit));
        }
        if refusals.is_empty() { Ok(audits) } else { Err(RunError::NotAsNamed(refusals)) }
    }

    /// The audit of a build without its candidate's exceptions.
    fn known_audit(&self, candidate: &str, build: &Build) -> Result<Audit, RunError> {
        if let Some(audit) = self.audits.borrow().get(&build.fingerprint) {
            return Ok(audit.clone());
        }
        let watch = |read: dbdyno_audit::Progress| {
            let line = format!("auditing {candidate}: {} of {} files read", read.done, read.of);
            (self.trainer.progress)(RunEvent::Stage(line));
        };
        let audit = audit_of(&self.cache, build, &self.trainer.worker.cancel, &watch)
            .map_err(|source| RunError::audit(candidate, &source))?;
        self.audits.borrow_mut().insert(build.fingerprint, audit.clone());
        Ok(audit)
    }
}

/// All values, or the error with all failures.
fn all_or_failures<'c, T>(
    results: impl Iterator<Item = (&'c Candidate, Result<T, BuildError>)>,
) -> Result<Vec<T>, RunError> {
    let (mut all, mut failures) = (Vec::new(), Vec::new());
    for (candidate, result) in results {
        match result {
            Ok(one) => all.push(one),
            Err(error) => failures.push((candidate.name.clone(), error)),
        }
    }
    // Builds that were not started because of another one.
    let is_cancelled = |error: &BuildError| matches!(error, BuildError::Cancelled { .. });
    if failures.iter().any(|(_, error)| !is_cancelled(error)) {
        failures.retain(|(_, error)| !is_cancelled(error));
    }
    if failures.is_empty() { Ok(all) } else { Err(RunError::Build(failures)) }
}

fn failed(candidate: &Candidate, error: BuildError) -> RunError {
    RunError::Build(vec![(candidate.name.clone(), error)])
}

/// What candidates share: each compiler is examined and each source is fetched once.
struct Requests<'a> {
    sources: Sources,
    progress: Progress<'a>,
    compilers: BTreeMap<String, Result<Compiler, BuildError>>,
    fetched: BTreeMap<(System, SourceOrigin), Result<Source, BuildError>>,
}

impl<'a> Requests<'a> {
    pub const fn new(sources: Sources, progress: Progress<'a>) -> Self {
        Self { sources, progress, compilers: BTreeMap::new(), fetched: BTreeMap::new() }
    }

    pub fn request(
        &mut self,
        candidate: &Candidate,
        build: &experiment::Build,
    ) -> Result<Request, BuildError> {
        let compiler = self.compilers.entry(build.compiler.clone());
        let compiler = compiler.or_insert_with(|| Compiler::find(&build.compiler)).clone()?;
        let source = self.source(system_of(candidate), build.source.clone())?;
        let variant = build.resolved_variant()?;
        Ok(Request {
            source,
            variant,
            compiler,
            extra_flags: build.flags.clone(),
            options: options_of(candidate, build),
            profiling: Profiling::None,
            bolt: None,
        })
    }

    fn source(&mut self, system: System, origin: SourceOrigin) -> Result<Source, BuildError> {
        let progress = self.progress;
        let say = |line: String| progress(RunEvent::Stage(line));
        let key = (system, origin);
        if let Some(known) = self.fetched.get(&key) {
            return known.clone();
        }
        let fetched = self.sources.obtain(system, &key.1, &say);
        self.fetched.insert(key, fetched.clone());
        fetched
    }
}

fn system_of(candidate: &Candidate) -> System {
    match &candidate.system {
        experiment::System::Sqlite { .. } => System::Sqlite,
        experiment::System::Private(server) => server.system.into(),
        experiment::System::Existing(server) => server.system.into(),
    }
}

fn options_of(candidate: &Candidate, build: &experiment::Build) -> RecipeOptions {
    let engine = match &candidate.system {
        experiment::System::Private(server) => server.engine,
        experiment::System::Sqlite { .. } | experiment::System::Existing(_) => None,
    };
    RecipeOptions {
        myrocks: engine == Some(StorageEngine::MyRocks),
        tool: build.configure_with,
        arguments: build.configure.clone(),
    }
}

/// The release that a candidate is unpacked from; `None` if its program is installed or compiled.
pub(crate) fn unpacked(candidate: &Candidate) -> Option<(System, &ReleaseOrigin)> {
    let experiment::System::Private(server) = &candidate.system else { return None };
    let origin = server.release.as_ref()?;
    (!matches!(origin, ReleaseOrigin::Installed { .. }))
        .then(|| (System::from(server.system), origin))
}

/// The releases of the candidates, in the order of the list; fetches those that are not in the cache.
pub(crate) fn obtain_all(
    candidates: &[&Candidate],
    cache: Option<&Path>,
    cancel: &Arc<AtomicBool>,
    progress: Progress<'_>,
) -> Result<Vec<Option<Release>>, RunError> {
    if candidates.iter().all(|candidate| unpacked(candidate).is_none()) {
        return Ok(vec![None; candidates.len()]);
    }
    let releases = Releases::new(&CacheDir::chosen_or_default(cache)?, Arc::clone(cancel));
    let say = |line: String| progress(RunEvent::Stage(line));
    let mut known: BTreeMap<(System, &ReleaseOrigin), Option<Release>> = BTreeMap::new();
    let mut all = Vec::new();
    let mut failures: Vec<(String, BuildError)> = Vec::new();
    for candidate in candidates {
        let Some(key) = unpacked(candidate) else {
            all.push(None);
            continue;
        };
        // Each failure is reported once.
        let release = known.entry(key).or_insert_with(|| {
            let obtained = releases.obtain(key.0, key.1, &say);
            obtained.map_err(|error| failures.push((candidate.name.clone(), error))).ok()
        });
        all.push(release.clone());
    }
    if failures.is_empty() { Ok(all) } else { Err(RunError::Build(failures)) }
}

/// The release of a candidate if it is in the cache; `None` if it is to be fetched, for which all
/// tools are installed.
pub(crate) fn cached(candidate: &Candidate) -> Result<Option<Release>, RunError> {
    let Some((system, origin)) = unpacked(candidate) else { return Ok(None) };
    let releases = Releases::new(&CacheDir::chosen_or_default(None)?, Arc::default());
    let failed = |error| failed(candidate, error);
    let release = releases.cached(system, origin).map_err(failed)?;
    if release.is_none() {
        Releases::check_tools(origin).map_err(failed)?;
    }
    Ok(release)
}

#[derive(Clone, Debug)]
pub struct CandidateBuild {
    pub candidate: String,
    /// Its build, newly compiled or from the cache.
    pub build: Build,
}

#[derive(Clone, Debug)]
pub struct CandidateRelease {
    pub candidate: String,
    /// Its release, newly fetched or from the cache.
    pub release: Release,
}

/// Fetches all releases and builds all candidates that a run of the experiment would fetch and compile,
/// with training for profile-guided optimization. A run then finds them in the cache.
///
/// Call it on the main thread: workers end with the thread that started them.
pub fn make_candidates(
    experiment: &Experiment,
    options: &Options<'_>,
) -> Result<(Vec<CandidateRelease>, Vec<CandidateBuild>), RunError> {
    let candidates: Vec<&Candidate> = experiment.candidates.iter().collect();
    let (cache, progress) = (options.cache.as_deref(), options.progress);
    let releases = obtain_all(&candidates, cache, &options.worker.cancel, progress)?;
    let fetched = candidates.iter().zip(releases).filter_map(|(candidate, release)| {
        Some(CandidateRelease { candidate: candidate.name.clone(), release: release? })
    });
    remove_scratch_of_killed(&std::env::temp_dir());
    let scratch = std::env::temp_dir().join(format!("{SCRATCH}{}", process::id()));
    Ok((fetched.collect(), build_candidates_in(&scratch, experiment, options)?))
}

/// Builds all candidates with the databases of training in this directory, which is replaced, and
/// removed at the end.
pub(crate) fn build_candidates_in(
    scratch: &Path,
    experiment: &Experiment,
    options: &Options<'_>,
) -> Result<Vec<CandidateBuild>, RunError> {
    let scratch = ScratchDirectory::create(scratch)?;
    let trainer = PgoTrainer {
        experiment,
        directory: scratch.directory.clone(),
        worker: &options.worker,
        cpus: divide_cpus(experiment)?,
        progress: options.progress,
    };
    let candidates: Vec<&Candidate> = experiment.candidates.iter().collect();
    let builds = build(&candidates, options.cache.clone(), &trainer)?;
    let built = candidates.iter().zip(builds).filter_map(|(candidate, built)| {
        Some(CandidateBuild { candidate: candidate.name.clone(), build: built?.build })
    });
    Ok(built.collect())
}

/// The directories of [`make_candidates`]; the number of the process follows.
const SCRATCH: &str = "dbdyno-make-";

/// Removes what killed processes of this user left in this directory.
fn remove_scratch_of_killed(temporary: &Path) {
    for path in subdirectories(temporary) {
        let name =
            path.file_name().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(SCRATCH));
        let Some(pid) = name.and_then(|pid| pid.parse::<u32>().ok()) else { continue };
        let is_own =
            fs::symlink_metadata(&path).is_ok_and(|found| found.uid() == geteuid().as_raw());
        if is_own
            && !Path::new(&format!("/proc/{pid}")).exists()
            && let Ok(lock) = lock(&path)
        {
            drop(ScratchDirectory { directory: RunDirectory::at(&path), _lock: lock });
        }
    }
}

/// A temporary directory for the databases of training; removed on drop.
struct ScratchDirectory {
    directory: RunDirectory,
    /// Held as long as the directory is used: its process may be in another container, whose processes are not seen.
    _lock: File,
}

fn lock(path: &Path) -> Result<File, RunError> {
    let directory = File::open(path).map_err(RunError::io(path))?;
    directory
        .try_lock()
        .map_err(|error| RunError::Other(format!("locking {}: {error}", path.display())))?;
    Ok(directory)
}

impl ScratchDirectory {
    fn create(path: &Path) -> Result<Self, RunError> {
        // A killed process may have left it.
        let _ = fs::remove_dir_all(path);
        let created = DirBuilder::new().mode(0o700).create(path);
        created.map_err(RunError::io(path))?;
        let scratch = Self { directory: RunDirectory::at(path), _lock: lock(path)? };
        let logs = scratch.directory.logs();
        fs::create_dir(&logs).map_err(RunError::io(&logs))?;
        Ok(scratch)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Servers' data may be on another disk. What cannot be removed now is removed by the next
        // run with servers.
        if self.directory.data().exists()
            && let Ok(server_dirs) = ServerDirs::open(&self.directory.data())
        {
            let _ = server_dirs.remove();
        }
        let _ = fs::remove_dir_all(self.directory.path());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_killed_processes_left_is_removed() {
        let temporary = tempfile::tempdir().unwrap();
        let of = |pid: u32| {
            let path = temporary.path().join(format!("{SCRATCH}{pid}"));
            fs::create_dir_all(path.join("logs")).unwrap();
            path
        };
        // Linux numbers processes up to 2^22.
        let (killed, locked, own) = (of(1 << 23), of((1 << 23) + 1), of(process::id()));
        let others = temporary.path().join("dbdyno-make-x");
        fs::create_dir(&others).unwrap();
        let _lock = lock(&locked).unwrap();
        remove_scratch_of_killed(temporary.path());
        assert!(!killed.exists() && locked.exists() && own.exists() && others.exists());
    }
}
