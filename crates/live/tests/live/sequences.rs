//! Threads in restartable sequences.

use dbdyno_live::{Activation, LiveError};

use crate::copies::{attach, prepare};
use crate::victim::Program;

#[test]
fn nothing_is_changed_while_a_thread_is_in_a_restartable_sequence() {
    let program = Program::compile("rseq.c", "gcc", &["-O2"]);
    let Some(mut victim) = program.start_if_supported() else {
        return println!("skipped: the C library registers no restartable sequences");
    };
    let mut attachment = attach(&program, &victim);
    let (patch, module) = prepare(&program, &mut attachment);
    let error = attachment.install(&patch).unwrap_err();
    assert!(matches!(error, LiveError::InCriticalSection { .. }), "{error}");
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    // It still runs its sequence, and ends it.
    victim.end_hang();
    attachment.install(&patch).unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}
