use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::ProcStat;
use crate::proc_stat::ticks;

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
        let now = clock_gettime(ClockId::Boottime);
        let now = Duration::new(now.tv_sec.cast_unsigned(), now.tv_nsec as u32);
        now.saturating_sub(ticks(self.start_ticks).into())
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

    use super::*;

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
