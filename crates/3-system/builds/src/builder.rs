//! Builds from requests, with progress events.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use dbdyno_units::{Bytes, Nanos};

use crate::bolt::CachedBoltProfile;
use crate::fingerprint::{Prepared, prepare_all};
use crate::job::Job;
use crate::profile::Profiling;
use crate::recipe::{Flags, Inputs};
use crate::{
    Build, BuildError, Cache, CacheDir, Compiler, Fingerprint, RecipeOptions, Source, Variant,
};

/// The default maximum size of the cache: about ten servers with their objects.
const DEFAULT_LIMIT: Bytes = Bytes::from_mib(30 << 10);

/// Makes builds from requests.
#[derive(Clone, Debug)]
pub struct Builder {
    /// The directory of the cache.
    pub cache_dir: CacheDir,
    /// Number of compilers that run concurrently.
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
        let run = |at: usize| {
            let (prepared, jobs) = (order[at], self.jobs);
            let job = Job { cache: &cache, cancel: &self.cancel, prepared, jobs, progress };
            let outcome = job.run();
            if let Err(error) = &outcome {
                progress(Event::Failed { request: prepared.request, error });
            }
            // Each index is used once.
            let _ = outcomes[at].set(outcome);
        };
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
        if !libraries.iter().any(|at| is_refused(*at)) {
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
                    progress(Event::Failed { request, error });
                    Err(error.clone())
                }
            })
            .collect()
    }
}

/// A build to be made.
#[derive(Clone, Debug)]
pub struct Request {
    /// The source to compile.
    pub source: Source,
    /// The compiler settings.
    pub variant: Variant,
    pub compiler: Compiler,
    /// Flags added after the variant's own.
    pub extra_flags: Vec<String>,
    pub options: RecipeOptions,
    /// Its role in profile-guided optimization.
    pub profiling: Profiling,
    /// The profile for BOLT. Without one, a variant with BOLT is only linked for it.
    pub bolt: Option<CachedBoltProfile>,
}

impl Request {
    /// Creates a request without extra flags and with the recipe's defaults.
    pub fn new(source: Source, variant: Variant, compiler: Compiler) -> Self {
        let options = RecipeOptions::default();
        let (extra_flags, profiling) = (Vec::new(), Profiling::None);
        Self { source, variant, compiler, extra_flags, options, profiling, bolt: None }
    }
}

impl Request {
    pub(crate) fn inputs<'a>(&'a self, flags: &'a Flags) -> Inputs<'a> {
        Inputs {
            system: self.source.system(),
            version: self.source.version(),
            variant: &self.variant,
            flags,
            options: &self.options,
            compiler: &self.compiler,
        }
    }
}

/// Prints `sqlite 3.50.4 as rel_o2 with gcc 12.2.0`.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, variant, compiler) = (&self.source, &self.variant, &self.compiler);
        let (name, version, engine) = (source.name(), source.version(), self.options.engine());
        write!(f, "{name} {version}{engine} as {variant} with {compiler}")?;
        if !self.extra_flags.is_empty() {
            write!(f, " and {}", self.extra_flags.join(" "))?;
        }
        match &self.bolt {
            Some(bolt) => write!(f, ", laid out by BOLT, trained on {}", bolt.trained_on()),
            None => write!(f, "{}", self.profiling),
        }
    }
}

/// Progress of a build. Equal requests share the events, which have the first request.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Another dbdyno process is making this build; this one waits for it.
    Waiting { request: &'a Request },
    /// The compiler starts.
    Started { request: &'a Request },
    /// Preparation before compiling, such as installing build dependencies.
    Preparing {
        request: &'a Request,
        /// A description.
        what: &'a str,
    },
    /// Progress of a step.
    Progress {
        request: &'a Request,
        /// The step, such as `compiling src/backend`.
        step: &'a str,
        /// Finished commands.
        done: usize,
        /// All commands of this step.
        of: usize,
    },
    /// The build is in the cache.
    Cached { request: &'a Request },
    /// The build is complete.
    Finished {
        request: &'a Request,
        /// The time for compiling and linking.
        time: Nanos,
    },
    /// The build failed.
    Failed { request: &'a Request, error: &'a BuildError },
}

/// A receiver of events, called from several threads.
pub(crate) type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);
