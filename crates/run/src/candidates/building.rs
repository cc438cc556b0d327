//! Candidates that dbdyno compiles itself.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::slice;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use dbdyno_audit::{Audit, Check};
use dbdyno_builds::recipe::{ConfigureTool, RecipeOptions};
use dbdyno_builds::{
    Bolt, Build, BuildError, Builder, Cache, Compiler, Origin, Profiles, Profiling, Request,
    SampleTools, Source, Sources, System, Variant, default_cache_dir,
};
use dbdyno_record::server::{ServerSystem, StorageEngine};
use dbdyno_spec::experiment::{self, Candidate};

use super::variants;
use crate::auditing::audit_of;
use crate::auditing::refusal::refusal;
use crate::error::RunError;
use crate::progress::{Event, Progress};
use crate::sampling;
use crate::training::Trainer;

/// What was compiled for a candidate.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// How, and where it is.
    pub build: Build,
    /// What its compilers recorded.
    pub audit: Arc<Audit>,
}

/// Builds those of the candidates that are to be built, in the order of the list.
pub(crate) fn build(
    candidates: &[&Candidate],
    cache: Option<PathBuf>,
    trainer: &Trainer<'_>,
) -> Result<Vec<Option<Built>>, RunError> {
    let (cancel, progress) = (trainer.cancel, trainer.progress);
    let wanted: Vec<(usize, &experiment::Build)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(number, candidate)| Some((number, candidate.system.build()?)))
        .collect();
    let mut built: Vec<Option<Built>> = vec![None; candidates.len()];
    if wanted.is_empty() {
        return Ok(built);
    }
    let elsewhere = cache.as_ref().map(|cache| cache.display().to_string());
    let cache = match cache {
        Some(cache) => cache,
        None => default_cache_dir()?,
    };
    let mut builder = Builder::new(&cache);
    builder.cancel = Arc::clone(cancel);

    // What cannot even be asked for is known at once: no need to compile the rest first.
    let name = |number: usize| candidates[number].name.clone();
    let mut makers = Makers::new(Sources::new(&cache, Arc::clone(cancel)), progress);
    let requests: Vec<_> =
        wanted.iter().map(|(number, build)| makers.request(candidates[*number], build)).collect();
    let mut failures = Vec::new();
    let mut ready = Vec::new();
    for ((number, _), request) in wanted.iter().zip(requests) {
        match request {
            Ok(request) if request.variant.autofdo => match SampleTools::of(&request.compiler) {
                Ok(_) => ready.push(request),
                Err(error) => failures.push((name(*number), error)),
            },
            Ok(request) => ready.push(request),
            Err(error) => failures.push((name(*number), error)),
        }
    }
    if !failures.is_empty() {
        return Err(RunError::Build(failures));
    }
    let sampled = ready.iter().zip(&wanted).find(|(request, (_, build))| {
        let bolt = build.training.as_ref().map(|training| training.bolt_profile);
        request.variant.autofdo || bolt == Some(experiment::BoltProfile::Samples)
    });
    if let Some((_, (number, _))) = sampled {
        sampling::check_permitted()
            .map_err(|reason| RunError::Sampling { candidate: name(*number), reason })?;
    }
    let auditor = Auditor { cache: Cache::new(&cache), elsewhere, cancel, progress };
    let make = |requests: &[Request], numbers: &[usize]| {
        // A server that is not what its name says is known before the next is compiled.
        let mut refused = None;
        let mut look = |at: usize, build: &Build| {
            if requests[at].bolt.is_some() {
                // It has the same objects as what it was laid out from.
                return ControlFlow::Continue(());
            }
            match auditor.audit(&[candidates[numbers[at]]], slice::from_ref(build)) {
                Ok(_) => ControlFlow::Continue(()),
                Err(error) => {
                    refused = Some(error);
                    ControlFlow::Break(())
                }
            }
        };
        let tell = |event: dbdyno_builds::Event<'_>| progress(Event::Build(event));
        let outcomes = builder.build_while(requests, &tell, &mut look);
        if let Some(error) = refused {
            return Err(error);
        }
        let mut builds = Vec::new();
        let mut failures = Vec::new();
        for (number, outcome) in numbers.iter().zip(outcomes) {
            match outcome {
                Ok(build) => builds.push(build),
                Err(error) => failures.push((name(*number), error)),
            }
        }
        if failures.is_empty() { Ok(builds) } else { Err(RunError::Build(failures)) }
    };

    let bolt = if ready.iter().any(|request| request.variant.bolt) {
        let first = ready.iter().zip(&wanted).find(|(request, _)| request.variant.bolt);
        let first = first.map_or_else(String::new, |(_, (number, _))| name(*number));
        Some(Bolt::find().map_err(|error| RunError::Build(vec![(first, error)]))?)
    } else {
        None
    };

    // First what profiles are collected with.
    let mut trained = Vec::new();
    for ((number, build), request) in wanted.iter().zip(&ready) {
        let profiling = match (request.variant.pgo, request.variant.autofdo) {
            (true, _) => Profiling::Collect,
            (false, true) => Profiling::Sample,
            (false, false) => continue,
        };
        if let Some(training) = &build.training {
            let variant = request.variant.without_bolt();
            let collect = Request { variant, profiling, ..request.clone() };
            trained.push((*number, training, collect));
        }
    }
    let collect: Vec<Request> = trained.iter().map(|(_, _, request)| request.clone()).collect();
    let numbers: Vec<usize> = trained.iter().map(|(number, _, _)| *number).collect();
    let to_train = make(&collect, &numbers)?;
    let owners: Vec<&Candidate> = numbers.iter().map(|number| candidates[*number]).collect();
    auditor.audit(&owners, &to_train)?;
    let profiles = Profiles::new(&cache);
    for ((number, training, request), build) in trained.iter().zip(&to_train) {
        let candidate = candidates[*number];
        let profile = match request.profiling {
            Profiling::Sample => {
                let tools = SampleTools::of(&request.compiler)
                    .map_err(|error| RunError::Build(vec![(name(*number), error)]))?;
                trainer.sampled_profile(candidate, training, build, &profiles, &tools)?
            }
            _ => trainer.profile(candidate, training, build, &profiles)?,
        };
        let place = wanted.iter().position(|(wanted, _)| wanted == number);
        if let Some(request) = place.and_then(|place| ready.get_mut(place)) {
            request.profiling = Profiling::Use(Box::new(profile));
        }
    }
    let numbers: Vec<usize> = wanted.iter().map(|(number, _)| *number).collect();
    let builds = make(&ready, &numbers)?;
    let owners: Vec<&Candidate> = numbers.iter().map(|number| candidates[*number]).collect();
    let audits = auditor.audit(&owners, &builds)?;
    for ((number, build), audit) in numbers.iter().zip(builds).zip(audits) {
        built[*number] = Some(Built { build, audit });
    }

    // What BOLT lays out is linked now, and only now its profile can be collected.
    let mut laid_out = Vec::new();
    for ((number, build), request) in wanted.iter().zip(&ready) {
        let base = built[*number].as_ref().filter(|_| request.variant.bolt);
        if let (Some(base), Some(training), Some(bolt)) = (base, &build.training, &bolt) {
            let (candidate, base) = (candidates[*number], &base.build);
            let profile = match training.bolt_profile {
                experiment::BoltProfile::Instrumentation => {
                    trainer.bolts_profile(candidate, training, base, bolt, &profiles)?
                }
                experiment::BoltProfile::Samples => {
                    trainer.bolts_sampled_profile(candidate, training, base, bolt, &profiles)?
                }
            };
            laid_out.push((*number, Request { bolt: Some(profile), ..request.clone() }));
        }
    }
    let (numbers, requests): (Vec<usize>, Vec<Request>) = laid_out.into_iter().unzip();
    for (number, build) in numbers.iter().zip(make(&requests, &numbers)?) {
        // It has the same objects: their audit holds.
        if let Some(built) = &mut built[*number] {
            built.build = build;
        }
    }
    Ok(built)
}

