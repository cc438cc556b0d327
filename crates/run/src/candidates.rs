//! From the experiment's candidates to builds and to what is stored of them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{
    Build, BuildError, Builder, Compiler, Request, Source, Variant, default_cache_dir,
};
use dbdyno_results::{BuildRecord, CandidateRecord, Role};
use dbdyno_spec::experiment::{Candidate, Experiment, System};

use crate::error::RunError;
use crate::progress::{Event, Progress};
use crate::settings;

/// The name of the second instance of the baseline.
const CONTROL: &str = "control";

/// One of the candidates, or the control, with its build.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    /// Its name in all results.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// What the experiment says of it.
    pub candidate: Candidate,
    /// What it runs.
    pub build: Build,
}

/// Builds everything, and lists who takes part: the baseline first, the control last.
pub(crate) fn build_all(
    experiment: &Experiment,
    cache: Option<PathBuf>,
    cancel: &Arc<AtomicBool>,
    progress: Progress<'_>,
) -> Result<Vec<Contender>, RunError> {
    let cache = match cache {
        Some(cache) => cache,
        None => default_cache_dir()?,
    };
    let mut builder = Builder::new(cache);
    builder.cancel = Arc::clone(cancel);

    let baseline = experiment.baseline_candidate();
    let others = experiment.candidates.iter().filter(|candidate| candidate.name != baseline.name);
    let candidates: Vec<&Candidate> = std::iter::once(baseline).chain(others).collect();
    let mut compilers = BTreeMap::new();
    for candidate in &candidates {
        let name = candidate.compiler.as_str();
        compilers.entry(name).or_insert_with(|| Compiler::find(name));
    }
    let requests: Vec<Result<Request, BuildError>> = candidates
        .iter()
        .map(|candidate| {
            Ok(Request {
                source: source(&candidate.system),
                variant: variant(candidate),
                compiler: compilers[candidate.compiler.as_str()].clone()?,
                extra_flags: candidate.flags.clone(),
            })
        })
        .collect();
    // What cannot even be asked for is known at once: no need to compile the rest first.
    if requests.iter().any(Result::is_err) {
        let failures = candidates.iter().zip(requests);
        return Err(RunError::Build(
            failures.filter_map(|(c, r)| Some((c.name.clone(), r.err()?))).collect(),
        ));
    }
    let requests: Vec<Request> = requests.into_iter().flatten().collect();
    let builds = builder.build(&requests, &|event| progress(Event::Build(event)));

    let mut failures = Vec::new();
    let mut contenders = Vec::new();
    for (candidate, build) in candidates.into_iter().zip(builds) {
        match build {
            Ok(build) => contenders.push(Contender {
                name: candidate.name.clone(),
                role: if candidate.name == baseline.name {
                    Role::Baseline
                } else {
                    Role::Candidate
                },
                candidate: candidate.clone(),
                build,
            }),
            Err(error) => failures.push((candidate.name.clone(), error)),
        }
    }
    if !failures.is_empty() {
        return Err(RunError::Build(failures));
    }
    if experiment.control {
        let control =
            Contender { name: CONTROL.to_owned(), role: Role::Control, ..contenders[0].clone() };
        contenders.push(control);
    }
    Ok(contenders)
}

fn source(system: &System) -> Source {
    match system {
        System::Sqlite(_) => Source::bundled_sqlite(),
    }
}

fn variant(candidate: &Candidate) -> Variant {
    *Variant::by_name(&candidate.variant).expect("a valid experiment has known variants only")
}

impl Contender {
    /// What is stored of it.
    pub fn record(&self) -> CandidateRecord {
        let Build { compiler, .. } = &self.build;
        CandidateRecord {
            name: self.name.clone(),
            role: self.role,
            system: self.candidate.system.name().to_owned(),
            version: self.build.source_version.clone(),
            build: BuildRecord {
                variant: self.build.variant.clone(),
                compiler: format!("{} ({})", compiler.path.display(), compiler.version_line),
                commands: self.build.commands.clone(),
                fingerprint: self.build.fingerprint.short(),
                source_sha256: self.build.source_sha256.to_string(),
                library_sha256: self.build.library_sha256.to_string(),
                text_size: self.build.text_size,
                file_size: self.build.file_size,
            },
            configuration: settings::of_candidate(&self.candidate),
            injected_delay: self.candidate.injected_delay,
        }
    }
}
