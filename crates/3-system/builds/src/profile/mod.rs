//! Profiles for profile-guided optimization: collected with an instrumented or a sampled build, and
//! used by another build.

pub(crate) mod collecting;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::error::io_error;
use crate::store::{self, Check, Held, Kind, Making, Query, remove, remove_whole};
use crate::trusted_tree::visit;
use crate::variant::WHOLE_FUNCTIONS;
use crate::{
    Build, BuildError, Cache, CacheDir, Compiler, CompilerKind, CompilerUsed, ProfileUsed, Sha256,
    System,
};

pub use collecting::{Collection, SampleTools, SampledCode};

pub(crate) use collecting::find_profdata;

/// The training of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingId {
    pub words: String,
    /// Everything that the profile depends on, apart from the build, as a cache key.
    pub whole: String,
}

/// The user that writes counts during the training, if not dbdyno's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProfileWriter {
    pub uid: u32,
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
    held: Held<About>,
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
    samples: Option<u64>,
    sha256: Sha256,
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
                let (flag, file) = match profile.held.about.samples {
                    None => ("-fprofile-use", CLANGS),
                    Some(_) => ("-fprofile-sample-use", SAMPLED),
                };
                return vec![format!("{flag}={}", profile.data().join(file).display())];
            }
        };
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    pub(crate) fn identity(&self) -> String {
        match self {
            Self::None => "none".to_owned(),
            Self::Collect => "collect".to_owned(),
            Self::Sample => "sample".to_owned(),
            Self::Use(profile) => profile.held.about.sha256.to_string(),
        }
    }

    pub(crate) fn used(&self) -> Option<ProfileUsed> {
        match self {
            Self::None | Self::Collect | Self::Sample => None,
            Self::Use(profile) => Some(ProfileUsed {
                sha256: profile.held.about.sha256,
                trained_on: profile.held.about.trained_on.clone(),
                samples: profile.held.about.samples,
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
            Self::Use(profile) => write!(f, ", trained on {}", profile.held.about.trained_on),
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
        let text = fs::read(log).map_err(io_error("reading", log))?;
        let text = String::from_utf8_lossy(&text);
        let Some(line) = text.lines().find(|line| line.contains(CONTROL_FLOW_DIFFERS)) else {
            return Ok(());
        };
        let folder = &self.held.folder;
        remove_whole(folder).map_err(io_error("removing", folder))?;
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
        let differs =
            if self.held.about.system != system || self.held.about.source_sha256 != *source {
                "another source"
            } else if !self.held.about.compiler.is_same_version(&CompilerUsed::from(compiler)) {
                "another compiler"
            } else if self.held.about.flags != without_profiling(flags) {
                "other flags"
            } else if content(&self.data()).ok() != Some(self.held.about.sha256) {
                return Err(self.unfit(what, "its files were changed"));
            } else {
                return Ok(());
            };
        Err(self.unfit(what, &format!("it was collected from {differs}")))
    }

    fn unfit(&self, what: &str, reason: &str) -> BuildError {
        BuildError::profile(what, &self.held.folder, reason)
    }

    fn data(&self) -> PathBuf {
        self.held.folder.join("data")
    }

    /// Copies gcc's profiles to where the objects will be.
    pub(crate) fn place(&self, tree: &Path) -> io::Result<()> {
        let gccs = |name: &str| collecting::is_gccs(Path::new(name));
        for (name, path) in files(&self.data())?.into_iter().filter(|(name, _)| gccs(name)) {
            let to = tree.join(&name);
            fs::create_dir_all(to.parent().unwrap_or(tree))?;
            fs::copy(path, to)?;
        }
        Ok(())
    }
}

impl About {
    /// Checks that a profile is complete and has only files of compilers.
    fn check(&self, folder: &Path) -> Result<(), String> {
        let expected = |name: &String| {
            [CLANGS, SAMPLED].contains(&&**name) || collecting::is_gccs(Path::new(name))
        };
        let data = folder.join("data");
        let whole = files(&data).is_ok_and(|files| files.keys().all(expected))
            && content(&data).is_ok_and(|sha256| sha256 == self.sha256);
        if whole { Ok(()) } else { Err("its files were changed".to_owned()) }
    }
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

/// A directory for counts, accessible only to the user that writes them.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) path: PathBuf,
    pub(crate) writer: Option<ProfileWriter>,
}

impl Raw {
    /// Recreates the directory, empty. No program may be writing to it.
    pub(crate) fn empty(&self) -> Result<(), BuildError> {
        let Self { path, writer } = self;
        let own = || match writer {
            Some(ProfileWriter { uid, gid }) => lchown(path, Some(*uid), Some(*gid)),
            None => Ok(()),
        };
        // The writer may have other processes, which add files; then this fails.
        remove(path)
            .and_then(|()| fs::create_dir(path))
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(0o700)))
            .and_then(|()| own())
            .map_err(io_error("making", path))
    }
}

/// All regular files below a directory of the cache, by relative path.
fn files(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut all = BTreeMap::new();
    visit(folder, &mut |path, meta| {
        if meta.is_file() {
            let name = path.strip_prefix(folder).unwrap_or(path);
            all.insert(name.to_string_lossy().into_owned(), path.to_owned());
        }
        Ok(())
    })?;
    Ok(all)
}

