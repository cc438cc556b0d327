//! What is stored of a bisect: `bisect.json` in a directory that also has a run directory for each step.

use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use dbdyno_builds::{Commit, Fingerprint};
use dbdyno_machine::safe_files::{SafeDir, replace_file};
use dbdyno_results::RunDirectory;
use dbdyno_stats::Estimate;
use dbdyno_types::Metric;
use dbdyno_units::{Ratio, Share};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::BisectError;

/// The version of the format of `bisect.json`.
pub(crate) const FORMAT: u32 = 1;

/// A bisect: what was asked, what was measured so far, and the result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BisectRecord {
    pub format: u32,
    /// The version of dbdyno that started it.
    pub version: String,
    /// When it started, RFC 3339.
    pub started: String,
    /// What was asked; a bisect continues only if it is the same.
    pub request: RequestRecord,
    /// The repository: a URL or a path.
    pub repository: String,
    /// The last commit before the range.
    pub good: CommitRecord,
    /// The last commit of the range.
    pub bad: CommitRecord,
    /// Number of commits after good, up to bad.
    pub commits: usize,
    /// What is judged; `None` until good and bad are measured.
    pub figure: Option<FigureRecord>,
    /// The commits between, in the order in which they were tried.
    pub steps: Vec<StepRecord>,
    pub result: Option<BisectResult>,
}

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestRecord {
    pub name: String,
    pub experiment_text: String,
    /// The candidate whose source is bisected.
    pub candidate: String,
    /// The microbenchmark that was asked for; `None` for that with the largest difference.
    pub microbenchmark: Option<String>,
    pub good: String,
    pub bad: String,
    /// Whether only first parents of merges were followed.
    pub first_parent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRecord {
    pub commit: String,
    /// When it was written, ISO 8601.
    pub author_date: String,
    /// The first line of its message.
    pub subject: String,
}

/// What is judged, and how much it changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FigureRecord {
    pub microbenchmark: String,
    /// The metric to trust.
    pub metric: Metric,
    /// The figure of bad relative to that of good.
    pub difference: RatioRecord,
}

/// A ratio with its 95% interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioRecord {
    pub ratio: Ratio,
    pub low: Ratio,
    pub high: Ratio,
    /// How far from 1 the control was in the same run; `None` if it has too few blocks.
    pub noise_floor: Option<Share>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepRecord {
    pub commit: CommitRecord,
    pub verdict: StepVerdict,
    /// Its build; `None` if it cannot be built.
    pub build: Option<Fingerprint>,
    /// Its figure relative to that of good; `None` if it was not measured.
    pub relative: Option<RatioRecord>,
    /// Its figure relative to the geometric mean of good and bad; `None` if it was not measured.
    pub from_middle: Option<RatioRecord>,
    /// The run directory; `None` if it was not measured.
    pub directory: Option<String>,
    /// Why it was not measured; `None` if it was.
    pub reason: Option<String>,
}

/// What was found about a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepVerdict {
    /// Its figure is like that of good.
    LikeGood,
    /// Its figure is like that of bad.
    LikeBad,
    /// It cannot be built or measured.
    Skipped,
    /// It is too close to the middle between good and bad.
    Undecided,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum BisectResult {
    /// The commit that changed the figure.
    Found(Box<FoundRecord>),
    /// The figure was changed by one of these commits.
    Range {
        /// The commits, each after its parents.
        commits: Vec<CommitRecord>,
        /// The commit that could not be decided; `None` if all but the last one were skipped.
        undecided: Option<CommitRecord>,
    },
    /// Good and bad are one build: nothing that is compiled differs.
    SameBuild { build: Fingerprint },
    /// Good and bad do not differ.
    NoDifference {
        /// What was measured: microbenchmark, metric and ratio of bad to good.
        figures: Vec<FigureRecord>,
    },
}

/// The commit that changed the figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FoundRecord {
    pub commit: CommitRecord,
    /// The commit that it was compared with: its parent, or good if the parent was not measured.
    pub reference: CommitRecord,
    /// Its figure relative to that of the reference.
    pub relative: RatioRecord,
    /// Whether that is a difference beyond interval and noise floor.
    pub differs: bool,
    /// The run directory in which the stacks of both were sampled; `None` if they were not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiled_in: Option<String>,
}

impl BisectRecord {
    /// The number of midpoints that were measured.
    pub fn measured(&self) -> usize {
        self.steps.iter().filter(|step| step.directory.is_some()).count()
    }

