//! Threads in restartable sequences.

use dbdyno_live::{Activation, LiveError};

use crate::copies::{attach, prepare};
use crate::victim::Program;

/// The kernel aborts the sequence whenever its thread was preempted: on a busy machine, an attempt may find
/// the thread on its way back into the sequence, or not stop it in time.
const ATTEMPTS: u32 = 10;

#[test]
fn nothing_is_changed_while_a_thread_is_in_a_restartable_sequence() {
    let program = Program::compile("rseq.c", "gcc", &["-O2"]);
    for _ in 0..ATTEMPTS {
        let Some(mut victim) = program.start_if_supported() else {
            return dbdyno_fuzz::skip("the C library registers no restartable sequences");
        };
        let mut attachment = attach(&program, &victim);
        let (patch, module) = prepare(&program, &mut attachment);
        let Err(LiveError::InCriticalSection { .. }) = attachment.install(&patch) else { continue };
        assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
        assert_eq!(module.differences(attachment.process()).unwrap(), []);
        // It still runs its sequence, and ends it.
        victim.end_hang();
        attachment.install(&patch).unwrap();
        assert_eq!(attachment.activation().unwrap(), Activation::Full);
        victim.assert_alive();
        attachment.undo().unwrap();
        return victim.end();
    }
    panic!("the sequence was ignored in {ATTEMPTS} of {ATTEMPTS} attempts");
}
