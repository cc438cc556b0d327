use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use super::super::unused_code::find_unused_code;
use super::*;
use crate::process::ProbeOptions;
use crate::threads::thread_state;

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
    std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
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
