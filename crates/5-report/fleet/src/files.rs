//! Files on a shared file system: replaced as a whole, created once.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::controller::StoreError;

/// Replaces a file: after a kill or on a full disk there is the old or the new one.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    let write = || {
        remove(&new)?;
        let mut file = create_new(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(|source| {
        // What is left of it would only take space. The first error is the one to report.
        let _ = fs::remove_file(&new);
        StoreError { path: path.to_owned(), source }
    })
}

/// Replaces a file by a value as JSON.
pub(crate) fn replace_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_vec_pretty(value);
    let text = text.map_err(|error| StoreError { path: path.to_owned(), source: error.into() })?;
    replace(path, &text)
}

/// Creates a file that must not exist: of several processes on any machines, one succeeds.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    File::options().write(true).create_new(true).custom_flags(flags).open(path)
}

/// Reads a file without following a link of its name.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    io::read_to_string(file)
}

/// Reads a value; `None` if there is none, or it is damaged or of another version.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    let text = read(path).ok()?;
    serde_json::from_str(&text)
        .inspect_err(|error| tracing::warn!(path = %path.display(), %error, "damaged file"))
        .ok()
}

pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
