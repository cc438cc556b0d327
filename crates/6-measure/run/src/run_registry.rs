//! The registry of runs: the run directories that this user made on this machine, or trusts.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dbdyno_machine::safe_files::{SafeDir, UntrustedDir};
use dbdyno_types::RunId;
use dbdyno_units::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};
use rustix::process::geteuid;

/// The mode of the registry's directory.
const MODE: u32 = 0o700;

/// The limit for the size of an entry, which contains a path.
const MAX_ENTRY: Bytes = Bytes::from_kib(8);

/// How long an entry is kept although its path does not exist: the run may have been moved.
const KEEP_MOVED: Duration = Duration::from_secs(90 * 24 * 60 * 60);

/// Old entries are not removed from a registry with more than this.
const MAX_ENTRIES: usize = 100_000;

/// The registry of runs, a directory with a file for each.
///
/// The name of a file is the run's id, which is stored in the run, with the inode number of the run
/// directory and the time of its creation. So a run directory may be moved, but a copy of it, which
/// somebody could have changed, is not registered. The content is the path of the run directory.
pub(crate) struct RunRegistry {
    directory: PathBuf,
}

/// A run could not be registered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RegistryError {
    /// Others could have written the registry.
    #[error(transparent)]
    Untrusted(#[from] UntrustedDir),
    /// A file could not be read or written.
    #[error("registering the run: {0}")]
    Io(#[from] io::Error),
}

impl RunRegistry {
    /// The registry of this user; `None` if the environment defines no directory for it.
    pub fn of_user() -> Option<Self> {
        let (xdg, home) = (std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"));
        let directory = directory_from(xdg, home, geteuid().is_root())?;
        Some(Self { directory })
    }

    /// Whether the run directory is registered. A registry that others could have written is ignored.
    pub fn contains(&self, run: &Path, id: &RunId) -> bool {
        let entry = || {
            let registry = SafeDir::open_trusted(&self.directory)?;
            let name = entry_name(run, id)?;
            Ok(registry.is_some_and(|registry| registry.read(&name, MAX_ENTRY).is_ok()))
        };
        entry().unwrap_or_else(|error: RegistryError| {
            tracing::warn!(%error, "cannot read the registry of runs");
            false
        })
    }

    /// Registers a run directory, and removes old entries of those that do not exist any more.
    ///
    /// # Errors
    /// The registry cannot be written, or others could write to it.
    pub fn add(&self, run: &Path, id: &RunId) -> Result<(), RegistryError> {
        let registry = SafeDir::create_trusted(&self.directory, MODE)?;
        remove_stale(&registry, SystemTime::now() - KEEP_MOVED);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        let entry = registry.open_beneath(&entry_name(run, id)?, flags, Mode::RUSR | Mode::WUSR)?;
        let path = run.canonicalize()?;
        Ok(fs::File::from(entry).write_all(path.as_os_str().as_encoded_bytes())?)
    }
}

fn entry_name(run: &Path, id: &RunId) -> io::Result<PathBuf> {
    let metadata = fs::metadata(run)?;
    // Some file systems do not store it.
    let created = metadata.created().ok();
    let created = created.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    Ok(PathBuf::from(format!("{}-{}-{}", id.as_str(), metadata.ino(), created.as_nanos())))
}

/// Removes entries from before `limit` whose path does not exist. Errors are ignored: the entries
/// stay.
fn remove_stale(registry: &SafeDir, limit: SystemTime) {
    for entry in registry.walk(MAX_ENTRIES).unwrap_or_default() {
        let file =
            registry.file(&entry.path, MAX_ENTRY).and_then(|file| file.metadata()?.modified());
        if !file.is_ok_and(|modified| modified < limit) {
            continue;
        }
        let Ok(content) = registry.read(&entry.path, MAX_ENTRY) else { continue };
        let run = PathBuf::from(<OsString as std::os::unix::ffi::OsStringExt>::from_vec(content));
        let gone = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        if fs::symlink_metadata(run).is_err_and(gone) {
            let _ = unlinkat(registry, &entry.path, AtFlags::empty());
        }
    }
}

/// `$XDG_STATE_HOME/dbdyno/runs`; else for root `/var/lib/dbdyno/runs`, for other users
/// `~/.local/state/dbdyno/runs`. Relative paths are ignored, as the specification requires.
fn directory_from(xdg: Option<OsString>, home: Option<OsString>, root: bool) -> Option<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|p| p.is_absolute());
    let own = || match root {
        true => Some(PathBuf::from("/var/lib")),
        false => absolute(home).map(|home| home.join(".local/state")),
    };
    absolute(xdg).or_else(own).map(|base| base.join("dbdyno/runs"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn id(byte: u8) -> RunId {
        RunId::from_random([byte; 16])
    }

    fn entries(registry: &RunRegistry) -> usize {
        fs::read_dir(&registry.directory).unwrap().count()
    }

    #[test]
    fn moved_directory_stays_registered_and_a_copy_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("state/runs") };
        let (run, moved, copy) =
            (dir.path().join("run"), dir.path().join("moved"), dir.path().join("copy"));
        fs::create_dir(&run).unwrap();
        let (id, other) = (id(1), id(2));
        assert!(!registry.contains(&run, &id));
        registry.add(&run, &id).unwrap();
        assert!(registry.contains(&run, &id) && !registry.contains(&run, &other));
        fs::create_dir(&copy).unwrap();
        assert!(!registry.contains(&copy, &id));
        fs::rename(&run, &moved).unwrap();
        registry.add(&copy, &other).unwrap();
        assert!(registry.contains(&moved, &id));
    }

    #[test]
    fn old_entries_of_removed_runs_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("runs") };
        let add = |name: &str| {
            let run = dir.path().join(name);
            fs::create_dir(&run).unwrap();
            registry.add(&run, &id(1)).unwrap();
        };
        add("a");
        add("b");
        for entry in fs::read_dir(&registry.directory).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path()).unwrap();
            file.set_modified(UNIX_EPOCH).unwrap();
        }
        add("c");
        for name in ["a", "c"] {
            fs::remove_dir(dir.path().join(name)).unwrap();
        }
        add("d");
        assert_eq!(entries(&registry), 3, "b exists, and c is new");
    }

    #[test]
    fn registry_that_others_can_write_to_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let registry = RunRegistry { directory: dir.path().join("runs") };
        let (run, id) = (dir.path().join("run"), id(1));
        fs::create_dir(&run).unwrap();
        registry.add(&run, &id).unwrap();
        fs::set_permissions(&registry.directory, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(!registry.contains(&run, &id) && registry.add(&run, &id).is_err());
    }

    #[test]
    fn directory_depends_on_the_environment() {
        let of = |xdg: Option<&str>, home: Option<&str>, root| {
            directory_from(xdg.map(OsString::from), home.map(OsString::from), root)
        };
        let path = |text| Some(PathBuf::from(text));
        assert_eq!(of(None, Some("/root"), true), path("/var/lib/dbdyno/runs"));
        assert_eq!(of(Some("/s"), Some("/root"), true), path("/s/dbdyno/runs"));
        assert_eq!(of(Some("s"), Some("/h"), false), path("/h/.local/state/dbdyno/runs"));
        assert_eq!(of(None, None, false), None);
    }
}
