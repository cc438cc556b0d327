//! Replacing a file whole.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::ExportError;

/// Writes `text` to a temporary file in `dir` and renames it to `name`.
pub(super) fn replace(dir: &Path, name: &str, text: &str) -> Result<PathBuf, ExportError> {
    let path = dir.join(name);
    match write(dir, &path, name, text) {
        Ok(()) => Ok(path),
        Err(source) => Err(ExportError::Write { path, source }),
    }
}

fn write(dir: &Path, path: &Path, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(dir)?;
    // The file removes itself if anything fails before it is renamed.
    let mut builder = tempfile::Builder::new();
    let prefix = format!(".{name}.");
    builder.prefix(&prefix);
    // A temporary file is private by default; a report is for others to read, as far as the
    // user's umask allows.
    #[cfg(unix)]
    builder.permissions(<Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o666));
    let mut file = builder.tempfile_in(dir)?;
    file.write_all(text.as_bytes())?;
    // Without this a crash of the machine could leave the new name with nothing in it.
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}
