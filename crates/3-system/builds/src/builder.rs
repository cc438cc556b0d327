//! Builds from requests: each from the cache lookup to the finished directory.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use dbdyno_audit::Sizes;
use dbdyno_units::{Bytes, Nanos, shell_quoted};

use crate::bolt::{CachedBoltProfile, link_all};
use crate::build_dir::{self, CompileTime, Done};
use crate::build_output::{Counter, Watch, from_log, is_compilation};
use crate::build_record::DATABASE;
use crate::command::{Counts, Step, Surroundings, clean_command, run_step};
use crate::error::{Cause, StepFailure, cause_of, io_error, last_lines};
use crate::profile::Profiling;
use crate::recipe::{self, BuildPlan, RecipeInput};
use crate::request::{Event, Prepared, Progress, Request, prepare_all};
use crate::store::{Lookup, Making, Query, remove};
use crate::trusted_tree::{check_reach, open_folder};
use crate::{
    Build, BuildError, Cache, CacheDir, CompilerUsed, Fingerprint, ProblemKind, Sha256, System,
};

/// The default maximum size of the cache: about ten servers with their objects.
const DEFAULT_LIMIT: Bytes = Bytes::from_mib(30 << 10);

#[derive(Clone, Debug)]
pub struct Builder {
    pub cache_dir: CacheDir,
    pub jobs: NonZeroUsize,
    /// Maximum size of the cache; the least recently used entries are removed beyond it.
    pub limit: Bytes,
    /// Setting it, for example in a signal handler, stops all compilers.
    pub cancel: Arc<AtomicBool>,
}

impl Builder {
    /// Creates a builder with one job per CPU.
    pub fn new(cache_dir: CacheDir) -> Self {
        Self {
            cache_dir,
            jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limit: DEFAULT_LIMIT,
            cancel: Arc::default(),
        }
    }

    /// Makes the builds that are not in the cache. Returns all in the order of the requests.
    pub fn build(
        &self,
        requests: &[Request],
        progress: Progress<'_>,
    ) -> Vec<Result<Build, BuildError>> {
        self.build_while(requests, progress, &mut |_, _| ControlFlow::Continue(()))
    }

    /// Like [`Builder::build`], but calls `check` with the index of the request for each finished
    /// build: for the libraries before the first server, for each server before the next one. After a
    /// `Break`, the remaining servers are [`BuildError::Cancelled`].
    pub fn build_while(
        &self,
        requests: &[Request],
        progress: Progress<'_>,
        check: &mut dyn FnMut(usize, &Build) -> ControlFlow<()>,
    ) -> Vec<Result<Build, BuildError>> {
        let cache = Cache::new(&self.cache_dir);
        cache.sweep();

        let prepared = prepare_all(requests);
        let mut distinct: BTreeMap<Fingerprint, usize> = BTreeMap::new();
        let mut order: Vec<&Prepared<'_>> = Vec::new();
        for prepared in prepared.iter().flatten() {
            distinct.entry(prepared.fingerprint).or_insert_with(|| {
                order.push(prepared);
                order.len() - 1
            });
        }

        let outcomes: Vec<OnceLock<Result<Build, BuildError>>> =
            order.iter().map(|_| OnceLock::new()).collect();
        let job = |at: usize| {
            let (prepared, jobs) = (order[at], self.jobs);
            Job { cache: &cache, cancel: &self.cancel, prepared, jobs, progress }
        };
        let end = |at: usize, outcome: Result<Build, BuildError>| {
            if let Err(error) = &outcome {
                progress(Event::Failed(order[at].request, error));
            }
            // Each index is used once.
            let _ = outcomes[at].set(outcome);
        };
        let run = |at: usize| end(at, job(at).run());
        // A library uses one compiler at a time, a server all of them: servers are built in
        // sequence.
        let is_server = |at: &usize| order[*at].request.source.system().is_server();
        let (servers, libraries): (Vec<usize>, Vec<usize>) = (0..order.len()).partition(is_server);
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(at) = libraries.get(next.fetch_add(1, Ordering::Relaxed)) {
                run(*at);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.jobs.get().min(libraries.len()) {
                scope.spawn(work);
            }
            work();
        });
        let mut is_refused = |at: usize| {
            let Some(Ok(build)) = outcomes[at].get() else { return false };
            let number = prepared.iter().position(|prepared| {
                prepared.as_ref().is_ok_and(|prepared| prepared.fingerprint == build.fingerprint)
            });
            number.is_some_and(|number| check(number, build).is_break())
        };
        // Nothing is compiled for hours before it is known that another build cannot be made.
        let can_start = |at: &usize| {
            let checked = job(*at).check_prerequisites();
            checked.map_err(|error| end(*at, Err(error))).is_ok()
        };
        let is_ready = prepared.iter().all(Result::is_ok)
            && !libraries.iter().any(|at| is_refused(*at))
            && servers.iter().filter(|at| !can_start(at)).count() == 0;
        if is_ready {
            for at in servers {
                run(at);
                if is_refused(at) {
                    break;
                }
            }
        }
        let base =
            |prepared: &&Prepared<'_>| Some(prepared.request.bolt.as_ref()?.base.fingerprint);
        let mut keep: Vec<Fingerprint> = order.iter().filter_map(base).collect();
        keep.extend(order.iter().map(|prepared| prepared.fingerprint));
        cache.shrink(self.limit, &keep);