/// Refuses builds that are not what they are called.
struct Auditor<'a> {
    cache: Cache,
    /// Where the cache is, if it is not where everybody looks for it.
    elsewhere: Option<String>,
    cancel: &'a AtomicBool,
    progress: Progress<'a>,
}

impl Auditor<'_> {
    /// Audits the candidates' builds; the error names every one that is not as it should be.
    fn audit(
        &self,
        candidates: &[&Candidate],
        builds: &[Build],
    ) -> Result<Vec<Arc<Audit>>, RunError> {
        let mut audits = Vec::new();
        let mut refusals = Vec::new();
        for (candidate, build) in candidates.iter().zip(builds) {
            let name = &candidate.name;
            let audit = self.read(name, build)?;
            let mut intent = audit.intent.clone();
            let allowed = candidate.system.build().map(|build| build.audit_allows.as_slice());
            // Names of no check were reported with their place in the file.
            let allowed = allowed.unwrap_or_default().iter();
            intent.allowed.extend(allowed.filter_map(|check| Check::by_name(check)));
            let audit = audit.judged_by(intent);
            if let Some(text) = refusal(build, &audit, self.elsewhere.as_deref()) {
                refusals.push((name.clone(), text));
            }
            audits.push(Arc::new(audit));
        }
        if refusals.is_empty() { Ok(audits) } else { Err(RunError::NotAsNamed(refusals)) }
    }

    fn read(&self, candidate: &str, build: &Build) -> Result<Audit, RunError> {
        let watch = |told: dbdyno_audit::Progress| {
            let line = format!("auditing {candidate}: {} of {} files read", told.done, told.of);
            (self.progress)(Event::Stage(line));
        };
        audit_of(&self.cache, build, self.cancel, &watch)
            .map_err(|source| RunError::Audit { candidate: candidate.to_owned(), source })
    }
}

