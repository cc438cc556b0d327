//! Sources of systems: origins, fetching, versions.

mod bundled;
mod debian;
mod git;
mod history;
mod recognise;
mod store;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use crate::lock::Lock;
use crate::{BuildError, Sha256, SourceOrigin, System};

pub use history::{Commit, CommitRange, HistoryError, RangeRequest};
pub use store::Sources;

/// The source of one version of a system, on this machine.
#[derive(Clone, Debug)]
pub struct Source {
    system: System,
    version: String,
    sha256: Sha256,
    origin: SourceOrigin,
    revision: Option<String>,
    content: Content,
}

/// The location of the files.
#[derive(Clone, Debug)]
enum Content {
    /// Part of this program.
    Bundled,
    /// In a directory of the user.
    Folder(PathBuf),
    /// In a directory of the cache, locked against removal.
    Cached {
        /// The directory.
        folder: PathBuf,
        _lock: Arc<Lock>,
    },
}

impl Source {
    /// The bundled SQLite amalgamation.
    #[must_use]
    pub fn bundled_sqlite() -> Self {
        Self {
            system: System::Sqlite,
            version: bundled::VERSION.to_owned(),
            sha256: bundled::sha256(),
            origin: SourceOrigin::Bundled,
            revision: None,
            content: Content::Bundled,
        }
    }

    /// The system.
    #[must_use]
    pub const fn system(&self) -> System {
        self.system
    }

    /// The name of the system.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.system.name()
    }

    /// The version stated in the source.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The origin.
    #[must_use]
    pub const fn origin(&self) -> &SourceOrigin {
        &self.origin
    }

    /// The revision: a commit, or a package's version.
    #[must_use]
    pub fn revision(&self) -> Option<&str> {
        self.revision.as_deref()
    }

    /// The checksum: of the amalgamation's `sqlite3.c`, of the tarball, of the `.dsc` file of a
    /// Debian source package (which contains those of its files), or of all files of a directory
    /// with their names.
    #[must_use]
    pub const fn sha256(&self) -> &Sha256 {
        &self.sha256
    }

    /// The directory of the user that has not the content any more for which the checksum was computed;
    /// `None` for one that has, and for sources in the cache.
    pub(crate) fn edited(&self) -> Result<Option<&Path>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let sha256 = tree::sha256(folder)
            .map_err(|error| BuildError::io("reading the source in", folder, error))?;
        Ok((sha256 != self.sha256).then_some(folder))
    }

    /// When a file in the user's directory was last changed; `None` for sources in the cache.
    pub(crate) fn last_change(&self) -> Result<Option<SystemTime>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let last = tree::last_change(folder);
        let last = last.map_err(|error| BuildError::io("reading the source in", folder, error))?;
        Ok(Some(last))
    }

    /// The directory with the source. The bundled source is unpacked into a directory below `dir`,
    /// named by version and checksum; its path does not change, so that paths in debug information
    /// remain valid.
    ///
    /// # Errors
    /// When the directory cannot be written.
    pub fn unpack(&self, dir: &Path) -> Result<PathBuf, BuildError> {
        match &self.content {
            Content::Bundled => bundled::unpack(dir),
            Content::Folder(folder) | Content::Cached { folder, .. } => Ok(folder.clone()),
        }
    }
}
