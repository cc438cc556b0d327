//! Building and fetching an experiment's candidates without measuring them.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::{fs, process};

use dbdyno_builds::{Build, Release};
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::{Candidate, Experiment};

use crate::candidates::{build_all, building};
use crate::error::RunError;
use crate::instance::cpus::divide_cpus;
use crate::session::Options;
use crate::training::PgoTrainer;

#[derive(Clone, Debug)]
pub struct CandidateBuild {
    /// The candidate's name.
    pub candidate: String,
    /// Its build, newly compiled or from the cache.
    pub build: Build,
}

#[derive(Clone, Debug)]
pub struct CandidateRelease {
    /// The candidate's name.
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
    let releases = building::obtain_all(&candidates, cache, &options.cancel, progress)?;
    let fetched = candidates.iter().zip(releases).filter_map(|(candidate, release)| {
        Some(CandidateRelease { candidate: candidate.name.clone(), release: release? })
    });
    let scratch = std::env::temp_dir().join(format!("dbdyno-make-{}", process::id()));
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
        directory: scratch.0.clone(),
        worker: &options.worker,
        cpus: divide_cpus(experiment)?,
        cancel: &options.cancel,
        progress: options.progress,
    };
    let candidates: Vec<&Candidate> = experiment.candidates.iter().collect();
    let builds = build_all(&candidates, options.cache.clone(), &trainer)?;
    let built = candidates.iter().zip(builds).filter_map(|(candidate, built)| {
        Some(CandidateBuild { candidate: candidate.name.clone(), build: built?.build })
    });
    Ok(built.collect())
}

/// A temporary directory for the databases of training; removed on drop.
struct ScratchDirectory(RunDirectory);

impl ScratchDirectory {
    fn create(path: &Path) -> Result<Self, RunError> {
        // A killed process may have left it.
        let _ = fs::remove_dir_all(path);
        let created = DirBuilder::new().mode(0o700).create(path);
        created.map_err(RunError::io(path))?;
        let scratch = Self(RunDirectory::at(path));
        let logs = scratch.0.logs();
        fs::create_dir(&logs).map_err(RunError::io(&logs))?;
        Ok(scratch)
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        // Servers' data may be on another disk. What cannot be removed now is removed by the next
        // run with servers.
        if self.0.data().exists()
            && let Ok(server_dirs) = ServerDirs::open(&self.0.data())
        {
            let _ = server_dirs.remove();
        }
        let _ = fs::remove_dir_all(self.0.path());
    }
}
