use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use dbdyno_units::{Bytes, Nanos};

use crate::bolt::BoltProfile;
use crate::job::Job;
use crate::packaging::PackagingFlags;
use crate::profile::Profiling;
use crate::recipe::{self, Flags, RecipeOptions};
use crate::{
    Build, BuildError, Cache, Compiler, CompilerError, Fingerprint, HostCpu, Ingredients, Source,
    Variant,
};

/// A build that somebody wants.
#[derive(Clone, Debug)]
pub struct Request {
    /// What to compile.
    pub source: Source,
    /// How.
    pub variant: Variant,
    /// With what.
    pub compiler: Compiler,
    /// Flags that come after the variant's own.
    pub extra_flags: Vec<String>,
    /// What the recipe is asked for besides.
    pub options: RecipeOptions,
    /// Its part in profile-guided optimization.
    pub profiling: Profiling,
    /// The profile with which BOLT lays it out after the link. Where the variant wants BOLT and
    /// there is none yet, the build is only linked for it.
    pub bolt: Option<BoltProfile>,
}

impl Request {
    /// Without extra flags and with the recipe's defaults.
    #[must_use]
    pub fn new(source: Source, variant: Variant, compiler: Compiler) -> Self {
        let options = RecipeOptions::default();
        let (extra_flags, profiling) = (Vec::new(), Profiling::None);
        Self { source, variant, compiler, extra_flags, options, profiling, bolt: None }
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

/// Progress. Requests for the same build have one set of events, with the first of them.
#[derive(Clone, Copy, Debug)]
pub enum Event<'a> {
    /// Another dbdyno process is making this build; this one waits for it.
    Waiting {
        /// The request.
        request: &'a Request,
    },
    /// The compiler starts.
    Started {
        /// The request.
        request: &'a Request,
    },
    /// Something is being done before compiling can start.
    Preparing {
        /// The request.
        request: &'a Request,
        /// What, for people.
        what: &'a str,
    },
    /// How far it is.
    Progress {
        /// The request.
        request: &'a Request,
        /// What is being done, such as `compiling src/backend`.
        step: &'a str,
        /// Commands that are done.
        done: usize,
        /// All commands of this step.
        of: usize,
    },
    /// The build was there already.
    Cached {
        /// The request.
        request: &'a Request,
    },
    /// The build is made.
    Finished {
        /// The request.
        request: &'a Request,
        /// How long compiling and linking took.
        time: Nanos,
    },
    /// There will be no build.
    Failed {
        /// The request.
        request: &'a Request,
        /// Why.
        error: &'a BuildError,
    },
}

/// Room for the trees of some ten servers.
const DEFAULT_LIMIT: Bytes = Bytes::from_mib(30 << 10);

/// A receiver of events, called from several threads.
pub(crate) type Progress<'a> = &'a (dyn Fn(Event<'_>) + Sync);

/// Turns requests into builds.
#[derive(Clone, Debug)]
pub struct Builder {
    /// Where builds are kept.
    pub cache_dir: PathBuf,
    /// How many compilers run at the same time.
    pub jobs: NonZeroUsize,
    /// How large the cache may grow; what was not wanted for longest is removed then.
    pub limit: Bytes,
    /// Set it, from a signal handler for instance, and compilers are ended and nothing new is
    /// started.
    pub cancel: Arc<AtomicBool>,
}

impl Builder {
    /// With one job per CPU.
    #[must_use]
    pub fn new(cache_dir: impl Into<PathBuf>) -> Self {
        Self {
            cache_dir: cache_dir.into(),
            jobs: thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limit: DEFAULT_LIMIT,
            cancel: Arc::default(),
        }
    }

    /// Makes the builds that are not in the cache, and returns all in the order of the requests.
    pub fn build(
        &self,
        requests: &[Request],
        progress: Progress<'_>,
    ) -> Vec<Result<Build, BuildError>> {
        self.build_while(requests, progress, &mut |_, _| ControlFlow::Continue(()))
    }

    /// The same, with a look at each server before the next is compiled: that takes long, and may
    /// not be worth it any more. `look` is told the number of the request, and what was built for
    /// it. Those that it leaves no time for are [`BuildError::Cancelled`].
    pub fn build_while(
        &self,
        requests: &[Request],
        progress: Progress<'_>,
        look: &mut dyn FnMut(usize, &Build) -> ControlFlow<()>,
    ) -> Vec<Result<Build, BuildError>> {
        // Compilers run in another directory and are told absolute paths.
        let root = std::path::absolute(&self.cache_dir).unwrap_or_else(|_| self.cache_dir.clone());
        let cache = Cache::new(root);
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
            // Each index is given out once, so nothing was there.
            let _ = outcomes[at].set(outcome);
        };
        // A library is one compiler at a time. A server is many, so servers come one by one.
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
        for at in servers {
            run(at);
            let Some(Ok(build)) = outcomes[at].get() else { continue };
            let number = prepared.iter().position(|prepared| {
                prepared.as_ref().is_ok_and(|prepared| prepared.fingerprint == build.fingerprint)
            });
            if number.is_some_and(|number| look(number, build).is_break()) {
                break;
            }
        }
        let base =
            |prepared: &&Prepared<'_>| Some(prepared.request.bolt.as_ref()?.base.fingerprint);
        let mut wanted: Vec<Fingerprint> = order.iter().filter_map(base).collect();
        wanted.extend(order.iter().map(|prepared| prepared.fingerprint));
        cache.shrink(self.limit, &wanted);

        let outcome_of = |prepared: &Prepared<'_>| match distinct.get(&prepared.fingerprint) {
            Some(&at) => outcomes[at].get().cloned(),
            None => None,
        };
        requests
            .iter()
            .zip(&prepared)
            .map(|(request, prepared)| match prepared {
                // Only what was not begun has no outcome.
                Ok(prepared) => outcome_of(prepared)
                    .unwrap_or_else(|| Err(BuildError::Cancelled { what: request.to_string() })),
                Err(error) => {
                    progress(Event::Failed { request, error });
                    Err(error.clone())
                }
            })
            .collect()
    }
}

/// A request with all that must be known before compiling.
pub(crate) struct Prepared<'a> {
    pub(crate) request: &'a Request,
    pub(crate) flags: Flags,
    pub(crate) fingerprint: Fingerprint,
}

