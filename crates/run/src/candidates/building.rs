//! Candidates that dbdyno compiles itself.

mod auditor;
mod requests;

use std::cell::RefCell;
use std::iter;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use dbdyno_audit::Audit;
use dbdyno_builds::{
    Bolt, Build, BuildError, Builder, Cache, CacheLease, Profiles, Profiling, Request, SampleTools,
    Sources, default_cache_dir,
};
use dbdyno_record::build::{BoltProfileMethod, Pgo};
use dbdyno_spec::experiment::{self, Candidate, Training};

use auditor::Auditor;
use requests::Requests;

use crate::error::RunError;
use crate::pgo_training::{PgoTrainer, TrainingTarget};
use crate::progress::RunEvent;
use crate::sampling;

/// What was compiled for a candidate.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// How, and where it is.
    pub build: Build,
    /// What its compilers recorded.
    pub audit: Arc<Audit>,
    /// The file with the samples that BOLT was given, where it was given any.
    pub samples: Option<PathBuf>,
    /// Keeps all builds of the experiment in the cache.
    pub held: Arc<Vec<CacheLease>>,
}

/// Builds those of the candidates that are to be built, in the order of the list.
pub(crate) fn build(
    candidates: &[&Candidate],
    cache: Option<PathBuf>,
    trainer: &PgoTrainer<'_>,
) -> Result<Vec<Option<Built>>, RunError> {
    let mut built: Vec<Option<Built>> = vec![None; candidates.len()];
    if candidates.iter().all(|candidate| candidate.system.build().is_none()) {
        return Ok(built);
    }
    let mut pipeline = BuildPipeline::open(candidates, cache, trainer)?;
    pipeline.train_for_compilers()?;
    let mut all = pipeline.compile()?;
    pipeline.lay_out(&mut all)?;
    let held = Arc::new(pipeline.held.take());
    for (order, one) in pipeline.orders.iter().zip(all) {
        built[order.place] = Some(Built { held: Arc::clone(&held), ..one });
    }
    Ok(built)
}

/// A candidate that is to be built.
struct Order<'a> {
    /// Its place in the list of candidates.
    place: usize,
    candidate: &'a Candidate,
    build: &'a experiment::Build,
    request: Request,
    /// What makes a profile of samples for its compiler, where that takes one.
    tools: Option<SampleTools>,
}

impl<'a> Order<'a> {
    /// What its compiler's profile is collected with, where that takes one.
    fn to_train_with(&self) -> Option<(&'a Training, Request)> {
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

    /// How BOLT is trained, where it lays it out.
    fn bolts_training(&self) -> Option<&'a Training> {
        let is_for_bolt = self.request.variant.bolt && self.build.bolt;
        self.build.training.as_ref().filter(|_| is_for_bolt)
    }

    fn is_sampled(&self) -> bool {
        let bolts = self.bolts_training().map(|training| training.bolt_profile);
        self.request.variant.pgo == Pgo::Sample || bolts == Some(BoltProfileMethod::Samples)
    }
}

/// Builds the orders.
struct BuildPipeline<'a> {
    orders: Vec<Order<'a>>,
    builder: Builder,
    auditor: Auditor<'a>,
    cache: Cache,
    profiles: Profiles,
    /// Builds that nobody removes meanwhile.
    held: RefCell<Vec<CacheLease>>,
    /// Where something is laid out with it.
    bolt: Option<Bolt>,
    trainer: &'a PgoTrainer<'a>,
}

