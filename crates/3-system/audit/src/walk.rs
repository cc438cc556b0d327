//! Search for compiled files in a directory.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::AuditError;
use crate::read::FileKind;

/// Directories in which build tools test the compiler.
const TRIALS: [&str; 5] =
    ["CMakeScratch", "CMakeTmp", "CompilerIdC", "CompilerIdCXX", "meson-private"];

/// The compiled files in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Objects and archives of objects, by name.
    pub objects: Vec<PathBuf>,
    /// Programs and shared libraries, by name.
    pub linked: Vec<PathBuf>,
}

/// Searches a directory recursively, without following symbolic links. Skips files that are removed
/// meanwhile, as in a running build. What cannot be read otherwise is listed with the objects, since it may be
/// or contain one.
///
/// # Errors
/// When the directory itself cannot be read.
pub fn find(directory: &Path) -> Result<Found, AuditError> {
    let mut found = Found::default();
    let entries = fs::read_dir(directory).map_err(|error| AuditError::read(directory, error))?;
    let mut waiting = vec![entries];
    while let Some(entries) = waiting.pop() {
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() {
                let is_trial = TRIALS.iter().any(|trial| entry.file_name() == *trial);
                if !is_trial {
                    match fs::read_dir(&path) {
                        Ok(entries) => waiting.push(entries),
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(_) => found.objects.push(path),
                    }
                }
            } else if kind.is_file() {
                match FileKind::of(&path) {
                    Ok(Some(FileKind::Object | FileKind::Archive)) => found.objects.push(path),
                    Ok(Some(FileKind::Linked)) => found.linked.push(path),
                    Ok(None) => {}
                    Err(error) if error.kind() == ErrorKind::NotFound => {}
                    Err(_) => found.objects.push(path),
                }
            }
        }
    }
    found.objects.sort();
    found.linked.sort();
    Ok(found)
}
