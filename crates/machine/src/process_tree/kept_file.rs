use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// A file of `/proc` that is read again and again: it stays open, since opening costs more than
/// reading.
///
/// A file below `/proc/PID` that is open belongs to its process for good: once that has ended,
/// reading fails, and never answers for another process that was given the same number.
#[derive(Debug)]
pub(super) struct KeptFile {
    path: String,
    file: Option<File>,
}

impl KeptFile {
    pub(super) const fn new(path: String) -> Self {
        Self { path, file: None }
    }

    /// What the file says now. What does not fit into the buffer is left out.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut [u8], most: i32) -> io::Result<&'a [u8]> {
        let file = match self.file.take() {
            Some(file) => file,
            None => File::open(&self.path)?,
        };
        let length = file.read_at(buffer, 0)?;
        // The caller needs descriptors for its own connections, too.
        if file.as_raw_fd() < most {
            self.file = Some(file);
        }
        Ok(&buffer[..length])
    }
}

/// The number up to which descriptors may be kept: half of what this process may have.
pub(super) fn most_kept() -> i32 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` lives and may be written to.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    i32::try_from(limit.rlim_cur / 2).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_anew_whether_it_stays_open_or_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        for most in [0, i32::MAX] {
            let mut buffer = [0; 16];
            let mut kept = KeptFile::new(path.display().to_string());
            std::fs::write(&path, "one").unwrap();
            assert_eq!(kept.read(&mut buffer, most).unwrap(), b"one");
            assert_eq!(kept.file.is_some(), most > 0);
            std::fs::write(&path, "three").unwrap();
            assert_eq!(kept.read(&mut buffer, most).unwrap(), b"three");
        }
    }

    #[test]
    fn a_process_that_ended_has_nothing_to_say() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut kept = KeptFile::new(format!("/proc/{}/stat", child.id()));
        let mut buffer = [0; 4096];
        assert!(!kept.read(&mut buffer, i32::MAX).unwrap().is_empty());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(kept.read(&mut buffer, i32::MAX).is_err());
    }
}
