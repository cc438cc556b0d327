//! The whole job, as its users run it.

use std::time::Duration;

use dbdyno_live::{
    AbTest, Event, KeepRule, OptimizeError, OptimizeJob, ProbeOptions, ProcessProfile,
    SamplingRequest, Supervision, Target, WorkCounter,
};
use dbdyno_relayout::Options;

use crate::copies::{MAX_PAUSE, attach};
use crate::killed::assert_undoable;
use crate::sampling::samples;
use crate::victim::{Program, Victim};

fn job(program: &Program, victim: &Victim, count: bool) -> OptimizeJob {
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
