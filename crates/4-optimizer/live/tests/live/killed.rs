//! dbdyno is killed or stopped at any moment, and the program continues.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dbdyno_live::{Activation, Module};
use dbdyno_relayout::Options;

use crate::copies::{attach, optimize};
use crate::job::optimize_once;
use crate::victim::{Program, Victim};

const PID: &str = "DBDYNO_TEST_PID";
const STATE: &str = "DBDYNO_TEST_STATE";
const FILE: &str = "DBDYNO_TEST_FILE";

/// A helper process for other tests.
#[test]
#[ignore = "started by other tests"]
fn helper_changes_a_program_forever() {
    let Ok(pid) = std::env::var(PID) else { return };
    let program = Program::at(
        std::env::var_os(FILE).unwrap().into(),
        std::env::var_os(STATE).unwrap().into(),
    );
    loop {
        let mut attachment = crate::copies::attach_as_helper(&program, pid.parse().unwrap());
        optimize(&program, &mut attachment);
        attachment.undo().unwrap();
        attachment.redo().unwrap();
    }
}

/// A helper process for other tests.
#[test]
#[ignore = "started by other tests"]
fn helper_relays_a_program_out_forever() {
    let Ok(pid) = std::env::var(PID) else { return };
    let program = Program::at(
        std::env::var_os(FILE).unwrap().into(),
        std::env::var_os(STATE).unwrap().into(),
    );
    loop {
        let mut attachment = crate::copies::attach_to(&program, pid.parse().unwrap());
        for options in [Options::default(), Options::default().in_original_order()] {
            let earlier = attachment.active_number();
            optimize_once(&mut attachment, &options);
            attachment.restore(earlier).unwrap();
        }
        attachment.undo().unwrap();
    }
}

struct Optimizer(Child);

impl Optimizer {
    fn start(program: &Program, victim: &Victim) -> Self {
        Self::start_helper(program, victim, "killed::helper_changes_a_program_forever")
    }

    fn start_helper(program: &Program, victim: &Victim, helper: &str) -> Self {
        Self::spawn(program, victim, helper, Command::new(std::env::current_exe().unwrap()))
    }

    fn start_limited(program: &Program, victim: &Victim, limit: &MemoryLimit) -> Self {
        let command = limit.command(&std::env::current_exe().unwrap());
        Self::spawn(program, victim, "killed::helper_changes_a_program_forever", command)
    }

    fn spawn(program: &Program, victim: &Victim, helper: &str, mut command: Command) -> Self {
        let child = command
            .args(["--ignored", "--exact", helper])
            .env(PID, victim.pid().to_string())
            .env(STATE, program.state())
            .env(FILE, &program.path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Whether it ends within this time because it was killed.
    fn is_killed_within(&mut self, limit: Duration) -> bool {
        let start = Instant::now();
        while start.elapsed() < limit {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.signal() == Some(libc::SIGKILL);
            }
            sleep(Duration::from_millis(1));
        }
        false
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: takes numbers; the child is ours and has not been waited for.
        unsafe { libc::kill(self.0.id().cast_signed(), signal) };
    }
}

impl Drop for Optimizer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Times spread over one round of the helper, all different.
fn moments(count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(|turn| Duration::from_micros(3_000 + turn * 137_911 % 400_000))
}

/// Undoes everything, and checks that all code is the original.
pub fn assert_undoable(program: &Program, victim: &mut Victim) {
    let mut attachment = attach(program, victim);
    if !attachment.generations().is_empty() {
        attachment.undo().unwrap();
    }
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps);
    for loaded in &loaded {
        let module = Module::open(attachment.process(), loaded).unwrap();
        assert_eq!(
            module.differences(attachment.process()).unwrap(),
            [],
            "{}",
            loaded.path.display()
        );
    }
    victim.assert_alive();
}

#[test]
fn program_runs_and_is_undoable_after_dbdyno_is_killed_at_any_moment() {
    kill_at_moments(4);
}

#[test]
#[ignore = "full"]
fn program_runs_and_is_undoable_after_dbdyno_is_killed_at_many_moments() {
    kill_at_moments(100);
}

fn kill_at_moments(count: u64) {
    at_moments(count, |optimizer, victim| {
        drop(optimizer);
        victim.assert_alive();
    });
}

/// Ends dbdyno with `end` at moments of its work.
fn at_moments(count: u64, end: impl Fn(Optimizer, &mut Victim)) {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    // If it is killed right after a thread has stopped, the kernel ends its wait with EINTR.
    victim.accept_eintr();
    for moment in moments(count) {
        let optimizer = Optimizer::start(&program, &victim);
        sleep(moment);
        end(optimizer, &mut victim);
        assert_undoable(&program, &mut victim);
    }
    victim.end();
}

