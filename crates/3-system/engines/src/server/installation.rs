use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dbdyno_types::server::ServerSystem;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

/// A server program on this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installation {
    /// The database system.
    pub system: ServerSystem,
    /// The server program, links resolved.
    pub program: PathBuf,
    /// Its version as printed, such as `10.11.19-MariaDB`.
    pub version: String,
    /// Size of the program file.
    pub file_size: Bytes,
    /// SHA-256 of the program file, 64 hexadecimal digits.
    pub sha256: String,
    pub(crate) files: ProgramFiles,
}

/// Files that belong to a server program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProgramFiles {
    /// The program that creates a data directory.
    pub(crate) init_program: PathBuf,
    /// The plugin directory, if the server must be configured with it.
    pub(crate) plugin_dir: Option<PathBuf>,
}

/// The first program with one of these names, in the order of the names; searches `PATH`, then
/// `directories`.
pub(crate) fn search(names: &[&str], directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> =
        std::env::split_paths(&path).chain(directories.iter().cloned()).collect();
    names.iter().find_map(|name| {
        all.iter().map(|directory| directory.join(name)).find(|file| is_executable(file))
    })
}

/// Whether the file exists and is executable.
pub(crate) fn is_executable(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// Paths joined by commas.
pub(crate) fn join_paths(paths: &[PathBuf]) -> String {
    let names: Vec<_> = paths.iter().map(|path| path.as_os_str()).collect();
    names.join(OsStr::new(", ")).to_string_lossy().into_owned()
}
