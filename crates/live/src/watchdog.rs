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
            0 => watch(read.as_raw_fd(), write.as_raw_fd(), watched, millis),
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
fn watch(
    pipe: libc::c_int,
    other_end: libc::c_int,
    watched: libc::pid_t,
    millis: libc::c_int,
) -> ! {
    const FOREVER: libc::c_int = -1;
    // SAFETY: system calls with numbers and with variables that live; `_exit` ends it.
    unsafe {
        // Away from the terminal, whose Ctrl-Z must not stop it, and without our open files.
        libc::setsid();
        // The pipe ends when nobody can write to it any more.
        libc::close(other_end);
        libc::dup2(pipe, 0);
        close_others();
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

/// Closes all files but the first.
fn close_others() {
    // The limit may be in the billions, and dbdyno has few files.
    const MOST_FILES: libc::rlim_t = 1 << 16;
    let mut limit = libc::rlimit { rlim_cur: MOST_FILES, rlim_max: MOST_FILES };
    // SAFETY: system calls with numbers and with a variable that lives.
    unsafe {
        // Linux before 5.9 does not have it, and filters of system calls may not know it.
        if libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0) == 0 {
            return;
        }
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        for file in 1..limit.rlim_cur.min(MOST_FILES) {
            libc::close(file as libc::c_int);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Has this thread, and what it starts, fail to call `close_range`.
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
        // SAFETY: numbers, and a filter that lives.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
            assert_eq!(libc::syscall(libc::SYS_close_range, 1 << 20, 1 << 20, 0), -1);
        }
    }

    #[test]
    fn without_close_range_it_keeps_no_file_of_ours_and_ends() {
        const LONG: Duration = Duration::from_secs(30);
        let (say, hear) = mpsc::channel();
        thread::spawn(move || {
            without_close_range();
            let (mut read, write) = io::pipe().unwrap();
            let watchdog = Watchdog::start(LEAST_LIMIT).unwrap();
            drop(write);
            // Ends when nobody has the other end any more.
            say.send(io::Read::read(&mut read, &mut [0]).unwrap()).unwrap();
            drop(watchdog);
            say.send(1).unwrap();
        });
        assert_eq!(hear.recv_timeout(LONG), Ok(0), "a file is held open");
        assert_eq!(hear.recv_timeout(LONG), Ok(1), "it does not end");
    }
}
