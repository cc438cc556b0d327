//! A process that ends this one when it holds others still for too long.
//!
//! Threads that we have stopped run on when we end, however we end. They do not when we are
//! stopped ourselves, by Ctrl-Z in a terminal for instance. Then the watchdog kills us: every
//! state in between is one that the process can run in, and the journal tells the way back.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::LiveError;
use crate::trace::on_own_thread;

/// The watchdog of this process. Ends when it is dropped, and when this process ends.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// `None` only while it is being dropped.
    pipe: Option<OwnedFd>,
    pid: libc::pid_t,
    started: Instant,
    /// When it was told last that threads are held, in milliseconds from its start.
    told: AtomicU64,
}

/// The shortest limit: on a busy machine this process, too, waits for a CPU or a disk.
pub(crate) const LEAST_LIMIT: Duration = Duration::from_secs(1);
/// Where threads are held one after the other, it is told this often that it goes on.
pub(crate) const BEAT: Duration = Duration::from_millis(100);

/// Holds threads of a process, on a thread of its own and watched. `work` is to say
/// [`Watchdog::beat`] where it takes longer than the limit.
///
/// # Errors
/// Those of `work`; or there is no watchdog.
pub(crate) fn watched<T: Send>(
    pid: u32,
    limit: Duration,
    work: impl FnOnce(&Watchdog) -> Result<T, LiveError> + Send,
) -> Result<T, LiveError> {
    let failed = || LiveError::system("starting a watchdog for", pid);
    let watchdog = Watchdog::start(limit).map_err(failed())?;
    let done = on_own_thread(|| {
        watchdog.holding().map_err(failed())?;
        work(&watchdog)
    });
    // Its limit is up only if we are stopped right here, and then nobody else is.
    let _ = watchdog.let_go();
    done
}

/// What it is told: that threads are held, that none are, or how nice a thread was before it was
/// put before others.
type Word = [i32; 2];
const HOLDING: Word = [-1, 0];
const LET_GO: Word = [0, 0];
/// It remembers so many threads.
const MOST: usize = 1 << 12;

impl Watchdog {
    /// Starts it. It waits for as long as `limit` says, but not for less than [`LEAST_LIMIT`].
    fn start(limit: Duration) -> io::Result<Self> {
        let mut ends = [0; 2];
        // SAFETY: the kernel writes two numbers.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel just made these two for us.
        let [read, write] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
        let millis = limit.max(LEAST_LIMIT).as_millis();
        let millis = libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX);
        // SAFETY: takes nothing.
        let watched = unsafe { libc::getpid() };
        // SAFETY: the child makes system calls only: no allocation, no lock, no return.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => watch(read.as_raw_fd(), watched, millis),
            _ => Ok(Self {
                pipe: Some(write),
                pid,
                started: Instant::now(),
                told: AtomicU64::new(0),
            }),
        }
    }

    /// From now on the time counts.
    fn holding(&self) -> io::Result<()> {
        self.say(HOLDING)
    }

    /// The time counts anew: this process is not stopped. May be called often.
    pub(crate) fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        if u128::from(now.saturating_sub(self.told.load(Ordering::Relaxed))) >= BEAT.as_millis() {
            self.told.store(now, Ordering::Relaxed);
            // One that cannot be told has ended, and kills nobody.
            let _ = self.holding();
        }
    }

    /// From now on it does not.
    fn let_go(&self) -> io::Result<()> {
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
