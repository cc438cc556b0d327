//! Profiles for profile-guided optimization: collected by an instrumented build, or by sampling one
//! that is not, and used by another.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::compiler::{clean_command, companion};
use crate::failure::last_lines;
use crate::samples::{SampleTools, SampledCode};
use crate::variant::WHOLE_FUNCTIONS;
use crate::{Build, BuildError, Compiler, CompilerKind, CompilerUsed, Sha256, System};

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
    /// which no checksum of the source covers.
    pub(crate) fn check_log(&self, what: &str, log: &Path) -> Result<(), BuildError> {
        let text = fs::read(log).map_err(|error| BuildError::io("reading", log, error))?;
        let text = String::from_utf8_lossy(&text);
        match text.lines().find(|line| line.contains(CONTROL_FLOW_DIFFERS)) {
            None => Ok(()),
            Some(line) => Err(BuildError::Profile {
                what: what.to_owned(),
                profile: self.folder.clone(),
                reason: format!("it was collected from other code: {}", line.trim()),
            }),
        }
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

    fn read(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join("profile.json")).ok()?;
        let about: About = serde_json::from_slice(&text).ok()?;
        let whole = content(&folder.join("data")).is_ok_and(|sha256| sha256 == about.sha256);
        whole.then(|| Self { folder: folder.to_owned(), about })
    }
}

/// The profiles that are kept.
///
/// ```text
/// profiles/<key>/data/          the profile
/// profiles/<key>/profile.json   what it was collected from
/// profiles/<key>.raw/           what an instrumented build is writing
/// ```
#[derive(Clone, Debug)]
pub struct Profiles {
    root: PathBuf,
}

impl Profiles {
    /// Those of the cache at `root`.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.join("profiles") }
    }

    /// The profile that was collected from this build with this training, if it is kept.
    #[must_use]
    pub fn find(&self, build: &Build, trained_on: &str) -> Option<Profile> {
        Profile::read(&self.folder(build, trained_on))
    }

    /// Makes the profile of what ran of a build that was to be sampled.
    ///
    /// # Errors
    /// The tools cannot make one of it, or it cannot be written.
    pub fn keep_samples(
        &self,
        build: &Build,
        trained_on: &str,
        code: &[SampledCode],
        tools: &SampleTools,
    ) -> Result<Profile, BuildError> {
        let folder = self.folder(build, trained_on);
        let scratch = PathBuf::from(format!("{}.raw", folder.display()));
        let _ = fs::remove_dir_all(&scratch);
        fs::create_dir_all(&scratch).map_err(|error| BuildError::io("making", &scratch, error))?;
        let samples = code.iter().map(|code| code.samples).sum();
        let kept = keep(folder, build, trained_on, Some(samples), |data| {
            tools.convert(build, code, &scratch, &data.join(SAMPLED))
        });
        let _ = fs::remove_dir_all(&scratch);
        kept
    }

    /// Gets ready to collect. What was being collected before is forgotten.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn begin<'b>(
        &self,
        instrumented: &'b Build,
        trained_on: &str,
    ) -> Result<Collecting<'b>, BuildError> {
        let folder = self.folder(instrumented, trained_on);
        let raw = PathBuf::from(format!("{}.raw", folder.display()));
        let raw = std::path::absolute(&raw).map_err(|e| BuildError::io("looking for", &raw, e))?;
        let trained_on = trained_on.to_owned();
        let collecting = Collecting { folder, raw, instrumented, trained_on };
        collecting.forget()?;
        Ok(collecting)
    }

    fn folder(&self, build: &Build, trained_on: &str) -> PathBuf {
        self.keyed(&format!("{} {trained_on}", build.fingerprint))
    }

    /// The folder of the profile that depends on this.
    pub(crate) fn keyed(&self, key: &str) -> PathBuf {
        self.root.join(&Sha256::of(key.as_bytes()).to_string()[..32])
    }
}

/// A profile that is being collected. Its raw files are removed on drop.
#[derive(Debug)]
pub struct Collecting<'b> {
    folder: PathBuf,
    raw: PathBuf,
    instrumented: &'b Build,
    trained_on: String,
}

