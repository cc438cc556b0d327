use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use dbdyno_units::Bytes;

use crate::job::Job;
use crate::prepare::{Prepared, prepare_all};
use crate::request::Progress;
use crate::{Build, BuildError, Cache, CacheDir, Event, Fingerprint, Request};

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
    #[must_use]
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
