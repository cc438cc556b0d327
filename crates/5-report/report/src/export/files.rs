//! Atomic replacement of a file.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ExportError;

/// Write `text` to a temporary file in `dir`, which is created if missing, and rename it to `name`. A
/// symbolic link of this name is replaced, not followed: somebody else may have created it.
///
/// # Errors
/// The directory or the file cannot be written.
pub fn replace(dir: &Path, name: &str, text: &str) -> Result<PathBuf, ExportError> {
    let path = dir.join(name);
    match write(dir, &path, name, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ExportError::Write { path, source }),
    }
}

fn write(dir: &Path, path: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // The temporary file is removed if anything fails before it is renamed.
    let mut builder = tempfile::Builder::new();
    let prefix = format!(".{name}.");
    builder.prefix(&prefix);
    // Temporary files are private by default; a report should be readable for others, as far as the
    // user's umask permits.
    #[cfg(unix)]
    builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    // Otherwise the new name could refer to an empty file after a system crash.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
