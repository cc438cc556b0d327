//! The cache of profiles.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::files::{Raw, content};
use super::{
    About, Collection, Profile, ProfileWriter, SAMPLED, TrainingId, whole_in, without_profiling,
};
use crate::build_dir::open_folder;
use crate::lock::{Lock, Sharing};
use crate::removal::remove_whole;
use crate::samples::{SampleTools, SampledCode};
use crate::trusted_tree;
use crate::{Build, BuildError, Cache, CacheDir, Sha256};

/// The cached profiles.
///
/// ```text
/// profiles/<key>/data/          the profile
/// profiles/<key>/profile.json   what it was collected from
/// profiles/<key>.part/          an incomplete profile
/// profiles/<key>.raw/           raw data of an instrumented build
/// locks/profile-<key>           lock for collecting, using or removing it
/// ```
#[derive(Clone, Debug)]
pub struct Profiles {
    cache: Cache,
}

/// The result of a lookup.
#[derive(Debug)]
pub enum Lookup<P> {
    /// In the cache; not removed while in use.
    Found(P),
    /// To be collected by the caller. Other processes that look it up wait.
    Missing(CollectionLock),
    /// Cancelled while another process was collecting it.
    Cancelled,
}

/// The exclusive right to collect a profile. Dropping it removes an incomplete profile.
#[derive(Debug)]
pub struct CollectionLock {
    pub(crate) folder: PathBuf,
    pub(crate) trained_on: TrainingId,
    lock: Arc<Lock>,
}

impl Profiles {
    /// The profiles in the cache in this directory.
    #[must_use]
    pub fn new(root: &CacheDir) -> Self {
        Self { cache: Cache::new(root) }
    }

    /// Looks up the profile of a build and a training. While another process collects it, waits and
    /// calls `on_wait` once.
    ///
    /// # Errors
    /// The cache cannot be written to.
    pub fn lookup(
        &self,
        build: &Build,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
    ) -> Result<Lookup<Profile>, BuildError> {
        let key = format!("{} {}", build.fingerprint, trained_on.whole);
        let cached = |folder: &Path, lock| {
            let about = whole_in(folder)?;
            Some(Profile { folder: folder.to_owned(), about, _lock: lock })
        };
        self.lookup_with(&key, trained_on, cancel, on_wait, &cached)
    }

    pub(crate) fn lookup_with<P>(
        &self,
        key: &str,
        trained_on: &TrainingId,
        cancel: &AtomicBool,
        on_wait: &dyn Fn(),
        cached: &dyn Fn(&Path, Arc<Lock>) -> Option<P>,
    ) -> Result<Lookup<P>, BuildError> {
        let key = &Sha256::of(key.as_bytes()).to_string()[..32];
        let folder = self.cache.root().join("profiles").join(key);
        let path = self.cache.profile_lock(key);
        for folder in [&folder, &path].into_iter().filter_map(|path| path.parent()) {
            open_folder(folder).map_err(|error| BuildError::io("creating", folder, error))?;
        }
        let lock = |sharing| {
            let lock = Lock::wait_unless(&path, sharing, cancel, on_wait);
            let lock = lock.map_err(|error| BuildError::io("locking", &path, error));
            lock.map(|lock| lock.map(Arc::new))
        };
        let Some(shared) = lock(Sharing::Shared)? else { return Ok(Lookup::Cancelled) };
        // Profiles of earlier versions may have files with other users' permissions.
        let cached = |lock| match trusted_tree::check(&folder) {
            Ok(()) => cached(&folder, lock),
            Err(_) => None,
        };
        if let Some(profile) = cached(shared) {
            return Ok(Lookup::Found(profile));
        }
        let Some(exclusive) = lock(Sharing::Exclusive)? else { return Ok(Lookup::Cancelled) };
        // It may have been collected before the lock was acquired.
        if let Some(profile) = cached(Arc::clone(&exclusive)) {
            exclusive.share().map_err(|error| BuildError::io("locking", &path, error))?;
            return Ok(Lookup::Found(profile));
        }
        Ok(Lookup::Missing(CollectionLock {
            folder,
            trained_on: trained_on.clone(),
            lock: exclusive,
        }))
    }
}

impl CollectionLock {
    /// Prepares the collection.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn begin<'b>(
        self,
        instrumented: &'b Build,
        writer: Option<ProfileWriter>,
    ) -> Result<Collection<'b>, BuildError> {
        let raw = Raw { path: self.raw(), writer };
        raw.empty()?;
        Ok(Collection { lock: self, raw, instrumented })
    }

    /// Stores the profile of a sampled build.
    ///
    /// # Errors
    /// The samples cannot be converted, or the profile cannot be written.
    pub fn store_samples(
        self,
        build: &Build,
        code: &[SampledCode],
        tools: &SampleTools,
    ) -> Result<Profile, BuildError> {
        let scratch = Raw { path: self.raw(), writer: None };
        scratch.empty()?;
        let data = self.begin_part()?;
        tools.convert(build, code, &scratch.path, &data.join(SAMPLED))?;
        let samples = code.iter().map(|code| code.samples).sum();
        self.store(build, Some(samples))
    }

    /// The directory for raw data.
    pub(crate) fn raw(&self) -> PathBuf {
        PathBuf::from(format!("{}.raw", self.folder.display()))
    }

    pub(crate) fn part(&self) -> PathBuf {
        PathBuf::from(format!("{}.part", self.folder.display()))
    }

    /// Creates the directory for the profile's files.
    pub(super) fn begin_part(&self) -> Result<PathBuf, BuildError> {
        let part = self.part();
        let data = part.join("data");
        let _ = fs::remove_dir_all(&part);
        open_folder(&data).map_err(|error| BuildError::io("making", &data, error))?;
        Ok(data)
    }

    /// Stores the files in `part` as the profile of a build.
    pub(super) fn store(self, build: &Build, samples: Option<u64>) -> Result<Profile, BuildError> {
        let part = self.part();
        let data = part.join("data");
        let about = About {
            system: build.system,
            source_sha256: build.source_sha256,
            compiler: build.compiler.clone(),
            flags: without_profiling(&build.flags),
            trained_on: self.trained_on.words.clone(),
            samples,
            sha256: content(&data).map_err(|error| BuildError::io("reading", &data, error))?,
        };
        let json = part.join("profile.json");
        serde_json::to_vec_pretty(&about)
            .map_err(io::Error::other)
            .and_then(|text| fs::write(&json, text))
            .map_err(|error| BuildError::io("writing", &json, error))?;
        let lock = self.publish()?;
        Ok(Profile { folder: self.folder.clone(), about, _lock: lock })
    }

    /// Renames `part` to the profile's name, and makes the lock shared.
    pub(crate) fn publish(&self) -> Result<Arc<Lock>, BuildError> {
        let folder = &self.folder;
        // An existing directory of that name is incomplete, or there would be no lock to collect
        // it.
        trusted_tree::discard_permissions(&self.part())
            .and_then(|_| remove_whole(folder))
            .and_then(|()| fs::rename(self.part(), folder))
            .and_then(|()| self.lock.share())
            .map_err(|error| BuildError::io("finishing", folder, error))?;
        Ok(Arc::clone(&self.lock))
    }
}

impl Drop for CollectionLock {
    fn drop(&mut self) {
        for incomplete in [self.raw(), self.part()] {
            let _ = fs::remove_dir_all(incomplete);
        }
    }
}
