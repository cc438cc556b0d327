//! Profiles for BOLT: collected with an instrumented copy of a build or its samples, and used for
//! the same build.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use super::{Bolt, as_patterns, not_followed, transactional};
use crate::command::{Running, clean_command, wait};
use crate::error::{io_error, last_lines};
use crate::profile::{CollectionLock, ProfileWriter, Raw, TrainingId};
use crate::store::Held;
use crate::trusted_tree::{open_folder, open_to_all};
use crate::{BoltUsed, Build, BuildError, Fingerprint, Lookup, Profiles, Sha256, recipe};

/// A profile for BOLT, with the build that it was collected from and can be used for.
#[derive(Clone, Debug)]
pub struct CachedBoltProfile {
    pub(crate) base: Build,
    pub(crate) bolt: Bolt,
    held: Held<About>,
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
        let folder = &self.held.folder;
        let checked = self.held.about.check(folder, base, &self.base.artifact);
        checked.map_err(|reason| BuildError::profile(what, folder, reason))
    }

    fn data(&self) -> PathBuf {
        self.held.folder.join(PROFILE)
    }

    /// The file with the samples in the live optimizer's format; `None` for an instrumented
    /// profile.
    pub fn samples(&self) -> Option<PathBuf> {
        self.held.about.samples.map(|_| self.held.folder.join(SAMPLES))
    }

    /// Its part of the fingerprint.
    pub(crate) fn identity(&self) -> String {
        let About { base, sha256, bolt, .. } = &self.held.about;
        let strategy = self.bolt.strategy().join(" ");
        format!("{base} {sha256} {bolt} {strategy}")
    }

    pub(crate) fn trained_on(&self) -> &str {
        &self.held.about.trained_on
    }

    pub(crate) fn used(&self) -> BoltUsed {
        BoltUsed {
            base: self.held.about.base,
            version: self.held.about.bolt.clone(),
            collected_by: match self.held.about.samples {
                None => "instrumentation".to_owned(),
                Some(samples) => format!("{samples} samples"),
            },
            profile_sha256: self.held.about.sha256,
            trained_on: self.held.about.trained_on.clone(),
            left_alone: self.held.about.left_alone.clone(),
        }
    }

    /// BOLT's arguments for writing `to`.
    pub(crate) fn arguments(&self, to: &Path) -> Vec<String> {
        let alone = self.held.folder.join(ALONE);
        let debug = self.base.flags.iter().any(|flag| flag == "-g");
        self.bolt.lay_out(&self.base.artifact, to, &self.data(), &alone, debug)
    }

    fn new(held: Held<About>, base: &Build, bolt: &Bolt) -> Self {
        Self { base: base.clone(), bolt: bolt.clone(), held }
    }
}

impl About {
    /// Checks that a profile in a directory was collected from this build.
    fn check(&self, folder: &Path, base: &Fingerprint, artifact: &Path) -> Result<(), String> {
        let is = |path: &Path, expected| Sha256::of_file(path).ok() == Some(expected);
        let reason = if self.base != *base {
            "it was collected from another build"
        } else if !is(&folder.join(PROFILE), self.sha256)
            || self.samples.is_some() && !folder.join(SAMPLES).is_file()
        {
            "its file was changed"
        } else if !is(artifact, self.artifact_sha256) {
            "the build that it was collected from was changed"
        } else {
            return Ok(());
        };
        Err(reason.to_owned())
    }
}

impl Profiles {
    /// Looks up BOLT's profile of a build and a training. While another process collects it, waits
    /// and calls `on_wait` once.
    pub fn lookup_bolt(
        &self,
        base: &Build,
        bolt: &Bolt,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
    ) -> Result<Lookup<CachedBoltProfile>, BuildError> {
        let key = format!("{} {} {}", base.fingerprint, bolt.version, trained_on.whole);
        let check = |about: &mut About, folder: &Path| {
            about.check(folder, &base.fingerprint, &base.artifact)
        };
        let found = self.lookup_with(&key, trained_on, cancel, on_wait, &check)?;
        Ok(found.map(|held| CachedBoltProfile::new(held, base, bolt)))
    }
}

impl CollectionLock {
    /// Makes an instrumented copy of a build that was linked for BOLT. `None` if `cancel` is set
    /// meanwhile.
    pub fn begin_bolt(
        self,
        base: &Build,
        bolt: &Bolt,
        writer: Option<ProfileWriter>,
        cancel: &AtomicBool,
    ) -> Result<Option<BoltCollection>, BuildError> {
        let raw = self.empty_raw()?;
        let counts = Raw { path: raw.join("counts"), writer };
        let instrumented = Build {
            instrumented: true,
            artifact: raw.join(base.system.artifact()),
            ..base.clone()
        };
        let left_alone = transactional_of(base)?;
        let (base, bolt) = (base.clone(), bolt.clone());
        let mut collecting =
            BoltCollection { lock: self, raw, counts, base, bolt, instrumented, left_alone };
        Ok(collecting.instrument(cancel)?.then_some(collecting))
    }

