//! Profiles for BOLT: collected with an instrumented copy of a build or its samples, and used for
//! the same build.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use super::Bolt;
use super::server::link_all;
use super::skipped::{as_patterns, not_followed, transactional};
use crate::build_dir::open_folder;
use crate::child::{self, Running};
use crate::command::clean_command;
use crate::failure::last_lines;
use crate::lock::Lock;
use crate::profile::{CollectionLock, Lookup, ProfileWriter, Raw, TrainingId};
use crate::{Build, BuildError, Fingerprint, Profiles, Sha256, build_dir, recipe};

/// A profile for BOLT, with the build that it was collected from and can be used for.
#[derive(Clone, Debug)]
pub struct CachedBoltProfile {
    pub(crate) base: Build,
    pub(crate) bolt: Bolt,
    folder: PathBuf,
    about: About,
    /// Prevents removal.
    _lock: Arc<Lock>,
}

/// What a profile was collected from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct About {
    base: Fingerprint,
    /// The checksum of the program.
    artifact_sha256: Sha256,
    bolt: String,
    /// The training, as a description.
    trained_on: String,
    /// Functions that BOLT must not change.
    left_alone: Vec<String>,
    /// Number of samples; `None` for an instrumented profile.
    #[serde(default)]
    samples: Option<u64>,
    /// The checksum of the profile.
    sha256: Sha256,
}

/// The samples of a build.
#[derive(Clone, Debug)]
pub struct BoltSamples {
    /// The samples in BOLT's text format.
    pub text: String,
    /// Number of samples.
    pub samples: u64,
    /// The same samples in the live optimizer's format.
    pub for_live: String,
}

/// How BOLT optimized a build, as stored in `build.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoltUsed {
    /// The base build: all files but the artifact are the same.
    pub base: Fingerprint,
    /// BOLT's version.
    pub version: String,
    /// How the profile was collected.
    pub collected_by: String,
    /// The checksum of the profile.
    pub profile_sha256: Sha256,
    /// The training, as a description.
    pub trained_on: String,
    /// Functions that BOLT did not change: those with hardware transactions, and those whose jumps
    /// it could not follow.
    pub left_alone: Vec<String>,
}

/// The profile's file name.
const PROFILE: &str = "bolt.fdata";

/// The largest profile that an instrumented program may write.
const LARGEST: Bytes = Bytes::from_mib(1 << 10);

/// The file with the samples in the live optimizer's format.
const SAMPLES: &str = "samples.json";

/// The file with the functions to skip.
const ALONE: &str = "left-alone";

impl CachedBoltProfile {
    /// Checks that the profile was collected from this build.
    pub(crate) fn check(&self, what: &str, base: &Fingerprint) -> Result<(), BuildError> {
        let reason = if self.about.base != *base {
            "it was collected from another build"
        } else if Sha256::of_file(&self.data()).ok() != Some(self.about.sha256) {
            "its file was changed"
        } else if Sha256::of_file(&self.base.artifact).ok() != Some(self.about.artifact_sha256) {
            "the build that it was collected from was changed"
        } else {
            return Ok(());
        };
        Err(BuildError::Profile {
            what: what.to_owned(),
            profile: self.folder.clone(),
            reason: reason.to_owned(),
        })
    }

    fn data(&self) -> PathBuf {
        self.folder.join(PROFILE)
    }

    /// The file with the samples in the live optimizer's format; `None` for an instrumented
    /// profile.
    #[must_use]
    pub fn samples(&self) -> Option<PathBuf> {
        self.about.samples.map(|_| self.folder.join(SAMPLES))
    }

    /// Its part of the fingerprint.
    pub(crate) fn identity(&self) -> String {
        let About { base, sha256, bolt, .. } = &self.about;
        let strategy = self.bolt.strategy().join(" ");
        format!("{base} {sha256} {bolt} {strategy}")
    }

    pub(crate) fn trained_on(&self) -> &str {
        &self.about.trained_on
    }

    pub(crate) fn used(&self) -> BoltUsed {
        BoltUsed {
            base: self.about.base,
            version: self.about.bolt.clone(),
            collected_by: match self.about.samples {
                None => "instrumentation".to_owned(),
                Some(samples) => format!("{samples} samples"),
            },
            profile_sha256: self.about.sha256,
            trained_on: self.about.trained_on.clone(),
            left_alone: self.about.left_alone.clone(),
        }
    }

    /// BOLT's arguments for writing `to`.
    pub(crate) fn arguments(&self, to: &Path) -> Vec<String> {
        let alone = self.folder.join(ALONE);
        let debug = self.base.flags.iter().any(|flag| flag == "-g");
        self.bolt.lay_out(&self.base.artifact, to, &self.data(), &alone, debug)
    }

