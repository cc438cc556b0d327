//! dbdyno is killed or stopped at any moment, and the program continues.

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::{Activation, Module};

use crate::copies::{attach, optimize};
use crate::repetitions;
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
        let mut attachment = crate::copies::attach_to(&program, pid.parse().unwrap());
        optimize(&program, &mut attachment);
        attachment.undo().unwrap();
        attachment.redo().unwrap();
    }
}

/// A helper process for other tests.
#[test]
#[ignore = "started by other tests"]
fn helper_switches_layouts_of_a_program_forever() {
    let Ok(pid) = std::env::var(PID) else { return };
    let program = Program::at(
        std::env::var_os(FILE).unwrap().into(),
        std::env::var_os(STATE).unwrap().into(),
    );
    crate::layouts::switch_forever(&program, pid.parse().unwrap());
}

struct Optimizer(Child);

impl Optimizer {
    fn start(program: &Program, victim: &Victim) -> Self {
        Self::start_helper(program, victim, "killed::helper_changes_a_program_forever")
    }

    fn start_helper(program: &Program, victim: &Victim, helper: &str) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
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
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    // If it is killed right after a thread has stopped, the kernel ends its wait with EINTR.
    victim.accept_eintr();
    for moment in moments(repetitions(10, 30)) {
        let optimizer = Optimizer::start(&program, &victim);
        sleep(moment);
        drop(optimizer);
        victim.assert_alive();
        assert_undoable(&program, &mut victim);
    }
    victim.end();
}

#[test]
fn program_runs_after_dbdyno_is_stopped_at_any_moment() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    // If it is killed right after a thread has stopped, the kernel ends its wait with EINTR.
    victim.accept_eintr();
    for moment in moments(repetitions(4, 8)) {
        let optimizer = Optimizer::start(&program, &victim);
        sleep(moment);
        optimizer.signal(libc::SIGSTOP);
        // It responds when its threads run: immediately, or after the watchdog killed dbdyno.
        victim.assert_alive();
        drop(optimizer);
        assert_undoable(&program, &mut victim);
    }
    victim.end();
}

#[test]
fn program_is_undoable_after_dbdyno_is_killed_while_it_compares_layouts() {
    let program = Program::compile("language.cpp", "g++", &["-O2"]);
    let mut victim = program.start();
    let helper = "killed::helper_switches_layouts_of_a_program_forever";
    let turns = repetitions(8, 40);
    for turn in 0..turns {
        let optimizer = Optimizer::start_helper(&program, &victim, helper);
        // Sampling takes the first 0.4 s; then layouts are made and switched.
        sleep(Duration::from_millis(450 + turn * 1_711 % 2_500));
        drop(optimizer);
        victim.assert_alive();
        assert_undoable(&program, &mut victim);
    }
    victim.end();
}
