//! `owner.json`: the servers that one dbdyno has started, for cleanup after it was killed.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::process::ServerProcess;

/// The lock that the owner holds until it exits.
pub(super) const LOCK: &str = "lock";

/// The file's name.
pub(super) const FILE: &str = "owner.json";

/// Suffix of a directory that is still being created.
pub(super) const INCOMPLETE_SUFFIX: &str = ".new";

/// The content of `owner.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegistryFile {
    /// Boot id: process ids are valid for one boot only.
    pub(super) boot: String,
    pub(super) owner: ServerProcess,
    /// The run's data directory.
    pub(super) data: PathBuf,
    pub(super) servers: Vec<RegisteredServer>,
}

/// A running server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RegisteredServer {
    pub(super) process: ServerProcess,
    /// Its data directory.
    #[serde(rename = "home")]
    pub(super) data: PathBuf,
}

impl RegistryFile {
    /// Reads the file in `directory`; `None` if there is none, it is another user's, or not valid.
    pub(super) fn read(directory: &Path) -> Option<Self> {
        let file = directory.join(FILE);
        let metadata = std::fs::symlink_metadata(&file).ok()?;
        if !metadata.is_file() || metadata.uid() != geteuid().as_raw() {
            return None;
        }
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Replaces the file in `directory`.
    pub(super) fn write(&self, directory: &Path) -> io::Result<()> {
        let temporary = directory.join("owner.json.new");
        std::fs::write(&temporary, serde_json::to_vec_pretty(self)?)?;
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(temporary, directory.join(FILE))
    }
}

/// The id of the machine's current boot.
pub(super) fn boot_id() -> io::Result<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}
