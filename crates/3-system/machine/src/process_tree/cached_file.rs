use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::process::{Resource, getrlimit};

/// A file of `/proc` that is kept open for repeated reading, since opening takes longer than
/// reading.
///
/// An open file below `/proc/PID` belongs to that process: after its end reading fails, even if the
/// process ID is in use again.
#[derive(Debug)]
pub(super) struct CachedFile {
    path: String,
    file: Option<File>,
}

impl CachedFile {
    pub(super) const fn new(path: String) -> Self {
        Self { path, file: None }
    }

    /// The current content, truncated to the buffer's size.
    pub(super) fn read<'a>(
        &mut self,
        buffer: &'a mut [u8],
        max_descriptor: i32,
    ) -> io::Result<&'a [u8]> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        let length = file.read_at(buffer, 0)?;
        // The caller needs descriptors for its connections too.
        if file.as_raw_fd() < max_descriptor {
            self.file = Some(file);
        }
        Ok(&buffer[..length])
    }
}

/// The highest descriptor to keep open: half of this process's limit.
pub(super) fn max_descriptor() -> i32 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.and_then(|limit| i32::try_from(limit / 2).ok()).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_current_content_whether_kept_open_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for most in [0, i32::MAX] {
            let mut buffer = [0; 16];
            let mut file = CachedFile::new(path.display().to_string());
            std::fs::write(&path, "one").unwrap();
            assert_eq!(file.read(&mut buffer, most).unwrap(), b"one");
            assert_eq!(file.file.is_some(), most > 0);
            std::fs::write(&path, "three").unwrap();
            assert_eq!(file.read(&mut buffer, most).unwrap(), b"three");
        }
    }

    #[test]
    fn reading_a_file_of_an_ended_process_fails() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut file = CachedFile::new(format!("/proc/{}/stat", child.id()));
        let mut buffer = [0; 4096];
        assert!(!file.read(&mut buffer, i32::MAX).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file.read(&mut buffer, i32::MAX).is_err());
    }
}
