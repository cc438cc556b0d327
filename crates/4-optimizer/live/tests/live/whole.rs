//! Complete optimizations of programs with features that make moving code difficult.

use dbdyno_live::{Activation, Attachment, Module, Optimized, optimize};
use dbdyno_relayout::Options;

use crate::copies::attach;
use crate::sampling::samples;
use crate::victim::{Program, Victim};

/// Samples a program and optimizes it.
pub fn optimize_once(attachment: &mut Attachment, options: &Options) -> Optimized {
    let samples = samples(attachment);
    optimize(attachment, &samples, options, |_| ()).unwrap().0
}

fn optimize_repeatedly(program: &Program, mut victim: Victim, rounds: u32) {
    let mut attachment = attach(program, &victim);
    for round in 0..rounds {
        let reorder = round % 2 == 0;
        let options = Options::default();
        let options = if reorder { options } else { options.in_original_order() };
        let done = optimize_once(&mut attachment, &options);
        assert!(done.code.statistics.functions_moved > 0, "{done:?}");
        victim.assert_alive();
        if round % 3 == 1 {
            attachment.undo().unwrap();
            assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
            victim.assert_alive();
        }
    }
    attachment.undo().unwrap();
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let module = Module::open(attachment.process(), &loaded).unwrap();
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    victim.end();
}

#[test]
fn cpp_program_keeps_its_results() {
    let program = Program::compile("language.cpp", "g++", &["-O2"]);
    let victim = program.start();
    optimize_repeatedly(&program, victim, 4);
}

#[test]
fn stripped_cpp_program_at_fixed_addresses_keeps_its_results() {
    let program = Program::compile("language.cpp", "clang++", &["-O1", "-no-pie", "-s"]);
    let victim = program.start();
    optimize_repeatedly(&program, victim, 4);
}

#[test]
fn program_with_threads_and_signals_keeps_its_results() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let victim = program.start();
    optimize_repeatedly(&program, victim, 4);
}

#[test]
fn program_that_runs_in_a_signal_handler_keeps_its_results() {
    let program = Program::compile("handler.cpp", "g++", &["-O2"]);
    let victim = program.start();
    optimize_repeatedly(&program, victim, 3);
}
