//! Building and measuring a step: a run, which is extended until its figures are decided.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use dbdyno_builds::{BuildError, Fingerprint, ProblemKind};
use dbdyno_results::{FailureRecord, RunDirectory, RunReader};
use dbdyno_spec::experiment::Experiment;
use dbdyno_units::Nanos;
use jiff::{Timestamp, Unit};

use super::BisectError;
use super::judgement::MOST_EXTENSIONS;
use crate::building::build_candidates_in;
use crate::error::RunError;
use crate::instance::data;
use crate::options::Options;
use crate::plan::stopping_rule::{Figures, StoppingRule};
use crate::session::progress::{Outcome, Progress, RunEvent};
use crate::session::resume::RunState;
use crate::session::{continue_run, extend_run, start_run};

pub(crate) struct StepRun<'a> {
    pub directory: PathBuf,
    /// A directory for the databases of training, which exists while the step is built.
    pub scratch: PathBuf,
    pub experiment: &'a Experiment,
    /// The text of the experiment file that the step is made of.
    pub text: &'a str,
    /// The number of the candidate that may fail; `None` if none may.
    pub in_question: Option<u32>,
    pub options: &'a Options<'a>,
}

impl StepRun<'_> {
    /// Builds the candidates before there is a run directory, so that a commit that cannot be built
    /// leaves none. Returns the builds, by candidate, or why the candidate in question cannot be built.
    pub fn build(&self) -> Result<Result<Vec<Fingerprint>, String>, BisectError> {
        match build_candidates_in(&self.scratch, self.experiment, &self.options_now()) {
            Ok(builds) => Ok(Ok(builds.iter().map(|built| built.build.fingerprint).collect())),
            Err(_) if self.options.worker.cancel.load(Ordering::Relaxed) => {
                Err(BisectError::Interrupted)
            }
            Err(error) => self.failure(error).map(Err),
        }
    }

    /// Starts or resumes the run, and doubles its measuring time until `decide` has a decision. Returns that with the
    /// figures, `None` if there is none after the longest time, or why the candidate in question failed.
    pub fn measure<T>(
        &self,
        decide: impl Fn(&Figures) -> Option<T>,
    ) -> Result<Result<(Option<T>, Figures), String>, BisectError> {
        let mut ended = match self.is_complete()? {
            None => {
                let text = format!(
                    "# A step of a bisect: other candidates and microbenchmarks than in this file.\n{}",
                    self.text
                );
                Some(start_run(self.experiment, &text, &self.directory, &self.options_now()))
            }
            Some(false) => Some(continue_run(&self.directory, &self.options_now())),
            Some(true) => None,
        };
        loop {
            if let Some(ended) = ended
                && let Some(reason) = self.failure_in(ended)?
            {
                return Ok(Err(reason));
            }
            let run = RunReader::open(&self.directory)?;
            let (failures, extensions) = (run.failures()?, run.extensions()?);
            let figures = RunState::read(&run, self.experiment)?.figures(self.experiment);
            drop(run);
            if let Some(failure) = failures.iter().find(|failure| failure.is_invalidating()) {
                return self.failed(failure).map(Err);
            }
            let decision = decide(&figures);
            if decision.is_some() || extensions >= MOST_EXTENSIONS {
                return Ok(Ok((decision, figures)));
            }
            let more: Nanos = figures.rules.iter().map(StoppingRule::time).sum();
            (self.options.progress)(RunEvent::Line(format!(
                "  not decided yet: measuring {more} more"
            )));
            ended = Some(extend_run(&self.directory, more, &self.options_now()));
        }
    }

    /// Whether the run is complete; `None` if there is none.
    fn is_complete(&self) -> Result<Option<bool>, BisectError> {
        let Ok(run) = RunReader::open(&self.directory) else { return Ok(None) };
        Ok(Some(run.microbenchmarks()?.iter().all(|(_, done)| *done)))
    }

    /// Why the candidate in question failed; `None` if the run is complete.
    fn failure_in(&self, ended: Result<Outcome, RunError>) -> Result<Option<String>, BisectError> {
        match ended {
            Ok(Outcome::Complete { .. }) => Ok(None),
            Err(error) if !self.options.worker.cancel.load(Ordering::Relaxed) => {
                let reason = self.failure(error)?;
                // The run is not resumed.
                data::remove(&RunDirectory::at(&self.directory))?;
                Ok(Some(reason))
            }
            Ok(Outcome::Interrupted { .. }) | Err(_) => Err(BisectError::Interrupted),
        }
    }

    /// Why the candidate in question failed.
    fn failure(&self, error: RunError) -> Result<String, BisectError> {
        let in_question =
            self.in_question.and_then(|number| self.experiment.candidates.get(number as usize));
        let failure = in_question.and_then(|candidate| failure_of(&candidate.name, &error));
        failure.ok_or_else(|| error.into())
    }

    /// Why the candidate in question failed, as stored in the run.
    fn failed(&self, failure: &FailureRecord) -> Result<String, BisectError> {
        let FailureRecord { candidate, at, reason, .. } = failure;
        if self.in_question == Some(*candidate) {
            return Ok(format!("it failed at {at}: {}", first_line(reason)));
        }
        let name = self.experiment.candidates.get(*candidate as usize);
        let candidate = name.map_or("the control", |candidate| &candidate.name).to_owned();
        Err(BisectError::of_candidate(&candidate, at, reason))
    }

    fn options_now(&self) -> Options<'_> {
        Options { now: now(), ..with_progress(self.options, self.options.progress) }
    }
}

