//! Exact counts of a running program.

use std::process::{Child, Command, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use dbdyno_live::{
    Activation, Attachment, Counted, CountingOptions, Generation, GenerationState,
    InstructionCounting, LiveError, Module, OptimizeJob, ProcessProfile, SampledFunction, count,
    live_records, optimize,
};
use dbdyno_relayout::{Options, SampleRequirement, Samples};
use dbdyno_units::Nanos;

use crate::copies::{attach, attach_as_helper, attach_to};
use crate::job::{job, samples};
use crate::killed::assert_undoable;
use crate::victim::{Program, Victim};

const PID: &str = "DBDYNO_TEST_PID";
const STATE: &str = "DBDYNO_TEST_STATE";
const FILE: &str = "DBDYNO_TEST_FILE";

fn counted(attachment: &mut Attachment, counting: &CountingOptions) -> Counted {
    let samples = samples(attachment);
    count(attachment, &samples, &Options::default(), counting, || false).unwrap()
}

/// Many short bursts: the programs check themselves.
const BURSTS: CountingOptions = CountingOptions {
    bursts: 12,
    burst: Duration::from_millis(15),
    max_slowdown: f64::INFINITY,
    max_cpus_unmeasured: f64::INFINITY,
    min_executions: 1,
};

fn compile() -> Program {
    Program::compile("language.cpp", "g++", &["-O2"])
}

#[test]
fn executions_are_counted_and_used_for_the_layout() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    for earlier in [Activation::Inactive, Activation::Full] {
        let Counted { samples, report } = counted(&mut attachment, &BURSTS);
        assert_eq!(report.fallback, None, "{report:?}");
        assert!(report.functions > 0 && report.executions > 1_000, "{report:?}");
        assert_eq!(report.bursts, BURSTS.bursts);
        assert!(samples.block_counts().len() as u64 >= report.counters);
        victim.assert_alive();
        assert_eq!(attachment.activation().unwrap(), earlier);
        let (done, _) = optimize(&mut attachment, &samples, &Options::default(), |_| ()).unwrap();
        assert!(done.code.statistics.functions_counted > 0, "{done:?}");
        victim.assert_alive();
        assert!(attachment.generations().iter().any(|it| it.state == GenerationState::Active));
    }
    attachment.undo().unwrap();
    drop(attachment);
    assert_undoable(&program, &mut victim);
    victim.end();
}

