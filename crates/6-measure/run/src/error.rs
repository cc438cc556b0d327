use std::fmt::{self, Display};
use std::io;
use std::path::{Path, PathBuf};

use dbdyno_audit::AuditError;
use dbdyno_builds::{BuildError, CacheDirError};
use dbdyno_engines::CloneError;
use dbdyno_engines::server::ServerError;
use dbdyno_hosts::HostError;
use dbdyno_machine::{CpuSet, IdlePreventerError};
use dbdyno_results::ResultsError;
use dbdyno_spec::experiment::{Experiment, System};
use dbdyno_worker::WorkerError;
use dbdyno_worker::protocol::RefusedStatement;

pub use crate::training::sampling::SamplingError;

/// Adds the lines of the systems' option files that have settings which the message names.
pub(crate) fn add_places<'s>(message: &mut String, systems: impl Iterator<Item = &'s System>) {
    let mut places = Vec::new();
    for system in systems {
        let System::Private(server) = system else { continue };
        for place in server.options.iter().flat_map(|options| options.places_in(message)) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    if !places.is_empty() {
        message.push_str(&format!("\nset by option files: {}", places.join(", ")));
    }
}

/// What to do if nothing is left to compare. What failed before anything was measured would most likely fail again.
const BEFORE_MEASURING: &str = ". Nothing was measured: correct the cause, such as a setting in the experiment \
    or on the command line, and run it again";
const AFTER_MEASURING: &str = ". What was measured is stored: if the cause is outside of the experiment, fix it \
    and continue with --resume; otherwise correct the experiment and start a new run";

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run directory could not be read or written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// The run is not registered, and the user did not trust it.
    #[error(
        "{} is not a run that this user made on this machine: it is a copy, or was made by \
         somebody else or by a version of dbdyno without a registry of runs. `dbdyno report` and \
         `dbdyno fleet collect` only read it{}. If you trust it, add --trust",
        path.display(), would(uses)
    )]
    NotRegistered {
        path: PathBuf,
        /// What dbdyno would do for it, such as `start /opt/mariadbd`; may be empty.
        uses: Vec<String>,
    },
    /// The directory holds a run with which this cannot be done; nothing was changed.
    #[error("{0}")]
    Refused(String),
    /// There is no directory for the build cache, or it is not trusted.
    #[error(transparent)]
    Cache(#[from] CacheDirError),
    /// The experiment names CPUs that this process may not use.
    #[error("`{given}` under [cpus]: this process may use only the CPUs {allowed}")]
    Cpus { given: String, allowed: String },
    #[error("{}", per_candidate(.0))]
    Build(Vec<(String, BuildError)>),
    /// Builds do not match their variant.
    #[error("{}", per_candidate(.0))]
    NotAsNamed(Vec<(String, String)>),
    /// A candidate could not be prepared.
    #[error("{message}")]
    Candidate {
        candidate: String,
        message: String,
        /// The message with the lines of logs that were reported with the failure; `None` if it has all.
        whole: Option<String>,
        /// Whether its source may be the reason.
        may_be_of_source: bool,
    },
    /// Settings of candidates are not in force, or distinguish nothing; nothing was measured.
    #[error("{0}")]
    Settings(String),
    /// Statements of microbenchmarks cannot be prepared; nothing was measured.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Statements(Vec<StatementProblem>),
    /// The user asked to stop. A session reports it as [`Outcome::Interrupted`](crate::Outcome::Interrupted).
    #[error("interrupted")]
    Interrupted,
    /// Anything else: what failed, why, and what to do.
    #[error("{0}")]
    Other(String),
}

impl RunError {
    /// A file or directory could not be read, written or removed.
    pub(crate) fn io(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::Other(format!("{}: {error}", path.display()))
    }

    /// The error with the lines of the option files that have the settings it names.
    pub(crate) fn with_places(mut self, experiment: &Experiment) -> Self {
        if let Self::Candidate { message, .. } | Self::Other(message) | Self::Settings(message) =
            &mut self
        {
            let systems = experiment.candidates.iter().map(|candidate| &candidate.system);
            add_places(message, systems);
        }
        self
    }

    /// The message with all lines of logs, for files that are read without the run's output.
    pub fn whole(&self) -> String {
        match self {
            Self::Candidate { whole: Some(whole), .. } => whole.clone(),
            _ => self.to_string(),
        }
    }

    /// The baseline failed, so there is nothing to compare with. `measured` is whether the run has any slice or step.
    pub(crate) fn baseline(candidate: &str, at: &str, reason: &str, measured: bool) -> Self {
        let what = format!("the baseline {candidate} failed at {at}: {reason}. Ratios need it");
        Self::nothing_to_compare(candidate, what, None, measured)
    }

    /// All candidates that were to be compared with the baseline failed, the last of them in this way. `whole` is the
    /// reason that was reported with the failure, `brief` the same without lines of logs.
    pub(crate) fn none_left(
        failed: &[String],
        at: &str,
        [brief, whole]: [&str; 2],
        measured: bool,
    ) -> Self {
        let (last, who) = match failed {
            [one] => (one.as_str(), "the only candidate besides the baseline"),
            [.., last] => (last.as_str(), "the last candidate besides the baseline"),
            [] => ("", ""),
        };
        let what = |reason: &str| {
            format!("{last}, {who}, failed at {at}: {reason}. Nothing is left to compare")
        };
        Self::nothing_to_compare(last, what(brief), Some(what(whole)), measured)
    }

    fn nothing_to_compare(
        candidate: &str,
        message: String,
        whole: Option<String>,
        measured: bool,
    ) -> Self {
        let advice = if measured { AFTER_MEASURING } else { BEFORE_MEASURING };
        Self::Candidate {
            candidate: candidate.to_owned(),
            message: message + advice,
            whole: whole.map(|whole| whole + advice),
            may_be_of_source: false,
        }
    }

