//! What a process and all that descend from it have spent: a server of any number of processes.

mod kept_file;
mod process;
mod usage;

use std::fs;
use std::io;

use dbdyno_units::{Bytes, Nanos};

pub use usage::{ProcessTreeDelta, ProcessTreeUsage};

use crate::clock;
use crate::proc_stat::tick;
use crate::usage::field;
use kept_file::KeptFile;
use process::{Process, Reader};
use usage::Member;

/// A process and its descendants, to be read again and again.
///
/// A reading costs a microsecond per process to find that it has not run since the last one, and
/// about 15 per process that has; a process with many threads takes up to four more per thread.
/// Files stay open for this: three per process, one per thread.
///
/// New processes are looked for when the kernel has given out new process numbers, and among
/// these only. Asking every member for its children would take longer, and not every kernel can
/// answer. A descendant that loses its parent stays
/// a member; one that had lost it before it was found never becomes one.
#[derive(Debug)]
pub struct ProcessTree {
    root: Process,
    descendants: Vec<Process>,
    reader: Reader,
    load: KeptFile,
    /// The process number last given out by then, and when all processes were last looked at.
    listed: (Option<u32>, Nanos),
}

/// Readings are repeated when processes ended while they were under way.
const ATTEMPTS: u32 = 3;

/// After this time all processes are looked at in any case: the numbers may have come full circle.
const ALL_LISTED_EVERY: Nanos = Nanos::from_secs(5);

impl ProcessTree {
    /// The process `root` with all its descendants, those to come included.
    ///
    /// # Errors
    /// There is no such process, or `/proc` shows something unknown.
    pub fn of(root: u32) -> io::Result<Self> {
        let mut reader = Reader::new();
        let (root, _) = Process::of(root, &mut reader).map_err(|error| about(root, &error))?;
        let load = KeptFile::new("/proc/loadavg".to_owned());
        let mut family =
            Self { root, descendants: Vec::new(), reader, load, listed: (None, Nanos::ZERO) };
        family.find_descendants()?;
        Ok(family)
    }

    /// Reads what the family has spent.
    ///
    /// The CPU clocks of all processes are read first and in one go; the rest, which takes
    /// longer, follows.
    ///
    /// # Errors
    /// The root has ended; a process that got its number since is not taken for it.
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

    /// The process numbers of the family, as far as they were known at the last reading.
    pub fn pids(&self) -> impl Iterator<Item = u32> {
        std::iter::once(&self.root).chain(&self.descendants).map(|process| process.pid)
    }

    /// Memory in use by the family now: what each process has for itself, and of what is shared
    /// the largest share of any of them, since processes of one server share the same memory.
    /// `None` where the kernel does not tell.
    #[must_use]
    pub fn resident(&self) -> Option<Bytes> {
        let processes = std::iter::once(&self.root).chain(&self.descendants);
        let mut own = 0;
        let (mut files, mut shared) = (0, 0);
        let mut known = false;
        for process in processes {
            // One that ends at this moment has no memory any more.
            let Ok(status) = fs::read_to_string(format!("/proc/{}/status", process.pid)) else {
                continue;
            };
            let Some(anonymous) = field(&status, "RssAnon:") else { continue };
            known = true;
            own += anonymous;
            files = files.max(field(&status, "RssFile:").unwrap_or(0));
            shared = shared.max(field(&status, "RssShmem:").unwrap_or(0));
        }
        known.then(|| Bytes::from_kib(own + files + shared))
    }

