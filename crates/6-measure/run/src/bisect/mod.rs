//! The commit of a git repository that changed a figure: good, bad and the commits between them are
//! built and measured side by side, each midpoint in a run of its own with good and bad.
//!
//! `search` and `judgement` decide; the rest builds, measures and stores.

mod judgement;
mod measuring;
mod record;
mod search;
mod steps;
mod subject;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_builds::{CacheDir, CommitRange, HistoryError, RangeRequest, Sources};
use dbdyno_results::ResultsError;
use dbdyno_spec::experiment::Experiment;

pub use record::{
    BisectRecord, BisectResult, CommitRecord, FigureRecord, FoundRecord, RatioRecord,
    RequestRecord, StepRecord, StepVerdict,
};

use measuring::with_progress;
use record::BisectDirectory;
use steps::Bisect;
use subject::Subject;

use crate::error::RunError;
use crate::options::Options;
use crate::session::progress::RunEvent;

/// Why a bisect ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    #[error(transparent)]
    Run(#[from] RunError),
    /// There is no range of commits.
    #[error(transparent)]
    History(#[from] HistoryError),
    /// The experiment cannot be bisected, or not in this directory.
    #[error("{0}")]
    Unsuitable(String),
    /// The user asked to stop. Reported as [`BisectEnd::Interrupted`].
    #[error("interrupted")]
    Interrupted,
    /// Anything else: what failed, why, and what to do.
    #[error("{0}")]
    Failed(String),
}

impl BisectError {
    /// Whether the request is invalid, as opposed to a failure.
    pub const fn is_usage(&self) -> bool {
        match self {
            Self::Unsuitable(_) => true,
            Self::History(error) => !matches!(error, HistoryError::Fetch(_)),
            Self::Run(_) | Self::Interrupted | Self::Failed(_) => false,
        }
    }

    /// Good, bad or the control failed, so there is nothing to compare with.
    fn of_candidate(candidate: &str, at: &str, reason: &str) -> Self {
        Self::Failed(format!(
            "{candidate} failed at {at}: {reason}. Fix the cause and choose another directory with \
             --out"
        ))
    }

    /// A file could not be read or written.
    fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        move |error| Self::Failed(format!("{}: {error}", path.display()))
    }
}

impl From<ResultsError> for BisectError {
    fn from(error: ResultsError) -> Self {
        Self::Run(error.into())
    }
}

/// A bisect to start or to continue.
#[derive(Clone, Copy, Debug)]
pub struct BisectRequest<'a> {
    pub experiment: &'a Experiment,
    pub text: &'a str,
    /// The candidate whose source is bisected; `None` for the only one with a git source.
    pub candidate: Option<&'a str>,
    /// The microbenchmark to judge by; `None` for that with the largest difference.
    pub microbenchmark: Option<&'a str>,
    /// The revision before the change.
    pub good: &'a str,
    /// The revision after the change.
    pub bad: &'a str,
    /// Whether only first parents of merges are followed.
    pub first_parent: bool,
    /// The directory of the bisect. If it holds the same bisect, that continues.
    pub directory: &'a Path,
}

/// How a bisect ended.
#[derive(Clone, Debug, PartialEq)]
pub enum BisectEnd {
    Complete(Box<BisectRecord>, BisectResult),
    /// The user stopped it; it can be continued.
    Interrupted,
}

/// Finds the commit that changed the figure.
///
/// Call it on the main thread: workers end with the thread that started them.
pub fn bisect(
    request: &BisectRequest<'_>,
    options: &Options<'_>,
) -> Result<BisectEnd, BisectError> {
    match start_or_continue(request, options) {
        Ok((record, result)) => Ok(BisectEnd::Complete(Box::new(record), result)),
        Err(BisectError::Interrupted) => Ok(BisectEnd::Interrupted),
        Err(error) => Err(error),
    }
}

fn start_or_continue(
    request: &BisectRequest<'_>,
    options: &Options<'_>,
) -> Result<(BisectRecord, BisectResult), BisectError> {
    let subject = Subject::of(request.experiment, request.candidate)?;
    if let Some(name) = request.microbenchmark {
        subject.check_microbenchmark(name)?;
    }
    let asked = RequestRecord {
        name: request.experiment.name.clone(),
        experiment_text: request.text.to_owned(),
        candidate: subject.candidate.name.clone(),
        microbenchmark: request.microbenchmark.map(str::to_owned),
        good: request.good.to_owned(),
        bad: request.bad.to_owned(),
        first_parent: request.first_parent,
    };
    let (directory, record, range) = if BisectDirectory::exists(request.directory) {
        let directory = BisectDirectory::open(request.directory)?;
        let record = directory.read(&asked)?;
        // Branches may have changed since.
        let revisions = (record.good.commit.as_str(), record.bad.commit.as_str());
        let range = commit_range(&subject, revisions, request.first_parent, options)?;
        (directory, record.clone(), range)
    } else {
        let revisions = (request.good, request.bad);
        let range = commit_range(&subject, revisions, request.first_parent, options)?;
        // Not before the revisions are known, so that a misspelt one leaves nothing behind.
        let directory = BisectDirectory::open(request.directory)?;
        let record = new_record(asked, &subject, &range, options);
        directory.write(&record)?;
        (directory, record, range)
    };
    // Leaves out what each step would repeat: warnings about the machine, and cached builds.
    let has_warned = AtomicBool::new(false);
    let progress = |event: RunEvent<'_>| {
        let is_repeated = match &event {
            RunEvent::Warnings(_) => has_warned.swap(true, Ordering::Relaxed),
            RunEvent::Build(event) => matches!(event, dbdyno_builds::Event::Cached { .. }),
            _ => false,
        };
        if !is_repeated {
            (options.progress)(event);
        }
    };
    let options = &with_progress(options, &progress);
    Bisect { subject, text: request.text, options, directory, record, range }.run()
}

/// The commits between two revisions.
fn commit_range(
    subject: &Subject<'_>,
    (good, bad): (&str, &str),
    first_parent: bool,
    options: &Options<'_>,
) -> Result<CommitRange, BisectError> {
    let cache = CacheDir::chosen_or_default(options.cache.as_deref()).map_err(RunError::from)?;
    let sources = Sources::new(&cache, Arc::clone(&options.worker.cancel));
    let wanted = RangeRequest { url: subject.url, good, bad, first_parent };
    let report = |line: String| (options.progress)(RunEvent::Stage(line));
    match sources.commit_range(&wanted, &report) {
        Err(HistoryError::Fetch(_)) if options.worker.cancel.load(Ordering::Relaxed) => {
            Err(BisectError::Interrupted)
        }
        range => Ok(range?),
    }
}

fn new_record(
    request: RequestRecord,
    subject: &Subject<'_>,
    range: &CommitRange,
    options: &Options<'_>,
) -> BisectRecord {
    let bad = range.commits.last().unwrap_or(&range.good);
    BisectRecord {
        format: record::FORMAT,
        version: options.version.clone(),
        started: options.now.clone(),
        request,
        repository: subject.url.to_owned(),
        good: (&range.good).into(),
        bad: bad.into(),
        commits: range.commits.len(),
        figure: None,
        steps: Vec::new(),
        result: None,
    }
}