    pub(crate) fn load(candidate: &str, source: &WorkerError) -> Self {
        if *source == WorkerError::Stopped {
            return Self::Interrupted;
        }
        Self::of_candidate(candidate, format!("loading the data with {candidate}: {source}"), true)
    }

    pub(crate) fn audit(candidate: &str, source: &AuditError) -> Self {
        Self::of_candidate(candidate, format!("auditing the build of {candidate}: {source}"), true)
    }

    pub(crate) fn sampling(candidate: &str, source: &SamplingError) -> Self {
        let may_be_of_source =
            matches!(source, SamplingError::TooFew { .. } | SamplingError::NotLoaded(_));
        let message = format!("candidate {candidate}: sampling its profile: {source}");
        Self::of_candidate(candidate, message, may_be_of_source)
    }

    /// A candidate's server could not be found or set up.
    pub(crate) fn server(candidate: &str, source: impl Into<HostError>) -> Self {
        let source = source.into();
        if source.is_lost() {
            return source.into();
        }
        Self::of_candidate(candidate, format!("candidate {candidate}: {source}"), source.is_here())
    }

    fn of_candidate(candidate: &str, message: String, may_be_of_source: bool) -> Self {
        Self::Candidate { candidate: candidate.to_owned(), message, whole: None, may_be_of_source }
    }

    pub(crate) fn access(failures: &[(String, WorkerError)]) -> Self {
        Self::Other(per_candidate(failures))
    }

    /// A candidate is not what it was when the run started.
    pub(crate) fn changed(candidate: &str, was: &str, is: &str) -> Self {
        Self::Other(format!(
            "candidate {candidate} was {was} when the run started and is {is} now: the compiler, the \
             source, the CPU or the installed program has changed. Restore the original and continue \
             with --resume, or start a new run"
        ))
    }

    /// The experiment asks for polling on CPUs that a server may use.
    pub(crate) fn polls_on_server_cpus(candidate: &str, shared: &CpuSet) -> Self {
        Self::Other(format!(
            "`wait = \"poll\"` under [cpus]: the server of {candidate} may use dbdyno's CPUs {shared}, \
             and polling would take CPU time from it; give each CPUs of its own with `dbdyno` and \
             `system`, for an existing server also with taskset(1), or set `wait = \"sleep\"`"
        ))
    }
}

impl From<HostError> for RunError {
    fn from(error: HostError) -> Self {
        Self::Other(match error.is_lost() {
            true => format!(
                "{error}. All servers and data there are removed. What was measured is stored: \
                 continue with --resume"
            ),
            false => error.to_string(),
        })
    }
}

impl From<ServerError> for RunError {
    fn from(error: ServerError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<CloneError> for RunError {
    fn from(error: CloneError) -> Self {
        Self::Other(error.to_string())
    }
}

impl From<IdlePreventerError> for RunError {
    fn from(error: IdlePreventerError) -> Self {
        Self::Other(format!("{error}; set `prevent_idle = false` under [cpus] to disable this"))
    }
}

fn would(uses: &[String]) -> String {
    if uses.is_empty() {
        return String::new();
    }
    format!("; to resume or clean it, dbdyno may\n  {}\nas its files say", uses.join("\n  "))
}

fn per_candidate(failures: &[(String, impl Display)]) -> String {
    let lines: Vec<String> = failures
        .iter()
        .map(|(candidate, failure)| format!("candidate {candidate}: {failure}"))
        .collect();
    lines.join("\n")
}

/// A statement that a candidate's system refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementProblem {
    pub candidate: String,
    /// The statement, and the system's error.
    pub refused: RefusedStatement,
    /// The line of the experiment with the statement, from 1; `None` if it is a built-in one.
    pub line: Option<usize>,
}

impl Display for StatementProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { candidate, refused, line } = self;
        let RefusedStatement { microbenchmark, number, error } = refused;
        write!(f, "candidate {candidate}, microbenchmark {microbenchmark}, statement {number}")?;
        if let Some(line) = line {
            write!(f, " (line {line} of the experiment)")?;
        }
        write!(f, ": {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worker_that_was_stopped_for_the_user_has_not_failed() {
        let stopped = RunError::load("a", &WorkerError::Stopped);
        assert!(matches!(stopped, RunError::Interrupted), "{stopped}");
    }

    #[test]
    fn resume_is_advised_only_if_something_was_measured() {
        let all = |measured| {
            let failed = ["b".to_owned(), "c".to_owned()];
            let reasons = ["it exited", "it exited; its log:\nunknown variable"];
            let none_left = RunError::none_left(&failed, "starting", reasons, measured);
            [RunError::baseline("a", "starting", "it exited", measured), none_left]
        };
        for (error, names) in all(false).iter().zip(["the baseline a failed", "c, the last"]) {
            let text = error.to_string();
            assert!(text.starts_with(names) && !text.contains("--resume"), "{text}");
            assert!(text.contains("correct the cause"), "{text}");
        }
        for error in all(true) {
            assert!(error.to_string().contains("fix it and continue with --resume"), "{error}");
        }
        // The terminal has shown the log before.
        let [baseline, none_left] = all(false);
        assert_eq!(baseline.whole(), baseline.to_string());
        assert!(!none_left.to_string().contains("unknown variable"), "{none_left}");
        let whole = none_left.whole();
        assert!(
            whole.contains("starting: it exited; its log:\nunknown variable. Nothing"),
            "{whole}"
        );
        assert!(whole.contains("correct the cause"), "{whole}");
    }
}