#[test]
fn instructions_are_counted_while_work_is_done() {
    let program = compile();
    let mut victim = program.start();
    let attachment = attach(&program, &victim);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let bias = Module::open(attachment.process(), &loaded).unwrap().bias();
    let mut functions = Vec::new();
    for (address, samples) in samples(&attachment).hits() {
        if loaded.range.contains(address) {
            let (module, start) = ("victim".to_owned(), address - bias);
            functions.push(SampledFunction { module, start, samples: *samples });
        }
    }
    drop(attachment);
    let target = job(&program, &victim, false).target;
    let counting = InstructionCounting::prepare(&target, &functions).unwrap();
    let ((), executed) = counting.count(|| {
        sleep(Duration::from_millis(300));
        victim.assert_alive();
    });
    let executed = executed.unwrap();
    let instructions: u64 = executed.iter().map(|function| function.instructions).sum();
    assert!(instructions > 10_000, "{executed:?}");
    assert!(executed.iter().all(|function| function.module == "victim"), "{executed:?}");
    let starts = program.functions("").into_iter().map(|(start, _)| start).collect::<Vec<u64>>();
    assert!(executed.iter().any(|function| starts.contains(&function.start)), "{executed:?}");
    victim.assert_alive();
    assert_eq!(attach(&program, &victim).activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn code_that_counts_is_never_redone() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let report = counted(&mut attachment, &BURSTS).report;
    assert_eq!(report.fallback, None);
    assert!(matches!(attachment.redo(), Err(LiveError::NothingToRedo { .. })));
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    victim.assert_alive();
    victim.end();
}

#[test]
fn inactive_optimization_can_be_redone_after_counting() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    optimize(&mut attachment, &samples, &Options::default(), |_| ()).unwrap();
    attachment.undo().unwrap();
    let number = attachment.generations().last().unwrap().number;
    assert_eq!(counted(&mut attachment, &BURSTS).report.fallback, None);
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    attachment.redo().unwrap();
    assert_eq!(active(&attachment), [number]);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn optimization_can_be_redone_after_undo_was_killed_before_it_was_recorded() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    optimize(&mut attachment, &samples, &Options::default(), |_| ()).unwrap();
    let number = attachment.generations().last().unwrap().number;
    assert_eq!(counted(&mut attachment, &BURSTS).report.fallback, None);
    assert_eq!(active(&attachment), [number]);
    let journal = std::fs::read_dir(program.state()).unwrap().next().unwrap().unwrap();
    let journal = journal.path().join("journal.json");
    for undo_again in [false, true] {
        let before = std::fs::read(&journal).unwrap();
        attachment.undo().unwrap();
        drop(attachment);
        std::fs::write(&journal, before).unwrap();
        attachment = attach(&program, &victim);
        if undo_again {
            attachment.undo().unwrap();
        }
        attachment.redo().unwrap();
        assert_eq!(active(&attachment), [number]);
        victim.assert_alive();
    }
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn slowdown_is_relative_to_the_original_code_also_after_an_optimization() {
    // Its threads wait often enough to measure it.
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let one = CountingOptions { bursts: 1, burst: Duration::from_millis(400), ..BURSTS };
    let slowdown = |attachment: &mut Attachment| {
        let counted = count(attachment, &samples, &Options::default(), &one, || false).unwrap();
        assert_eq!(counted.report.fallback, None, "{:?}", counted.report);
        counted.report.slowdown
    };
    assert!(slowdown(&mut attachment).is_some());
    optimize(&mut attachment, &samples, &Options::default(), |_| ()).unwrap();
    assert_eq!(slowdown(&mut attachment), None, "the original code was never active");
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn refusal_after_counting_says_what_stays_in_memory() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let required = Some(SampleRequirement { samples: u64::MAX, unsampled: 1.0 });
    let refused = Options { required, ..Options::default() };
    let mut refusal = |counting: &CountingOptions| {
        count(&mut attachment, &samples, &Options::default(), counting, || false).unwrap();
        let areas = attachment.areas().count();
        let done = optimize(&mut attachment, &samples, &refused, |_| ());
        (areas, done.unwrap_err().to_string())
    };
    // Code that was never active is freed.
    let (areas, text) = refusal(&CountingOptions { max_cpus_unmeasured: 0.0, ..BURSTS });
    assert!(areas == 0 && text.contains("was not changed: too few samples"), "{text}");
    let (areas, text) = refusal(&BURSTS);
    assert!(areas > 0 && text.contains("keeps the code that counted its executions"), "{text}");
    victim.assert_alive();
    victim.end();
}

/// Blocks with one sample each are too few for a layout, but not if their executions are counted.
#[test]
fn dry_run_decides_as_the_optimization_with_counts_does() {
    let program = compile();
    let mut victim = program.start();
    let plan = |samples: &Samples, count: bool, required: Option<SampleRequirement>| {
        let layout = Options { required, ..Options::default() };
        let job = OptimizeJob { layout, ..job(&program, &victim, count) };
        let attachment = job.attach_unchanged().unwrap();
        job.plan(attachment, &mut ProcessProfile::given(samples.clone()), &mut |_| ()).unwrap()
    };
    // On a busy machine there are few samples: until some block has only one.
    let (sparse, unsampled) = loop {
        let unchanged = job(&program, &victim, false).attach_unchanged().unwrap();
        let mut sparse = Samples::default();
        samples(&unchanged).hits().keys().for_each(|address| sparse.add_hit(*address, 1));
        drop(unchanged);
        let precision = plan(&sparse, false, None).planned.code.statistics.precision;
        if let Some(unsampled) = precision.unsampled().filter(|share| *share > 0.0) {
            break (sparse, unsampled / 2.0);
        }
    };
    let required = Some(SampleRequirement { samples: 1, unsampled });
    let planned = plan(&sparse, true, required);
    let counting = planned.counting.as_ref().unwrap();
    match &counting.fallback {
        None => assert!(planned.refused.is_none() && counting.refused_without.is_some()),
        // Its threads used several CPUs, and waited too rarely.
        Some(reason) => assert!(planned.refused.is_some() && reason.starts_with("it uses")),
    }
    let options = Options { required, ..Options::default() };
    let mut attachment = attach(&program, &victim);
    assert!(optimize(&mut attachment, &sparse, &options, |_| ()).is_err());
    // In a process that hardly runs, some functions are not executed during the first bursts.
    let mut samples = sparse;
    let accepted = (0..100).any(|_| {
        samples = count(&mut attachment, &samples, &options, &BURSTS, || false).unwrap().samples;
        optimize(&mut attachment, &samples, &options, |_| ()).is_ok()
    });
    assert!(accepted);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn samples_are_used_if_counting_is_ended_or_there_is_nothing_to_count() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let options = Options::default();
    let ended = count(&mut attachment, &samples, &options, &BURSTS, || true).unwrap();
    assert_eq!((ended.report.bursts, &ended.samples), (1, &samples), "{:?}", ended.report);
    assert!(ended.report.fallback.is_some());
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);

    let none = Samples::default();
    let nothing = count(&mut attachment, &none, &options, &BURSTS, || false).unwrap();
    assert!(nothing.report.fallback.is_some() && nothing.report.bursts == 0);
    drop(attachment);
    assert_undoable(&program, &mut victim);
    victim.end();
}

/// The active generations.
fn active(attachment: &Attachment) -> Vec<u32> {
    let is_active = |it: &&Generation| it.state == GenerationState::Active;
    attachment.generations().iter().filter(is_active).map(|it| it.number).collect()
}

