//! Threads that will return to code.

use crate::copies::{attach, optimize};
use crate::victim::Program;

#[test]
fn code_that_a_thread_returns_to_is_not_freed() {
    let program = Program::compile("calls.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    assert_eq!(victim.ask(b'c'), "alive");
    // This overwrites a part of the call that the thread is in.
    attachment.undo().unwrap();
    attachment.retire_unused().unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    victim.end_hang();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}
