//! Processes that were forked from an optimized process.

use std::fs;
use std::thread::sleep;
use std::time::Duration;

use dbdyno_live::{
    Activation, Attachment, GenerationState, LiveError, MemberOutcome, ProbeOptions, Process,
    Target, optimize_descendants,
};
use dbdyno_relayout::Options;

use crate::copies::{MAX_PAUSE, attach, attach_to, optimize};
use crate::job::samples;
use crate::victim::{Program, Victim};

fn victim() -> (Program, Victim) {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let victim = program.start();
    (program, victim)
}

fn states(attachment: &Attachment) -> Vec<GenerationState> {
    attachment.generations().iter().map(|generation| generation.state).collect()
}

/// Time in which a process would execute freed code.
const SOME_ROUNDS: Duration = Duration::from_millis(50);

fn target(program: &Program, victim: &Victim) -> Target {
    Target {
        pid: victim.pid(),
        family: true,
        state: program.state(),
        probe: ProbeOptions::default(),
        max_pause: MAX_PAUSE,
    }
}

#[test]
fn active_code_of_child_is_kept_after_undo_in_parent() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let pid = victim.fork();
    parent.undo().unwrap();
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    assert_ne!(child.activation().unwrap(), Activation::Inactive);
    child.begin().unwrap();
    assert_eq!(states(&child), [GenerationState::Active, GenerationState::Preparing]);
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    optimize(&program, &mut child);
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn active_code_of_child_is_kept_after_new_optimization_of_parent() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let pid = victim.fork();
    optimize(&program, &mut parent);
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    child.retire_unused(None).unwrap();
    assert_eq!(child.free().unwrap(), 0);
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    assert_eq!(states(&child), [GenerationState::Inactive]);
    victim.end();
}

#[test]
fn child_forked_after_undo_can_redo() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    parent.undo().unwrap();
    let pid = victim.fork();
    parent.redo().unwrap();
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Inactive]);
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    child.redo().unwrap();
    assert_ne!(child.activation().unwrap(), Activation::Inactive);
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    victim.end();
}

#[test]
fn child_forked_before_new_code_of_its_parent_was_active_gets_the_same_code() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    let samples = samples(&parent);
    let (_, prepared) =
        dbdyno_live::optimize(&mut parent, &samples, &Options::default(), |_| ()).unwrap();
    // As just before it was activated.
    parent.undo().unwrap();
    let pid = victim.fork();
    parent.redo().unwrap();
    let members = optimize_descendants(&target(&program, &victim), &prepared);
    let member = members.iter().find(|member| member.pid == pid).unwrap();
    assert!(matches!(member.outcome, MemberOutcome::Switched(_)), "{member:?}");
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    assert_ne!(child.activation().unwrap(), Activation::Inactive);
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    child.undo().unwrap();
    victim.end();
}

#[test]
fn child_forked_after_the_program_file_was_deleted_inherits_its_parents_code() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    fs::remove_file(&program.path).unwrap();
    let mut child = attach_to(&program, victim.fork());
    assert_eq!(states(&child), [GenerationState::Active]);
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn child_inherits_its_parents_code_and_not_other_code_at_its_addresses() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    // Its process ID is lower, so its journal is read first.
    let mut other_victim = program.start();
    let mut victim = program.start();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let pid = victim.fork();
    let mut other = attach(&program, &other_victim);
    other.begin().unwrap();
    let area = *parent.areas().next().unwrap();
    if !other.reserve_same(&area, false).unwrap() {
        return dbdyno_fuzz::skip("both processes have the same addresses in use");
    }
    let mut child = attach_to(&program, pid);
    assert_eq!(states(&child), [GenerationState::Active]);
    child.begin().unwrap();
    sleep(SOME_ROUNDS);
    victim.assert_alive();
    child.undo().unwrap();
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    // Code that was never active is not inherited: it may be that of another process.
    let child_of_other = attach_to(&program, other_victim.fork());
    assert_eq!(states(&child_of_other), []);
    victim.end();
    other_victim.end();
}

#[test]
fn session_that_another_dbdyno_holds_stays_listed() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    drop(parent);
    let pid = victim.fork();
    let holder = attach_to(&program, pid);
    let mut group = target(&program, &victim).attach_group(&[pid]).unwrap();
    for _ in 0..2 {
        group.switch(Attachment::undo).unwrap();
        let [(session, LiveError::Locked { .. })] = group.unattached() else {
            panic!("{:?}", group.unattached())
        };
        assert_eq!(*session, pid);
        group.switch(Attachment::redo).unwrap();
    }
    group.switch(Attachment::undo).unwrap();
    assert_ne!(holder.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn session_forked_after_the_optimization_is_undone_and_an_earlier_one_is_left_alone() {
    let (program, mut victim) = victim();
    let earlier = victim.fork();
    // It could not be attached.
    let holder = attach_to(&program, earlier);
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    drop(parent);
    let pid = victim.fork();
    let group = target(&program, &victim).attach_group(&[]).unwrap();
    let mut group = group.excluding(&[earlier]);
    // The program also forks processes that end at once.
    let undone = group.undo_all();
    assert!(!undone.failed.iter().any(|it| [victim.pid(), pid].contains(&it.0)), "{undone:?}");
    let is_listed = group.unattached().iter().any(|(session, _)| *session == earlier);
    assert!(!is_listed, "{:?}", group.unattached());
    drop((group, holder));
    assert_eq!(attach_to(&program, pid).activation().unwrap(), Activation::Inactive);
    victim.assert_alive();
}

#[test]
fn group_is_undone_even_if_its_first_process_cannot_be() {
    let (program, mut victim) = victim();
    let mut parent = attach(&program, &victim);
    optimize(&program, &mut parent);
    let address = parent.generations()[0].entries[0].address;
    drop(parent);
    let pid = victim.fork();
    let process = Process::open(victim.pid(), ProbeOptions::default()).unwrap();
    let mut group = target(&program, &victim).attach_group(&[pid]).unwrap();
    let ours = process.memory().read(address, 1).unwrap();
    victim.accept_eintr();
    victim.stop();
    process.memory().write(address, &[0xcc]).unwrap();
    let undone = group.undo_all();
    process.memory().write(address, &ours).unwrap();
    victim.signal(libc::SIGCONT);
    let Some((first, LiveError::ModifiedByOthers { .. })) = undone.failed.first() else {
        panic!("{undone:?}")
    };
    assert_eq!(*first, victim.pid());
    drop(group);
    assert_eq!(attach_to(&program, pid).activation().unwrap(), Activation::Inactive);
    assert_ne!(attach(&program, &victim).activation().unwrap(), Activation::Inactive);
    victim.end();
}