impl<'a> BuildPipeline<'a> {
    /// What cannot be built is known here, as far as that can be known: no need to compile the rest
    /// first.
    fn open(
        candidates: &[&'a Candidate],
        cache: Option<PathBuf>,
        trainer: &'a PgoTrainer<'a>,
    ) -> Result<Self, RunError> {
        let (cancel, progress) = (trainer.cancel, trainer.progress);
        let elsewhere = cache.as_ref().map(|cache| cache.display().to_string());
        let cache = match cache {
            Some(cache) => cache,
            None => default_cache_dir()?,
        };
        let mut builder = Builder::new(&cache);
        builder.cancel = Arc::clone(cancel);

        let mut requests = Requests::new(Sources::new(&cache, Arc::clone(cancel)), progress);
        let mut orders = Vec::new();
        let mut failures = Vec::new();
        for (place, &candidate) in candidates.iter().enumerate() {
            let Some(build) = candidate.system.build() else { continue };
            let order = requests.request(candidate, build).and_then(|request| {
                let compiler = (request.variant.pgo == Pgo::Sample).then_some(&request.compiler);
                let tools = compiler.map(SampleTools::of).transpose()?;
                Ok(Order { place, candidate, build, request, tools })
            });
            match order {
                Ok(order) => orders.push(order),
                Err(error) => failures.push((candidate.name.clone(), error)),
            }
        }
        if !failures.is_empty() {
            return Err(RunError::Build(failures));
        }
        if let Some(Order { candidate, .. }) = orders.iter().find(|order| order.is_sampled()) {
            sampling::check_permitted().map_err(|reason| RunError::Sampling {
                candidate: candidate.name.clone(),
                reason,
            })?;
        }
        let first = orders.iter().find(|order| order.bolts_training().is_some());
        let bolt = first.map(|first| Bolt::find().map_err(|e| failed(first.candidate, e)));
        Ok(Self {
            bolt: bolt.transpose()?,
            orders,
            builder,
            auditor: Auditor::new(Cache::new(&cache), elsewhere, trainer),
            profiles: Profiles::new(&cache),
            cache: Cache::new(&cache),
            held: RefCell::default(),
            trainer,
        })
    }

    /// Collects the profiles that compilers are given.
    fn train_for_compilers(&mut self) -> Result<(), RunError> {
        let mut trained = Vec::new();
        for (number, order) in self.orders.iter().enumerate() {
            trained.extend(order.to_train_with().map(|(training, with)| (number, training, with)));
        }
        let candidates: Vec<&Candidate> =
            trained.iter().map(|(number, ..)| self.orders[*number].candidate).collect();
        let requests: Vec<Request> = trained.iter().map(|(.., with)| with.clone()).collect();
        let builds = self.make(&requests, &candidates)?;
        self.auditor.audit(&candidates, &builds)?;
        for ((number, training, _), build) in trained.iter().zip(&builds) {
            let order = &mut self.orders[*number];
            let target = TrainingTarget { candidate: order.candidate, training, build };
            let tools = order.tools.as_ref();
            let profile = self.trainer.compilers_profile(&target, tools, &self.profiles)?;
            order.request.profiling = Profiling::Use(Box::new(profile));
        }
        Ok(())
    }

    /// Compiles and links all, and audits what came of it.
    fn compile(&self) -> Result<Vec<Built>, RunError> {
        let candidates: Vec<&Candidate> = self.orders.iter().map(|one| one.candidate).collect();
        let requests: Vec<Request> = self.orders.iter().map(|one| one.request.clone()).collect();
        let builds = self.make(&requests, &candidates)?;
        let audits = self.auditor.audit(&candidates, &builds)?;
        let built = |(build, audit)| Built { build, audit, samples: None, held: Arc::default() };
        Ok(builds.into_iter().zip(audits).map(built).collect())
    }

    /// Has BOLT lay out what was linked for it: only now its profiles can be collected.
    fn lay_out(&self, built: &mut [Built]) -> Result<(), RunError> {
        let Some(bolt) = &self.bolt else { return Ok(()) };
        let mut numbers = Vec::new();
        let mut candidates = Vec::new();
        let mut requests = Vec::new();
        for (number, order) in self.orders.iter().enumerate() {
            let Some(training) = order.bolts_training() else { continue };
            let candidate = order.candidate;
            let target = TrainingTarget { candidate, training, build: &built[number].build };
            let profile = self.trainer.bolts_profile(&target, bolt, &self.profiles)?;
            built[number].samples = profile.samples();
            numbers.push(number);
            candidates.push(candidate);
            requests.push(Request { bolt: Some(profile), ..order.request.clone() });
        }
        // They have the same objects: their audits hold.
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
        // A server that is not what its name says is known before the next is compiled.
        let mut refused = None;
        let mut look = |at: usize, build: &Build| {
            if requests[at].bolt.is_some() {
                return ControlFlow::Continue(());
            }
            match self.auditor.audit(&[candidates[at]], std::slice::from_ref(build)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    refused = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let tell =
            |event: dbdyno_builds::Event<'_>| (self.trainer.progress)(RunEvent::Build(event));
        let outcomes = self.builder.build_while(requests, &tell, &mut look);
        if let Some(error) = refused {
            return Err(error);
        }
        let mut builds = Vec::new();
        let mut failures = Vec::new();
        for (candidate, outcome) in candidates.iter().zip(outcomes) {
            match outcome {
                Ok(build) => {
                    self.hold(&build);
                    builds.push(build);
                }
                Err(error) => failures.push((candidate.name.clone(), error)),
            }
        }
        if failures.is_empty() { Ok(builds) } else { Err(RunError::Build(failures)) }
    }
}

impl BuildPipeline<'_> {
    /// Keeps a build, and what it was made of, from being removed. A cache that cannot be written to
    /// has nobody who removes anything.
    fn hold(&self, build: &Build) {
        let base = build.bolt.as_ref().map(|bolt| bolt.base);
        for fingerprint in iter::once(build.fingerprint).chain(base) {
            let held = self.cache.lease(&fingerprint, self.trainer.cancel);
            self.held.borrow_mut().extend(held.ok().flatten());
        }
    }
}

fn failed(candidate: &Candidate, error: BuildError) -> RunError {
    RunError::Build(vec![(candidate.name.clone(), error)])
}
