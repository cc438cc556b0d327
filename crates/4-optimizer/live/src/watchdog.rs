//! A process that kills dbdyno if it keeps threads stopped for too long.
//!
//! The kernel resumes stopped threads when dbdyno ends for any reason, but not when dbdyno itself
//! is stopped, for example by Ctrl-Z. The watchdog then kills it: the process can run in every
//! intermediate state, and the journal has what is needed to undo it.

use std::io::{self, PipeWriter, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::LiveError;
use crate::process::on_own_thread;

/// The watchdog of this process. Ends when it is dropped, and when this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// `None` only during drop.
    pipe: Option<PipeWriter>,
    pid: libc::pid_t,
    started: Instant,
    /// Time of the last heartbeat, in milliseconds since `started`.
    last_beat: AtomicU64,
}

/// Minimum limit, because dbdyno itself may wait for a CPU or a disk on a busy machine.
pub(crate) const MIN_LIMIT: Duration = Duration::from_secs(1);
/// Number of equal parts of the limit, of which each has to pass while the watchdog runs. If the whole
/// machine pauses, as a virtual machine does, or the watchdog gets no CPU, only one of them passes
/// meanwhile, and dbdyno has the time of the others for its next heartbeat.
const PARTS: libc::c_int = 4;
/// Minimum interval between heartbeats while threads are stopped one after the other.
const BEAT: Duration = Duration::from_millis(100);

/// Runs `work`, which stops threads of a process, on a separate thread and under a watchdog. `work`
/// must call [`Watchdog::beat`] if it may take longer than the limit.
pub(crate) fn watched<T: Send>(
    pid: u32,
    limit: Duration,
    work: impl FnOnce(&Watchdog) -> Result<T, LiveError> + Send,
) -> Result<T, LiveError> {
    let failed = || LiveError::system("starting a watchdog for", pid);
    let own = std::process::id().cast_signed();
    let watchdog = Watchdog::start(own, limit, libc::STDERR_FILENO).map_err(failed())?;
    let done = on_own_thread(|| {
        watchdog.arm().map_err(failed())?;
        work(&watchdog)
    });
    // If that fails, the watchdog has ended.
    let _ = watchdog.send(DISARM);
    done
}

/// A message to the watchdog: arm, disarm, or the ID and the nice value of a thread whose priority is
/// about to be raised.
type Message = [i32; 2];
const ARM: Message = [-1, 0];
const DISARM: Message = [0, 0];
/// What is written to standard error after dbdyno was killed.
const KILLED: &str = "dbdyno was killed by its watchdog: it kept threads of a process stopped for too long, because it \
                      was stopped itself or got no CPU. The process runs; `dbdyno live undo` restores it\n";
/// Maximum number of threads with a raised priority.
pub(crate) const MAX_RAISED: usize = 1 << 12;

impl Watchdog {
    /// Starts a watchdog that kills process `watched` after this limit, at least [`MIN_LIMIT`], and writes to the file
    /// `messages` that it did.
    fn start(watched: libc::pid_t, limit: Duration, messages: libc::c_int) -> io::Result<Self> {
        let (read, write) = io::pipe()?;
        let millis = limit.max(MIN_LIMIT).as_millis();
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        // SAFETY: the child makes system calls only: no allocation, no lock, no return.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch([read.as_raw_fd(), messages], write.as_raw_fd(), watched, millis),
            _ => Ok(Self {
                pipe: Some(write),
                pid,
                started: Instant::now(),
                last_beat: AtomicU64::new(0),
            }),
        }
    }

    /// Starts or restarts the time.
    fn arm(&self) -> io::Result<()> {
        self.send(ARM)
    }

    /// Restarts the time. May be called often.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if u128::from(now.saturating_sub(self.last_beat.load(Ordering::Relaxed)))
            >= BEAT.as_millis()
        {
            self.last_beat.store(now, Ordering::Relaxed);
            // If that fails, the watchdog has ended.
            let _ = self.arm();
        }
    }

    /// Registers a thread whose priority is about to be raised, with its nice value.
    pub(crate) fn will_raise(&self, tid: i32, nice: i32) -> io::Result<()> {
        self.send([tid, nice])
    }

    fn send(&self, message: Message) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        let [first, second] = message.map(i32::to_ne_bytes);
        // One write, so that the watchdog reads the whole message.
        (&*pipe).write_all([first, second].as_flattened())
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        // SAFETY: takes numbers; the child ends when the pipe is closed, which it just was.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// The watchdog process. Only makes system calls: other threads may have held any lock at the fork.
fn watch(
    [pipe, messages]: [libc::c_int; 2],
    other_end: libc::c_int,
    watched: libc::pid_t,
    millis: libc::c_int,
) -> ! {
    const FOREVER: libc::c_int = -1;
    // SAFETY: system calls with numbers and with live variables; `_exit` ends it.
    unsafe {
        // Signals to all processes of a service or a session, such as those of `systemctl stop`, must not end it
        // before dbdyno.
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        // Detach from the terminal, whose Ctrl-Z must not stop it, and from inherited files.
        libc::setsid();
        // So that the pipe ends when dbdyno ends.
        libc::close(other_end);
        // Neither of the two may be replaced before it is copied.
        let messages = libc::fcntl(messages, libc::F_DUPFD, 2);
        libc::dup2(pipe, 0);
        if libc::dup2(messages, 1) < 0 {
            libc::close(1);
        }
        close_others();
        let (mut timeout, mut parts) = (FOREVER, PARTS);
        let mut raised = [DISARM; MAX_RAISED];
        let mut count = 0;
        let mut killed = false;
        loop {
            let mut ready = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            match libc::poll(&raw mut ready, 1, timeout) {
                0 if parts > 1 => {
                    parts -= 1;
                    continue;
                }
                0 => {
                    killed = libc::kill(watched, libc::SIGKILL) == 0;
                    break;
                }
                1 => {}
                _ => continue,
            }
            let mut message = DISARM;
            let size = size_of::<Message>();
            if libc::read(0, (&raw mut message).cast(), size) != size.cast_signed() {
                break;
            }
            match message {
                ARM => (timeout, parts) = (millis / PARTS, PARTS),
                DISARM => (timeout, count) = (FOREVER, 0),
                _ if count < MAX_RAISED => {
                    raised[count] = message;
                    count += 1;
                }
                _ => {}
            }
        }
        for [tid, nice] in raised.into_iter().take(count) {
            libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice);
        }
        if killed {
            // A terminal or a pipe may be full or gone: nothing depends on it.
            libc::write(1, KILLED.as_ptr().cast(), KILLED.len());
        }
        libc::_exit(0)
    }
}