    /// A reading, and whether no process ended meanwhile: one that did may be in it twice, for
    /// itself and among its parent's children that ended.
    fn read_once(&mut self) -> io::Result<(ProcessTreeUsage, bool)> {
        let at = clock::boottime().as_nanos() / tick().as_nanos();
        // Every process that ever ran has had page faults: this grows with each that is waited
        // for.
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
        let newest = self.newest_number();
        let (known, listed) = self.listed;
        let all_listed = match (known, newest) {
            // Numbers are given out in ascending order, and start again at the highest one.
            (Some(known), Some(newest)) if now - listed < ALL_LISTED_EVERY => {
                if newest == known {
                    return Ok(());
                }
                self.list_descendants(|pid| pid.wrapping_sub(known) <= newest.wrapping_sub(known))?;
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

    /// The process or thread number that was given out last.
    fn newest_number(&mut self) -> Option<u32> {
        let text = self.reader.text(&mut self.load).ok()?;
        text.split_ascii_whitespace().next_back()?.parse().ok()
    }

    fn list_descendants(&mut self, may_be_new: impl Fn(u32) -> bool) -> io::Result<()> {
        self.root.forget_threads();
        self.descendants.iter_mut().for_each(Process::forget_threads);
        let mut strangers = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
            if !may_be_new(pid) || self.knows(pid) {
                continue;
            }
            // One that ends at this moment is nobody's loss.
            let Ok((process, stat)) = Process::of(pid, &mut self.reader) else { continue };
            strangers.push((stat.parent, process));
        }
        // A child may be listed before its parent is known to be one of the family.
        loop {
            let (kin, others): (Vec<_>, Vec<_>) =
                strangers.into_iter().partition(|(parent, _)| self.knows(*parent));
            if kin.is_empty() {
                return Ok(());
            }
            self.descendants.extend(kin.into_iter().map(|(_, process)| process));
            strangers = others;
        }
    }

    fn knows(&self, pid: u32) -> bool {
        pid == self.root.pid || self.descendants.iter().any(|process| process.pid == pid)
    }
}

fn about(root: u32, error: &io::Error) -> io::Error {
    let text = format!("reading what process {root} and its children spent: {error}");
    io::Error::new(error.kind(), text)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::CommandExt;
    use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

    use super::*;

    /// A shell that does what it is told, and that takes all its children along at its end.
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

        /// Runs a line and returns the first line that it prints.
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
            // that of its process group, is still its own.
            unsafe { libc::kill(-self.child.id().cast_signed(), libc::SIGKILL) };
            let _ = self.child.wait();
        }
    }

    const BUSY: &str = "while :; do :; done";

    fn sleep(millis: u64) {
        std::thread::sleep(std::time::Duration::from_millis(millis));
    }

    /// Readings until the family has spent that much since `before`: how long this takes depends
    /// on what else runs.
    fn read_after(
        family: &mut ProcessTree,
        before: &ProcessTreeUsage,
        millis: u64,
    ) -> ProcessTreeUsage {
        let start = clock::monotonic();
        loop {
            sleep(20);
            let now = family.read().unwrap();
            let used = now.since(before);
            if used.cpu > Nanos::from_millis(millis) {
                return now;
            }
            assert!(clock::monotonic() - start < Nanos::from_secs(30), "{used:?}");
        }
    }

    #[test]
    fn memory_that_is_touched_is_in_use() {
        let family = ProcessTree::of(std::process::id()).unwrap();
        let before = family.resident().unwrap();
        let memory = vec![1_u8; 64 << 20];
        std::hint::black_box(&memory);
        let grown = family.resident().unwrap().as_bytes().saturating_sub(before.as_bytes());
        assert!(grown > 48 << 20, "{grown}");
    }

    #[test]
    fn a_child_and_its_child_count_from_their_start() {
        let mut shell = Shell::start();
        let mut family = ProcessTree::of(shell.child.id()).unwrap();
        let before = family.read().unwrap();
        assert_eq!(before.since(&before).processes, 1);
        shell.run(&format!("sh -c 'sh -c \"{BUSY}\" & wait' & echo"));
        let middle = read_after(&mut family, &before, 50);
        let used = middle.since(&before);
        assert_eq!(used.processes, 3, "{used:?}");
        assert!(used.user + used.system <= used.cpu + Nanos::from_millis(1), "{used:?}");
        assert!(used.minor_faults > 50, "{used:?}");
        assert!(used.context_switches > Some(3), "{used:?}");
        assert!(used.written_to_storage.is_some(), "{used:?}");

        let used = read_after(&mut family, &middle, 50).since(&middle);
        assert_eq!(used.processes, 3, "{used:?}");
        assert!(used.minor_faults < 50, "{used:?}");
    }

