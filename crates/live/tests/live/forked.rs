//! Processes that are split off from an optimized one, and then have a life of their own.

use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::{Activation, GenerationState};

use crate::copies::{attach, attach_to, optimize};
use crate::victim::{Program, Victim};

fn victim() -> (Program, Victim) {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let victim = program.start();
    (program, victim)
}

fn states(attachment: &dbdyno_live::Attachment) -> Vec<GenerationState> {
    attachment.generations().iter().map(|generation| generation.state).collect()
}

/// Time in which a process meets code that is not there any more.
const SOME_ROUNDS: Duration = Duration::from_millis(50);

#[test]
fn what_is_in_force_in_a_child_is_not_freed_when_its_parent_was_undone() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let pid = victim.split_off();
    parent.undo().unwrap();
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    assert_ne!(child.activation().unwrap(), Activation::Inactive);
    child.begin().unwrap();
    assert_eq!(states(&child), [GenerationState::Active, GenerationState::Preparing]);
    sleep(SOME_ROUNDS);
    victim.is_well();
    optimize(&program, &mut child);
    sleep(SOME_ROUNDS);
    victim.is_well();
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn what_is_in_force_in_a_child_is_not_freed_when_its_parent_has_something_newer() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let pid = victim.split_off();
    optimize(&program, &mut parent);
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    child.retire_unused().unwrap();
    assert_eq!(child.free().unwrap(), 0);
    sleep(SOME_ROUNDS);
    victim.is_well();
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    assert_eq!(states(&child), [GenerationState::Inactive]);
    victim.end();
}

#[test]
fn a_child_that_was_split_off_after_an_undo_can_have_it_again() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    parent.undo().unwrap();
    let pid = victim.split_off();
    parent.redo().unwrap();
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Inactive]);
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    child.redo().unwrap();
    assert_ne!(child.activation().unwrap(), Activation::Inactive);
    sleep(SOME_ROUNDS);
    victim.is_well();
    victim.end();
}
