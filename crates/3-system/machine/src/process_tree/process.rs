use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use dbdyno_units::{Bytes, Nanos};
use rustix::process::{Resource, getrlimit};

use crate::clock;
use crate::cpus::threads_of;
use crate::proc_stat::{ProcStat, field, unknown_format};

/// Usage of one process since its start.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    pub(super) cpu: Nanos,
    pub(super) stat: ProcStat,
    /// Bytes read from and written to storage, including reaped children.
    pub(super) io: Option<(Bytes, Bytes)>,
    /// Context switches per live thread, with its ID.
    pub(super) switches: Option<Vec<(u32, u64)>>,
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// Start time in clock ticks since boot, which differs for a later process with the same ID.
    pub(super) started: u64,
    stat: CachedFile,
    io: CachedFile,
    threads: Vec<(u32, CachedFile)>,
    last: Option<Arc<Spent>>,
}

/// Buffer and settings that all readings share.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    max_descriptor: i32,
    switches: SwitchesFrom,
}

/// The file with a thread's context switches.
///
/// The two counts differ by one at most. `schedstat` takes a ninth of the time of `status`, which
/// has much more content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchesFrom {
    Schedstat,
    Status,
}

impl Reader {
    pub(super) fn new() -> Self {
        // Without kernel support there is no file, or one with zeros.
        let own = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let switches = match in_schedstat(&own) {
            Some(1..) => SwitchesFrom::Schedstat,
            _ => SwitchesFrom::Status,
        };
        // With thousands of CPUs a status file has masks of as many bits.
        Self { buffer: vec![0; 16 << 10], max_descriptor: max_descriptor(), switches }
    }

    pub(super) fn text(&mut self, file: &mut CachedFile) -> io::Result<String> {
        let bytes = file.read(&mut self.buffer, self.max_descriptor)?;
        // The program's name may not be UTF-8.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Process {
    pub(super) fn of(pid: u32, reader: &mut Reader) -> io::Result<(Self, ProcStat)> {
        let stat = CachedFile::new(format!("/proc/{pid}/stat"));
        let io = CachedFile::new(format!("/proc/{pid}/io"));
        let mut process = Self { pid, started: 0, stat, io, threads: Vec::new(), last: None };
        let stat = process.stat(reader)?;
        process.started = stat.start_ticks;
        Ok((process, stat))
    }

    pub(super) fn stat(&mut self, reader: &mut Reader) -> io::Result<ProcStat> {
        let text = reader.text(&mut self.stat)?;
        ProcStat::parse(&text).ok_or_else(|| unknown_format(&format!("/proc/{}/stat", self.pid)))
    }

    /// Usage with the CPU time `cpu`, which is read before for all processes, since that takes a
    /// tenth of the time.
    pub(super) fn spent(&mut self, cpu: Nanos, reader: &mut Reader) -> io::Result<Arc<Spent>> {
        // Without CPU time since the last reading nothing has changed: no need to read the files.
        if let Some(last) = self.last.as_ref().filter(|last| last.cpu == cpu) {
            return Ok(Arc::clone(last));
        }
        let stat = self.stat(reader)?;
        // A file that is not kept open may be that of a later process with the same ID.
        if stat.start_ticks != self.started {
            return Err(io::ErrorKind::NotFound.into());
        }
        let io = reader.text(&mut self.io).ok().and_then(|text| storage_io(&text));
        let switches = self.switches(stat.threads, reader);
        let spent = Arc::new(Spent { cpu, stat, io, switches });
        self.last = Some(Arc::clone(&spent));
        Ok(spent)
    }

    pub(super) fn cpu(&self) -> io::Result<Nanos> {
        clock::process_cpu_of(self.pid)
    }

    /// Has the next reading list the threads again.
    pub(super) fn forget_threads(&mut self) {
        // A single thread is the main thread, which is never replaced.
        if self.threads.len() > 1 {
            self.threads.clear();
        }
    }

    fn switches(&mut self, threads: u64, reader: &mut Reader) -> Option<Vec<(u32, u64)>> {
        if u64::try_from(self.threads.len()) != Ok(threads) {
            self.list_threads(threads, reader.switches).ok()?;
        }
        let from = reader.switches;
        let mut unknown = false;
        let mut counts = Vec::with_capacity(self.threads.len());
        self.threads.retain_mut(|(thread, file)| {
            let Ok(text) = reader.text(file) else { return false }; // It ended.
            match from.parse(&text) {
                Some(count) => counts.push((*thread, count)),
                None => unknown = true,
            }
            true
        });
        (!unknown).then_some(counts)
    }

    fn list_threads(&mut self, threads: u64, from: SwitchesFrom) -> io::Result<()> {
        let name = from.file();
        let pid = self.pid;
        let file = |thread| CachedFile::new(format!("/proc/{pid}/task/{thread}/{name}"));
        let now = if threads == 1 { vec![pid] } else { threads_of(pid)? };
        self.threads.retain(|(thread, _)| now.contains(thread));
        for thread in now {
            if !self.threads.iter().any(|(known, _)| *known == thread) {
                self.threads.push((thread, file(thread)));
            }
        }
        Ok(())
    }
}

/// Bytes read from and written to storage, in `/proc/PID/io`.
fn storage_io(text: &str) -> Option<(Bytes, Bytes)> {
    let bytes = |name| field(text, name).map(Bytes::from_bytes);
    Some((bytes("read_bytes:")?, bytes("write_bytes:")?))
}

impl SwitchesFrom {
    const fn file(self) -> &'static str {
        match self {
            Self::Schedstat => "schedstat",
            Self::Status => "status",
        }
    }

