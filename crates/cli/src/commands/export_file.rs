//! Files that users name for exports.

use std::path::Path;

use dbdyno_report::export;

use crate::error::CliError;

/// Checks that a file can be written, before anything is measured or read.
pub fn check(file: &Path) -> Result<(), CliError> {
    let directory = directory_of(file);
    let reason = if file.is_dir() {
        "is a directory; name a file in it"
    } else if file.file_name().and_then(|name| name.to_str()).is_none() {
        "cannot be the name of a file"
    } else if !directory.is_dir() {
        "is in a directory that does not exist; create it first"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!("{} {reason}", file.display())))
}

/// Replaces the file.
pub fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    export::replace(directory_of(file), name, text)?;
    Ok(())
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}
