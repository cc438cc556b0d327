use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use dbdyno_record::server::ServerSystem;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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

/// Size and SHA-256 of a file.
pub(crate) fn size_and_sha256(file: &Path) -> io::Result<(Bytes, String)> {
    let mut file = File::open(file)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut size = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => {
                hasher.update(&buffer[..n]);
                size += n as u64;
            }
        }
    }
    let sha256 = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    Ok((Bytes::from_bytes(size), sha256))
}
