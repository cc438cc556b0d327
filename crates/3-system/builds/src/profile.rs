//! Profiles for profile-guided optimization: collected with an instrumented or a sampled build, and
//! used by another build.

mod collecting;
mod counters;
mod files;
mod store;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use collecting::Collection;
pub(crate) use collecting::find_profdata;
pub(crate) use files::Raw;
pub use store::{CollectionLock, Lookup, Profiles};

use files::{content, files};

use crate::lock::Lock;
use crate::removal::remove_whole;
use crate::variant::WHOLE_FUNCTIONS;
use crate::{BuildError, Compiler, CompilerKind, CompilerUsed, Sha256, System};

/// The training of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingId {
    /// A description.
    pub words: String,
    /// Everything that the profile depends on, apart from the build, as a cache key.
    pub whole: String,
}

/// The user that writes counts during the training, if not dbdyno's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileWriter {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The role of a build in profile-guided optimization.
#[derive(Clone, Debug, Default)]
pub enum Profiling {
    #[default]
    None,
    /// Instrumented, to collect a profile.
    Collect,
    /// With line tables, to be sampled.
    Sample,
    /// Optimized with a profile.
    Use(Box<Profile>),
}

/// A collected profile.
#[derive(Clone, Debug)]
pub struct Profile {
    folder: PathBuf,
    about: About,
    /// Prevents removal.
    _lock: Arc<Lock>,
}

/// What a profile was collected from; it can only be used for builds with the same values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    system: System,
    source_sha256: Sha256,
    compiler: CompilerUsed,
    /// Compiler flags, without those for profiling.
    flags: Vec<String>,
    /// The training, as a description.
    trained_on: String,
    /// Number of samples; `None` for an instrumented profile.
    #[serde(default)]
    samples: Option<u64>,
    /// The checksum of the profile's files.
    sha256: Sha256,
}

/// The profile of a build, as stored in `build.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileUsed {
    /// The checksum of the profile's files.
    pub sha256: Sha256,
    /// The training, as a description.
    pub trained_on: String,
    /// Number of samples; `None` for an instrumented profile.
    #[serde(default)]
    pub samples: Option<u64>,
}

/// The file name of clang's instrumented profile.
const CLANGS: &str = "profile.profdata";

/// The file name of clang's sampled profile.
const SAMPLED: &str = "profile.samples";

/// gcc reads the profile of an object from the same directory. Threads may have lost counts, and
/// files that the training did not link have no profile. Functions of generated files contain the
/// path of another build directory: their counts are valid, so a mismatch must not be an error.
const GCC_USES: [&str; 4] = [
    "-fprofile-use",
    "-fprofile-correction",
    "-Wno-missing-profile",
    "-Wno-error=coverage-mismatch",
];

/// Line tables with discriminators.
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

    /// Its part of the fingerprint.
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

/// The flags without those for profiling and without the one for BOLT, which takes effect after the
/// profile is read: builds with and without BOLT share a profile.
fn without_profiling(flags: &[String]) -> Vec<String> {
    let own = |flag: &&String| {
        !flag.starts_with("-fprofile-")
            && !LINES.contains(&flag.as_str())
            && !GCC_USES.contains(&flag.as_str())
            && *flag != WHOLE_FUNCTIONS
    };
    flags.iter().filter(own).cloned().collect()
}

/// gcc's message about a function whose control flow differs from the profile's; gcc then ignores
/// the profile of the function.
const CONTROL_FLOW_DIFFERS: &str = "does not match its profile data";

impl Profile {
    /// Fails if gcc's log shows that the profile is of other code, for example of generated files,
    /// which are not part of the source's checksum. Removes the profile, so that it is collected
    /// again.
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

    /// Checks that the profile was collected from the same source, compiler and flags.
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
        } else if !self.about.compiler.is_same_version(&CompilerUsed::from(compiler)) {
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

    /// Copies gcc's profiles to where the objects will be.
    pub(crate) fn place(&self, tree: &Path) -> io::Result<()> {
        let gccs = |name: &str| counters::is_gccs(Path::new(name));
        for (name, path) in files(&self.data())?.into_iter().filter(|(name, _)| gccs(name)) {
            let to = tree.join(&name);
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::copy(path, to)?;
        }
        Ok(())
    }
}

/// Reads the description of a complete profile that has only files of compilers. Profiles that were
/// collected before this was checked may have others.
fn whole_in(folder: &Path) -> Option<About> {
    let expected =
        |name: &String| [CLANGS, SAMPLED].contains(&&**name) || counters::is_gccs(Path::new(name));
    if !files(&folder.join("data")).ok()?.keys().all(expected) {
        return None;
    }
    let text = fs::read(folder.join("profile.json")).ok()?;
    let about: About = serde_json::from_slice(&text).ok()?;
    content(&folder.join("data")).is_ok_and(|sha256| sha256 == about.sha256).then_some(about)
}

/// The training of the compiler's or BOLT's profile in a directory.
pub(crate) fn trained_on_in(folder: &Path) -> String {
    #[derive(Deserialize)]
    struct Words {
        trained_on: String,
    }
    let text = fs::read(folder.join("profile.json")).unwrap_or_default();
    let words = serde_json::from_slice(&text);
    words.map_or_else(|_| String::new(), |words: Words| words.trained_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a profile as earlier versions did, with whatever is in its directory.
    fn store(folder: &Path, build: &CompilerUsed) {
        let about = About {
            system: System::PostgreSql,
            source_sha256: Sha256::of(b""),
            compiler: build.clone(),
            flags: Vec::new(),
            trained_on: "a run".to_owned(),
            samples: None,
            sha256: content(&folder.join("data")).unwrap(),
        };
        fs::write(folder.join("profile.json"), serde_json::to_vec(&about).unwrap()).unwrap();
    }

    #[test]
    fn cached_profile_with_other_files_than_counters_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let compiler = CompilerUsed::from(&Compiler::find_default().unwrap());
        let inner = dir.path().join("data/src/backend");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("a.gcda"), "counts").unwrap();
        store(dir.path(), &compiler);
        assert!(whole_in(dir.path()).is_some());
        fs::write(inner.join("GNUmakefile"), "all:").unwrap();
        assert!(whole_in(dir.path()).is_none());
        store(dir.path(), &compiler);
        assert!(whole_in(dir.path()).is_none());
        fs::remove_file(inner.join("GNUmakefile")).unwrap();
        fs::write(dir.path().join("data/profile.profdata"), "counts").unwrap();
        store(dir.path(), &compiler);
        assert!(whole_in(dir.path()).is_some());
    }
}