/// Closes all file descriptors except 0 and 1.
fn close_others() {
    // The limit may be in the billions, but dbdyno opens few files.
    const MAX_FILES: libc::rlim_t = 1 << 16;
    let mut limit = libc::rlimit { rlim_cur: MAX_FILES, rlim_max: MAX_FILES };
    // SAFETY: system calls with numbers and with a live variable.
    unsafe {
        // Missing in Linux before 5.9 and in some system call filters.
        if libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for file in 2..limit.rlim_cur.min(MAX_FILES) {
            libc::close(file as libc::c_int);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;
    use std::sync::mpsc;
    use std::thread;

    use super::*;
    use crate::process::thread_state;

    /// Makes `close_range` fail in this thread and in its children.
    fn without_close_range() {
        const NUMBER: u32 = libc::SYS_close_range as u32;
        let step = |code, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut steps = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, NUMBER),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let filter = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
        // SAFETY: numbers, and a live filter.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
            assert_eq!(libc::syscall(libc::SYS_close_range, 1 << 20, 1 << 20, 0), -1);
        }
    }

    impl Watchdog {
        /// Number of bytes that it has not read.
        fn unread(&self) -> libc::c_int {
            let mut count = -1;
            let pipe = self.pipe.as_ref().unwrap().as_raw_fd();
            // SAFETY: an open pipe and a live variable.
            assert_eq!(unsafe { libc::ioctl(pipe, libc::FIONREAD, &raw mut count) }, 0);
            count
        }
    }

    fn own_pid() -> libc::pid_t {
        std::process::id().cast_signed()
    }

    fn send(pid: libc::pid_t, signal: libc::c_int) {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
    }

    /// A pause of the watchdog, in which dbdyno pauses as well, is like one of the machine.
    #[test]
    fn watchdog_kills_after_its_limit_but_not_after_a_pause_of_the_machine() {
        const LIMIT: Duration = Duration::from_secs(2);
        let mut watched = Command::new("sleep").arg("600").spawn().unwrap();
        let (mut messages, writer) = io::pipe().unwrap();
        let pid = watched.id().cast_signed();
        let watchdog = Watchdog::start(pid, LIMIT, writer.as_raw_fd()).unwrap();
        drop(writer);
        watchdog.arm().unwrap();
        while watchdog.unread() > 0
            || thread_state(watchdog.pid.cast_unsigned(), watchdog.pid) != Some(b'S')
        {
            thread::sleep(Duration::from_millis(1));
        }
        send(watchdog.pid, libc::SIGSTOP);
        thread::sleep(LIMIT + Duration::from_millis(100));
        send(watchdog.pid, libc::SIGCONT);
        // Long enough for a watchdog that kills at once.
        thread::sleep(LIMIT / 8);
        watchdog.arm().expect("killed after a pause");
        thread::sleep(LIMIT / 8);
        assert!(watched.try_wait().unwrap().is_none(), "killed after a pause");
        assert_eq!(watched.wait().unwrap().signal(), Some(libc::SIGKILL));
        let mut said = String::new();
        io::Read::read_to_string(&mut messages, &mut said).unwrap();
        assert_eq!(said, KILLED);
    }

    #[test]
    fn watchdog_ignores_signals_that_end_dbdyno() {
        let mut watched = Command::new("sleep").arg("600").spawn().unwrap();
        let watchdog =
            Watchdog::start(watched.id().cast_signed(), MIN_LIMIT, libc::STDERR_FILENO).unwrap();
        watchdog.arm().unwrap();
        // Once it has read that, it ignores them.
        while watchdog.unread() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
            send(watchdog.pid, signal);
        }
        let start = Instant::now();
        let status = loop {
            if let Some(status) = watched.try_wait().unwrap() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(30) {
                watched.kill().unwrap();
                watched.wait().unwrap();
                panic!("the watchdog has ended");
            }
            thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn watchdog_without_close_range_closes_all_files_and_ends() {
        const LONG: Duration = Duration::from_secs(30);
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            without_close_range();
            let (mut read, write) = io::pipe().unwrap();
            let watchdog = Watchdog::start(own_pid(), MIN_LIMIT, libc::STDERR_FILENO).unwrap();
            drop(write);
            // Ends when the other end is closed everywhere.
            sender.send(io::Read::read(&mut read, &mut [0]).unwrap()).unwrap();
            drop(watchdog);
            sender.send(1).unwrap();
        });
        assert_eq!(receiver.recv_timeout(LONG), Ok(0), "a file is still open");
        assert_eq!(receiver.recv_timeout(LONG), Ok(1), "the watchdog does not end");
    }
}
