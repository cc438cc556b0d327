//! Compiled releases of servers that are unpacked into the cache.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use dbdyno_builds::{BuildError, CacheDir, Release, ReleaseOrigin, Releases, System};
use dbdyno_spec::experiment::{self, Candidate};

use crate::candidates::of_server;
use crate::error::RunError;
use crate::progress::{Progress, RunEvent};

/// The release that a candidate is unpacked from; `None` if its program is installed or compiled.
pub(crate) fn unpacked(candidate: &Candidate) -> Option<(System, &ReleaseOrigin)> {
    let experiment::System::Private(server) = &candidate.system else { return None };
    let origin = server.release.as_ref()?;
    (!matches!(origin, ReleaseOrigin::Installed { .. })).then(|| (of_server(server.system), origin))
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
    let progress = Mutex::new(progress);
    let say = |line: String| {
        if let Ok(progress) = progress.lock() {
            progress(RunEvent::Stage(line));
        }
    };
    let mut known: BTreeMap<(System, &ReleaseOrigin), Result<Release, BuildError>> =
        BTreeMap::new();
    let mut all = Vec::new();
    let mut failures: Vec<(String, BuildError)> = Vec::new();
    let mut failed: Vec<(System, &ReleaseOrigin)> = Vec::new();
    for candidate in candidates {
        let Some(key) = unpacked(candidate) else {
            all.push(None);
            continue;
        };
        match known.entry(key).or_insert_with(|| releases.obtain(key.0, key.1, &say)) {
            Ok(release) => all.push(Some(release.clone())),
            // Each failure is reported once.
            Err(error) if !failed.contains(&key) => {
                failed.push(key);
                failures.push((candidate.name.clone(), error.clone()));
            }
            Err(_) => {}
        }
    }
    if failures.is_empty() { Ok(all) } else { Err(RunError::Build(failures)) }
}

/// The release of a candidate if it is in the cache; `None` if it is to be fetched, for which all
/// tools are installed.
pub(crate) fn cached(candidate: &Candidate) -> Result<Option<Release>, RunError> {
    let Some((system, origin)) = unpacked(candidate) else { return Ok(None) };
    let releases = Releases::new(&CacheDir::chosen_or_default(None)?, Arc::default());
    let failed = |error| RunError::Build(vec![(candidate.name.clone(), error)]);
    let release = releases.cached(system, origin).map_err(failed)?;
    if release.is_none() {
        Releases::check_tools(origin).map_err(failed)?;
    }
    Ok(release)
}