    /// The number of commits that were skipped.
    pub fn skipped(&self) -> usize {
        self.steps.iter().filter(|step| step.verdict == StepVerdict::Skipped).count()
    }

    /// The number of commits that have the build of another commit, and so its verdict.
    pub fn same_builds(&self) -> usize {
        self.steps.len() - self.measured() - self.skipped()
    }
}

impl StepVerdict {
    /// The words for people.
    pub const fn title(self) -> &'static str {
        match self {
            Self::LikeGood => "like good",
            Self::LikeBad => "like bad",
            Self::Skipped => "skipped",
            Self::Undecided => "undecided",
        }
    }
}

impl CommitRecord {
    /// The first ten digits, for people.
    pub fn short(&self) -> &str {
        self.commit.get(..10).unwrap_or(&self.commit)
    }
}

impl From<&Commit> for CommitRecord {
    fn from(commit: &Commit) -> Self {
        Self {
            commit: commit.id.clone(),
            author_date: commit.author_date.clone(),
            subject: commit.subject.clone(),
        }
    }
}

impl RatioRecord {
    pub(crate) const fn new(estimate: &Estimate, noise_floor: Option<Share>) -> Self {
        let Estimate { median, low, high, .. } = *estimate;
        Self { ratio: median, low, high, noise_floor }
    }

    /// With its noise floor: `0.969 (95%: 0.964 to 0.974), noise floor 0.4%`.
    pub fn with_noise_floor(&self) -> String {
        let floor = self.noise_floor.map_or_else(|| "unknown".to_owned(), |it| it.to_string());
        format!("{self}, noise floor {floor}")
    }
}

/// Prints `0.969 (95%: 0.964 to 0.974)`.
impl std::fmt::Display for RatioRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { ratio, low, high, .. } = self;
        write!(f, "{ratio:.3} (95%: {low:.3} to {high:.3})")
    }
}

/// The record, which is replaced after each step.
const RECORD: &str = "bisect.json";

const LOCK: &str = "bisect.lock";

/// The directory of a bisect, locked for this process.
pub(crate) struct BisectDirectory {
    path: PathBuf,
    _lock: File,
}

impl BisectDirectory {
    /// Creates the directory, or opens an existing one, and locks it.
    pub fn open(path: &Path) -> Result<Self, BisectError> {
        SafeDir::check_links(path).map_err(|error| BisectError::Unsuitable(error.to_string()))?;
        // Data under test must be private.
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(BisectError::io(path))?;
        let directory = RunDirectory::at(path);
        directory.check_own()?;
        if directory.database().exists() {
            let path = path.display();
            let text = format!("{path} holds a run: choose another directory with --out");
            return Err(BisectError::Unsuitable(text));
        }
        let file = path.join(LOCK);
        let lock = open_own(&file, true).map_err(BisectError::io(&file))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(BisectError::Failed(format!(
                "{} is in use by another dbdyno; wait for it, or stop it",
                path.display()
            ))),
            Err(TryLockError::Error(source)) => Err(BisectError::io(&file)(source)),
        }
    }

    /// Whether there is a bisect in a directory.
    pub fn exists(path: &Path) -> bool {
        path.join(RECORD).exists()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The record of the same bisect.
    pub fn read(&self, request: &RequestRecord) -> Result<BisectRecord, BisectError> {
        let path = self.path.join(RECORD);
        let read = open_own(&path, false).and_then(io::read_to_string);
        let text = read.map_err(BisectError::io(&path))?;
        let other = |why: String| {
            BisectError::Unsuitable(format!(
                "{} holds another bisect: {why}. Choose another directory with --out",
                self.path.display()
            ))
        };
        let record: BisectRecord = serde_json::from_str(&text)
            .map_err(|error| other(format!("{RECORD} cannot be read: {error}")))?;
        if record.format != FORMAT {
            return Err(other(format!("{RECORD} has format {}", record.format)));
        }
        if record.request != *request {
            return Err(other(format!(
                "it was started for {} to {} of {}, with another experiment or other options",
                record.request.good, record.request.bad, record.repository
            )));
        }
        Ok(record)
    }

    /// Replaces the record; after a kill there is the old or the new one.
    pub fn write(&self, record: &BisectRecord) -> Result<(), BisectError> {
        let path = self.path.join(RECORD);
        let write = || replace_file(&path, serde_json::to_string_pretty(record)?.as_bytes());
        write().map_err(BisectError::io(&path))
    }
}

/// Opens a file without following a link of its name.
fn open_own(path: &Path, create: bool) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    if create {
        options.write(true).create(true).truncate(false);
    }
    options.open(path)
}
