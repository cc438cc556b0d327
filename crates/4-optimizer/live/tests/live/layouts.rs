//! Several layouts in one process: switched, raced, and undone after dbdyno is killed.

use std::time::Duration;

use dbdyno_live::{
    Activation, AttachedGroup, Attachment, GenerationState, KeepRule, LayoutCandidate, MAX_LAYOUTS,
    MadeLayouts, Module, ProbeOptions, WorkCounter, optimize_layouts,
};
use dbdyno_relayout::Options;

use crate::copies::{MAX_PAUSE, attach, attach_to};
use crate::sampling::samples;
use crate::victim::Program;

fn language() -> Program {
    Program::compile("language.cpp", "g++", &["-O2"])
}

/// Samples the program and makes layouts.
pub fn make(attachment: &mut Attachment, layouts: usize) -> MadeLayouts {
    let samples = samples(attachment);
    let candidates = LayoutCandidate::first(layouts, &Options::default());
    optimize_layouts(attachment, &samples, &candidates, |_| ()).unwrap()
}

/// Layouts that are made, activated one after the other and undone, forever.
pub fn switch_forever(program: &Program, pid: u32) -> ! {
    loop {
        let mut attachment = attach_to(program, pid);
        let made = make(&mut attachment, 4);
        for layout in made.all() {
            attachment.activate_generation(layout.done.generation).unwrap();
            attachment.undo().unwrap();
        }
    }
}

fn assert_original(program: &Program, attachment: &Attachment) {
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let module = Module::open(attachment.process(), &loaded).unwrap();
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
}

fn states(attachment: &Attachment) -> Vec<(u32, GenerationState)> {
    attachment.generations().iter().map(|it| (it.number, it.state)).collect()
}

#[test]
fn program_keeps_its_results_with_each_of_several_layouts() {
    let program = language();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let made = make(&mut attachment, MAX_LAYOUTS);
    let generations: Vec<u32> = made.all().map(|layout| layout.done.generation).collect();
    // Layouts may be skipped, because no function gains enough for instance.
    assert!(generations.len() >= 4, "{:?}", made.skipped);
    assert_eq!(attachment.generations().len(), generations.len(), "none is unmapped");
    for &number in generations.iter().rev().chain(&generations) {
        attachment.activate_generation(number).unwrap();
        let active = states(&attachment);
        let active: Vec<_> =
            active.iter().filter(|it| it.1 == GenerationState::Active).map(|it| it.0).collect();
        assert_eq!(active, [number]);
        assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
        victim.assert_alive();
        if number % 3 == 0 {
            attachment.undo().unwrap();
            assert_original(&program, &attachment);
            victim.assert_alive();
        }
    }
    // The layout to redo is the one that was active, not the newest.
    attachment.activate_generation(generations[1]).unwrap();
    attachment.undo().unwrap();
    attachment.redo().unwrap();
    let active = |it: &&(u32, GenerationState)| it.1 == GenerationState::Active;
    assert_eq!(states(&attachment).iter().find(active).unwrap().0, generations[1]);
    attachment.undo().unwrap();
    assert_original(&program, &attachment);
    attachment.retire_unused().unwrap();
    for _ in 0..20 {
        attachment.free().unwrap();
    }
    assert_eq!(attachment.generations(), []);
    let error = attachment.activate_generation(generations[0]).unwrap_err().to_string();
    assert!(error.contains("optimiz"), "{error}");
    victim.end();
}

#[test]
fn replaced_layouts_are_kept_within_the_limit_by_default() {
    let program = language();
    let victim = program.start();
    let mut attachment =
        crate::copies::attach_with(&program, victim.pid(), ProbeOptions::default());
    let first = make(&mut attachment, 3).all().count();
    let second = make(&mut attachment, 2).all().count();
    assert_eq!(attachment.generations().len(), first + second);
    attachment.undo().unwrap();
    assert_original(&program, &attachment);
    victim.end();
}

#[test]
fn race_has_a_winner_which_is_undone_if_it_is_not_better() {
    let program = language();
    let victim = program.start();
    let mut attachment = attach(&program, &victim);
    let made = make(&mut attachment, 2);
    let generations: Vec<u32> = made.all().map(|layout| layout.done.generation).collect();
    drop(attachment);
    // Time as work: busy threads need the same CPU time for it with every layout.
    let work = WorkCounter::new(victim.pid(), "date +%s%N");
    let mut group = AttachedGroup::open(
        victim.pid(),
        &[],
        &program.state(),
        ProbeOptions::default(),
        MAX_PAUSE,
    )
    .unwrap();
    let race = work.race(&mut group, &generations, || false).unwrap();
    let winner = race.result.winner.unwrap();
    assert!(race.result.layouts.iter().all(|it| it.rounds == 1 && it.blocks >= 4), "{race:?}");
    assert!(race.longest_stop <= race.stopped);
    let time = Duration::from_secs(1);
    let outcome = work.confirm(&mut group, time, KeepRule::Always, || false).unwrap();
    assert_eq!(outcome.result.pairs.len(), 10);
    drop(group);
    let mut attachment = attach(&program, &victim);
    let active = |it: &&(u32, GenerationState)| it.1 == GenerationState::Active;
    assert_eq!(states(&attachment).iter().find(active).unwrap().0, generations[winner]);
    attachment.undo().unwrap();
    assert_original(&program, &attachment);
    victim.end();
}

#[test]
fn first_layout_is_active_after_a_race_without_a_winner() {
    let program = language();
    let victim = program.start();
    let mut attachment = attach(&program, &victim);
    let generations: Vec<u32> =
        make(&mut attachment, 3).all().map(|layout| layout.done.generation).collect();
    assert!(generations.len() > 1);
    drop(attachment);
    let active = |it: &&(u32, GenerationState)| it.1 == GenerationState::Active;
    // Stopped in its first round, and failed.
    for (command, is_stopped) in [("date +%s%N", true), ("false", false)] {
        let probe = ProbeOptions::default();
        let mut group =
            AttachedGroup::open(victim.pid(), &[], &program.state(), probe, MAX_PAUSE).unwrap();
        group.switch(|it| it.activate_generation(*generations.last().unwrap())).unwrap();
        let work = WorkCounter::new(victim.pid(), command);
        let race = work.race(&mut group, &generations, || is_stopped);
        assert_eq!(race.ok().map(|race| race.result.winner), is_stopped.then_some(None));
        drop(group);
        let attachment = attach(&program, &victim);
        assert_eq!(states(&attachment).iter().find(active).unwrap().0, generations[0]);
    }
    attach(&program, &victim).undo().unwrap();
    victim.end();
}
