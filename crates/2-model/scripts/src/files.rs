//! Files that a script changes while nothing is executed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf, absolute};

/// What is in place of the files that a script has changed: files without a name, which only this recording reads.
/// `None` for those that it has removed.
#[derive(Debug, Default)]
pub struct RecordedFiles(HashMap<PathBuf, Option<File>>);

/// What a script does to a file: the prelude has the same numbers.
const REMOVE: i32 = 1;
const REPLACE: i32 = 2;
const CHANGE: i32 = 3;

/// In place of a descriptor: the file does not exist, or is the one on disk.
pub(crate) const MISSING: i32 = -1;
const UNCHANGED: i32 = -2;

impl RecordedFiles {
    /// The descriptor of what is in place of a file after this access.
    pub(crate) fn access(&mut self, name: &[u8], access: i32) -> i32 {
        let name = Path::new(OsStr::from_bytes(name));
        let path = absolute(name).unwrap_or_else(|_| name.to_owned());
        let exists = matches!(self.0.get(&path), Some(Some(_)));
        let new = match access {
            REMOVE => Some(None),
            REPLACE if !exists => Some(tempfile::tempfile().ok()),
            CHANGE if !self.0.contains_key(&path) => Some(copy(&path).ok()),
            CHANGE if !exists => Some(tempfile::tempfile().ok()),
            _ => None,
        };
        if let Some(new) = new {
            self.0.insert(path.clone(), new);
        }
        match self.0.get(&path) {
            Some(Some(file)) => file.as_raw_fd(),
            Some(None) => MISSING,
            None => UNCHANGED,
        }
    }
}

fn copy(path: &Path) -> io::Result<File> {
    let mut copy = tempfile::tempfile()?;
    // Others, such as pipes, may have no end.
    if path.is_file() {
        io::copy(&mut File::open(path)?, &mut copy)?;
    }
    Ok(copy)
}