        let outcome_of = |prepared: &Prepared<'_>| match distinct.get(&prepared.fingerprint) {
            Some(&at) => outcomes[at].get().cloned(),
            None => None,
        };
        requests
            .iter()
            .zip(&prepared)
            .map(|(request, prepared)| match prepared {
                // A build without an outcome was not started.
                Ok(prepared) => {
                    outcome_of(prepared).unwrap_or_else(|| Err(BuildError::cancelled(request)))
                }
                Err(error) => {
                    progress(Event::Failed(request, error));
                    Err(error.clone())
                }
            })
            .collect()
    }
}

struct Job<'a> {
    cache: &'a Cache,
    cancel: &'a AtomicBool,
    prepared: &'a Prepared<'a>,
    jobs: NonZeroUsize,
    progress: Progress<'a>,
}

/// The directories of a build in progress.
struct JobDirs {
    /// Working directory of the steps.
    tree: PathBuf,
    /// The incomplete build; renamed when it is complete.
    part: PathBuf,
    temp: PathBuf,
    /// `DESTDIR` of installations.
    staging: PathBuf,
    log: PathBuf,
    /// The file with the completed steps, for resuming.
    done: Option<PathBuf>,
}

impl JobDirs {
    /// Removes incomplete output of a killed compiler or linker.
    fn remove_incomplete(&self) -> Result<(), BuildError> {
        if !Done::open(self.done.as_deref())?.interrupted() {
            return Ok(());
        }
        build_dir::remove_incomplete(&self.tree).map_err(io_error("resuming in", &self.tree))
    }
}

