//! Threads in uninterruptible sleep.

use dbdyno_live::Activation;

use crate::copies::{attach, optimize};
use crate::victim::Program;

#[test]
fn program_is_optimized_while_a_thread_is_in_uninterruptible_sleep() {
    let program = Program::compile("blocked.c", "gcc", &["-O2"]);
    let Some(mut victim) = program.start_if_supported() else {
        return println!("skipped: the kernel permits no userfaultfd");
    };
    let mut attachment = attach(&program, &victim);
    let done = optimize(&program, &mut attachment);
    assert_eq!((done.threads, done.blocked), (2, 1), "{done:?}");
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    // Its registers are not known, so nothing may be unmapped.
    attachment.retire_unused().unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    assert_eq!(attachment.generations().len(), 1);
    optimize(&program, &mut attachment);
    // It continues in optimized code.
    victim.end_hang();
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}
