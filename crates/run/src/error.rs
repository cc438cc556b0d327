use std::path::PathBuf;

use dbdyno_audit::AuditError;
use dbdyno_bench::worker::WorkerError;
use dbdyno_builds::{BuildError, NoCacheDir};
use dbdyno_engines::CloneError;
use dbdyno_engines::server::ServerError;
use dbdyno_machine::IdlePreventerError;
use dbdyno_results::ResultsError;
use dbdyno_units::Bytes;

/// Why a run ended before its time.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run directory failed.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// There is no place for builds.
    #[error(transparent)]
    NoCache(#[from] NoCacheDir),
    /// Candidates could not be built.
    #[error("{}", built(.0))]
    Build(Vec<(String, BuildError)>),
    /// A profile could not be sampled.
    #[error("candidate {candidate}: its profile is sampled, and that failed: {reason}")]
    Sampling {
        /// Whose profile it is.
        candidate: String,
        /// Why, and what to try.
        reason: String,
    },
    /// What was compiled is not what it is called.
    #[error("{}", named(.0))]
    NotAsNamed(Vec<(String, String)>),
    /// A build could not be audited.
    #[error("auditing the build of {candidate}: {source}")]
    Audit {
        /// Whose build it is.
        candidate: String,
        /// Why not.
        source: AuditError,
    },
    /// The data could not be loaded.
    #[error("loading the data with {candidate}: {source}")]
    Load {
        /// Whose build loaded it.
        candidate: String,
        /// Why not.
        source: WorkerError,
    },
    /// What a run made on a server could not be removed.
    #[error("removing the tables of {candidate}: {source}")]
    Clean {
        /// The candidate.
        candidate: String,
        /// Why not.
        source: WorkerError,
    },
    /// A candidate's server cannot be had.
    #[error("candidate {candidate}: {source}")]
    Server {
        /// The candidate.
        candidate: String,
        /// Why not.
        source: Box<ServerError>,
    },
    /// The servers' data could not be made, moved or removed.
    #[error(transparent)]
    Servers(Box<ServerError>),
    /// The data could not be copied.
    #[error(transparent)]
    Clone(#[from] CloneError),
    /// There is not enough room for the data.
    #[error(
        "the data needs about {needed} in {}, and {free} are free: make room, choose another disk \
         with --out, or lower `rows` or `tables`", path.display()
    )]
    NoRoom {
        /// Where.
        path: PathBuf,
        /// How much is needed, at least.
        needed: Bytes,
        /// How much there is.
        free: Bytes,
    },
    /// The baseline failed, so nothing can be compared.
    #[error(
        "the baseline {candidate} failed, and without it there is nothing to compare with: \
         {reason}; what was measured is kept: remove the cause, and --resume goes on"
    )]
    Baseline {
        /// Its name.
        candidate: String,
        /// Why.
        reason: String,
    },
    /// A candidate is not what it was when the run began.
    #[error(
        "candidate {candidate} was {was} when the run began and is {is} now: the compiler, the \
         source, the CPU or the installed program has changed. Bring back what there was and \
         --resume goes on, or start a new run"
    )]
    Changed {
        /// Its name.
        candidate: String,
        /// What it was.
        was: String,
        /// What it is.
        is: String,
    },
    /// A file could not be read, written or removed.
    #[error("{}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// CPUs are named that this process may not use.
    #[error("`{given}` under [cpus]: this process may use the CPUs {allowed} only")]
    Cpus {
        /// What the experiment says.
        given: String,
        /// What there is.
        allowed: String,
    },
    /// CPUs cannot be kept from idling.
    #[error("{0}; set `prevent_idle = false` under [cpus] to disable this")]
    IdlePreventer(#[from] IdlePreventerError),
}

impl From<ServerError> for RunError {
    fn from(error: ServerError) -> Self {
        Self::Servers(Box::new(error))
    }
}

fn named(refusals: &[(String, String)]) -> String {
    let refusals: Vec<String> =
        refusals.iter().map(|(candidate, text)| format!("candidate {candidate}: {text}")).collect();
    refusals.join("\n")
}

fn built(failures: &[(String, BuildError)]) -> String {
    let failures: Vec<String> = failures
        .iter()
        .map(|(candidate, error)| format!("candidate {candidate}: {error}"))
        .collect();
    failures.join("\n")
}