impl Job<'_> {
    fn run(&self) -> Result<Build, BuildError> {
        if let Some(build) = self.cached() {
            return Ok(build);
        }
        if self.cancel.load(Ordering::Relaxed) {
            return Err(self.cancelled());
        }
        let Prepared { request, fingerprint, .. } = self.prepared;
        let making = match self.cache.build(fingerprint).lookup(&Query {
            check: &|build: &mut Build, folder: &Path| build.adapt(fingerprint, folder),
            cancel: self.cancel,
            on_wait: &|| (self.progress)(Event::Waiting(request)),
            on_invalid: &|_| {},
        })? {
            // It was completed by another process before the lock was acquired.
            Lookup::Found(held) => return Ok(self.reuse(held.about)),
            Lookup::Cancelled => return Err(self.cancelled()),
            Lookup::Missing(making) => making,
        };
        tracing::info!(%request, "building");
        (self.progress)(Event::Started(request));
        let build = self.make(&making)?;
        (self.progress)(Event::Finished(request, build.compile_time));
        Ok(build)
    }

    fn cached(&self) -> Option<Build> {
        // Without a lock, so that a cache that is not writable can be used.
        self.cache.get(&self.prepared.fingerprint).map(|build| self.reuse(build))
    }

    fn reuse(&self, build: Build) -> Build {
        self.cache.build(&build.fingerprint).note_use();
        tracing::info!(request = %self.prepared.request, "using a cached build");
        (self.progress)(Event::Cached(self.prepared.request));
        build
    }

    /// Checks the build dependencies of a server that is not in the cache.
    fn check_prerequisites(&self) -> Result<(), BuildError> {
        let Prepared { request, flags, fingerprint } = self.prepared;
        let is_cancelled = self.cancel.load(Ordering::Relaxed);
        if request.bolt.is_some() || is_cancelled || self.cache.get(fingerprint).is_some() {
            return Ok(());
        }
        let system = request.source.system();
        if system.is_server() {
            check_reach(self.cache.root())?;
        }
        let needs = recipe::needs(&request.inputs(flags));
        let report = |what: String| (self.progress)(Event::Preparing(request, &what));
        recipe::provide(system, &needs, &request.compiler, &report)?;
        match system {
            System::MariaDb | System::MySql => request.compiler.check_cxx(),
            System::PostgreSql | System::Sqlite => Ok(()),
        }
    }

    fn make(&self, making: &Making) -> Result<Build, BuildError> {
        let dirs = self.create_dirs(making)?;
        // Must precede any write to the tree: the newest file shows the time of the interruption.
        dirs.remove_incomplete()?;
        let plan = match &self.prepared.request.bolt {
            Some(bolt) => layout(bolt, &dirs)?,
            None => self.plan(&dirs)?,
        };
        let mut log = Log::open(&dirs.log)?;
        let mut time = CompileTime::start(dirs.done.as_deref());
        let ran = self.run_steps(&plan, &dirs, &mut log, making, &mut time);
        time.store();
        if let Some((step, status)) = ran? {
            return Err(self.step_error(step, &dirs, status, log));
        }
        let compile_time = time.total();
        self.check_source(&dirs)?;
        if let Profiling::Use(profile) = &self.prepared.request.profiling {
            profile.check_log(&self.prepared.request.to_string(), &dirs.log)?;
        }
        self.assemble(&plan, &dirs, &mut log)?;
        let build = self.describe(&plan, &dirs, compile_time)?;
        remove(&dirs.temp).map_err(io_error("removing", &dirs.temp))?;
        let held = making.publish(&dirs.part, build)?;
        let _ = remove(&self.cache.failed(&self.prepared.fingerprint));
        Ok(held.about)
    }

    /// Refuses what was compiled from a source that was edited meanwhile, and removes it: its objects
    /// are of different sources.
    fn check_source(&self, dirs: &JobDirs) -> Result<(), BuildError> {
        let Prepared { request, .. } = self.prepared;
        let Some(folder) = request.source.edited()? else { return Ok(()) };
        if let Some(done) = &dirs.done {
            build_dir::empty(&dirs.tree, done)?;
        }
        Err(BuildError::new(
            ProblemKind::Other,
            format!(
                "{request} was not built: its source in {} was edited while it was compiled",
                folder.display()
            ),
            "leave it unchanged and repeat the command, or copy it first",
        ))
    }

    /// Plans the commands of the build and copies the profile into the tree.
    fn plan(&self, dirs: &JobDirs) -> Result<BuildPlan, BuildError> {
        let Prepared { request, flags, fingerprint } = self.prepared;
        let source = request.source.unpack(self.cache)?;
        check_engine(request, &source)?;
        let home = self.cache.folder(fingerprint);
        let plan = recipe::plan(&RecipeInput {
            inputs: request.inputs(flags),
            source: &source,
            tree: &dirs.tree,
            home: &home,
            staging: &dirs.staging,
            jobs: self.jobs,
        });
        let configuring = plan.steps.iter().find(|step| step.name != recipe::COPYING);
        if let (Some(done), Some(configuring)) = (&dirs.done, configuring) {
            let (command, changed) = (configuring.to_shell(), request.source.last_change()?);
            build_dir::restart_unless_valid(&command, changed, done, &dirs.tree)?;
        }
        if let Profiling::Use(profile) = &request.profiling {
            profile.place(&dirs.tree).map_err(io_error("putting the profile into", &dirs.tree))?;
        }
        Ok(plan)
    }

    fn create_dirs(&self, making: &Making) -> Result<JobDirs, BuildError> {
        let part = making.begin()?;
        let temp = part.join("tmp");
        fs::create_dir(&temp).map_err(io_error("creating", &temp))?;
        let staging = part.join("root");
        let Request { source, bolt, .. } = self.prepared.request;
        if !source.system().is_server() || bolt.is_some() {
            let log = part.join("log.txt");
            return Ok(JobDirs { tree: part.clone(), part, temp, staging, log, done: None });
        }
        let work = self.cache.work(&self.prepared.fingerprint);
        let tree = work.join("tree");
        open_folder(&tree).map_err(io_error("creating", &tree))?;
        let (log, done) = (work.join("log.txt"), Some(work.join("done")));
        Ok(JobDirs { tree, part, temp, staging, log, done })
    }

    /// Runs the steps that are not complete; returns the one that failed.
    fn run_steps<'p>(
        &self,
        plan: &'p BuildPlan,
        dirs: &JobDirs,
        log: &mut Log,
        making: &Making,
        time: &mut CompileTime,
    ) -> Result<Option<(&'p Step, ExitStatus)>, BuildError> {
        let mut done = Done::open(dirs.done.as_deref())?;
        let steps = plan.steps.iter().map(|step| (step, true));
        for (step, lasting) in steps.chain(plan.install.iter().map(|step| (step, false))) {
            let command = step.to_shell();
            tracing::debug!(request = %self.prepared.request, command, "build step");
            if lasting && done.contains(&command) {
                continue;
            }
            if lasting {
                done.begin()?;
            }
            let status = self.run_step(step, dirs, log, making, time)?;
            if !status.success() {
                return Ok(Some((step, status)));
            }
            if lasting {
                done.add(&command)?;
            }
        }
        Ok(None)
    }

    fn run_step(
        &self,
        step: &Step,
        dirs: &JobDirs,
        log: &mut Log,
        making: &Making,
        time: &mut CompileTime,
    ) -> Result<ExitStatus, BuildError> {
        let request = self.prepared.request;
        let writing = |error| BuildError::io("writing", &dirs.log, &error);
        log.begin(step).map_err(writing)?;
        let report =
            |done, of| (self.progress)(Event::Progress { request, step: &step.name, done, of });
        let counter =
            Counter::new(step.counts, &request.compiler.path, self.count(step, &dirs.tree));
        let file = log.file.try_clone().map_err(writing)?;
        let reader = File::open(&dirs.log).map_err(writing)?;
        let mut watch = Watch::new(reader, log.output_start, counter, &report);
        let around = Surroundings {
            dir: &dirs.tree,
            temp_dir: &dirs.temp,
            log: &file,
            lock: making.lock(),
            cancel: self.cancel,
        };
        let poll = || {
            time.store_sometimes();
            watch.poll();
        };
        run_step(step, &around, poll)
            .map_err(io_error("starting", &step.program))?
            .ok_or_else(|| self.cancelled())
    }

    /// The number of compilations that make would run; 0 if unknown.
    fn count(&self, step: &Step, tree: &Path) -> usize {
        if step.counts != Counts::Make {
            return 0;
        }
        let compiler = self.prepared.request.compiler.path.to_string_lossy();
        let mut command = clean_command(&step.program);
        command.current_dir(tree).args(&step.args).args(["--dry-run", "--keep-going"]);
        let output = command.output().map(|output| output.stdout).unwrap_or_default();
        let output = String::from_utf8_lossy(&output);
        output.lines().filter(|line| is_compilation(line, &compiler)).count()
    }

    /// Turns a failed step into an error, and keeps the log.
    fn step_error(
        &self,
        step: &Step,
        dirs: &JobDirs,
        status: ExitStatus,
        mut log: Log,
    ) -> BuildError {
        let message = log.from(log.output_start).unwrap_or_default();
        let cause = cause_of(status, &message);
        if cause == Cause::DiskFull {
            // Not worth keeping the log on a full disk.
            let full = io::ErrorKind::StorageFull.into();
            return BuildError::io(format!("{} in", step.name), &dirs.tree, &full);
        }
        // A server's directory stays: the next attempt resumes there.
        let (folder, log) = match dirs.done {
            Some(_) => (dirs.tree.clone(), dirs.log.clone()),
            None => self.keep_failed(dirs),
        };
        let failure = |ended: String| {
            Box::new(StepFailure {
                what: self.prepared.request.to_string(),
                step: step.name.clone(),
                command: format!(
                    "cd {} && {}",
                    shell_quoted(&folder.to_string_lossy()),
                    step.to_shell()
                ),
                ended,
                message: last_lines(&message),
                log,
            })
        };
        match cause {
            Cause::Interrupted(how) => BuildError::Interrupted(failure(how)),
            Cause::Refused | Cause::DiskFull => BuildError::Failed(failure(status.to_string())),
        }
    }

    /// Keeps the directory of a failed build, for running the command again. Returns it and the log.
    fn keep_failed(&self, dirs: &JobDirs) -> (PathBuf, PathBuf) {
        let failed = self.cache.failed(&self.prepared.fingerprint);
        let _ = remove(&dirs.temp);
        // Without the log, the error of the build is still reported.
        let _ = open_folder(failed.parent().unwrap_or(&failed))
            .and_then(|()| remove(&failed))
            .and_then(|()| fs::rename(&dirs.part, &failed));
        let log = failed.join("log.txt");
        (failed, log)
    }

    /// Moves the installed files into the build, copies additional ones, and adds log and compile
    /// database.
    fn assemble(&self, plan: &BuildPlan, dirs: &JobDirs, log: &mut Log) -> Result<(), BuildError> {
        let JobDirs { part, tree, staging, .. } = dirs;
        let fingerprint = &self.prepared.fingerprint;
        let server = part.join(recipe::SERVER);
        if !plan.install.is_empty() {
            let installed = self.cache.folder(fingerprint).join(recipe::SERVER);
            let installed = staging.join(installed.strip_prefix("/").unwrap_or(&installed));
            fs::rename(&installed, &server)
                .and_then(|()| fs::remove_dir_all(staging))
                .map_err(io_error("moving", &installed))?;
        }
        for piece in &plan.pieces {
            build_dir::copy(piece, &server).map_err(io_error("copying", &piece.from))?;
        }
        let database = part.join(DATABASE);
        let mut write = || -> io::Result<()> {
            if let Some(bolt) = &self.prepared.request.bolt {
                fs::copy(bolt.base.compile_database(), &database)?;
            } else if plan.has_compile_database {
                fs::copy(tree.join(DATABASE), &database)?;
            } else {
                let compiler = &self.prepared.request.compiler.path;
                // A library's commands run in its future directory.
                let start = match dirs.done {
                    Some(_) => tree.clone(),
                    None => self.cache.folder(fingerprint),
                };
                let text = log.from(0)?;
                let text = text.replace("\n$ ", "\n");
                let text = text.strip_prefix("$ ").unwrap_or(&text);
                let entries = from_log(text, compiler, &start);
                fs::write(&database, serde_json::to_vec_pretty(&entries)?)?;
            }
            if dirs.done.is_some() {
                fs::copy(&dirs.log, part.join("log.txt"))?;
            }
            Ok(())
        };
        write().map_err(io_error("writing", &database))
    }

    fn describe(
        &self,
        plan: &BuildPlan,
        dirs: &JobDirs,
        compile_time: Nanos,
    ) -> Result<Build, BuildError> {
        let Prepared { request, flags, fingerprint } = self.prepared;
        let source = &request.source;
        let artifact = source.system().artifact();
        let made = dirs.part.join(artifact);
        let content = fs::read(&made).map_err(io_error("reading", &made))?;
        let unusable = |reason: String| BuildError::unusable(request, artifact, reason);
        let sizes = Sizes::of(&content).map_err(unusable)?;
        let missing = |what: &str| unusable(format!("no {what}"));
        let folder = self.cache.folder(fingerprint);
        let base = request.bolt.as_ref().map(|bolt| &bolt.base);
        let before = base.map(|base| base.commands.clone()).unwrap_or_default();
        let time_before = base.map_or(Nanos::ZERO, |base| base.compile_time);
        let own = plan.steps.iter().chain(&plan.install).map(Step::to_shell);
        Ok(Build {
            fingerprint: *fingerprint,
            system: source.system(),
            source_version: source.version().to_owned(),
            source_origin: source.origin().clone(),
            source_revision: source.revision().map(str::to_owned),
            source_sha256: *source.sha256(),
            variant: request.variant.name.clone(),
            settings: request.variant.clone(),
            options: request.options.clone(),
            instrumented: matches!(request.profiling, Profiling::Collect),
            profile: request.profiling.used(),
            bolt: request.bolt.as_ref().map(CachedBoltProfile::used),
            compiler: CompilerUsed::from(&request.compiler),
            flags: flags.compile.clone(),
            link_flags: flags.link.clone(),
            commands: before.into_iter().chain(own).collect(),
            artifact: folder.join(artifact),
            artifact_sha256: Sha256::of(&content),
            tree: match base {
                Some(base) => base.tree.clone(),
                None if dirs.done.is_some() => dirs.tree.clone(),
                None => folder.clone(),
            },
            folder,
            text_size: sizes.text.ok_or_else(|| missing("section .text"))?,
            executable_size: sizes.executable,
            stripped_size: sizes.stripped.ok_or_else(|| missing("loadable segment"))?,
            file_size: sizes.file,
            compile_time: time_before + compile_time,
        })
    }

    fn cancelled(&self) -> BuildError {
        BuildError::cancelled(self.prepared.request)
    }
}

