//! Candidates that dbdyno compiles itself.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{BuildError, Builder, Compiler, Request, Source, Variant, default_cache_dir};
use dbdyno_spec::experiment::{Build, Candidate, System};

use super::Subject;
use crate::error::RunError;
use crate::progress::{Event, Progress};

/// Builds those of the candidates that are to be built; each with its number in the list.
pub(super) fn build(
    candidates: &[&Candidate],
    cache: Option<PathBuf>,
    cancel: &Arc<AtomicBool>,
    progress: Progress<'_>,
) -> Result<Vec<(usize, Subject)>, RunError> {
    let wanted: Vec<(usize, &Build)> = candidates
        .iter()
        .enumerate()
        .filter_map(|(number, candidate)| match &candidate.system {
            System::Sqlite { build, .. } => Some((number, build)),
            System::Private(_) | System::Existing(_) => None,
        })
        .collect();
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let cache = match cache {
        Some(cache) => cache,
        None => default_cache_dir()?,
    };
    let mut builder = Builder::new(cache);
    builder.cancel = Arc::clone(cancel);

    let mut compilers = BTreeMap::new();
    for (_, build) in &wanted {
        let name = build.compiler.as_str();
        compilers.entry(name).or_insert_with(|| Compiler::find(name));
    }
    let requests: Vec<Result<Request, BuildError>> = wanted
        .iter()
        .map(|(_, build)| {
            Ok(Request {
                source: Source::bundled_sqlite(),
                variant: variant(build),
                compiler: compilers[build.compiler.as_str()].clone()?,
                extra_flags: build.flags.clone(),
            })
        })
        .collect();
    let name = |number: usize| candidates[number].name.clone();
    // What cannot even be asked for is known at once: no need to compile the rest first.
    if requests.iter().any(Result::is_err) {
        let failures = wanted.iter().zip(requests);
        return Err(RunError::Build(
            failures.filter_map(|((number, _), r)| Some((name(*number), r.err()?))).collect(),
        ));
    }
    let requests: Vec<Request> = requests.into_iter().flatten().collect();
    let builds = builder.build(&requests, &|event| progress(Event::Build(event)));

    let mut failures = Vec::new();
    let mut subjects = Vec::new();
    for ((number, _), build) in wanted.into_iter().zip(builds) {
        match build {
            Ok(build) => subjects.push((number, Subject::Built(Box::new(build)))),
            Err(error) => failures.push((name(number), error)),
        }
    }
    if failures.is_empty() { Ok(subjects) } else { Err(RunError::Build(failures)) }
}

fn variant(build: &Build) -> Variant {
    *Variant::by_name(&build.variant).expect("a valid experiment has known variants only")
}
