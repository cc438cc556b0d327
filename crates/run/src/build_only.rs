//! Building all candidates of an experiment, without measuring them.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::process;

use dbdyno_builds::Build;
use dbdyno_engines::server::ServerDirs;
use dbdyno_results::RunDirectory;
use dbdyno_spec::experiment::{Candidate, Experiment};

use crate::candidates::build_all;
use crate::cpus::divide_cpus;
use crate::error::RunError;
use crate::pgo_training::PgoTrainer;
use crate::session::Options;

/// A candidate that was built, or found among the builds that are kept.
#[derive(Clone, Debug)]
pub struct CandidateBuild {
    /// The candidate's name.
    pub candidate: String,
    /// What was built for it.
    pub build: Build,
}

/// Builds all candidates that are compiled, as a run of the experiment would, with training where
/// it takes that; a run finds them in the cache then. Candidates that are not compiled are left out.
///
/// Call it on the main thread: workers end with the thread that started them.
///
/// # Errors
/// A candidate cannot be built or trained.
pub fn build_candidates(
    experiment: &Experiment,
    options: &Options<'_>,
) -> Result<Vec<CandidateBuild>, RunError> {
    let scratch = Scratch::make()?;
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
    let made = candidates.iter().zip(builds).filter_map(|(candidate, build)| {
        Some(CandidateBuild { candidate: candidate.name.clone(), build: build?.build })
    });
    Ok(made.collect())
}

/// Where training keeps its databases; removed on drop.
struct Scratch(RunDirectory);

impl Scratch {
    fn make() -> Result<Self, RunError> {
        let path = std::env::temp_dir().join(format!("dbdyno-make-{}", process::id()));
        // Left over from a process that had this id before.
        let _ = fs::remove_dir_all(&path);
        let failed = |path: PathBuf| move |source| RunError::Io { path, source };
        DirBuilder::new().mode(0o700).create(&path).map_err(failed(path.clone()))?;
        let scratch = Self(RunDirectory::at(&path));
        let logs = scratch.0.logs();
        fs::create_dir(&logs).map_err(failed(logs))?;
        Ok(scratch)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Servers' data may be elsewhere. What cannot be removed now is an orphan, and the next
        // run of servers removes those.
        if self.0.data().exists()
            && let Ok(server_dirs) = ServerDirs::open(&self.0.data())
        {
            let _ = server_dirs.remove();
        }
        let _ = fs::remove_dir_all(self.0.path());
    }
}
