//! Profiles for profile-guided optimization: collected by an instrumented build, or by sampling one
//! that is not, and used by another.

mod collecting;
mod files;
mod store;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use collecting::Collection;
pub(crate) use files::{Raw, copy_regular};
pub use store::{CollectionLock, Lookup, Profiles};

use files::{content, files};

use crate::lock::Lock;
use crate::removal::remove_whole;
use crate::variant::WHOLE_FUNCTIONS;
use crate::{BuildError, Compiler, CompilerKind, CompilerUsed, Sha256, System};

/// What was run when a profile was collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingId {
    /// In words, for people.
    pub words: String,
    /// All that the profile depends on besides the build: what differs in anything has a profile of
    /// its own.
    pub whole: String,
}

/// Who writes counts while an instrumented build is trained, where that is not who dbdyno runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileWriter {
    /// The user's number.
    pub uid: u32,
    /// The number of its group.
    pub gid: u32,
}

/// How a build takes part in profile-guided optimization.
#[derive(Clone, Debug, Default)]
pub enum Profiling {
    /// Not at all.
    #[default]
    None,
    /// It is instrumented, to collect a profile.
    Collect,
    /// It says which code belongs to which line, to be sampled.
    Sample,
    /// It is optimized with a profile.
    Use(Box<Profile>),
}

/// A profile that was collected.
#[derive(Clone, Debug)]
pub struct Profile {
    folder: PathBuf,
    about: About,
    /// Nobody removes it meanwhile.
    _held: Arc<Lock>,
}

/// What a profile was collected from; it is of use to nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    system: System,
    source_sha256: Sha256,
    compiler: CompilerUsed,
    /// Flags for compiling, without those of profiling.
    flags: Vec<String>,
    /// What was run meanwhile, in words.
    trained_on: String,
    /// How many samples it was made of; `None` where an instrumented build counted.
    #[serde(default)]
    samples: Option<u64>,
    /// Of the profile's files.
    sha256: Sha256,
}

/// The profile of a build, as it is written down with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileUsed {
    /// Of the profile's files.
    pub sha256: Sha256,
    /// What was run when it was collected, in words.
    pub trained_on: String,
    /// How many samples it was made of; `None` where an instrumented build counted.
    #[serde(default)]
    pub samples: Option<u64>,
}

/// What clang's profile is called.
const CLANGS: &str = "profile.profdata";

/// What clang's is called that was sampled.
const SAMPLED: &str = "profile.samples";

/// gcc finds what belongs to an object beside it. Threads may have lost counts, and what the training
/// did not link has no profile. Functions of a file that was generated name the folder where that
/// happened, which is another one now: their counts hold, and gcc is not to stop.
const GCC_USES: [&str; 4] = [
    "-fprofile-use",
    "-fprofile-correction",
    "-Wno-missing-profile",
    "-Wno-error=coverage-mismatch",
];

/// Line tables, with what tells apart the ways of one line.
const LINES: [&str; 2] = ["-gline-tables-only", "-fdebug-info-for-profiling"];

impl Profiling {
    /// The flags for compiling and linking.
    pub(crate) fn flags(&self, compiler: CompilerKind) -> Vec<String> {
        let words: &[&str] = match (self, compiler) {
            (Self::None, _) => &[],
            (Self::Collect, CompilerKind::Gcc) => {
                &["-fprofile-generate", "-fprofile-update=prefer-atomic"]
            }
            (Self::Collect, CompilerKind::Clang) => &["-fprofile-generate"],
            (Self::Sample, _) => &LINES,
            (Self::Use(_), CompilerKind::Gcc) => &GCC_USES,
            (Self::Use(profile), CompilerKind::Clang) => {
                let (flag, file) = match profile.about.samples {
                    None => ("-fprofile-use", CLANGS),
                    Some(_) => ("-fprofile-sample-use", SAMPLED),
                };
                return vec![format!("{flag}={}", profile.data().join(file).display())];
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    /// What a fingerprint has of it.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Collect => "collect".to_owned(),
            Self::Sample => "sample".to_owned(),
            Self::Use(profile) => profile.about.sha256.to_string(),
        }
    }

    pub(crate) fn used(&self) -> Option<ProfileUsed> {
        match self {
            Self::None | Self::Collect | Self::Sample => None,
            Self::Use(profile) => Some(ProfileUsed {
                sha256: profile.about.sha256,
                trained_on: profile.about.trained_on.clone(),
                samples: profile.about.samples,
            }),
        }
    }
}

impl fmt::Display for Profiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => Ok(()),
            Self::Collect => f.write_str(", instrumented"),
            Self::Sample => f.write_str(", to be sampled"),
            Self::Use(profile) => write!(f, ", trained on {}", profile.about.trained_on),
        }
    }
}