    fn read(folder: &Path, base: &Build, bolt: &Bolt, lock: Arc<Lock>) -> Option<Self> {
        let text = fs::read(folder.join("profile.json")).ok()?;
        let about: About = serde_json::from_slice(&text).ok()?;
        let (base, bolt, folder) = (base.clone(), bolt.clone(), folder.to_owned());
        let profile = Self { base, bolt, folder, about, _lock: lock };
        let is_whole = profile.samples().is_none_or(|samples| samples.is_file());
        (is_whole && profile.check("", &profile.base.fingerprint).is_ok()).then_some(profile)
    }
}

impl Profiles {
    /// Looks up BOLT's profile of a build and a training. While another process collects it, waits
    /// and calls `on_wait` once.
    ///
    /// # Errors
    /// The cache cannot be written to.
    pub fn lookup_bolt(
        &self,
        base: &Build,
        bolt: &Bolt,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
    ) -> Result<Lookup<CachedBoltProfile>, BuildError> {
        let key = format!("{} {} {}", base.fingerprint, bolt.version, trained_on.whole);
        let cached = |folder: &Path, lock| CachedBoltProfile::read(folder, base, bolt, lock);
        self.lookup_with(&key, trained_on, cancel, on_wait, &cached)
    }
}

impl CollectionLock {
    /// Makes an instrumented copy of a build that was linked for BOLT. `None` if `cancel` is set
    /// meanwhile.
    ///
    /// # Errors
    /// BOLT cannot instrument it, or it cannot be copied.
    pub fn begin_bolt(
        self,
        base: &Build,
        bolt: &Bolt,
        writer: Option<ProfileWriter>,
        cancel: &AtomicBool,
    ) -> Result<Option<BoltCollection>, BuildError> {
        let raw = self.empty_raw()?;
        let counts = Raw { path: raw.join("counts"), writer };
        let instrumented =
            Build { instrumented: true, artifact: artifact(&raw, base), ..base.clone() };
        let left_alone = transactional_of(base)?;
        let (base, bolt) = (base.clone(), bolt.clone());
        let mut collecting =
            BoltCollection { lock: self, raw, counts, base, bolt, instrumented, left_alone };
        Ok(collecting.instrument(cancel)?.then_some(collecting))
    }

    /// Stores the profile of a sampled build that was linked for BOLT. Runs BOLT once to find the
    /// functions that it must skip. `None` if `cancel` is set meanwhile.
    ///
    /// # Errors
    /// BOLT fails, or the profile cannot be written.
    pub fn store_bolt_samples(
        self,
        base: &Build,
        bolt: &Bolt,
        sampled: &BoltSamples,
        cancel: &AtomicBool,
    ) -> Result<Option<CachedBoltProfile>, BuildError> {
        let raw = self.empty_raw()?;
        let data = raw.join(PROFILE);
        fs::write(&data, &sampled.text).map_err(|error| BuildError::io("making", &data, error))?;
        let (alone, made) = (raw.join(ALONE), raw.join("laid-out"));
        let arguments = bolt.lay_out(&base.artifact, &made, &data, &alone, false);
        let trial = Trial { bolt, base, arguments: &arguments, folder: &raw, made: &made };
        let Some(left_alone) = trial.run(transactional_of(base)?, cancel)? else {
            return Ok(None);
        };
        let samples = Some((sampled.samples, sampled.for_live.as_str()));
        self.store_bolt(base, bolt, &data, left_alone, samples).map(Some)
    }

    fn empty_raw(&self) -> Result<PathBuf, BuildError> {
        let raw = self.raw();
        let _ = fs::remove_dir_all(&raw);
        open_folder(&raw).map_err(|error| BuildError::io("making", &raw, error))?;
        Ok(raw)
    }

    /// Stores a complete profile.
    fn store_bolt(
        self,
        base: &Build,
        bolt: &Bolt,
        data: &Path,
        left_alone: Vec<String>,
        samples: Option<(u64, &str)>,
    ) -> Result<CachedBoltProfile, BuildError> {
        let sha256 =
            Sha256::of_file(data).map_err(|error| BuildError::io("reading", data, error))?;
        let about = About {
            base: base.fingerprint,
            artifact_sha256: base.artifact_sha256,
            bolt: bolt.version.clone(),
            trained_on: self.trained_on.words.clone(),
            left_alone,
            samples: samples.map(|(count, _)| count),
            sha256,
        };
        let part = self.part();
        let write = || {
            let _ = fs::remove_dir_all(&part);
            open_folder(&part)?;
            fs::copy(data, part.join(PROFILE))?;
            fs::write(part.join(ALONE), as_patterns(&about.left_alone))?;
            if let Some((_, for_live)) = samples {
                fs::write(part.join(SAMPLES), for_live)?;
            }
            fs::write(part.join("profile.json"), serde_json::to_vec_pretty(&about)?)
        };
        write().map_err(|error| BuildError::io("writing the profile to", &part, error))?;
        let lock = self.publish()?;
        let (base, bolt, folder) = (base.clone(), bolt.clone(), self.folder.clone());
        Ok(CachedBoltProfile { base, bolt, folder, about, _lock: lock })
    }
}

fn artifact(folder: &Path, base: &Build) -> PathBuf {
    folder.join(recipe::artifact(base.system))
}

