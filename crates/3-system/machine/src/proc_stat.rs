//! Processes in `/proc`: their status lines, and their identity.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use dbdyno_units::Nanos;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::clock::boottime;

/// Fields of `/proc/PID/stat` or `/proc/PID/task/TID/stat`; see proc_pid_stat(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcStat {
    /// The state as one letter, such as `S` for sleeping or `Z` for a zombie.
    pub state: u8,
    pub parent: u32,
    /// The kernel's flags (`PF_*` in `linux/sched.h`).
    pub flags: u64,
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// Usage of ended children that were waited for, including their own such children.
    pub(crate) reaped_children: ChildUsage,
    pub(crate) threads: u64,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Start addresses of code and stack; zeros if this user may not trace the process.
    pub image: (u64, u64),
}

/// What ended children used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChildUsage {
    pub(crate) minor_faults: u64,
    pub(crate) major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
}

impl ProcStat {
    /// Reads the fields of a process.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is no such process, [`io::ErrorKind::InvalidData`] if
    /// the format is unknown.
    pub fn of_process(pid: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/stat"))
    }

    /// Reads the fields of a thread of a process.
    pub fn of_thread(pid: u32, thread: u32) -> io::Result<Self> {
        Self::read(&format!("/proc/{pid}/task/{thread}/stat"))
    }

    fn read(path: &str) -> io::Result<Self> {
        Self::parse(&read_lossy(path)?).ok_or_else(|| unknown_format(path))
    }

    /// Whether the process has ended and only waits to be reaped by its parent. A process whose
    /// main thread has ended but not the others is a zombie, too, with more than one thread.
    pub const fn has_ended(&self) -> bool {
        self.state == b'X' || self.main_thread_has_ended() && self.threads <= 1
    }

    pub(crate) const fn main_thread_has_ended(&self) -> bool {
        self.state == b'Z'
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        // The second field is the program's name in parentheses, which may itself contain spaces
        // and parentheses: count from the last one, where field 3 starts.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = [""; 26];
        for (field, text) in fields.iter_mut().zip(rest.split_ascii_whitespace()) {
            *field = text;
        }
        let number = |position: usize| fields[position - 3].parse().ok();
        Some(Self {
            state: *fields[0].as_bytes().first()?,
            parent: fields[4 - 3].parse().ok()?,
            flags: number(9)?,
            minor_faults: number(10)?,
            major_faults: number(12)?,
            user_ticks: number(14)?,
            system_ticks: number(15)?,
            reaped_children: ChildUsage {
                minor_faults: number(11)?,
                major_faults: number(13)?,
                user_ticks: number(16)?,
                system_ticks: number(17)?,
            },
            threads: number(20)?,
            start_ticks: number(22)?,
            image: (number(26)?, number(28)?),
        })
    }
}

/// The IDs of all processes in `/proc`; none if it cannot be read.
pub fn process_ids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The error for a file of `/proc` that cannot be parsed.
pub(crate) fn unknown_format(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{path} has an unknown format"))
}

/// The duration of a number of clock ticks.
pub(crate) fn ticks(count: u64) -> Nanos {
    tick().times(count)
}

/// The clock tick that `/proc` counts in, mostly 10 ms.
pub(crate) fn tick() -> Nanos {
    Nanos::from_nanos(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
}

/// A file about a process or thread in `/proc`. Its name in there may be cut inside a UTF-8 character.
///
/// # Errors
/// `NotFound` if it has ended.
pub(crate) fn read_lossy(path: &str) -> io::Result<String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        // It ended between the opening and the reading of the file.
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {
            Err(io::ErrorKind::NotFound.into())
        }
        Err(error) => Err(error),
    }
}

/// The number after `name` in the line that starts with it.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A process from its `exec` to its end or its next `exec`.
///
/// Process IDs are reused; the start time, the boot ID and the addresses of code and stack tell
/// one process from a later one with the same ID.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    #[serde(default)]
    pub boot_id: String,
    /// Start addresses of code and stack, which change with each `exec`; zeros if this user may
    /// not trace the process, or if its main thread has ended.
    #[serde(default)]
    pub image: (u64, u64),
}

impl ProcessIdentity {
    /// The running process with this ID.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if there is none, or if it is a zombie.
    pub fn of(pid: u32) -> io::Result<Self> {
        Self::read(pid).map(|(identity, _)| identity)
    }

    fn read(pid: u32) -> io::Result<(Self, ProcStat)> {
        let stat = ProcStat::of_process(pid)?;
        if stat.has_ended() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let identity = Self {
            pid,
            start_ticks: stat.start_ticks,
            boot_id: boot_id.trim().to_owned(),
            image: stat.image,
        };
        Ok((identity, stat))
    }

    /// Whether the process still runs, with the same program.
    ///
    /// After the end of its main thread, the other threads still run, but the kernel no longer
    /// tells the image. They cannot have executed another program: `exec` replaces the main thread.
    pub fn is_alive(&self) -> bool {
        Self::read(self.pid).is_ok_and(|(mut now, stat)| {
            if stat.main_thread_has_ended() {
                now.image = self.image;
            }
            now == *self
        })
    }

    /// The time since its start.
    pub fn age(&self) -> Duration {
        boottime().saturating_sub(ticks(self.start_ticks)).into()
    }

