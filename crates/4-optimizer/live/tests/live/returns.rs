//! Threads that will return to code, or that may hold a lock.

use std::fs;

use dbdyno_live::{Attachment, GenerationState, LiveError, Module, Patch};

use crate::copies::{attach, optimize};
use crate::victim::{Program, Victim};

/// A program with a thread that will return to new code, which is not active any more.
fn with_thread_that_returns() -> (Program, Victim, Attachment) {
    let program = Program::compile("calls.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    assert_eq!(victim.ask(b'c'), "alive");
    // This overwrites a part of the call that the thread is in.
    attachment.undo().unwrap();
    (program, victim, attachment)
}

#[test]
fn code_that_a_thread_returns_to_is_not_freed() {
    let (_program, mut victim, mut attachment) = with_thread_that_returns();
    attachment.retire_unused().unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    victim.end_hang();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}

#[test]
fn interrupted_freeing_continues_when_no_thread_is_in_the_memory() {
    let (program, mut victim, attachment) = with_thread_that_returns();
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

/// Registers an empty list of frames in a process without a thread that waits.
fn register_frames(flags: &[&str]) -> Result<(), LiveError> {
    let libraries = ["-O2", "-rdynamic", "-Wl,--no-as-needed", "-lgcc_s"];
    let program = Program::compile("frames.c", "gcc", &[&libraries, flags].concat());
    let victim = program.start();
    let mut attachment = attach(&program, &victim);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    attachment.begin().unwrap();
    let area = attachment.reserve(&loaded.range, 4096, false).unwrap();
    let patch = Patch { frames: vec![area.address], ..Patch::default() };
    attachment.install(&patch).map(|_| ())
}

#[test]
fn thread_in_an_allocator_calls_no_function() {
    register_frames(&[]).unwrap();
    let error = register_frames(&["-DALLOCATOR"]).unwrap_err();
    assert!(matches!(error, LiveError::NoSafePoint { .. }), "{error}");
}
