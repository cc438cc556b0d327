use std::io;
use std::sync::Arc;

use dbdyno_units::{Bytes, Nanos};

use super::kept_file::{KeptFile, most_kept};
use crate::clock;
use crate::pin::threads_of;
use crate::proc_stat::{ChildUsage, ProcStat, ticks, unknown_format};
use crate::usage::{Io, field};

/// What one process had spent at one moment.
#[derive(Clone, Debug)]
pub(super) struct Spent {
    pub(super) cpu: Nanos,
    pub(super) user: Nanos,
    pub(super) system: Nanos,
    pub(super) minor_faults: u64,
    pub(super) major_faults: u64,
    pub(super) reaped_children: ChildUsage,
    /// From and to storage; children that ended and were waited for are in it.
    pub(super) io: Option<(Bytes, Bytes)>,
    /// Per live thread, by its number.
    pub(super) switches: Option<Vec<(u32, u64)>>,
}

/// A process whose files are kept open.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: u32,
    /// In ticks since the machine started: tells it from another process of this number.
    pub(super) started: u64,
    stat: KeptFile,
    io: KeptFile,
    threads: Vec<(u32, KeptFile)>,
    last: Option<Arc<Spent>>,
}

/// What all readings share.
#[derive(Debug)]
pub(super) struct Reader {
    buffer: Vec<u8>,
    most_kept: i32,
    switches: SwitchesFrom,
}

/// Where a thread's context switches are read.
///
/// Both count each time that the thread got a CPU or gave it away, and differ by one at most.
/// The first takes a ninth of the second's time, which lists much more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SwitchesFrom {
    Schedstat,
    Status,
}

impl Reader {
    pub(super) fn new() -> Self {
        // Where the kernel keeps no such statistics there is no file, or one with zeros.
        let own = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let switches = match in_schedstat(&own) {
            Some(1..) => SwitchesFrom::Schedstat,
            _ => SwitchesFrom::Status,
        };
        // A status file on a machine with thousands of CPUs has masks of that many bits.
        Self { buffer: vec![0; 16 << 10], most_kept: most_kept(), switches }
    }

    pub(super) fn text(&mut self, file: &mut KeptFile) -> io::Result<String> {
        let bytes = file.read(&mut self.buffer, self.most_kept)?;
        // A program's name may be any bytes.
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

impl Process {
    /// The process, and what its status line says.
    ///
    /// # Errors
    /// There is no such process, or `/proc` shows something unknown.
    pub(super) fn of(pid: u32, reader: &mut Reader) -> io::Result<(Self, ProcStat)> {
        let stat = KeptFile::new(format!("/proc/{pid}/stat"));
        let io = KeptFile::new(format!("/proc/{pid}/io"));
        let mut process = Self { pid, started: 0, stat, io, threads: Vec::new(), last: None };
        let stat = process.stat(reader)?;
        process.started = stat.start_ticks;
        Ok((process, stat))
    }

    /// What its status line says now.
    pub(super) fn stat(&mut self, reader: &mut Reader) -> io::Result<ProcStat> {
        let text = reader.text(&mut self.stat)?;
        ProcStat::parse(&text).ok_or_else(|| unknown_format(&format!("/proc/{}/stat", self.pid)))
    }

    /// Everything beside the CPU time, which was read before: reading the clocks of all processes
    /// comes first, as it takes a tenth of the time.
    pub(super) fn spent(&mut self, cpu: Nanos, reader: &mut Reader) -> io::Result<Arc<Spent>> {
        // Who did not run has done nothing: a file less to read for each idle process.
        if let Some(last) = self.last.as_ref().filter(|last| last.cpu == cpu) {
            return Ok(Arc::clone(last));
        }
        let stat = self.stat(reader)?;
        let io = reader.text(&mut self.io).ok().and_then(|text| Io::parse(&text));
        let spent = Arc::new(Spent {
            cpu,
            user: ticks(stat.user_ticks),
            system: ticks(stat.system_ticks),
            minor_faults: stat.minor_faults,
            major_faults: stat.major_faults,
            reaped_children: stat.reaped_children,
            io: io.map(|io| (io.read_from_storage, io.written_to_storage)),
            switches: self.switches(stat.threads, reader),
        });
        self.last = Some(Arc::clone(&spent));
        Ok(spent)
    }

    pub(super) fn cpu(&self) -> io::Result<Nanos> {
        clock::process_cpu_of(self.pid)
    }

    /// Lets the threads be listed anew at the next reading.
    pub(super) fn forget_threads(&mut self) {
        // The only thread of a process is not replaced by another one.
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
        let file = |thread| KeptFile::new(format!("/proc/{pid}/task/{thread}/{name}"));
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

/// How often the thread was given a CPU: the last of the three numbers.
fn in_schedstat(text: &str) -> Option<u64> {
    text.split_ascii_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // A sleep may be over before it began.
        assert!(grown.0 >= 100, "{grown:?}");
        assert!(grown.0.abs_diff(grown.1) <= 5, "{grown:?}");
    }

    #[test]
    fn threads_that_come_and_go_are_listed_anew() {
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
        // A joined thread may be listed for a moment more.
        let start = clock::monotonic();
        while count(&mut process).contains(&id) {
            assert!(clock::monotonic() - start < Nanos::from_secs(5));
        }
    }
}