#[test]
fn earlier_optimization_is_active_after_counting_whatever_its_outcome() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let options = Options::default();
    let (done, _) = optimize(&mut attachment, &samples, &options, |_| ()).unwrap();
    let earlier = [done.generation];
    let before = attachment.activation().unwrap();
    let mut check = |counting: &CountingOptions, is_cancelled: bool, bursts: u32| {
        let counted = count(&mut attachment, &samples, &options, counting, || is_cancelled);
        let report = counted.unwrap().report;
        assert_eq!((report.bursts, active(&attachment)), (bursts, earlier.to_vec()), "{report:?}");
        assert_eq!(attachment.activation().unwrap(), before);
        report
    };
    // Refused before the code that counts is activated: no thread is stopped to undo anything.
    let refused = CountingOptions { max_cpus_unmeasured: 0.0, ..BURSTS };
    let refused = check(&refused, false, 0);
    assert!(refused.fallback.is_some() && refused.stopped == Nanos::ZERO, "{refused:?}");
    assert!(check(&BURSTS, true, 1).fallback.is_some());
    assert_eq!(check(&BURSTS, false, BURSTS.bursts).fallback, None);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn earlier_optimization_or_the_original_code_is_restored() {
    let program = compile();
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let options = Options::default();
    let (first, _) = optimize(&mut attachment, &samples, &options, |_| ()).unwrap();
    assert_eq!(attachment.active_number(), Some(first.generation));
    optimize(&mut attachment, &samples, &options, |_| ()).unwrap();
    attachment.restore(Some(first.generation)).unwrap();
    assert_eq!(active(&attachment), [first.generation]);
    victim.assert_alive();
    const UNKNOWN: Option<u32> = Some(1_000);
    for earlier in [None, UNKNOWN] {
        attachment.activate_generation(first.generation).unwrap();
        attachment.restore(earlier).unwrap();
        assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    }
    victim.end();
}

/// A helper process for other tests.
#[test]
#[ignore = "started by other tests"]
fn helper_counts_a_program_forever() {
    let Ok(pid) = std::env::var(PID) else { return };
    let program = Program::at(
        std::env::var_os(FILE).unwrap().into(),
        std::env::var_os(STATE).unwrap().into(),
    );
    let mut attachment = attach_as_helper(&program, pid.parse().unwrap());
    let samples = samples(&attachment);
    loop {
        count(&mut attachment, &samples, &Options::default(), &BURSTS, || false).unwrap();
    }
}

struct Counting(Child);

impl Drop for Counting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_counting(program: &Program, victim: &Victim) -> Counting {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "counting::helper_counts_a_program_forever"])
        .env(PID, victim.pid().to_string())
        .env(STATE, program.state())
        .env(FILE, &program.path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    Counting(child)
}

/// Whether a journal has active code that counts.
fn is_counting(program: &Program) -> bool {
    let records = live_records(&program.state());
    let mut generations = records.iter().flat_map(|record| &record.generations);
    generations.any(|it| it.counts && it.state == GenerationState::Active)
}

fn wait_for_a_burst(program: &Program) {
    let start = Instant::now();
    while !is_counting(program) {
        assert!(start.elapsed() < Duration::from_secs(60), "no burst starts");
        sleep(Duration::from_millis(1));
    }
}

#[test]
fn child_forked_in_a_burst_has_the_original_code_afterwards() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let samples = samples(&attachment);
    let long = CountingOptions { bursts: 1, burst: Duration::from_secs(2), ..BURSTS };
    let pid = thread::scope(|scope| {
        let counting = scope.spawn(|| {
            count(&mut attachment, &samples, &Options::default(), &long, || false).unwrap()
        });
        wait_for_a_burst(&program);
        let pid = victim.fork();
        assert!(is_counting(&program), "forked after the burst");
        counting.join().unwrap();
        pid
    });
    let child = attach_to(&program, pid);
    assert!(child.generations().iter().any(|it| it.counts));
    assert_eq!(child.activation().unwrap(), Activation::Inactive);
    victim.assert_alive();
    victim.end();
}

#[test]
fn program_runs_and_is_undoable_after_a_kill_while_it_is_counted() {
    kill_while_counting(8);
}

#[test]
#[ignore = "full"]
fn program_runs_and_is_undoable_after_many_kills_while_it_is_counted() {
    kill_while_counting(40);
}

fn kill_while_counting(count: u64) {
    let program = compile();
    let mut victim = program.start();
    let mut killed_while_active = 0;
    for round in 0..count {
        let counting = start_counting(&program, &victim);
        wait_for_a_burst(&program);
        sleep(Duration::from_micros(round * 7_919 % 40_000));
        drop(counting);
        victim.assert_alive();
        let attachment = attach(&program, &victim);
        killed_while_active += u64::from(attachment.activation().unwrap() != Activation::Inactive);
        drop(attachment);
        assert_undoable(&program, &mut victim);
        let mut attachment = attach(&program, &victim);
        if !attachment.generations().is_empty() {
            assert!(matches!(attachment.redo(), Err(LiveError::NothingToRedo { .. })));
        }
    }
    assert!(killed_while_active > 0, "in no round of {count}");
    victim.end();
}
