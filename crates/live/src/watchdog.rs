//! A process that ends this one when it holds others still for too long.
//!
//! Threads that we have stopped run on when we end, however we end. They do not when we are
//! stopped ourselves, by Ctrl-Z in a terminal for instance. Then the watchdog kills us: every
//! state in between is one that the process can run in, and the journal tells the way back.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// The watchdog of this process. Ends when it is dropped, and when this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// `None` only while it is being dropped.
    pipe: Option<OwnedFd>,
    pid: libc::pid_t,
}

/// What it is told: that threads are held, that none are, or how nice a thread was before it was
/// put before others.
type Word = [i32; 2];
const HOLDING: Word = [-1, 0];
const LET_GO: Word = [0, 0];
/// It remembers so many threads.
const MOST: usize = 1 << 12;

impl Watchdog {
    /// Starts it.
    pub(crate) fn start(limit: Duration) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made these two for us.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let millis = libc::c_int::try_from(limit.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: takes nothing.
        let watched = unsafe { libc::getpid() };
        // SAFETY: the child makes system calls only: no allocation, no lock, no return.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.as_raw_fd(), watched, millis),
            _ => Ok(Self { pipe: Some(write), pid }),
        }
    }

    /// From now on the time counts.
    pub(crate) fn holding(&self) -> io::Result<()> {
        self.say(HOLDING)
    }

    /// From now on it does not.
    pub(crate) fn let_go(&self) -> io::Result<()> {
        self.say(LET_GO)
    }

    /// This thread is about to be put before others; it has this niceness.
    pub(crate) fn boosted(&self, tid: i32, nice: i32) -> io::Result<()> {
        self.say([tid, nice])
    }

    fn say(&self, word: Word) -> io::Result<()> {
        let Some(pipe) = &self.pipe else { return Ok(()) };
        let size = size_of::<Word>();
        // SAFETY: as many bytes are read from a variable that lives as it has.
        let wrote = unsafe { libc::write(pipe.as_raw_fd(), (&raw const word).cast(), size) };
        if usize::try_from(wrote) == Ok(size) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.pipe = None;
        // SAFETY: takes numbers; the child ends when the pipe is closed, which it just was.
        unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), 0) };
    }
}

/// What the child does. Uses nothing but system calls: other threads may have held any lock when
/// it was split off.
fn watch(pipe: libc::c_int, watched: libc::pid_t, millis: libc::c_int) -> ! {
    const FOREVER: libc::c_int = -1;
    // SAFETY: system calls with numbers and with variables that live; `_exit` ends it.
    unsafe {
        // Away from the terminal, whose Ctrl-Z must not stop it, and without our open files.
        libc::setsid();
        libc::dup2(pipe, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        let mut timeout = FOREVER;
        let mut boosted = [LET_GO; MOST];
        let mut count = 0;
        loop {
            let mut ready = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            match libc::poll(&raw mut ready, 1, timeout) {
                0 => {
                    libc::kill(watched, libc::SIGKILL);
                    break;
                }
                1 => {}
                _ => continue,
            }
            let mut word = LET_GO;
            let size = size_of::<Word>();
            if libc::read(0, (&raw mut word).cast(), size) != size.cast_signed() {
                break;
            }
            match word {
                HOLDING => timeout = millis,
                LET_GO => (timeout, count) = (FOREVER, 0),
                _ if count < MOST => {
                    boosted[count] = word;
                    count += 1;
                }
                _ => {}
            }
        }
        for [tid, nice] in boosted.into_iter().take(count) {
            libc::setpriority(libc::PRIO_PROCESS, tid.cast_unsigned(), nice);
        }
        libc::_exit(0)
    }
}
