//! Resource usage of a process and all its descendants.

mod process;
mod usage;

use std::fs;
use std::io;

use dbdyno_units::{Bytes, Nanos};
use process::{CachedFile, Process, Reader};
use rustix::thread::gettid;
use usage::Member;

use crate::clock;
use crate::proc_stat::{field, read_lossy, tick};

pub use usage::{ProcessTreeDelta, ProcessTreeUsage};

/// A process and its descendants, such as a server with a process per connection.
///
/// A reading takes 1 µs per process that has not run since the last reading, and about 15 µs per
/// process that has, plus up to 4 µs per thread. Files stay open for this: three per process, one
/// per thread.
///
/// New processes are searched for only if the kernel has assigned new process IDs, and only among
/// these; in containers that hide the last assigned ID, among all processes in each reading. Reading
/// every process's children would take longer, and not every kernel supports it. A descendant whose
/// parent ends stays in the tree; one whose parent ended before the descendant was found is missed.
#[derive(Debug)]
pub struct ProcessTree {
    root: Process,
    descendants: Vec<Process>,
    reader: Reader,
    /// The file with the last assigned process ID; `None` if it has another number.
    load: Option<CachedFile>,
    /// The last assigned process ID at the last search, and the time of the last full search.
    listed: (Option<u32>, Nanos),
}

/// A reading is repeated if processes ended during it.
const ATTEMPTS: u32 = 3;

/// Interval of full searches: process IDs may have wrapped around.
const ALL_LISTED_EVERY: Nanos = Nanos::from_secs(5);

impl ProcessTree {
    /// The process `root` with all current and future descendants.
    pub fn of(root: u32) -> io::Result<Self> {
        Self::with_load(root, "/proc/loadavg")
    }

    /// As [`ProcessTree::of`], with this file instead of `/proc/loadavg`.
    fn with_load(root: u32, load: &str) -> io::Result<Self> {
        let mut reader = Reader::new();
        let load = CachedFile::new(load.to_owned());
        // Before the first reading: this starts a thread.
        let load = with_own_ids(load, &mut reader);
        let (root, _) = Process::of(root, &mut reader).map_err(|error| about(root, &error))?;
        let mut tree =
            Self { root, descendants: Vec::new(), reader, load, listed: (None, Nanos::ZERO) };
        tree.find_descendants()?;
        Ok(tree)
    }

    /// Reads the usage of all processes.
    ///
    /// The CPU clocks of all processes are read first, in one pass; the rest takes longer.
    pub fn read(&mut self) -> io::Result<ProcessTreeUsage> {
        let mut attempt = 1;
        loop {
            let (usage, quiet) = self.read_once().map_err(|error| about(self.root.pid, &error))?;
            if quiet || attempt == ATTEMPTS {
                return Ok(usage);
            }
            attempt += 1;
        }
    }

