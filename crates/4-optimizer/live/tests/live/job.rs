//! The whole job, as its users run it, and complete optimizations of programs with features that make moving code
//! difficult.

use std::time::Duration;

use dbdyno_live::{
    AbTest, Activation, Attachment, Event, KeepRule, Module, OptimizeError, OptimizeJob, Optimized,
    ProbeOptions, ProcessProfile, SamplingOptions, SamplingRequest, Supervision, Target,
    WorkCounter, map_to_original, optimize, sample,
};
use dbdyno_relayout::{Options, Samples};

use crate::copies::{MAX_PAUSE, attach};
use crate::killed::assert_undoable;
use crate::victim::{Program, Victim};

pub fn job(program: &Program, victim: &Victim, count: bool) -> OptimizeJob {
    OptimizeJob {
        target: Target {
            pid: victim.pid(),
            family: false,
            state: program.state(),
            probe: ProbeOptions::default(),
            max_pause: MAX_PAUSE,
        },
        count,
        layout: Options::default(),
        symbols: false,
        ab_test: None,
    }
}

#[test]
fn job_samples_counts_lays_out_and_compares() {
    let program = Program::compile("language.cpp", "g++", &["-O2"]);
    let mut victim = program.start();
    // Time as work: busy threads need the same CPU time for it with every layout.
    let work = WorkCounter::new(victim.pid(), "date +%s%N");
    let ab_test = AbTest { work, time: Duration::from_secs(1), keep: KeepRule::IfBetter };
    let job = OptimizeJob { ab_test: Some(ab_test), ..job(&program, &victim, true) };
    let mut seen = Vec::new();
    let mut events = |event: Event<'_>| {
        seen.push(match event {
            Event::Sampling { .. } => "sampling",
            Event::Sampled { .. } => "sampled",
            Event::Counting => "counting",
            Event::AbTest(_) => "A/B test",
            _ => return,
        });
    };
    let attachment = job.attach(&mut events).unwrap();
    let request = SamplingRequest {
        time: Some(Duration::from_millis(400)),
        frequency: Some(1_999),
        counted: true,
        ..SamplingRequest::default()
    };
    let profile = ProcessProfile::sample(&attachment, false, &request, &mut events).unwrap();
    let outcome = job.run(attachment, profile, Supervision::NONE, &mut events).unwrap();
    assert_eq!(seen, ["sampling", "sampled", "counting", "A/B test"]);
    assert!(outcome.optimized.code.statistics.functions_moved > 0, "{outcome:?}");
    assert!(!outcome.has_failed(), "{:?}", outcome.effect);
    let json = serde_json::to_value(&outcome).unwrap();
    assert_eq!(json["pid"], victim.pid());
    assert_eq!(json["profile"]["seconds"], 0.4);
    assert!(json["counting"]["bursts"].is_number() && json["effect"]["pairs"].is_array(), "{json}");
    let is_active = json["effect"]["active"] == true;
    assert_eq!(attach(&program, &victim).active_number().is_some(), is_active);
    victim.assert_alive();
    assert_undoable(&program, &mut victim);
    victim.end();
}

#[test]
fn cancelled_job_restores_the_code_that_was_active() {
    let program = Program::compile("language.cpp", "g++", &["-O2"]);
    let mut victim = program.start();
    let attachment = attach(&program, &victim);
    let profile = ProcessProfile::given(samples(&attachment));
    let supervision = Supervision { is_cancelled: &|| true, guard: None };
    let job = job(&program, &victim, false);
    let outcome = job.run(attachment, profile, supervision, &mut |_| ());
    assert!(matches!(outcome, Err(OptimizeError::Cancelled)), "{outcome:?}");
    assert_eq!(attach(&program, &victim).active_number(), None);
    assert_undoable(&program, &mut victim);
    victim.end();
}

#[test]
fn error_names_the_sampled_files_that_cannot_be_optimized_with_reasons() {
    let flags = ["-O2", "-static-libgcc", "-static-libstdc++"];
    let program = Program::compile("language.cpp", "g++", &flags);
    let victim = program.start();
    let job = job(&program, &victim, false);
    let attachment = job.attach_unchanged().unwrap();
    let mut only_own = Samples::default();
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let all = samples(&attachment);
    let own = all.hits().iter().filter(|(address, _)| loaded.range.contains(address));
    own.for_each(|(address, count)| only_own.add_hit(*address, *count));
    let planned = job.plan(attachment, &mut ProcessProfile::given(only_own), &mut |_| ());
    let text = planned.unwrap_err().to_string();
    let file = program.path.display();
    assert!(text.contains(&format!("; {file} is left alone: ")), "{text}");
    assert!(text.contains("handles exceptions") && !text.contains("sample for longer"), "{text}");
    victim.end();
}

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

/// Samples a program for a moment. The samples are in original code.
pub fn samples(attachment: &Attachment) -> Samples {
    let sampling = SamplingOptions {
        time: Duration::from_millis(400),
        frequency: 1_999,
        ..SamplingOptions::default()
    };
    let sampled = sample(attachment.process().pid(), false, &sampling, |_| false).unwrap();
    map_to_original(attachment, &sampled.samples)
}
