//! The optimizer ends or hangs at any moment, and the program goes on.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::{Activation, Module};

use crate::copies::{attach, optimize};
use crate::victim::{Program, Victim};

const PID: &str = "DBDYNO_TEST_PID";
const STATE: &str = "DBDYNO_TEST_STATE";
const FILE: &str = "DBDYNO_TEST_FILE";

/// Not a test: what the others start and kill.
#[test]
#[ignore = "started by other tests, to be killed"]
fn changes_a_program_for_ever() {
    let Ok(pid) = std::env::var(PID) else { return };
    let program = Program::at(
        std::env::var_os(FILE).unwrap().into(),
        std::env::var_os(STATE).unwrap().into(),
    );
    loop {
        let mut attachment = crate::copies::attach_to(&program, pid.parse().unwrap());
        optimize(&program, &mut attachment);
        attachment.undo().unwrap();
        attachment.redo().unwrap();
    }
}

struct Optimizer(Child);

impl Optimizer {
    fn start(program: &Program, victim: &Victim) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "killed::changes_a_program_for_ever"])
            .env(PID, victim.pid().to_string())
            .env(STATE, program.state())
            .env(FILE, &program.path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
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

/// Times spread over the optimizer's round, different each time.
fn moments(count: u64) -> impl Iterator<Item = Duration> {
    (0..count).map(|turn| Duration::from_micros(3_000 + turn * 137_911 % 400_000))
}

fn is_whole_after(program: &Program, victim: &mut Victim) {
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
    victim.is_well();
}

#[test]
fn killed_at_any_moment_it_leaves_a_program_that_runs_and_can_be_undone() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    // Killed right when a thread has stopped, it leaves a wait that ends with EINTR to the kernel.
    victim.may_be_disturbed();
    for moment in moments(30) {
        let optimizer = Optimizer::start(&program, &victim);
        sleep(moment);
        drop(optimizer);
        victim.is_well();
        is_whole_after(&program, &mut victim);
    }
    victim.end();
}

#[test]
fn stopped_at_any_moment_it_does_not_keep_the_program_stopped() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    // Killed right when a thread has stopped, it leaves a wait that ends with EINTR to the kernel.
    victim.may_be_disturbed();
    for moment in moments(8) {
        let optimizer = Optimizer::start(&program, &victim);
        sleep(moment);
        optimizer.signal(libc::SIGSTOP);
        // Answers when its threads run: at once, or when the watchdog has come.
        victim.is_well();
        drop(optimizer);
        is_whole_after(&program, &mut victim);
    }
    victim.end();
}