    /// The process IDs of the tree at the last reading, first that of the root.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(&self.root).chain(&self.descendants).map(|process| process.pid)
    }

    /// Resident memory: the sum of the processes' private memory, plus the largest shared memory of
    /// any of them, since the processes of a server share the same memory. `None` if unknown.
    pub fn resident(&self) -> Option<Bytes> {
        let processes = std::iter::once(&self.root).chain(&self.descendants);
        let mut own = 0;
        let (mut files, mut shared) = (0, 0);
        let mut known = false;
        for process in processes {
            let status = match read_lossy(&format!("/proc/{}/status", process.pid)) {
                // The process may end meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                status => status.ok()?,
            };
            let Some(anonymous) = field(&status, "RssAnon:") else { continue };
            known = true;
            own += anonymous;
            files = files.max(field(&status, "RssFile:").unwrap_or(0));
            shared = shared.max(field(&status, "RssShmem:").unwrap_or(0));
        }
        known.then(|| Bytes::from_kib(own + files + shared))
    }

    /// A reading, and whether no process ended during it: an ended one may be counted twice, as
    /// itself and as an ended child of its parent.
    fn read_once(&mut self) -> io::Result<(ProcessTreeUsage, bool)> {
        let at = clock::boottime().as_nanos() / tick().as_nanos();
        // Every process has page faults, so this increases with each reaped child.
        let faults = self.root.stat(&mut self.reader)?.reaped_children.minor_faults;
        self.find_descendants()?;
        let root_cpu = self.root.cpu()?;
        let clocks: Vec<_> = self.descendants.iter().map(Process::cpu).collect();

        let mut clocks = clocks.into_iter();
        let before = self.descendants.len();
        let mut members = Vec::with_capacity(before + 1);
        let reader = &mut self.reader;
        self.descendants.retain_mut(|process| {
            let cpu = clocks.next().and_then(Result::ok);
            let Some(spent) = cpu.and_then(|cpu| process.spent(cpu, reader).ok()) else {
                return false;
            };
            members.push(Member { pid: process.pid, started: process.started, spent });
            true
        });
        let ended = self.descendants.len() < before;
        let spent = self.root.spent(root_cpu, reader)?;
        let waited = self.root.stat(reader)?.reaped_children.minor_faults != faults;
        members.push(Member { pid: self.root.pid, started: self.root.started, spent });
        members.sort_unstable_by_key(|member| member.pid);
        Ok((ProcessTreeUsage { at, members }, !ended && !waited))
    }

    fn find_descendants(&mut self) -> io::Result<()> {
        let now = clock::monotonic();
        let newest = self.load.as_mut().and_then(|load| newest_id(load, &mut self.reader));
        let (known, listed) = self.listed;
        let all_listed = match (known, newest) {
            (Some(known), Some(newest)) if now - listed < ALL_LISTED_EVERY => {
                if newest == known {
                    return Ok(());
                }
                self.list_descendants(|pid| is_assigned_in(pid, known, newest))?;
                listed
            }
            _ => {
                self.list_descendants(|_| true)?;
                now
            }
        };
        self.listed = (newest, all_listed);
        Ok(())
    }

    fn list_descendants(&mut self, may_be_new: impl Fn(u32) -> bool) -> io::Result<()> {
        self.root.forget_threads();
        self.descendants.iter_mut().for_each(Process::forget_threads);
        let mut candidates = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if !may_be_new(pid) || self.knows(pid) {
                continue;
            }
            // Ignore processes that end meanwhile.
            let Ok((process, stat)) = Process::of(pid, &mut self.reader) else { continue };
            candidates.push((stat.parent, process));
        }
        // A child may be listed before its parent is known to be in the tree.
        loop {
            let (found, others): (Vec<_>, Vec<_>) =
                candidates.into_iter().partition(|(parent, _)| self.knows(*parent));
            if found.is_empty() {
                return Ok(());
            }
            self.descendants.extend(found.into_iter().map(|(_, process)| process));
            candidates = others;
        }
    }

    fn knows(&self, pid: u32) -> bool {
        pid == self.root.pid || self.descendants.iter().any(|process| process.pid == pid)
    }
}

/// The file if its number is the last ID of this process's own threads and processes: containers may
/// show that of the host (lxcfs), or always 0 (gVisor).
fn with_own_ids(mut load: CachedFile, reader: &mut Reader) -> Option<CachedFile> {
    let before = newest_id(&mut load, reader)?;
    let id = std::thread::Builder::new().spawn(gettid).ok()?.join().ok()?;
    let id = id.as_raw_nonzero().get().cast_unsigned();
    let after = newest_id(&mut load, reader)?;
    (id != before && is_assigned_in(id, before, after)).then_some(load)
}