/// Decides flags and fingerprints. Each compiler is asked about link-time optimization once.
fn prepare_all(requests: &[Request]) -> Vec<Result<Prepared<'_>, BuildError>> {
    let mut lto_linkers: BTreeMap<&Path, Result<Vec<String>, CompilerError>> = BTreeMap::new();
    let mut all = Vec::new();
    for request in requests {
        let Request { variant, compiler, extra_flags, .. } = request;
        let mut lto_linker = |flags: &[String]| {
            let asked = flags.iter().chain(extra_flags).map(String::as_str);
            if !recipe::asks_for_lto(asked) {
                return Ok(Vec::new());
            }
            let answer = lto_linkers.entry(&compiler.path);
            answer.or_insert_with(|| compiler.lto_linker()).clone()
        };
        let mut prepare = || {
            let packaging = PackagingFlags::ask(variant.packaging, compiler.kind)?;
            let mut asked = packaging.compile.clone();
            asked.extend(variant.flags(compiler.kind));
            let linker = lto_linker(&asked)?;
            prepare_one(request, &packaging, &linker)
        };
        all.push(prepare());
    }
    all
}

fn prepare_one<'a>(
    request: &'a Request,
    packaging: &PackagingFlags,
    lto_linker: &[String],
) -> Result<Prepared<'a>, BuildError> {
    let Request { source, variant, compiler, extra_flags, options, profiling, bolt } = request;
    let flags = |extra: &[String]| {
        recipe::flags(source.system(), variant, compiler.kind, packaging, lto_linker, extra)
    };
    if let Profiling::Use(profile) = profiling {
        let flags = flags(extra_flags).compile;
        let what = request.to_string();
        profile.check(&what, source.system(), source.sha256(), compiler, &flags)?;
    }
    let flags = flags(&[&profiling.flags(compiler.kind)[..], extra_flags].concat());
    let host = if flags.depends_on_host() {
        let path = Path::new("/proc/cpuinfo");
        Some(HostCpu::read().map_err(|error| BuildError::io("reading", path, error))?)
    } else {
        None
    };
    let ingredients = Ingredients {
        system: source.system(),
        source: source.sha256(),
        variant,
        flags: &flags,
        options,
        profiling: &profiling.identity(),
        bolt: "",
        compiler,
        host: host.as_ref(),
    };
    let mut fingerprint = ingredients.fingerprint();
    if let Some(bolt) = bolt {
        bolt.check(&request.to_string(), &fingerprint)?;
        fingerprint = Ingredients { bolt: &bolt.identity(), ..ingredients }.fingerprint();
    }
    Ok(Prepared { request, flags, fingerprint })
}
