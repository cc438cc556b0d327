use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_record::server::{ServerSystem, StorageEngine};
use dbdyno_units::Bytes;
use sha2::Digest;

use super::error::system;
use super::program::program;
use super::{ServerError, spawn};

/// A server's program on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installation {
    /// Which system it is.
    pub system: ServerSystem,
    /// The server's program, links followed.
    pub program: PathBuf,
    /// Its version, as it prints it itself, such as `10.11.19-MariaDB`.
    pub version: String,
    /// Size of the program's file.
    pub file_size: Bytes,
    /// SHA-256 of the program's file, 64 hexadecimal digits.
    pub sha256: String,
    pub(crate) parts: Parts,
}

/// What belongs to a server's program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts {
    /// The program that makes a data directory.
    pub(crate) initialiser: PathBuf,
    /// Where plugins lie, where that must be told.
    pub(crate) plugins: Option<PathBuf>,
}

impl Installation {
    /// Finds the program of `system` where packages and their makers put it, or takes the one
    /// that is `named`; and what of it the storage engine needs.
    ///
    /// # Errors
    /// It is not there, and then the Debian package is named; or it is something else.
    pub fn find(
        wanted: ServerSystem,
        engine: Option<StorageEngine>,
        named: Option<&Path>,
    ) -> Result<Self, ServerError> {
        let kind = program(wanted);
        let file = match named {
            Some(named) => named.to_owned(),
            None => search(kind.names(), &kind.directories()).ok_or_else(|| {
                ServerError::NotInstalled {
                    what: format!("{}'s server program {}", wanted.title(), kind.names()[0]),
                    looked: format!("looked in PATH and in {}", listed(&kind.directories())),
                    package: kind.package(),
                    advice: ", or name the program in the experiment",
                }
            })?,
        };
        // The link's target decides: Debian's `mysqld` is a link to MariaDB.
        let file = file.canonicalize().map_err(system("looking for the server program", &file))?;
        let unsuitable =
            |message| ServerError::Unsuitable { program: file.clone(), system: wanted, message };
        let version = kind.version(&printed_version(&file)?).map_err(unsuitable)?;
        tracing::info!(program = %file.display(), version, "found a server program");
        let parts = kind.parts(&file, engine)?;
        let (file_size, sha256) =
            measure(&file).map_err(system("reading the server program", &file))?;
        Ok(Self { system: wanted, program: file, version, file_size, sha256, parts })
    }
}

fn printed_version(file: &Path) -> Result<String, ServerError> {
    let mut command = Command::new(file);
    command.arg("--version");
    spawn::clean_environment(&mut command);
    let output = command.output().map_err(system("running with --version", file))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The first of these programs in the directories of `PATH`, then in `directories`.
pub(crate) fn search(names: &[&str], directories: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all: Vec<PathBuf> =
        std::env::split_paths(&path).chain(directories.iter().cloned()).collect();
    names.iter().find_map(|name| {
        all.iter().map(|directory| directory.join(name)).find(|file| is_program(file))
    })
}

/// Whether the file is there and can be executed.
pub(crate) fn is_program(file: &Path) -> bool {
    std::fs::metadata(file)
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// These directories in one line.
pub(crate) fn listed(directories: &[PathBuf]) -> String {
    let names: Vec<_> = directories.iter().map(|path| path.as_os_str()).collect();
    names.join(OsStr::new(", ")).to_string_lossy().into_owned()
}

fn measure(file: &Path) -> io::Result<(Bytes, String)> {
    let mut file = File::open(file)?;
    let mut hasher = sha2::Sha256::new();
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
