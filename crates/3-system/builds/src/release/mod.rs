//! Compiled releases of servers: Debian's packages and the makers' archives, unpacked into the cache.

mod debian;
mod loader;
mod program;
mod relocation;
mod store;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use dbdyno_types::{ReleaseFile, ReleaseOrigin};

use crate::System;
use crate::lock::Lock;

pub use debian::suites;
pub use store::Releases;
pub(crate) use store::describe;

/// A compiled release on this machine.
#[derive(Clone, Debug)]
pub struct Release {
    system: System,
    origin: ReleaseOrigin,
    /// The directory that it was unpacked into.
    folder: PathBuf,
    program: PathBuf,
    files: Vec<ReleaseFile>,
    _lock: Arc<Lock>,
}

impl Release {
    /// The system.
    #[must_use]
    pub const fn system(&self) -> System {
        self.system
    }

    /// Where it is from.
    #[must_use]
    pub const fn origin(&self) -> &ReleaseOrigin {
        &self.origin
    }

    /// The server program.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The packages or the archive that it consists of; the one with the server program comes first.
    #[must_use]
    pub fn files(&self) -> &[ReleaseFile] {
        &self.files
    }
}