/// A profile for BOLT that is being collected. Dropping it removes the instrumented copy.
#[derive(Debug)]
pub struct BoltCollection {
    lock: CollectionLock,
    raw: PathBuf,
    /// The directory of the counts.
    counts: Raw,
    base: Build,
    bolt: Bolt,
    instrumented: Build,
    left_alone: Vec<String>,
}

impl BoltCollection {
    /// The build to train with: with an instrumented artifact.
    #[must_use]
    pub const fn instrumented(&self) -> &Build {
        &self.instrumented
    }

    /// Discards what was collected so far. No instrumented program may be running.
    ///
    /// # Errors
    /// The directory cannot be emptied.
    pub fn discard(&self) -> Result<(), BuildError> {
        self.counts.empty()
    }

    /// Stores the profile that the program wrote at exit.
    ///
    /// All processes of the program count in shared memory; the last one to exit, a server's main
    /// process, writes the total.
    ///
    /// # Errors
    /// The program wrote no profile.
    pub fn finish(self) -> Result<CachedBoltProfile, BuildError> {
        let (counts, data) = (&self.counts.path, self.raw.join(PROFILE));
        // The directory belongs to the user that the program ran as.
        let copied = SafeDir::open(counts)
            .and_then(|counts| counts.copy(Path::new(PROFILE), &data, 0o644, LARGEST));
        let size = match copied {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Bytes::default(),
            copied => {
                copied.map_err(|error| BuildError::io("taking the profile in", counts, error))?
            }
        };
        if size == Bytes::default() {
            return Err(BuildError::Profile {
                what: self.base.to_string(),
                profile: self.raw,
                reason: "there is no raw data: the instrumented program did not exit normally"
                    .to_owned(),
            });
        }
        self.lock.store_bolt(&self.base, &self.bolt, &data, self.left_alone, None)
    }

    /// Makes the instrumented copy; false if `cancel` was set meanwhile.
    fn instrument(&mut self, cancel: &AtomicBool) -> Result<bool, BuildError> {
        let program = &self.instrumented.artifact;
        let making = |error| BuildError::io("making", program, error);
        if self.base.system.is_server() {
            let (from, to) = (self.base.folder.join(recipe::SERVER), self.raw.join(recipe::SERVER));
            link_all(&from, &to, &self.base.artifact).map_err(making)?;
        }
        let (alone, counts) = (self.raw.join(ALONE), self.counts.path.join(PROFILE));
        let arguments = self.bolt.instrument(&self.base.artifact, program, &counts, &alone);
        let (bolt, base) = (&self.bolt, &self.base);
        let trial = Trial { bolt, base, arguments: &arguments, folder: &self.raw, made: program };
        let Some(left_alone) = trial.run(self.left_alone.clone(), cancel)? else {
            return Ok(false);
        };
        self.left_alone = left_alone;
        build_dir::open_to_all(&self.raw).map_err(making)?;
        // From here on, another user can write to it.
        self.counts.empty()?;
        Ok(true)
    }
}

fn transactional_of(base: &Build) -> Result<Vec<String>, BuildError> {
    transactional(&base.artifact).map_err(|error| BuildError::Unusable {
        what: base.to_string(),
        path: base.artifact.clone(),
        reason: error.to_string(),
    })
}

/// A run of BOLT, repeated with more skipped functions if necessary.
struct Trial<'a> {
    bolt: &'a Bolt,
    base: &'a Build,
    arguments: &'a [String],
    /// The directory of the function list and the log.
    folder: &'a Path,
    /// The output file.
    made: &'a Path,
}

impl Trial<'_> {
    /// Runs BOLT until it succeeds, each time skipping one more function whose jumps it cannot
    /// follow. Returns all skipped functions; `None` if `cancel` was set meanwhile.
    fn run(
        &self,
        mut left_alone: Vec<String>,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<String>>, BuildError> {
        let Self { bolt, base, arguments, folder, made } = *self;
        let making = |error| BuildError::io("making", made, error);
        let log_file = folder.join("log.txt");
        loop {
            fs::write(folder.join(ALONE), as_patterns(&left_alone)).map_err(making)?;
            let log = File::create(&log_file).map_err(making)?;
            let mut command = clean_command(&bolt.path);
            command.args(arguments).process_group(0);
            command.stdout(log.try_clone().map_err(making)?).stderr(log);
            let running = Running::new(command.spawn().map_err(making)?);
            let Some(status) = child::wait(running, cancel, || {}).map_err(making)? else {
                return Ok(None);
            };
            if status.success() && made.is_file() {
                return Ok(Some(left_alone));
            }
            let log_text = fs::read_to_string(&log_file).unwrap_or_default();
            match not_followed(&log_text) {
                Some(name) if !left_alone.contains(&name) => left_alone.push(name),
                _ => {
                    let path = bolt.path.display();
                    return Err(BuildError::Unusable {
                        what: base.to_string(),
                        path: base.artifact.clone(),
                        reason: format!("{path} refused it ({status}):\n{}", last_lines(&log_text)),
                    });
                }
            }
        }
    }
}
