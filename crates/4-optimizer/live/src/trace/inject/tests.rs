use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use super::*;
use crate::process::ProbeOptions;
use crate::threads::thread_state;
use crate::trace::stub::find_unused_code;

const PID: &str = "DBDYNO_TEST_PID";

/// A process that is killed on drop.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap())
    }

    /// A helper test of this file, in a new process.
    fn test(name: &str, pid: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let name = format!("trace::inject::tests::{name}");
        Self::new(command.args(["--ignored", "--exact", &name]).env(PID, pid.to_string()))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(60), "timed out: {what}");
        sleep(Duration::from_millis(1));
    }
}

/// Whether a thread of a process waits for input: its first, or another one.
fn reads(pid: u32, is_first: bool) -> bool {
    let mut threads = threads(pid).unwrap_or_default();
    threads.retain(|tid| (*tid == pid.cast_signed()) == is_first);
    threads.into_iter().any(|tid| present_call(pid, tid) == Some(libc::SYS_read))
}

/// A helper process for other tests.
#[test]
#[ignore = "started by another test"]
fn helper_stops_itself_while_it_holds_a_thread() {
    let Some(pid) = std::env::var(PID).ok().and_then(|pid| pid.parse().ok()) else { return };
    let process = Process::open(pid, ProbeOptions::default()).unwrap();
    let stacks = Stacks::of(&process).unwrap();
    let build = |_: &Registers, _| Vec::new();
    let task = "do nothing";
    let job = ThreadJob {
        process: &process,
        stacks: &stacks,
        address: 0,
        calls: &[],
        build: &build,
        task,
        done_within: DONE_WITHIN,
    };
    let stop = |_: &StoppedThread| {
        // SAFETY: takes numbers.
        unsafe { libc::kill(libc::getpid(), libc::SIGSTOP) };
        // Another thread may handle the signal, slightly later.
        sleep(Duration::from_secs(1));
        false
    };
    job.run(stop).unwrap_err();
}

#[test]
fn watchdog_kills_dbdyno_if_stopped_while_it_holds_a_thread() {
    let mut cat = Started::new(&mut Command::new("cat"));
    let pid = cat.pid();
    wait_until("cat waits for input", || reads(pid, true));
    let mut holder = Started::test("helper_stops_itself_while_it_holds_a_thread", pid);
    let own = holder.pid();
    let is_stopped = || thread_state(own, own.cast_signed()) == Some(b'T');
    wait_until("helper is stopped", || is_stopped() || holder.0.try_wait().unwrap().is_some());
    cat.0.stdin.as_mut().unwrap().write_all(b"well\n").unwrap();
    let mut output = BufReader::new(cat.0.stdout.take().unwrap());
    let (say, hear) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        output.read_line(&mut line).map(|_| say.send(line))
    });
    let answer = hear.recv_timeout(Duration::from_secs(30));
    assert_eq!(answer.as_deref(), Ok("well\n"), "its thread is still stopped");
    assert_eq!(holder.0.wait().unwrap().signal(), Some(libc::SIGKILL));
}

/// A helper process for other tests. It does not end with its thread.
#[test]
#[ignore = "started by another test"]
fn helper_has_a_thread_that_reads() {
    if std::env::var_os(PID).is_none() {
        return;
    }
    std::thread::spawn(|| io::stdin().read_line(&mut String::new()));
    loop {
        std::thread::park();
    }
}

#[test]
fn ended_thread_is_distinguished_from_exited_process() {
    let reader = Started::test("helper_has_a_thread_that_reads", 0);
    let pid = reader.pid();
    wait_until("a thread waits for input", || reads(pid, false));
    let process = Process::open(pid, ProbeOptions::default()).unwrap();
    let borrowed = find_unused_code(pid, process.memory(), stub::size_of_system_calls(1)).unwrap();
    let exit = SystemCall { number: libc::SYS_exit, arguments: [0; 6] };
    let error = make_system_calls(&process, borrowed.address, &[exit]).unwrap_err();
    assert!(matches!(error, LiveError::ThreadLost { .. }), "{error}");
    assert!(process.identity().is_alive());
    let end = SystemCall { number: libc::SYS_exit_group, arguments: [0; 6] };
    let error = make_system_calls(&process, borrowed.address, &[end]).unwrap_err();
    assert!(matches!(error, LiveError::Exited { .. }), "{error}");
}

