use std::path::{Path, PathBuf};

/// The layout of a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// The run directory at `path`, whether it exists or not.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The directory itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The database that holds the run.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.0.join("run.sqlite")
    }

    /// The file that is locked by whoever writes.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }

    /// The data of all instances.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// The error output of all workers.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
}