#[test]
fn program_runs_after_dbdyno_is_stopped_at_any_moment() {
    stop_at_moments(2);
}

#[test]
#[ignore = "full"]
fn program_runs_after_dbdyno_is_stopped_at_many_moments() {
    stop_at_moments(50);
}

fn stop_at_moments(count: u64) {
    at_moments(count, |optimizer, victim| {
        optimizer.signal(libc::SIGSTOP);
        // It responds when its threads run: immediately, or after the watchdog killed dbdyno.
        victim.assert_alive();
    });
}

#[test]
fn program_runs_and_is_undoable_after_dbdyno_runs_out_of_memory_at_any_moment() {
    run_out_of_memory_at_moments(3);
}

#[test]
#[ignore = "full"]
fn program_runs_and_is_undoable_after_dbdyno_runs_out_of_memory_at_many_moments() {
    run_out_of_memory_at_moments(50);
}

fn run_out_of_memory_at_moments(count: u64) {
    let Some(limit) = MemoryLimit::new() else {
        return dbdyno_fuzz::skip("no control groups of memory are permitted here");
    };
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    victim.accept_eintr();
    let mut killed = 0;
    for moment in moments(count) {
        let mut optimizer = Optimizer::start_limited(&program, &victim, &limit);
        sleep(moment);
        limit.tighten();
        killed += u32::from(optimizer.is_killed_within(Duration::from_secs(5)));
        drop(optimizer);
        limit.lift();
        victim.assert_alive();
        assert_undoable(&program, &mut victim);
    }
    assert!(killed > 0, "it never ran out of memory");
    victim.end();
}

#[test]
fn program_is_undoable_after_dbdyno_is_killed_while_it_replaces_layouts() {
    kill_while_layouts_are_replaced(2);
}

#[test]
#[ignore = "full"]
fn program_is_undoable_after_dbdyno_is_killed_often_while_it_replaces_layouts() {
    kill_while_layouts_are_replaced(40);
}

fn kill_while_layouts_are_replaced(count: u64) {
    let program = Program::compile("language.cpp", "g++", &["-O2"]);
    let mut victim = program.start();
    let helper = "killed::helper_relays_a_program_out_forever";
    for turn in 0..count {
        let optimizer = Optimizer::start_helper(&program, &victim, helper);
        // Sampling takes the first 0.4 s; then a layout is made and switched.
        sleep(Duration::from_millis(450 + turn * 1_711 % 2_500));
        drop(optimizer);
        victim.assert_alive();
        assert_undoable(&program, &mut victim);
    }
    victim.end();
}

/// A control group, removed on drop.
pub struct MemoryLimit {
    group: PathBuf,
    /// The files of the used memory and of the limit.
    usage: &'static str,
    limit: &'static str,
}

impl MemoryLimit {
    /// `None` where that is not permitted.
    pub fn new() -> Option<Self> {
        let root = Path::new("/sys/fs/cgroup");
        let (root, usage, limit) = if root.join("memory").exists() {
            (root.join("memory"), "memory.usage_in_bytes", "memory.limit_in_bytes")
        } else {
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory");
            (root.to_owned(), "memory.current", "memory.max")
        };
        let group = root.join(format!("dbdyno-live-{}", std::process::id()));
        fs::create_dir(&group).ok()?;
        let made = Self { group, usage, limit };
        // Else the kernel swaps before it kills: of control groups of version 2 and 1.
        let _ = fs::write(made.group.join("memory.swap.max"), "0");
        let _ = fs::write(made.group.join("memory.swappiness"), "0");
        made.group.join(limit).exists().then_some(made)
    }

    /// A command of this program in the group.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo 0 >\"$0\" && exec \"$@\""]);
        command.arg(self.group.join("cgroup.procs")).arg(program);
        command
    }

    /// Permits no more memory than is used now: the kernel kills the process when it needs more.
    pub fn tighten(&self) {
        let used = fs::read_to_string(self.group.join(self.usage)).unwrap();
        fs::write(self.group.join(self.limit), used.trim()).unwrap();
    }

    /// Permits any amount of memory again.
    pub fn lift(&self) {
        let unlimited = if self.limit == "memory.max" { "max" } else { "-1" };
        fs::write(self.group.join(self.limit), unlimited).unwrap();
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        // Processes leave the group some time after their end.
        for _ in 0..100 {
            if fs::remove_dir(&self.group).is_ok() {
                break;
            }
            sleep(Duration::from_millis(10));
        }
    }
}
