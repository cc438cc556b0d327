use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use dbdyno_machine::FileSystemSpace;
use dbdyno_units::Bytes;

use super::ServerError;

/// Last lines of a log in an error message.
const LAST_LINES: usize = 10;

/// Error lines before those: the first ones, because the cause comes first.
const ERROR_LINES: usize = 5;

/// With less free space than this the disk counts as full.
const MIN_FREE: Bytes = Bytes::from_mib(1);

/// How much of a log is read.
const TAIL_BYTES: u64 = 64 << 10;

/// How servers report a full disk.
const FULL_DISK_MESSAGES: [&str; 7] = [
    "No space left on device",
    "Disk is full",
    "disk full",
    "rror: 28",
    "errno: 28",
    "error 28\n",
    "error number 28 ",
];

/// A position in a log: text after it is from the current start of the server.
#[derive(Clone, Debug)]
pub(crate) struct LogPosition {
    file: PathBuf,
    offset: u64,
}

impl LogPosition {
    pub(crate) fn at_end_of(file: &Path) -> Self {
        Self { file: file.to_owned(), offset: length(file) }
    }

    /// The log's length now, in bytes.
    pub(crate) fn length(&self) -> u64 {
        length(&self.file)
    }

    /// Whether the log reports a full disk.
    pub(crate) fn is_disk_full(&self) -> bool {
        let text = self.read();
        FULL_DISK_MESSAGES.iter().any(|message| text.contains(message))
    }

    /// The error for a program that failed since this position; `directory` is on the disk that it
    /// writes to.
    pub(crate) fn failure(&self, doing: &str, how: &str, directory: &Path) -> ServerError {
        let (doing, tail, log) = (doing.to_owned(), self.tail(), Some(self.file.clone()));
        // With a full disk the program could not always log it.
        let full = FileSystemSpace::of(directory).is_ok_and(|space| space.free < MIN_FREE);
        if full || self.is_disk_full() {
            return ServerError::StorageFull { doing, directory: directory.to_owned(), tail, log };
        }
        ServerError::Program { doing, how: how.to_owned(), tail, log }
    }

    /// The last lines since the position, and error lines before them.
    fn tail(&self) -> String {
        let text = self.read();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let (before, last) = lines.split_at(lines.len().saturating_sub(LAST_LINES));
        let errors = before.iter().filter(|line| is_error(line)).take(ERROR_LINES);
        let mut chosen: Vec<&str> = errors.copied().collect();
        if !chosen.is_empty() {
            chosen.push("…");
        }
        chosen.extend(last);
        chosen.join("\n")
    }

    fn read(&self) -> String {
        String::from_utf8_lossy(&self.read_bytes().unwrap_or_default()).into_owned()
    }

    fn read_bytes(&self) -> io::Result<Vec<u8>> {
        let mut file = File::open(&self.file)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(self.offset.max(end.saturating_sub(TAIL_BYTES)).min(end)))?;
        let mut text = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut text)?;
        Ok(text)
    }
}

fn is_error(line: &str) -> bool {
    ["[ERROR]", "ERROR:", "FATAL:", "PANIC:"].iter().any(|word| line.contains(word))
}

fn length(file: &Path) -> u64 {
    std::fs::metadata(file).map_or(0, |metadata| metadata.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_has_the_last_lines_since_the_position() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.log");
        std::fs::write(&file, "of an earlier start\n").unwrap();
        let position = LogPosition::at_end_of(&file);
        assert_eq!(position.tail(), "");
        let lines: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, format!("of an earlier start\n{lines}")).unwrap();
        let tail = position.tail();
        assert!(tail.starts_with("line 31\n") && tail.ends_with("line 40"), "{tail}");
        assert!(!position.is_disk_full());
        let cause = "0 [ERROR] No space left on device";
        std::fs::write(&file, format!("of an earlier start\n{cause}\n{lines}")).unwrap();
        let tail = position.tail();
        assert!(tail.starts_with(&format!("{cause}\n…\nline 31\n")), "{tail}");
        assert!(position.is_disk_full());
    }
}