    /// The path of the program file, as `/proc/PID/exe` has it.
    pub fn program(&self) -> io::Result<PathBuf> {
        fs::read_link(format!("/proc/{}/exe", self.pid))
    }

    /// Sends a signal to exactly this process; does nothing if it has ended.
    ///
    /// The process descriptor is opened before the identity is checked, so a process that gets
    /// the same ID later never receives the signal.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        let pid = Pid::from_raw(self.pid.cast_signed()).ok_or(io::ErrorKind::InvalidInput)?;
        let sent = pidfd_open(pid, PidfdFlags::empty()).and_then(|descriptor| {
            if self.is_alive() { pidfd_send_signal(descriptor, signal) } else { Ok(()) }
        });
        match sent {
            Err(rustix::io::Errno::SRCH) => Ok(()),
            sent => Ok(sent?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_program_names_with_spaces_and_parentheses() {
        let text = "17 (a) R ) (b) S 1 17 17 0 -1 4194304 101 5 7 1 23 45 6 8 20 0 9 0 4711 1 2 \
                    3 4096 5 8192 7";
        let expected = ProcStat {
            state: b'S',
            parent: 1,
            flags: 0x40_0000,
            minor_faults: 101,
            major_faults: 7,
            user_ticks: 23,
            system_ticks: 45,
            reaped_children: ChildUsage {
                minor_faults: 5,
                major_faults: 1,
                user_ticks: 6,
                system_ticks: 8,
            },
            threads: 9,
            start_ticks: 4711,
            image: (4096, 8192),
        };
        assert_eq!(ProcStat::parse(text), Some(expected));
        assert_eq!(ProcStat::parse("17 (a) R 1 2"), None);
    }

    #[test]
    fn reads_processes_and_threads() {
        let pid = std::process::id();
        let process = ProcStat::of_process(pid).unwrap();
        assert!(!process.has_ended());
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert_eq!(ProcStat::of_thread(pid, thread).unwrap().state, b'R');
        let missing = ProcStat::of_process(i32::MAX.cast_unsigned()).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    proptest! {
        #[test]
        fn any_text_parses_or_is_refused(text in "(?s).{0,200}") {
            let _ = ProcStat::parse(&text);
        }

        #[test]
        fn any_text_of_the_right_shape_parses_or_is_refused(
            text in r"[0-9]{1,22} \([ ()a-z]*\) [ 0-9RS-]{0,120}"
        ) {
            let _ = ProcStat::parse(&text);
        }
    }

    #[test]
    fn names_may_be_cut_inside_a_character() {
        // The kernel keeps 15 bytes of the name.
        let thread = std::thread::Builder::new().name("é".repeat(8));
        let status = thread.spawn(|| read_lossy("/proc/thread-self/status").unwrap());
        let status = status.unwrap().join().unwrap();
        assert!(status.contains(char::REPLACEMENT_CHARACTER), "{status}");
        assert!(status.contains("Cpus_allowed_list:"), "{status}");
    }

    #[test]
    fn this_process_is_alive_and_an_earlier_one_with_its_id_is_not() {
        let identity = ProcessIdentity::of(std::process::id()).unwrap();
        assert!(identity.is_alive());
        assert!(identity.image.0 != 0 && identity.image.1 != 0, "{identity:?}");
        assert_eq!(identity.program().unwrap(), std::env::current_exe().unwrap());
        assert!(identity.age() < Duration::from_secs(3_600), "{:?}", identity.age());
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity.clone() };
        assert!(!earlier.is_alive());
        let other_boot = ProcessIdentity { boot_id: "other".into(), ..identity };
        assert!(!other_boot.is_alive());
    }

    /// A forked process whose main thread ends while another one runs, until killed.
    fn fork_without_main_thread() -> u32 {
        // SAFETY: the child runs only this code.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
            // SAFETY: ends this thread only, without running destructors.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        }
        pid.cast_unsigned()
    }

    #[test]
    fn process_without_its_main_thread_is_alive() {
        let pid = fork_without_main_thread();
        let main_has_ended =
            || ProcStat::of_process(pid).is_ok_and(|stat| stat.main_thread_has_ended());
        let before = ProcessIdentity::of(pid).unwrap();
        let start = std::time::Instant::now();
        while !main_has_ended() {
            assert!(start.elapsed().as_secs() < 60, "the main thread has not ended");
            std::thread::yield_now();
        }
        let is_alive = before.is_alive();
        before.signal(Signal::KILL).unwrap();
        // SAFETY: takes a number and a null pointer.
        unsafe { libc::waitpid(pid.cast_signed(), std::ptr::null_mut(), 0) };
        assert!(is_alive);
        assert!(!before.is_alive());
    }

    #[test]
    fn unused_process_id_is_not_found() {
        let error = ProcessIdentity::of(0x7fff_fff0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn signal_reaches_only_the_identified_process() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = ProcessIdentity::of(child.id()).unwrap();
        let earlier = ProcessIdentity { start_ticks: identity.start_ticks - 1, ..identity.clone() };
        earlier.signal(Signal::KILL).unwrap();
        assert!(child.try_wait().unwrap().is_none(), "another process was killed");
        // The identity may be from before the exec of `sleep`.
        ProcessIdentity::of(child.id()).unwrap().signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!identity.is_alive());
        identity.signal(Signal::KILL).unwrap();
    }
}