/// Refuses a source without the storage engine that is asked for, before it is compiled.
fn check_engine(request: &Request, source: &Path) -> Result<(), BuildError> {
    if !request.options.myrocks || source.join("storage/rocksdb").is_dir() {
        return Ok(());
    }
    Err(BuildError::new(
        ProblemKind::Source,
        format!(
            "{request} was not built: its source has no MyRocks, the directory storage/rocksdb"
        ),
        "use a source of MariaDB, Percona Server or Facebook's MySQL",
    ))
}

/// The BOLT command for a build that was linked for it, with all other files in place.
fn layout(bolt: &CachedBoltProfile, dirs: &JobDirs) -> Result<BuildPlan, BuildError> {
    let Build { system, folder, artifact, .. } = &bolt.base;
    if system.is_server() {
        let server = dirs.part.join(recipe::SERVER);
        link_all(&folder.join(recipe::SERVER), &server, artifact)
            .map_err(io_error("copying the server to", &server))?;
    }
    let artifact = system.artifact();
    let name = format!("optimizing {} with BOLT", artifact.display());
    let step = Step::new(name, &bolt.bolt.path, bolt.arguments(artifact));
    Ok(BuildPlan { steps: vec![step], ..BuildPlan::default() })
}

/// The log file of a build: its commands and their output.
struct Log {
    file: File,
    /// The position of the last command's output.
    output_start: u64,
}

impl Log {
    fn open(path: &Path) -> Result<Self, BuildError> {
        File::options()
            .read(true)
            .append(true)
            .create(true)
            .open(path)
            .map(|file| Self { file, output_start: 0 })
            .map_err(io_error("creating", path))
    }

    fn begin(&mut self, step: &Step) -> io::Result<()> {
        writeln!(self.file, "$ {}", step.to_shell())?;
        self.output_start = self.file.metadata()?.len();
        Ok(())
    }

    /// The commands and their output from this position on.
    fn from(&mut self, start: u64) -> io::Result<String> {
        let mut output = Vec::new();
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_to_end(&mut output)?;
        Ok(String::from_utf8_lossy(&output).into_owned())
    }
}
