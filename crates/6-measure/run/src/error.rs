use std::path::PathBuf;

use dbdyno_audit::AuditError;
use dbdyno_builds::{BuildError, CacheDirError};
use dbdyno_engines::CloneError;
use dbdyno_engines::server::ServerError;
use dbdyno_hosts::HostError;
use dbdyno_machine::{CpuSet, IdlePreventerError};
use dbdyno_results::ResultsError;
use dbdyno_units::Bytes;
use dbdyno_worker::WorkerError;

pub use crate::sampling::SamplingError;
pub use crate::statement_check::StatementProblem;

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run directory could not be read or written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The run is not registered, and the user did not trust it.
    #[error(
        "{} is not a run that this user made on this machine: it is a copy, or was made by \
         somebody else or by a version of dbdyno without a registry of runs. `dbdyno report` only \
         reads it{}. If you trust it, add --trust",
        path.display(), would(uses)
    )]
    NotRegistered {
        /// The run directory.
        path: PathBuf,
        /// What dbdyno would do for it, such as `start /opt/mariadbd`; may be empty.
        uses: Vec<String>,
    },
    /// There is no directory for the build cache, or it is not trusted.
    #[error(transparent)]
    Cache(#[from] CacheDirError),
    /// The run cannot be extended.
    #[error("{} cannot be extended: {reason}", path.display())]
    NotExtendable {
        /// The run directory.
        path: PathBuf,
        /// Why, and what to try.
        reason: String,
    },
    /// The run holds results that others measured.
    #[error(
        "{} holds imported results, which dbdyno did not measure: they can be reported and \
         compared, but not resumed, extended or cleaned", path.display()
    )]
    Imported {
        /// The run directory.
        path: PathBuf,
    },
    /// Candidates could not be built.
    #[error("{}", per_candidate(.0))]
    Build(Vec<(String, BuildError)>),
    /// A profile could not be sampled.
    #[error("candidate {candidate}: sampling its profile: {source}")]
    Sampling {
        candidate: String,
        /// Why, and what to try.
        source: SamplingError,
    },
    /// Builds do not match their variant.
    #[error("{}", per_candidate(.0))]
    NotAsNamed(Vec<(String, String)>),
    /// A build could not be audited.
    #[error("auditing the build of {candidate}: {source}")]
    Audit {
        candidate: String,
        /// Why not.
        source: AuditError,
    },
    /// The data could not be loaded.
    #[error("loading the data with {candidate}: {source}")]
    Load {
        /// The candidate whose data it is.
        candidate: String,
        /// Why not.
        source: WorkerError,
    },
    /// The tables of a run could not be removed from a server.
    #[error("removing the tables of {candidate}: {source}")]
    Clean {
        candidate: String,
        /// Why not.
        source: WorkerError,
    },
    /// A candidate's server could not be found or set up.
    #[error("candidate {candidate}: {source}")]
    Server {
        candidate: String,
        /// Why not.
        source: Box<ServerError>,
    },
    /// The servers' data could not be created, moved or removed.
    #[error(transparent)]
    Servers(Box<ServerError>),
    /// A host of servers cannot be used, or something failed there.
    #[error(transparent)]
    Host(HostError),
    /// A candidate's server could not be found or set up on its host.
    #[error("candidate {candidate}: {source}")]
    OnHost {
        candidate: String,
        /// Why not.
        source: HostError,
    },
    /// The connection to a host was lost.
    #[error(
        "{source}. All servers and data there are removed. What was measured is stored: continue with \
         --resume"
    )]
    HostLost {
        /// Which, and why.
        source: HostError,
    },
    /// The data could not be copied.
    #[error(transparent)]
    Clone(#[from] CloneError),
    /// There is not enough free disk space for the data.
    #[error(
        "the data needs about {needed} in {}, but only {free} are free: free disk space, choose \
         another disk with --out, or lower `rows` or `tables`", path.display()
    )]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// Estimated need.
        needed: Bytes,
        /// Free space.
        free: Bytes,
    },
    /// There is not enough free disk space for the data on a host.
    #[error(
        "host {host}: the data needs about {needed} in {}, but only {free} are free: free disk space there, \
         choose another disk with `directory` of the host, or lower `rows` or `tables`", path.display()
    )]
    NoSpaceOnHost {
        /// The host's name.
        host: String,
        /// Where.
        path: PathBuf,
        /// Estimated need.
        needed: Bytes,
        /// Free space.
        free: Bytes,
    },
    /// The baseline failed, so there is nothing to compare with.
    #[error(
        "the baseline {candidate} failed at {at}: {reason}. Ratios need the baseline. What was \
         measured is stored: fix the cause and continue with --resume"
    )]
    Baseline {
        /// The baseline's name.
        candidate: String,
        /// The stage or microbenchmark.
        at: String,
        /// Why it failed.
        reason: String,
    },
    /// A candidate is not what it was when the run started.
    #[error(
        "candidate {candidate} was {was} when the run started and is {is} now: the compiler, the \
         source, the CPU or the installed program has changed. Restore the original and continue \
         with --resume, or start a new run"
    )]
    Changed {
        candidate: String,
        /// Its identity when the run started.
        was: String,
        /// Its current identity.
        is: String,
    },
    /// `pid` is not the process of the candidate's server.
    #[error("candidate {candidate}: {reason}")]
    WrongPid {
        candidate: String,
        /// Why not, and what to do.
        reason: String,
    },
    /// Existing servers cannot be used.
    #[error("{}", per_candidate(.0))]
    Access(Vec<(String, WorkerError)>),
    /// Statements of microbenchmarks cannot be prepared; nothing was measured.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Statements(Vec<StatementProblem>),
    /// A run that measured nothing cannot be replaced, because its data cannot be removed.
    #[error(
        "{} holds a run that measured nothing, but it cannot be replaced by a new run: {source}. \
         Try `dbdyno clean` on it, or choose another directory with --out", path.display()
    )]
    NotReplaced {
        /// The run directory.
        path: PathBuf,
        /// Why not.
        source: Box<RunError>,
    },
    /// A file could not be read, written or removed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The experiment names CPUs that this process may not use.
    #[error("`{given}` under [cpus]: this process may use only the CPUs {allowed}")]
    Cpus {
        /// The CPUs in the experiment.
        given: String,
        /// The CPUs that this process may use.
        allowed: String,
    },
    /// The experiment asks for polling on CPUs that a server may use.
    #[error(
        "`wait = \"poll\"` under [cpus]: the server of {candidate} may use dbdyno's CPUs {shared}, \
         and polling would take CPU time from it; give each CPUs of its own with `dbdyno` and \
         `system`, for an existing server also with taskset(1), or set `wait = \"sleep\"`"
    )]
    PollsOnServerCpus {
        /// The server's candidate.
        candidate: String,
        shared: CpuSet,
    },
    /// CPUs could not be kept from idling.
    #[error("{0}; set `prevent_idle = false` under [cpus] to disable this")]
    IdlePreventer(#[from] IdlePreventerError),
}

impl From<ServerError> for RunError {
    fn from(error: ServerError) -> Self {
        Self::Servers(Box::new(error))
    }
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        if error.is_lost() { Self::HostLost { source: error } } else { Self::Host(error) }
    }
}

fn would(uses: &[String]) -> String {
    if uses.is_empty() {
        return String::new();
    }
    format!("; to resume or clean it, dbdyno may\n  {}\nas its experiment says", uses.join("\n  "))
}

fn per_candidate(failures: &[(String, impl std::fmt::Display)]) -> String {
    let lines: Vec<String> = failures
        .iter()
        .map(|(candidate, failure)| format!("candidate {candidate}: {failure}"))
        .collect();
    lines.join("\n")
}
