//! A thread that cannot be stopped is told, and costs nothing.

use std::time::Duration;

use dbdyno_live::{Keeper, LiveError, Module, Permit, Process};

use crate::victim::Program;

#[test]
fn a_thread_that_hangs_in_the_kernel_is_told() {
    let program = Program::compile("hangs.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let process = Process::open(victim.pid(), Permit::default()).unwrap();
    let mut keeper = Keeper::open(process, &program.state(), Duration::from_millis(50)).unwrap();
    let maps = keeper.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    keeper.begin().unwrap();
    let error = keeper.reserve(&loaded.range, 64 << 10, false).unwrap_err();
    assert!(matches!(error, LiveError::NotStopped { missing: 1, .. }), "{error}");
    victim.is_well();
    victim.goes_on();
    victim.end();
}
