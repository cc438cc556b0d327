use std::path::{Path, PathBuf};

/// Paths in a run directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDirectory(PathBuf);

impl RunDirectory {
    /// The run directory at `path`, which does not have to exist.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The database of the run.
    #[must_use]
    pub fn database(&self) -> PathBuf {
        self.0.join("run.sqlite")
    }

    /// The file that the writer locks.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.0.join("run.lock")
    }

    /// The directory for the data of all instances.
    #[must_use]
    pub fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    /// The directory for the workers' error output.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.0.join("logs")
    }
}
