//! Workers of the kernel for io_uring, which are listed like threads of the process.

use dbdyno_live::Activation;

use crate::copies::{attach, optimize};
use crate::victim::Program;

#[test]
fn worker_of_the_kernel_executes_no_call_for_dbdyno() {
    let program = Program::compile("workers.c", "gcc", &["-O2"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no io_uring, or has started no worker");
    };
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn worker_of_the_kernel_in_uninterruptible_sleep_is_not_waited_for() {
    let program = Program::compile("blocked.c", "gcc", &["-O2", "-DWORKER"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no userfaultfd or no io_uring");
    };
    let mut attachment = attach(&program, &victim);
    let done = optimize(&program, &mut attachment);
    assert_eq!((done.threads, done.blocked), (2, 1), "{done:?}");
    victim.assert_alive();
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    victim.end();
}