/// What candidates share: each compiler is examined and each source is fetched once.
struct Makers<'a> {
    sources: Sources,
    progress: Progress<'a>,
    compilers: BTreeMap<String, Result<Compiler, BuildError>>,
    fetched: BTreeMap<(System, Origin), Result<Source, BuildError>>,
}

impl<'a> Makers<'a> {
    const fn new(sources: Sources, progress: Progress<'a>) -> Self {
        Self { sources, progress, compilers: BTreeMap::new(), fetched: BTreeMap::new() }
    }

    fn request(
        &mut self,
        candidate: &Candidate,
        build: &experiment::Build,
    ) -> Result<Request, BuildError> {
        let compiler = self.compilers.entry(build.compiler.clone());
        let compiler = compiler.or_insert_with(|| Ok(Compiler::find(&build.compiler)?)).clone()?;
        let source = self.source(system_of(candidate), origin_of(&build.source)?)?;
        Ok(Request {
            source,
            variant: variant_of(build),
            compiler,
            extra_flags: build.flags.clone(),
            options: options_of(candidate, build),
            profiling: Profiling::None,
            bolt: None,
        })
    }

    fn source(&mut self, system: System, origin: Origin) -> Result<Source, BuildError> {
        let progress = Mutex::new(self.progress);
        let say = |line: String| {
            if let Ok(progress) = progress.lock() {
                progress(Event::Stage(line));
            }
        };
        let key = (system, origin);
        if let Some(known) = self.fetched.get(&key) {
            return known.clone();
        }
        let fetched = self.sources.obtain(system, &key.1, &say);
        self.fetched.insert(key, fetched.clone());
        fetched
    }
}

const fn system_of(candidate: &Candidate) -> System {
    match &candidate.system {
        experiment::System::Sqlite { .. } => System::Sqlite,
        experiment::System::Private(server) => of_server(server.system),
        experiment::System::Existing(server) => of_server(server.system),
    }
}

const fn of_server(system: ServerSystem) -> System {
    match system {
        ServerSystem::MariaDb => System::MariaDb,
        ServerSystem::MySql => System::MySql,
        ServerSystem::PostgreSql => System::PostgreSql,
    }
}

fn origin_of(source: &experiment::Source) -> Result<Origin, BuildError> {
    Ok(match source.clone() {
        experiment::Source::Bundled => Origin::Bundled,
        experiment::Source::Path(path) => Origin::Path { path },
        experiment::Source::Tarball { location, sha256 } => {
            // A checksum that is none was reported with its place in the file.
            let sha256 = sha256.and_then(|sha256| sha256.parse().ok());
            Origin::Tarball { location, sha256 }
        }
        experiment::Source::Git { url, revision } => Origin::Git { url, revision },
        experiment::Source::Debian { package, suite, version } => {
            Origin::Debian { package, suite, version }
        }
    })
}

fn options_of(candidate: &Candidate, build: &experiment::Build) -> RecipeOptions {
    let engine = match &candidate.system {
        experiment::System::Private(server) => server.engine,
        experiment::System::Sqlite { .. } | experiment::System::Existing(_) => None,
    };
    RecipeOptions {
        myrocks: engine == Some(StorageEngine::MyRocks),
        tool: build.configure_with.map(|tool| match tool {
            experiment::ConfigureTool::Autoconf => ConfigureTool::Autoconf,
            experiment::ConfigureTool::Meson => ConfigureTool::Meson,
        }),
        arguments: build.configure.clone(),
    }
}

fn variant_of(build: &experiment::Build) -> Variant {
    match &build.settings {
        Some(settings) => variants::defined(&build.variant, settings),
        None => Variant::by_name(&build.variant).expect("a valid experiment has known variants"),
    }
}