impl Collecting<'_> {
    /// What the environment of the instrumented program must have.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let raw = self.raw.to_string_lossy().into_owned();
        let (name, value) = match self.instrumented.compiler.name {
            CompilerKind::Gcc => ("GCOV_PREFIX", raw),
            // Processes of the same program add to the same few files.
            CompilerKind::Clang => ("LLVM_PROFILE_FILE", format!("{raw}/%4m.profraw")),
        };
        vec![(name.to_owned(), value)]
    }

    /// Forgets what was collected until now. Nobody must be writing.
    ///
    /// # Errors
    /// The folder cannot be emptied.
    pub fn forget(&self) -> Result<(), BuildError> {
        let _ = fs::remove_dir_all(&self.raw);
        fs::create_dir_all(&self.raw)
            // A server runs as another user than who started it.
            .and_then(|()| fs::set_permissions(&self.raw, fs::Permissions::from_mode(0o777)))
            .map_err(|error| BuildError::io("making", &self.raw, error))
    }

    /// Makes the profile of what the programs have written, once all have ended.
    ///
    /// # Errors
    /// They have written nothing, or it cannot be put together.
    pub fn finish(self) -> Result<Profile, BuildError> {
        let build = self.instrumented;
        keep(self.folder.clone(), build, &self.trained_on, None, |data| match build.compiler.name {
            CompilerKind::Gcc => self.take_gccs(data),
            CompilerKind::Clang => self.take_clangs(data),
        })
    }

    /// The counters lie below the raw folder under the whole paths of their objects.
    fn take_gccs(&self, data: &Path) -> Result<(), BuildError> {
        let tree = &self.instrumented.tree;
        // A library is compiled in a folder that is renamed when it is finished.
        let unfinished = PathBuf::from(format!("{}.part", tree.display()));
        let mut taken = 0;
        for tree in [tree, &unfinished] {
            let inner = tree.strip_prefix("/").unwrap_or(tree);
            let from = self.raw.join(inner);
            if !from.is_dir() {
                continue;
            }
            let copy = || -> io::Result<usize> {
                let counters = files(&from)?;
                for (name, path) in &counters {
                    let to = data.join(name);
                    fs::create_dir_all(to.parent().unwrap_or(data))?;
                    fs::copy(path, to)?;
                }
                Ok(counters.len())
            };
            taken += copy().map_err(|error| BuildError::io("reading", &from, error))?;
        }
        if taken == 0 { Err(self.nothing()) } else { Ok(()) }
    }

    fn take_clangs(&self, data: &Path) -> Result<(), BuildError> {
        let raw = files(&self.raw).map_err(|e| BuildError::io("reading", &self.raw, e))?;
        if raw.is_empty() {
            return Err(self.nothing());
        }
        let compiler = &self.instrumented.compiler;
        let tool = companion(compiler.name, &compiler.path, "profdata");
        let output = clean_command(&tool)
            .arg("merge")
            .arg("-o")
            .arg(data.join(CLANGS))
            .args(raw.values())
            .output()
            .map_err(|_| BuildError::MissingTool {
                tool: tool.display().to_string(),
                purpose: "putting clang's profile together".to_owned(),
                package: match tool.file_name() {
                    Some(name) => name.to_string_lossy().replace("-profdata", ""),
                    None => "llvm".to_owned(),
                },
            })?;
        if output.status.success() {
            return Ok(());
        }
        let said = last_lines(&String::from_utf8_lossy(&output.stderr));
        Err(BuildError::Profile {
            what: self.what(),
            profile: self.raw.clone(),
            reason: format!("{} cannot put it together:\n{said}", tool.display()),
        })
    }

    fn nothing(&self) -> BuildError {
        BuildError::Profile {
            what: self.what(),
            profile: self.raw.clone(),
            reason: "the training left nothing: the instrumented program did not end by itself"
                .to_owned(),
        }
    }

    fn what(&self) -> String {
        let Build { system, source_version, variant, .. } = self.instrumented;
        format!("{system} {source_version} as {variant}")
    }
}

impl Drop for Collecting<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.raw);
    }
}

/// Keeps what `write` puts into a folder as the profile of a build.
fn keep(
    folder: PathBuf,
    build: &Build,
    trained_on: &str,
    samples: Option<u64>,
    write: impl FnOnce(&Path) -> Result<(), BuildError>,
) -> Result<Profile, BuildError> {
    let part = PathBuf::from(format!("{}.part", folder.display()));
    let data = part.join("data");
    let _ = fs::remove_dir_all(&part);
    fs::create_dir_all(&data).map_err(|error| BuildError::io("making", &data, error))?;
    write(&data)?;
    let about = About {
        system: build.system,
        source_sha256: build.source_sha256,
        compiler: build.compiler.clone(),
        flags: without_profiling(&build.flags),
        trained_on: trained_on.to_owned(),
        samples,
        sha256: content(&data).map_err(|error| BuildError::io("reading", &data, error))?,
    };
    let json = part.join("profile.json");
    serde_json::to_vec_pretty(&about)
        .map_err(io::Error::other)
        .and_then(|text| fs::write(&json, text))
        .map_err(|error| BuildError::io("writing", &json, error))?;
    let _ = fs::remove_dir_all(&folder);
    fs::rename(&part, &folder).map_err(|error| BuildError::io("finishing", &folder, error))?;
    Ok(Profile { folder, about })
}

/// All files below a folder by their names in it.
fn files(folder: &Path) -> io::Result<BTreeMap<String, PathBuf>> {
    let mut all = BTreeMap::new();
    let mut waiting = vec![folder.to_owned()];
    while let Some(inner) = waiting.pop() {
        for entry in fs::read_dir(inner)? {
            let path = entry?.path();
            if path.is_dir() {
                waiting.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap_or(&path);
                all.insert(name.to_string_lossy().into_owned(), path);
            }
        }
    }
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