    fn parse(self, text: &str) -> Option<u64> {
        match self {
            Self::Schedstat => in_schedstat(text),
            Self::Status => Some(
                field(text, "voluntary_ctxt_switches:")?
                    .saturating_add(field(text, "nonvoluntary_ctxt_switches:")?),
            ),
        }
    }
}

/// The number of times that the thread was scheduled: the last of three numbers.
fn in_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

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
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn storage_io_needs_both_counts() {
        let text = "rchar: 10\nwchar: 20\nread_bytes: 4096\nwrite_bytes: 8192\n";
        assert_eq!(storage_io(text), Some((Bytes::from_kib(4), Bytes::from_kib(8))));
        assert_eq!(storage_io("read_bytes: 10\n"), None);
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,200}", name in "[a-z_]{0,8}:") {
            let _ = (storage_io(&text), field(&text, &name));
        }
    }

    #[test]
    fn both_sources_count_the_same_switches() {
        let read = |from: SwitchesFrom| {
            let path = format!("/proc/thread-self/{}", from.file());
            from.parse(&std::fs::read_to_string(path).unwrap()).unwrap()
        };
        let before = (read(SwitchesFrom::Schedstat), read(SwitchesFrom::Status));
        for _ in 0..200 {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        let after = (read(SwitchesFrom::Schedstat), read(SwitchesFrom::Status));
        let grown = (after.0 - before.0, after.1 - before.1);
        // A sleep may end before the thread is descheduled.
        assert!(grown.0 >= 100, "{grown:?}");
        assert!(grown.0.abs_diff(grown.1) <= 5, "{grown:?}");
    }

    #[test]
    fn later_process_with_the_same_id_is_not_read() {
        let mut reader = Reader { max_descriptor: 0, ..Reader::new() };
        let (mut process, _) = Process::of(std::process::id(), &mut reader).unwrap();
        assert!(process.spent(Nanos::from_nanos(1), &mut reader).is_ok());
        process.started -= 1;
        let error = process.spent(Nanos::from_nanos(2), &mut reader).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn started_and_ended_threads_are_listed_again() {
        let mut reader = Reader::new();
        let (mut process, _) = Process::of(std::process::id(), &mut reader).unwrap();
        let mut count = |process: &mut Process| {
            process.forget_threads();
            let cpu = process.cpu().unwrap();
            let spent = process.spent(cpu, &mut reader).unwrap();
            spent.switches.as_ref().unwrap().iter().map(|(thread, _)| *thread).collect::<Vec<_>>()
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing and returns a number.
            tell.send(unsafe { libc::gettid() }.cast_unsigned()).unwrap();
            wait.recv().unwrap_err();
        });
        let id = told.recv().unwrap();
        assert!(count(&mut process).contains(&id));
        drop(end);
        thread.join().unwrap();
        // A joined thread may still be listed for a moment.
        let start = clock::monotonic();
        while count(&mut process).contains(&id) {
            assert!(clock::monotonic() - start < Nanos::from_secs(60));
        }
    }

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
