//! Building and measuring a step: a run, which is extended until its figures are decided.

use std::path::PathBuf;
use std::sync::atomic::Ordering;

use dbdyno_builds::Fingerprint;
use dbdyno_results::{FailureRecord, RunReader};
use dbdyno_spec::experiment::Experiment;
use jiff::{Timestamp, Unit};

use super::error::BisectError;
use super::judgement::MOST_EXTENSIONS;
use super::step_figures::StepFigures;
use crate::build_only::build_candidates_in;
use crate::error::RunError;
use crate::progress::{Outcome, Progress, RunEvent};
use crate::session::{Options, continue_run, extend_run, start_run};

/// How measuring a step ended.
pub(crate) enum Measured<T> {
    /// With a decision.
    Decided(T, StepFigures),
    /// Without one, although it was measured for the longest time.
    Undecided(StepFigures),
    /// The candidate in question failed.
    Failed(String),
    /// The user stopped it.
    Interrupted,
}

/// How building a step ended.
pub(crate) enum Built {
    /// With these builds, by candidate.
    Complete(Vec<Fingerprint>),
    /// The source of the candidate in question is the reason.
    Failed(String),
    /// The user stopped it.
    Interrupted,
}

/// The run of a step.
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
    /// leaves none.
    ///
    /// # Errors
    /// Another candidate cannot be built, or something other than the source is the reason.
    pub fn build(&self) -> Result<Built, BisectError> {
        let in_question = self.in_question.and_then(|number| {
            Some(self.experiment.candidates.get(number as usize)?.name.as_str())
        });
        match build_candidates_in(&self.scratch, self.experiment, &self.options_now()) {
            Ok(builds) => {
                Ok(Built::Complete(builds.iter().map(|built| built.build.fingerprint).collect()))
            }
            Err(_) if self.options.cancel.load(Ordering::Relaxed) => Ok(Built::Interrupted),
            Err(RunError::Build(failures)) => match &failures[..] {
                [(name, error)] if in_question == Some(name) && error.is_of_source() => {
                    Ok(Built::Failed(first_line(&error.to_string())))
                }
                _ => Err(RunError::Build(failures).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    /// Starts or resumes the run, and doubles its measuring time until `decide` has a decision.
    ///
    /// # Errors
    /// A candidate other than the one in question failed, or the run cannot continue.
    pub fn measure<T>(
        &self,
        decide: impl Fn(&StepFigures) -> Option<T>,
    ) -> Result<Measured<T>, BisectError> {
        if !self.exists() {
            let text = format!(
                "# A step of a bisect: other candidates and microbenchmarks than in this file.\n{}",
                self.text
            );
            let started = start_run(self.experiment, &text, &self.directory, &self.options_now());
            if self.is_interrupted(started)? {
                return Ok(Measured::Interrupted);
            }
        } else if !self.is_complete()?
            && self.is_interrupted(continue_run(&self.directory, &self.options_now()))?
        {
            return Ok(Measured::Interrupted);
        }
        loop {
            let figures = StepFigures::read(&self.directory, self.experiment)?;
            if let Some(failure) = figures.failures.first() {
                return self.failed(failure).map(Measured::Failed);
            }
            if let Some(decision) = decide(&figures) {
                return Ok(Measured::Decided(decision, figures));
            }
            if figures.extensions >= MOST_EXTENSIONS {
                return Ok(Measured::Undecided(figures));
            }
            let more = figures.time();
            (self.options.progress)(RunEvent::BisectStep(format!(
                "  not decided yet: measuring {more} more"
            )));
            let extended = extend_run(&self.directory, more, &self.options_now());
            if self.is_interrupted(extended)? {
                return Ok(Measured::Interrupted);
            }
        }
    }

    fn exists(&self) -> bool {
        RunReader::open(&self.directory).is_ok()
    }

    fn is_complete(&self) -> Result<bool, BisectError> {
        let microbenchmarks = RunReader::open(&self.directory)?.microbenchmarks()?;
        Ok(microbenchmarks.iter().all(|(_, done)| *done))
    }

    fn is_interrupted(&self, outcome: Result<Outcome, RunError>) -> Result<bool, BisectError> {
        match outcome {
            Ok(outcome) => Ok(outcome == Outcome::Interrupted),
            Err(_) if self.options.cancel.load(Ordering::Relaxed) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Why the candidate in question failed.
    fn failed(&self, failure: &FailureRecord) -> Result<String, BisectError> {
        let FailureRecord { candidate, at, reason, .. } = failure;
        if self.in_question == Some(*candidate) {
            return Ok(format!("it failed at {at}: {}", first_line(reason)));
        }
        let name = self.experiment.candidates.get(*candidate as usize);
        let candidate = name.map_or("the control", |candidate| &candidate.name).to_owned();
        Err(BisectError::Failed { candidate, at: at.clone(), reason: reason.clone() })
    }

    /// The options with the current time.
    fn options_now(&self) -> Options<'_> {
        Options { now: now(), ..with_progress(self.options, self.options.progress) }
    }
}

/// The options of a step, with another receiver of events.
pub(crate) fn with_progress<'a>(options: &Options<'_>, progress: Progress<'a>) -> Options<'a> {
    Options {
        worker: options.worker.clone(),
        cache: options.cache.clone(),
        trust: options.trust,
        keep_data: false,
        cancel: options.cancel.clone(),
        progress,
        version: options.version.clone(),
        now: options.now.clone(),
    }
}

/// The current time, RFC 3339.
fn now() -> String {
    Timestamp::now().round(Unit::Second).unwrap_or_default().to_string()
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
