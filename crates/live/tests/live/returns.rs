//! Threads that will return to code.

use std::fs;

use dbdyno_live::GenerationState;

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

#[test]
fn interrupted_freeing_continues_when_no_thread_is_in_the_memory() {
    let program = Program::compile("calls.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    assert_eq!(victim.ask(b'c'), "alive");
    attachment.undo().unwrap();
    let journal = attachment.directory().join("journal.json");
    drop(attachment);
    // As by a dbdyno that was killed while a thread executed a call for it.
    let text = fs::read_to_string(&journal).unwrap();
    fs::write(&journal, text.replace(r#""inactive""#, r#""freeing""#)).unwrap();
    let mut attachment = attach(&program, &victim);
    assert_eq!(attachment.generations()[0].state, GenerationState::Freeing);
    assert_eq!(attachment.free().unwrap(), 0);
    victim.end_hang();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}