    /// Stores the profile of a sampled build that was linked for BOLT. Runs BOLT once to find the
    /// functions that it must skip. `None` if `cancel` is set meanwhile.
    pub fn store_bolt_samples(
        self,
        base: &Build,
        bolt: &Bolt,
        sampled: &BoltSamples,
        cancel: &AtomicBool,
    ) -> Result<Option<CachedBoltProfile>, BuildError> {
        let raw = self.empty_raw()?;
        let data = raw.join(PROFILE);
        fs::write(&data, &sampled.text).map_err(io_error("making", &data))?;
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
        let raw = self.making.raw();
        let _ = fs::remove_dir_all(&raw);
        open_folder(&raw).map_err(io_error("making", &raw))?;
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
        let sha256 = Sha256::of_file(data).map_err(io_error("reading", data))?;
        let about = About {
            base: base.fingerprint,
            artifact_sha256: base.artifact_sha256,
            bolt: bolt.version.clone(),
            trained_on: self.trained_on.words.clone(),
            left_alone,
            samples: samples.map(|(count, _)| count),
            sha256,
        };
        let part = self.making.begin()?;
        let write = || {
            fs::copy(data, part.join(PROFILE))?;
            fs::write(part.join(ALONE), as_patterns(&about.left_alone))?;
            samples.map_or(Ok(()), |(_, for_live)| fs::write(part.join(SAMPLES), for_live))
        };
        write().map_err(io_error("writing the profile to", &part))?;
        Ok(CachedBoltProfile::new(self.making.publish(&part, about)?, base, bolt))
    }
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
    pub const fn instrumented(&self) -> &Build {
        &self.instrumented
    }

    /// Discards what was collected so far. No instrumented program may be running.
    pub fn discard(&self) -> Result<(), BuildError> {
        self.counts.empty()
    }

    /// Stores the profile that the program wrote at exit.
    ///
    /// All processes of the program count in shared memory; the last one to exit, a server's main
    /// process, writes the total.
    pub fn finish(self) -> Result<CachedBoltProfile, BuildError> {
        let (counts, data) = (&self.counts.path, self.raw.join(PROFILE));
        // The directory belongs to the user that the program ran as.
        let copied = SafeDir::open(counts)
            .and_then(|counts| counts.copy(Path::new(PROFILE), &data, 0o644, LARGEST));
        let size = match copied {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Bytes::default(),
            copied => copied.map_err(io_error("taking the profile in", counts))?,
        };
        if size == Bytes::default() {
            let reason = "there is no raw data: the instrumented program did not exit normally";
            return Err(BuildError::profile(&self.base, &self.raw, reason));
        }
        self.lock.store_bolt(&self.base, &self.bolt, &data, self.left_alone, None)
    }

    /// Makes the instrumented copy; false if `cancel` was set meanwhile.
    fn instrument(&mut self, cancel: &AtomicBool) -> Result<bool, BuildError> {
        let program = &self.instrumented.artifact;
        let making = |error| BuildError::io("making", program, &error);
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
        open_to_all(&self.raw).map_err(making)?;
        // From here on, another user can write to it.
        self.counts.empty()?;
        Ok(true)
    }
}

fn transactional_of(base: &Build) -> Result<Vec<String>, BuildError> {
    let names = transactional(&base.artifact);
    names.map_err(|error| BuildError::unusable(base, &base.artifact, error))
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
        let making = |error| BuildError::io("making", made, &error);
        let log_file = folder.join("log.txt");
        loop {
            fs::write(folder.join(ALONE), as_patterns(&left_alone)).map_err(making)?;
            let log = File::create(&log_file).map_err(making)?;
            let mut command = clean_command(&bolt.path);
            command.args(arguments).process_group(0);
            command.stdout(log.try_clone().map_err(making)?).stderr(log);
            let running = Running::new(command.spawn().map_err(making)?);
            let Some(status) = wait(running, cancel, || {}).map_err(making)? else {
                return Ok(None);
            };
            if status.success() && made.is_file() {
                return Ok(Some(left_alone));
            }
            let log_text = fs::read_to_string(&log_file).unwrap_or_default();
            match not_followed(&log_text) {
                Some(name) if !left_alone.contains(&name) => left_alone.push(name),
                _ => {
                    let (path, log) = (bolt.path.display(), last_lines(&log_text));
                    let reason = format!("{path} refused it ({status}):\n{log}");
                    return Err(BuildError::unusable(base, &base.artifact, reason));
                }
            }
        }
    }
}

/// Creates the directory `to` with the files of `from`, without the file `except`, which BOLT
/// writes. Files are hard links where the file system supports it, otherwise copies.
pub(crate) fn link_all(from: &Path, to: &Path, except: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        let meta = fs::symlink_metadata(&path)?;
        if path == except {
            continue;
        } else if meta.is_dir() {
            link_all(&path, &target, except)?;
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path)?, &target)?;
        } else {
            fs::hard_link(&path, &target).or_else(|_| fs::copy(&path, &target).map(drop))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_files_but_the_excepted_one_are_linked() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("bin")).unwrap();
        for name in ["bin/postgres", "bin/initdb", "version"] {
            fs::write(from.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("initdb", from.join("bin/link")).unwrap();
        link_all(&from, &to, &from.join("bin/postgres")).unwrap();
        assert!(!to.join("bin/postgres").exists());
        assert_eq!(fs::read_to_string(to.join("bin/link")).unwrap(), "bin/initdb");
        assert_eq!(fs::read_to_string(to.join("version")).unwrap(), "version");
    }
}