/// The last assigned process or thread ID: the last field of `/proc/loadavg`.
fn newest_id(load: &mut CachedFile, reader: &mut Reader) -> Option<u32> {
    let text = reader.text(load).ok()?;
    text.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Whether an ID is from `first` to `last`. IDs are assigned in ascending order and wrap around at the
/// maximum.
const fn is_assigned_in(id: u32, first: u32, last: u32) -> bool {
    id.wrapping_sub(first) <= last.wrapping_sub(first)
}

fn about(root: u32, error: &io::Error) -> io::Error {
    let text = format!("reading the usage of process {root} and its descendants: {error}");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    use super::*;

    /// A shell that runs commands. Dropping it kills it and its children.
    struct Shell {
        child: Child,
        input: ChildStdin,
        output: BufReader<ChildStdout>,
    }

    impl Shell {
        fn start() -> Self {
            let mut child = Command::new("sh")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .process_group(0)
                .spawn()
                .unwrap();
            let input = child.stdin.take().unwrap();
            let output = BufReader::new(child.stdout.take().unwrap());
            Self { child, input, output }
        }

        /// Runs a line and returns the first line of its output.
        fn run(&mut self, line: &str) -> String {
            writeln!(self.input, "{line}").unwrap();
            let mut answer = String::new();
            self.output.read_line(&mut answer).unwrap();
            answer.trim_end().to_owned()
        }
    }

    impl Drop for Shell {
        fn drop(&mut self) {
            // SAFETY: takes numbers; the child has not been waited for, so its number, which is
            // that of its process group, is not reused.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }

    const BUSY: &str = "while :; do :; done";

    fn sleep(millis: u64) {
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }

    /// Reads until the CPU time since `before` exceeds `millis`; the wall-clock time for this
    /// depends on other load.
    fn read_after(
        tree: &mut ProcessTree,
        before: &ProcessTreeUsage,
        millis: u64,
    ) -> ProcessTreeUsage {
        let start = clock::monotonic();
        loop {
            sleep(20);
            let now = tree.read().unwrap();
            let used = now.since(before);
            if used.cpu > Nanos::from_millis(millis) {
                return now;
            }
            assert!(clock::monotonic() - start < Nanos::from_secs(30), "{used:?}");
        }
    }

    #[test]
    fn touched_memory_is_resident() {
        let tree = ProcessTree::of(std::process::id()).unwrap();
        let before = tree.resident().unwrap();
        let memory = vec![1_u8; 64 << 20];
        std::hint::black_box(&memory);
        let grown = tree.resident().unwrap().as_bytes().saturating_sub(before.as_bytes());
        assert!(grown > 48 << 20, "{grown}");
    }

    #[test]
    fn descendants_count_from_their_start() {
        let mut shell = Shell::start();
        let mut tree = ProcessTree::of(shell.child.id()).unwrap();
        let before = tree.read().unwrap();
        assert_eq!(before.since(&before).processes, 1);
        shell.run(&format!("sh -c 'sh -c \"{BUSY}\" & wait' & echo"));
        let middle = read_after(&mut tree, &before, 150);
        let used = middle.since(&before);
        assert_eq!(used.processes, 3, "{used:?}");
        // They are not read at one moment.
        assert!(used.user + used.system <= used.cpu + Nanos::from_millis(50), "{used:?}");
        assert!(used.minor_faults > 50, "{used:?}");
        assert!(used.context_switches > Some(3), "{used:?}");
        assert!(used.written_to_storage.is_some(), "{used:?}");

        let used = read_after(&mut tree, &middle, 50).since(&middle);
        assert_eq!(used.processes, 3, "{used:?}");
        assert!(used.minor_faults < 50, "{used:?}");
    }

    #[test]
    fn child_is_found_at_once_where_the_last_id_is_not_that_of_this_container() {
        let directory = tempfile::tempdir().unwrap();
        let load = directory.path().join("loadavg");
        for number in [0, 4_000_000] {
            fs::write(&load, format!("0.00 0.00 0.00 1/1 {number}\n")).unwrap();
            let mut shell = Shell::start();
            let load = load.to_str().unwrap();
            let mut tree = ProcessTree::with_load(shell.child.id(), load).unwrap();
            let child: u32 = shell.run("sleep 60 & echo $!").parse().unwrap();
            tree.read().unwrap();
            assert!(tree.pids().any(|pid| pid == child), "{number}");
            assert_eq!(tree.pids().next(), Some(shell.child.id()));
        }
    }

    #[test]
    fn ids_wrap_around_at_the_maximum() {
        assert!(is_assigned_in(7, 5, 7) && is_assigned_in(5, 5, 7));
        assert!(!is_assigned_in(4, 5, 7) && !is_assigned_in(8, 5, 7));
        assert!(is_assigned_in(32_767, 32_760, 310) && is_assigned_in(300, 32_760, 310));
        assert!(!is_assigned_in(311, 32_760, 310) && !is_assigned_in(32_759, 32_760, 310));
    }

    #[test]
    fn ended_child_counts_its_usage_since_the_earlier_reading() {
        let mut shell = Shell::start();
        let mut tree = ProcessTree::of(shell.child.id()).unwrap();
        let first = tree.read().unwrap();
        // Started and ended between two readings.
        shell.run("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3'; echo $?");
        let second = tree.read().unwrap();
        let short_life = second.since(&first);
        assert_eq!(short_life.processes, 1);
        assert!(short_life.cpu >= Nanos::from_millis(30), "{short_life:?}");
        assert!(short_life.minor_faults > 30, "{short_life:?}");

        // Running at one reading, ended at the next.
        let child = shell.run(&format!("sh -c '{BUSY}' & echo $!"));
        read_after(&mut tree, &second, 150);
        let start = clock::monotonic();
        let third = tree.read().unwrap();
        let seen = third.since(&second);
        assert_eq!(seen.processes, 2);
        assert_eq!(shell.run(&format!("kill -9 {child}; wait {child}; echo gone")), "gone");
        let fourth = tree.read().unwrap();
        let ended = fourth.since(&third);
        assert_eq!(ended.processes, 1);
        // Usage before the earlier reading is not counted again.
        let possible = (clock::monotonic() - start).times(2) + Nanos::from_millis(40);
        assert!(ended.cpu < possible, "{ended:?} in {possible}");
        assert!(ended.minor_faults < seen.minor_faults, "{ended:?} after {seen:?}");
        // Nothing is lost over all readings.
        let all = fourth.since(&first).cpu + Nanos::from_millis(20);
        assert!(all >= short_life.cpu + seen.cpu, "{all} {short_life:?} {seen:?}");
    }

    #[test]
    fn idle_tree_uses_nothing() {
        let mut shell = Shell::start();
        shell.run("sleep 60 & echo");
        let mut tree = ProcessTree::of(shell.child.id()).unwrap();
        let nothing = ProcessTreeDelta {
            context_switches: Some(0),
            read_from_storage: Some(Bytes::from_bytes(0)),
            written_to_storage: Some(Bytes::from_bytes(0)),
            processes: 2,
            ..ProcessTreeDelta::default()
        };
        // After the shell has started to wait for input and its child to sleep.
        let start = clock::monotonic();
        loop {
            let before = tree.read().unwrap();
            sleep(20);
            let used = tree.read().unwrap().since(&before);
            if used == nothing {
                return;
            }
            assert!(clock::monotonic() - start < Nanos::from_secs(30), "{used:?}");
        }
    }

    #[test]
    fn threads_of_a_process_are_summed() {
        // This process; other tests may add to it.
        let mut tree = ProcessTree::of(std::process::id()).unwrap();
        let before = tree.read().unwrap();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let (end, until_read) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            for _ in 0..50 {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            let start = clock::thread_cpu();
            while clock::thread_cpu() - start < Nanos::from_millis(20) {}
            drop(done);
            // The switches of a thread that ended are not counted.
            until_read.recv().unwrap_err();
        });
        wait.recv().unwrap_err();
        let used = tree.read().unwrap().since(&before);
        drop(end);
        assert!(used.cpu >= Nanos::from_millis(20), "{used:?}");
        assert!(used.context_switches >= Some(50), "{used:?}");
        thread.join().unwrap();
    }

    #[test]
    fn writes_are_counted_once_if_the_writer_ends() {
        // Next to this program: /tmp may be a file system in memory.
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let file = directory.path().join("file");
        let mut shell = Shell::start();
        let mut tree = ProcessTree::of(shell.child.id()).unwrap();
        let first = tree.read().unwrap();
        let write = "dd if=/dev/zero bs=1048576 count=4 2>&1 >> FILE | tail -n 1 > /dev/null";
        let write = write.replace("FILE", &file.display().to_string());
        let child = shell.run(&format!("sh -c '{write}; echo $$; read line' & "));
        let second = tree.read().unwrap();
        let alive = second.since(&first);
        shell.run(&format!("kill -9 {child}; wait {child}; echo gone"));
        let ended = tree.read().unwrap().since(&second);
        let mib = |used: &ProcessTreeDelta| used.written_to_storage.unwrap().as_bytes() >> 20;
        assert_eq!((mib(&alive), mib(&ended)), (4, 0), "{alive:?} {ended:?}");
    }

    #[test]
    fn ended_root_is_an_error_with_its_id() {
        let shell = Shell::start();
        let pid = shell.child.id();
        let mut tree = ProcessTree::of(pid).unwrap();
        drop(shell);
        let error = tree.read().unwrap_err().to_string();
        assert!(error.contains(&format!("process {pid} ")), "{error}");
        assert!(ProcessTree::of(i32::MAX.cast_unsigned()).is_err());
    }
}
