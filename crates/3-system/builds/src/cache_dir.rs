use std::path::{Path, PathBuf};

use dbdyno_machine::default_cache_path;
use dbdyno_machine::safe_files::{SafeDir, UntrustedDir};

/// The directory of a build cache. What is in it is compiled and executed, so it is checked: nobody
/// but root and the effective user can write to it or replace a component of its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheDir(PathBuf);

/// The directories in a cache.
const FOLDERS: [&str; 9] =
    ["apt", "builds", "downloads", "failed", "locks", "profiles", "releases", "sources", "work"];

impl CacheDir {
    /// Checks the directory, which may be missing; it is created when the first build is made.
    ///
    /// # Errors
    /// Another user can write to it, or to a directory above it or directly in it.
    pub fn open(path: &Path) -> Result<Self, UntrustedDir> {
        // Compilers run in other directories, and write paths without symbolic links into programs.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let path = without_links(&path);
        if SafeDir::open_trusted(&path)?.is_some() {
            for folder in FOLDERS {
                SafeDir::open_trusted(&path.join(folder))?;
            }
        }
        Ok(Self(path))
    }

    /// Opens the directory that the user chose, or the default: see [`default_cache_path`].
    ///
    /// # Errors
    /// The directory is not trusted, or there is no default because the environment has neither
    /// XDG_CACHE_HOME nor HOME.
    pub fn chosen_or_default(chosen: Option<&Path>) -> Result<Self, CacheDirError> {
        let path = match chosen {
            Some(path) => path.to_owned(),
            None => default_cache_path().ok_or(CacheDirError::None)?,
        };
        Ok(Self::open(&path)?)
    }

    /// Its absolute path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// The path without symbolic links; what does not exist is kept.
fn without_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => without_links(parent).join(name),
        _ => path.to_owned(),
    })
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheDirError {
    /// The environment defines no directory.
    #[error(
        "no directory for the build cache: set XDG_CACHE_HOME or HOME to an absolute path, or name \
         a directory with --cache"
    )]
    None,
    /// Another user can write to the directory.
    #[error(transparent)]
    Untrusted(#[from] UntrustedDir),
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, chown};

    use super::*;
    use crate::prerequisites::we_are_root;

    #[test]
    fn cache_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = dir.path().join("cache");
        CacheDir::open(&cache).unwrap();
        fs::create_dir_all(cache.join("sources")).unwrap();
        CacheDir::open(&cache).unwrap();
        for open in [dir.path().to_owned(), cache.clone(), cache.join("sources")] {
            let before = fs::metadata(&open).unwrap().permissions();
            fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
            let error = CacheDir::open(&cache).unwrap_err();
            assert_eq!(error.component, open.canonicalize().unwrap());
            fs::set_permissions(&open, before).unwrap();
        }
        CacheDir::open(&cache).unwrap();
    }

    #[test]
    fn path_of_a_cache_has_no_symbolic_links() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::create_dir(&real).unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let real = real.canonicalize().unwrap();
        assert_eq!(CacheDir::open(&link).unwrap().path(), real);
        assert_eq!(CacheDir::open(&link.join("new/cache")).unwrap().path(), real.join("new/cache"));
    }

    #[test]
    fn cache_of_another_user_is_refused() {
        if !we_are_root() {
            // Only root can give files away.
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir_all(theirs.join("dbdyno")).unwrap();
        chown(&theirs, Some(65534), Some(65534)).unwrap();
        for path in [theirs.join("dbdyno"), theirs.join("missing")] {
            let error = CacheDir::open(&path).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }
}