/// A helper process for other tests, with a thread that is uninterruptible most of the time. Exits if that
/// thread is stopped for long.
#[test]
#[ignore = "started by another test"]
fn helper_has_a_thread_that_stops_late() {
    static TIME: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    const MAX_TIME: Duration = Duration::from_secs(3);
    if std::env::var_os(PID).is_none() {
        return;
    }
    std::thread::spawn(|| io::stdin().read_line(&mut String::new()));
    loop {
        let start = Instant::now();
        // SAFETY: the child has its own memory and makes system calls only; its parent waits for its end.
        unsafe {
            let flags = libc::CLONE_VFORK | libc::SIGCHLD;
            let child = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
            if child == 0 {
                libc::syscall(libc::SYS_nanosleep, &raw const TIME, 0);
                libc::syscall(libc::SYS_exit_group, 0);
            }
            libc::waitpid(child as i32, std::ptr::null_mut(), 0);
        }
        assert!(start.elapsed() < MAX_TIME);
    }
}

/// Calls `test` with a job that makes a system call in a thread of the process.
fn with_job<T>(pid: u32, call: SystemCall, test: impl FnOnce(&ThreadJob<'_>) -> T) -> T {
    let process = Process::open(pid, ProbeOptions::default()).unwrap();
    let borrowed = find_unused_code(pid, process.memory(), stub::size_of_system_calls(1)).unwrap();
    let (address, calls) = (borrowed.address, [call]);
    let build = |after: &Registers, mask| stub::system_calls(address, &calls, after, mask);
    test(&ThreadJob {
        process: &process,
        stacks: &Stacks::of(&process).unwrap(),
        address,
        calls: &calls,
        build: &build,
        task: "make a system call",
        done_within: DONE_WITHIN,
    })
}

#[test]
fn thread_that_stops_late_is_released_while_another_one_runs_a_stub() {
    let mut helper = Started::test("helper_has_a_thread_that_stops_late", 0);
    let pid = helper.pid();
    let is_in_clone = || {
        let found = threads(pid).unwrap_or_default();
        found.into_iter().any(|tid| present_call(pid, tid) == Some(libc::SYS_clone))
    };
    wait_until("threads wait", || reads(pid, false) && is_in_clone());
    let sleep = SystemCall { number: libc::SYS_poll, arguments: [0, 0, 4_000, 0, 0, 0] };
    // Not in the first round, in which the other thread is interrupted.
    let is_second = Cell::new(false);
    with_job(pid, sleep, |job| {
        job.run(move |thread| {
            thread.interrupted_call() == Some(libc::SYS_read) && is_second.replace(true)
        })
    })
    .unwrap();
    assert!(helper.0.try_wait().unwrap().is_none(), "the other thread was stopped meanwhile");
}

static LOCK: u32 = 0;

/// Overwrites a vector register and waits for a lock forever.
extern "C" fn waits_for_a_lock() {
    // SAFETY: a system call with a live word; `xmm5` may be changed by a function.
    unsafe {
        std::arch::asm!("pcmpeqd xmm5, xmm5", out("xmm5") _);
        loop {
            let futex = (libc::SYS_futex, &raw const LOCK, libc::FUTEX_WAIT);
            libc::syscall(futex.0, futex.1, futex.2, 0, 0);
        }
    }
}

/// A helper process for other tests. Ends if a vector register changes.
#[test]
#[ignore = "started by another test"]
fn helper_keeps_a_value_in_a_vector_register() {
    const SIZE: usize = 128 << 10;
    if std::env::var_os(PID).is_none() {
        return;
    }
    // SAFETY: new memory.
    let map = |protection| unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        libc::mmap(std::ptr::null_mut(), SIZE, protection, flags, -1, 0) as u64
    };
    let code = map(libc::PROT_READ | libc::PROT_EXEC);
    let data = map(libc::PROT_READ | libc::PROT_WRITE);
    let function = waits_for_a_lock as *const () as u64;
    writeln!(io::stdout(), "at {function} {data} {code}").unwrap();
    let value = 0x0123_4567_89ab_cdef_u64;
    loop {
        let found: u64;
        // SAFETY: changes declared registers only.
        unsafe {
            std::arch::asm!(
                "movq xmm5, {value}",
                "2: dec {count}",
                "jnz 2b",
                "movq {found}, xmm5",
                value = in(reg) value,
                count = inout(reg) 1_000_000_000_u64 => _,
                found = out(reg) found,
                out("xmm5") _,
            );
        }
        assert_eq!(found, value);
    }
}