/// The options of a step, with another receiver of events.
pub(crate) fn with_progress<'a>(options: &Options<'a>, progress: Progress<'a>) -> Options<'a> {
    Options { keep_data: false, progress, ..options.clone() }
}

/// The current time, RFC 3339.
fn now() -> String {
    Timestamp::now().round(Unit::Second).unwrap_or_default().to_string()
}

/// Why a candidate failed, in one line; `None` if others failed, too, or if its source cannot be the
/// reason.
fn failure_of(name: &str, error: &RunError) -> Option<String> {
    let is_of = |candidate: &String| {
        candidate == name || candidate.strip_prefix("training-").is_some_and(|of| of == name)
    };
    let text = match error {
        RunError::Build(failures) => match &failures[..] {
            [(candidate, error)] if is_of(candidate) && may_be_of_source(error) => {
                error.to_string()
            }
            _ => return None,
        },
        RunError::NotAsNamed(refusals) => match &refusals[..] {
            [(candidate, refusal)] if is_of(candidate) => refusal.clone(),
            _ => return None,
        },
        RunError::Candidate { candidate, message, may_be_of_source: true, .. }
            if is_of(candidate) =>
        {
            message.clone()
        }
        _ => return None,
    };
    Some(first_line(&text))
}

/// Whether the source may be the reason, directly or because the training failed.
fn may_be_of_source(error: &BuildError) -> bool {
    error.is_of_source() || error.kind() == Some(ProblemKind::Profile)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use dbdyno_audit::AuditError;
    use dbdyno_spec::parse;
    use dbdyno_worker::WorkerError;

    use super::*;
    use crate::error::SamplingError;
    use crate::options::WorkerProgram;

    fn load(candidate: &str) -> RunError {
        let source = WorkerError::NotStarted("no memory\nlog".to_owned());
        RunError::load(candidate, &source)
    }

    fn refused(candidates: &[&str]) -> RunError {
        let refusal = |name: &&str| ((*name).to_owned(), "not optimized\nin 1 file".to_owned());
        RunError::NotAsNamed(candidates.iter().map(refusal).collect())
    }

    fn failed(candidate: &str, error: BuildError) -> RunError {
        RunError::Build(vec![(candidate.to_owned(), error)])
    }

    #[test]
    fn run_of_a_skipped_step_leaves_no_data() {
        let text = "name = 'test'\nbaseline = 'a'\n[[candidate]]\nname = 'a'\nsystem = 'mariadb'\n\
                    [[candidate]]\nname = 'b'\nsystem = 'mariadb'\n";
        let experiment = parse("test.toml", text).unwrap_or_else(|problems| panic!("{problems}"));
        let options = Options {
            worker: WorkerProgram {
                program: "/bin/false".into(),
                args: Vec::new(),
                cancel: Arc::default(),
            },
            cache: None,
            trust: false,
            keep_data: false,
            progress: &|_| {},
            version: String::new(),
            now: String::new(),
        };
        let dir = tempfile::tempdir().unwrap();
        let run = StepRun {
            directory: dir.path().to_owned(),
            scratch: PathBuf::new(),
            experiment: &experiment,
            text,
            in_question: Some(1),
            options: &options,
        };
        let loaded = RunDirectory::at(dir.path()).data().join(".loaded-0");
        fs::create_dir_all(&loaded).unwrap();
        assert!(run.failure_in(Err(load("a"))).is_err());
        assert!(loaded.exists(), "the bisect can be continued");
        assert!(run.failure_in(Err(load("b"))).unwrap().is_some());
        assert!(!loaded.exists());
    }

    #[test]
    fn errors_of_the_candidate_in_question_alone_are_its_failures() {
        let reason = |error: RunError| failure_of("abc", &error);
        assert_eq!(reason(refused(&["abc"])).as_deref(), Some("not optimized"));
        for name in ["abc", "training-abc"] {
            let reason = reason(load(name)).unwrap();
            assert!(
                reason.contains(&format!("with {name}: ")) && !reason.contains('\n'),
                "{reason}"
            );
        }
        let audit =
            |candidate: &str| RunError::audit(candidate, &AuditError::new("x is not an ELF file"));
        assert!(reason(audit("abc")).is_some());
        let too_few = SamplingError::TooFew { found: 1, total: 2 };
        assert!(reason(RunError::sampling("abc", &too_few)).is_some());
        let profile = || BuildError::new(ProblemKind::Profile, "it has no counts", "");
        assert!(reason(failed("abc", profile())).unwrap().contains("it has no counts"));

        let cancelled = BuildError::Cancelled { what: "sqlite".to_owned() };
        for error in [
            refused(&["abc", "good"]),
            refused(&["good"]),
            load("good"),
            load("training-good"),
            audit("bad"),
            failed("good", profile()),
            failed("abc", cancelled),
        ] {
            assert_eq!(failure_of("abc", &error), None, "{error}");
        }
    }
}