    #[test]
    fn a_child_that_ended_counts_what_it_spent_since() {
        let mut shell = Shell::start();
        let mut family = ProcessTree::of(shell.child.id()).unwrap();
        let first = family.read().unwrap();
        // Born and dead between two readings.
        shell.run("sh -c 'i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; exit 3'; echo $?");
        let second = family.read().unwrap();
        let short_life = second.since(&first);
        assert_eq!(short_life.processes, 1);
        assert!(short_life.cpu >= Nanos::from_millis(30), "{short_life:?}");
        assert!(short_life.minor_faults > 30, "{short_life:?}");

        // Seen, and dead at the next reading.
        let child = shell.run(&format!("sh -c '{BUSY}' & echo $!"));
        read_after(&mut family, &second, 150);
        let start = clock::monotonic();
        let third = family.read().unwrap();
        let seen = third.since(&second);
        assert_eq!(seen.processes, 2);
        assert_eq!(shell.run(&format!("kill -9 {child}; wait {child}; echo gone")), "gone");
        let fourth = family.read().unwrap();
        let ended = fourth.since(&third);
        assert_eq!(ended.processes, 1);
        // What had been seen before does not count again.
        let possible = (clock::monotonic() - start).times(2) + Nanos::from_millis(40);
        assert!(ended.cpu < possible, "{ended:?} in {possible}");
        assert!(ended.minor_faults < seen.minor_faults, "{ended:?} after {seen:?}");
        // Over all readings together nothing is lost.
        let all = fourth.since(&first).cpu + Nanos::from_millis(20);
        assert!(all >= short_life.cpu + seen.cpu, "{all} {short_life:?} {seen:?}");
    }

    #[test]
    fn an_idle_family_spends_nothing() {
        let mut shell = Shell::start();
        shell.run("sleep 60 & echo");
        let mut family = ProcessTree::of(shell.child.id()).unwrap();
        let nothing = ProcessTreeDelta {
            context_switches: Some(0),
            read_from_storage: Some(Bytes::from_bytes(0)),
            written_to_storage: Some(Bytes::from_bytes(0)),
            processes: 2,
            ..ProcessTreeDelta::default()
        };
        // Once the shell waits for its next line, and its child sleeps.
        let start = clock::monotonic();
        loop {
            let before = family.read().unwrap();
            sleep(20);
            let used = family.read().unwrap().since(&before);
            if used == nothing {
                return;
            }
            assert!(clock::monotonic() - start < Nanos::from_secs(30), "{used:?}");
        }
    }

    #[test]
    fn threads_of_one_process_add_up() {
        // This process: other tests may add to it.
        let mut family = ProcessTree::of(std::process::id()).unwrap();
        let before = family.read().unwrap();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            for _ in 0..50 {
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            let start = clock::thread_cpu();
            while clock::thread_cpu() - start < Nanos::from_millis(20) {}
            drop(end);
            sleep(100);
        });
        wait.recv().unwrap_err();
        let used = family.read().unwrap().since(&before);
        assert!(used.cpu >= Nanos::from_millis(20), "{used:?}");
        assert!(used.context_switches >= Some(50), "{used:?}");
        thread.join().unwrap();
    }

    #[test]
    fn writes_are_counted_once_when_their_writer_ends() {
        // Beside this program: memory file systems, such as /tmp may be, are not storage.
        let program = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(program.parent().unwrap()).unwrap();
        let file = directory.path().join("file");
        let mut shell = Shell::start();
        let mut family = ProcessTree::of(shell.child.id()).unwrap();
        let first = family.read().unwrap();
        let write = "dd if=/dev/zero bs=1048576 count=4 2>&1 >> FILE | tail -n 1 > /dev/null";
        let write = write.replace("FILE", &file.display().to_string());
        let child = shell.run(&format!("sh -c '{write}; echo $$; read line' & "));
        let second = family.read().unwrap();
        let alive = second.since(&first);
        shell.run(&format!("kill -9 {child}; wait {child}; echo gone"));
        let ended = family.read().unwrap().since(&second);
        let mib = |used: &ProcessTreeDelta| used.written_to_storage.unwrap().as_bytes() >> 20;
        assert_eq!((mib(&alive), mib(&ended)), (4, 0), "{alive:?} {ended:?}");
    }

    #[test]
    fn a_root_that_ended_is_an_error_that_names_it() {
        let shell = Shell::start();
        let pid = shell.child.id();
        let mut family = ProcessTree::of(pid).unwrap();
        drop(shell);
        let error = family.read().unwrap_err().to_string();
        assert!(error.contains(&format!("process {pid} ")), "{error}");
        assert!(ProcessTree::of(i32::MAX.cast_unsigned()).is_err());
    }
}