/// The checksum of a profile's files.
fn content(data: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    for (name, path) in files(data)? {
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update(Sha256::of_file(&path)?.as_bytes());
    }
    Ok(Sha256::finish(hasher))
}

/// The cached profiles.
///
/// ```text
/// profiles/<key>/data/          the profile
/// profiles/<key>/profile.json   what it was collected from
/// profiles/<key>.raw/           raw data of an instrumented build
/// ```
#[derive(Clone, Debug)]
pub struct Profiles {
    cache: Cache,
}

/// The result of looking up a profile.
pub type Lookup<P> = store::Lookup<P, CollectionLock>;

/// The exclusive right to collect a profile. Dropping it removes an incomplete profile.
#[derive(Debug)]
pub struct CollectionLock {
    pub(crate) making: Making,
    pub(crate) trained_on: TrainingId,
}

impl Profiles {
    /// The profiles in the cache in this directory.
    pub fn new(root: &CacheDir) -> Self {
        Self { cache: Cache::new(root) }
    }

    /// Looks up the profile of a build and a training. While another process collects it, waits and
    /// calls `on_wait` once.
    pub fn lookup(
        &self,
        build: &Build,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
    ) -> Result<Lookup<Profile>, BuildError> {
        let key = format!("{} {}", build.fingerprint, trained_on.whole);
        let check = |about: &mut About, folder: &Path| about.check(folder);
        let found = self.lookup_with(&key, trained_on, cancel, on_wait, &check)?;
        Ok(found.map(|held| Profile { held }))
    }

    pub(crate) fn lookup_with<D: DeserializeOwned>(
        &self,
        key: &str,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
        check: Check<'_, D>,
    ) -> Result<Lookup<Held<D>>, BuildError> {
        let key = &Sha256::of(key.as_bytes()).to_string()[..32];
        let query = Query { check, cancel, on_wait, on_invalid: &|_| {} };
        Ok(match self.cache.entry(Kind::Profile, key).lookup(&query)? {
            store::Lookup::Found(held) => Lookup::Found(held),
            store::Lookup::Missing(making) => {
                store::Lookup::Missing(CollectionLock { making, trained_on: trained_on.clone() })
            }
            store::Lookup::Cancelled => Lookup::Cancelled,
        })
    }
}

impl CollectionLock {
    pub fn begin<'b>(
        self,
        instrumented: &'b Build,
        writer: Option<ProfileWriter>,
    ) -> Result<Collection<'b>, BuildError> {
        let raw = Raw { path: self.making.raw(), writer };
        raw.empty()?;
        Ok(Collection { lock: self, raw, instrumented })
    }

    /// Stores the profile of a sampled build.
    pub fn store_samples(
        self,
        build: &Build,
        code: &[SampledCode],
        tools: &SampleTools,
    ) -> Result<Profile, BuildError> {
        let scratch = Raw { path: self.making.raw(), writer: None };
        scratch.empty()?;
        let data = self.begin_part()?;
        tools.convert(build, code, &scratch.path, &data.join(SAMPLED))?;
        let samples = code.iter().map(|code| code.samples).sum();
        self.store(build, Some(samples))
    }

    /// Creates the directory for the profile's files.
    fn begin_part(&self) -> Result<PathBuf, BuildError> {
        let data = self.making.begin()?.join("data");
        fs::create_dir(&data).map_err(io_error("making", &data))?;
        Ok(data)
    }

    /// Stores the files in `part` as the profile of a build.
    fn store(self, build: &Build, samples: Option<u64>) -> Result<Profile, BuildError> {
        let part = self.making.part();
        let data = part.join("data");
        let about = About {
            system: build.system,
            source_sha256: build.source_sha256,
            compiler: build.compiler.clone(),
            flags: without_profiling(&build.flags),
            trained_on: self.trained_on.words.clone(),
            samples,
            sha256: content(&data).map_err(io_error("reading", &data))?,
        };
        Ok(Profile { held: self.making.publish(&part, about)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stores a profile with whatever is in its directory.
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

    fn is_whole(folder: &Path) -> bool {
        let about = fs::read(folder.join("profile.json")).unwrap();
        serde_json::from_slice::<About>(&about).unwrap().check(folder).is_ok()
    }

    #[test]
    fn cached_profile_with_other_files_than_counters_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let compiler = CompilerUsed::from(&Compiler::find("gcc").unwrap());
        let inner = dir.path().join("data/src/backend");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("a.gcda"), "counts").unwrap();
        store(dir.path(), &compiler);
        assert!(is_whole(dir.path()));
        fs::write(inner.join("GNUmakefile"), "all:").unwrap();
        assert!(!is_whole(dir.path()));
        store(dir.path(), &compiler);
        assert!(!is_whole(dir.path()));
        fs::remove_file(inner.join("GNUmakefile")).unwrap();
        fs::write(dir.path().join("data/profile.profdata"), "counts").unwrap();
        store(dir.path(), &compiler);
        assert!(is_whole(dir.path()));
    }
}