#[test]
fn thread_taken_out_of_a_function_keeps_its_vector_registers() {
    let mut helper = Started::test("helper_keeps_a_value_in_a_vector_register", 0);
    let lines = BufReader::new(helper.0.stdout.take().unwrap()).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("at ")).unwrap();
    let numbers = line.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
    let [function, data, address] = numbers[..] else { panic!("{line}") };
    let process = Process::open(helper.pid(), ProbeOptions::default()).unwrap();
    let stacks = Stacks::of(&process).unwrap();
    let functions = [FunctionCall { address: function, arguments: [0; 3] }];
    let stack_top = data + (128 << 10);
    let data = StubData { stack_top, vectors: data + (16 << 10), counter: data };
    let build = |after: &Registers, mask| stub::functions(address, &functions, &data, after, mask);
    let job = ThreadJob {
        process: &process,
        stacks: &stacks,
        address,
        calls: &[],
        build: &build,
        task: "call a function",
        done_within: Duration::from_millis(50),
    };
    let error = job.run(|thread| thread.is_in_user_code()).unwrap_err();
    assert!(matches!(error, LiveError::NoSafePoint { .. }), "{error}");
    // Longer than its loop.
    sleep(Duration::from_secs(1));
    assert!(helper.0.try_wait().unwrap().is_none(), "a vector register was changed");
}

#[test]
fn thread_that_never_ran_is_taken_out_of_the_stub() {
    let cat = Started::new(&mut Command::new("cat"));
    let pid = cat.pid();
    wait_until("cat waits for input", || reads(pid, true));
    let nothing = SystemCall { number: libc::SYS_getpid, arguments: [0; 6] };
    with_job(pid, nothing, |job| {
        watched(pid, MIN_LIMIT, |watchdog| {
            let mut unstopped = UnstoppedThreads::of(pid, watchdog);
            let tid = pid.cast_signed();
            let before = StoppedThread::seize(pid, tid, DONE_WITHIN, &mut unstopped)?.unwrap();
            let mask = raw::signal_mask(tid).unwrap();
            let stub = job.enter(&before)?.unwrap();
            let mut inside = before.clone();
            inside.registers = raw::registers(tid).unwrap();
            assert_eq!(inside.registers.rip, job.address + stub::ENTRY);
            assert_ne!(raw::signal_mask(tid).unwrap(), mask);
            stub.leave(pid, &inside)?;
            let after = raw::registers(tid).unwrap();
            let all = |it: Registers| (it.rip, it.rsp, it.rax, it.orig_rax, it.rdi, it.eflags);
            assert_eq!(all(after), all(before.registers));
            assert_eq!(raw::signal_mask(tid).unwrap(), mask);
            before.release();
            Ok(())
        })
    })
    .unwrap();
}