/// The flags without those of profiling, and without the one for BOLT, which comes into play after
/// the profile has been read: what BOLT lays out is compiled with the same profile as without it.
fn without_profiling(flags: &[String]) -> Vec<String> {
    let own = |flag: &&String| {
        !flag.starts_with("-fprofile-")
            && !LINES.contains(&flag.as_str())
            && !GCC_USES.contains(&flag.as_str())
            && *flag != WHOLE_FUNCTIONS
    };
    flags.iter().filter(own).cloned().collect()
}

/// What gcc says of a function that has another control flow than the counted one. Then it goes on
/// without the counts.
const CONTROL_FLOW_DIFFERS: &str = "does not match its profile data";

impl Profile {
    /// Refuses what gcc compiled of another program than the counted one: of generated files, too,
    /// which no checksum of the source covers. The profile is given up then: the next who wants one
    /// collects it anew.
    pub(crate) fn check_log(&self, what: &str, log: &Path) -> Result<(), BuildError> {
        let text = fs::read(log).map_err(|error| BuildError::io("reading", log, error))?;
        let text = String::from_utf8_lossy(&text);
        let Some(line) = text.lines().find(|line| line.contains(CONTROL_FLOW_DIFFERS)) else {
            return Ok(());
        };
        remove_whole(&self.folder)
            .map_err(|error| BuildError::io("removing", &self.folder, error))?;
        Err(self.unfit(what, &format!("it was collected from other code: {}", line.trim())))
    }

    /// Refuses to be used for anything but what it was collected from.
    pub(crate) fn check(
        &self,
        what: &str,
        system: System,
        source: &Sha256,
        compiler: &Compiler,
        flags: &[String],
    ) -> Result<(), BuildError> {
        let differs = if self.about.system != system || self.about.source_sha256 != *source {
            "another source"
        } else if self.about.compiler != CompilerUsed::from(compiler) {
            "another compiler"
        } else if self.about.flags != without_profiling(flags) {
            "other flags"
        } else if content(&self.data()).ok() != Some(self.about.sha256) {
            return Err(self.unfit(what, "its files were changed"));
        } else {
            return Ok(());
        };
        Err(self.unfit(what, &format!("it was collected from {differs}")))
    }

    fn unfit(&self, what: &str, reason: &str) -> BuildError {
        BuildError::Profile {
            what: what.to_owned(),
            profile: self.folder.clone(),
            reason: reason.to_owned(),
        }
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Puts what belongs to objects beside where they will be.
    pub(crate) fn place(&self, tree: &Path) -> io::Result<()> {
        for (name, path) in files(&self.data())? {
            if [CLANGS, SAMPLED].contains(&name.as_str()) {
                continue;
            }
            let to = tree.join(&name);
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::copy(path, to)?;
        }
        Ok(())
    }
}

/// What the profile in this folder was collected from, if it is there and whole.
fn whole_in(folder: &Path) -> Option<About> {
    let text = fs::read(folder.join("profile.json")).ok()?;
    let about: About = serde_json::from_slice(&text).ok()?;
    content(&folder.join("data")).is_ok_and(|sha256| sha256 == about.sha256).then_some(about)
}

/// What was run when the profile in this folder was collected, in words; a compiler's or BOLT's.
pub(crate) fn trained_on_in(folder: &Path) -> String {
    #[derive(Deserialize)]
    struct Words {
        trained_on: String,
    }
    let text = fs::read(folder.join("profile.json")).unwrap_or_default();
    let words = serde_json::from_slice(&text);
    words.map_or_else(|_| String::new(), |words: Words| words.trained_on)
}
