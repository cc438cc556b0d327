use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::spawn::free_bytes;
use super::{ServerDir, ServerError};

/// Last lines of a log that go into an error.
const LAST_LINES: usize = 10;

/// Lines before those that call themselves errors, and go into an error too: the first ones,
/// since what follows from the cause comes after it.
const ERROR_LINES: usize = 5;

/// How much of a log is read for them.
const TAIL_BYTES: u64 = 64 << 10;

/// A point in a log: what comes after it is of this start of the server.
#[derive(Clone, Debug)]
pub(crate) struct LogMark {
    file: PathBuf,
    offset: u64,
}

impl LogMark {
    pub(crate) fn at_end_of(file: &Path) -> Self {
        Self { file: file.to_owned(), offset: length(file) }
    }

    /// Bytes in the log now.
    pub(crate) fn length(&self) -> u64 {
        length(&self.file)
    }

    /// The last lines since the mark, and errors before them.
    pub(crate) fn tail(&self) -> String {
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

    /// Whether the program complains that the disk is full.
    pub(crate) fn says_disk_is_full(&self) -> bool {
        let text = self.read();
        let words = [
            "No space left on device",
            "Disk is full",
            "disk full",
            "rror: 28",
            "errno: 28",
            "error 28\n",
            "error number 28 ",
        ];
        words.iter().any(|words| text.contains(words))
    }

    /// The error for what went wrong since the mark in this server_dir.
    pub(crate) fn failure(&self, doing: &str, how: &str, server_dir: &ServerDir) -> ServerError {
        let (doing, tail, log) = (doing.to_owned(), self.tail(), self.file.clone());
        // A program cannot always write down that it could not write.
        let full = free_bytes(server_dir.directory()).is_some_and(|bytes| bytes < 1 << 20);
        if full || self.says_disk_is_full() {
            return ServerError::StorageFull {
                doing,
                directory: server_dir.directory().to_owned(),
                tail,
                log,
            };
        }
        ServerError::Program { doing, how: how.to_owned(), tail, log }
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

/// Whether a line of a server's log says of itself that it is an error.
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
    fn a_tail_has_the_last_lines_since_the_mark() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("server.log");
        std::fs::write(&file, "of an earlier start\n").unwrap();
        let mark = LogMark::at_end_of(&file);
        assert_eq!(mark.tail(), "");
        let lines: String = (1..=40).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&file, format!("of an earlier start\n{lines}")).unwrap();
        let tail = mark.tail();
        assert!(tail.starts_with("line 31\n") && tail.ends_with("line 40"), "{tail}");
        assert!(!mark.says_disk_is_full());
        let cause = "0 [ERROR] No space left on device";
        std::fs::write(&file, format!("of an earlier start\n{cause}\n{lines}")).unwrap();
        assert!(mark.tail().starts_with(&format!("{cause}\n…\nline 31\n")), "{}", mark.tail());
        assert!(mark.says_disk_is_full());
    }
}
