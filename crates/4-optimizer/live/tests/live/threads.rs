//! Threads in uninterruptible sleep, in restartable sequences, with locks, that hang, and workers of the kernel.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dbdyno_live::{
    Activation, Attachment, GenerationState, LiveError, Module, Patch, ProbeOptions, Process,
    find_record,
};

use crate::copies::{attach, attach_briefly, optimize, prepare};
use crate::victim::{Program, Victim};

#[test]
fn program_is_optimized_while_a_thread_is_in_uninterruptible_sleep() {
    let program = Program::compile("blocked.c", "gcc", &["-O2"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no userfaultfd");
    };
    let mut attachment = attach_briefly(&program, victim.pid(), Duration::from_secs(3));
    let done = optimize(&program, &mut attachment);
    assert_eq!((done.threads, done.blocked), (2, 1), "{done:?}");
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    // Its registers are not known, so nothing may be unmapped.
    attachment.retire_unused(None).unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    assert_eq!(attachment.generations().len(), 1);
    optimize(&program, &mut attachment);
    // It continues in optimized code.
    victim.end_hang();
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn hundreds_of_threads_are_stopped_but_not_within_a_short_pause() {
    for flags in [&["-O2"][..], &["-O2", "-DEPOLL"]] {
        let program = Program::compile("crowd.c", "gcc", flags);
        let Some(mut victim) = program.start_if_supported() else {
            return dbdyno_fuzz::skip("a process may not have 600 threads here");
        };
        let mut hasty = attach_briefly(&program, victim.pid(), Duration::from_millis(5));
        let refused = hasty.begin().unwrap_err().to_string();
        let expected = "it has 601 threads, more than the 50 that may stop";
        assert!(refused.contains(expected), "{refused}");
        drop(hasty);
        let mut attachment = attach(&program, &victim);
        let done = optimize(&program, &mut attachment);
        assert_eq!(done.threads, 601, "{done:?}");
        assert_eq!(attachment.activation().unwrap(), Activation::Full);
        victim.assert_alive();
        attachment.undo().unwrap();
        assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
        victim.end();
    }
}

/// Waits until the first thread is in uninterruptible sleep.
fn wait_until_blocked(victim: &Victim) {
    let start = Instant::now();
    let is_blocked = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", victim.pid())).unwrap();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
    };
    while !is_blocked() {
        assert!(start.elapsed() < Duration::from_secs(60), "it is not blocked");
        sleep(Duration::from_millis(1));
    }
}

/// Kills the process that holds the lock.
fn end_hang(victim: &mut Victim) {
    let pid = victim.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let holder: i32 = children.trim().parse().unwrap();
    // SAFETY: takes numbers; the child of our child was not waited for.
    assert_eq!(unsafe { libc::kill(holder, libc::SIGKILL) }, 0);
    victim.expect_alive();
}

#[test]
fn program_whose_only_thread_is_in_uninterruptible_sleep_is_undone() {
    let program = Program::compile("blocked.c", "gcc", &["-O2", "-DONE_THREAD"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no userfaultfd");
    };
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    victim.assert_alive();
    victim.tell(b'h');
    wait_until_blocked(&victim);
    let undone = attachment.undo().unwrap();
    assert_eq!((undone.threads, undone.blocked), (1, 1), "{undone:?}");
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    attachment.redo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    // New memory needs a thread that maps it.
    attachment.begin().unwrap();
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let error = attachment.reserve(&loaded.range, 64 << 10, false).unwrap_err();
    assert!(matches!(error, LiveError::NoSafePoint { .. }), "{error}");
    assert!(error.is_transient());
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    end_hang(&mut victim);
    optimize(&program, &mut attachment);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

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
    attachment.retire_unused(None).unwrap();
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

#[test]
fn worker_of_the_kernel_executes_no_call_for_dbdyno() {
    let program = Program::compile("workers.c", "gcc", &["-O2"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no io_uring, or has started no worker");
    };
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn worker_of_the_kernel_in_uninterruptible_sleep_is_not_waited_for() {
    let program = Program::compile("blocked.c", "gcc", &["-O2", "-DWORKER"]);
    let Some(mut victim) = program.start_if_supported() else {
        return dbdyno_fuzz::skip("the kernel permits no userfaultfd or no io_uring");
    };
    let mut attachment = attach(&program, &victim);
    let done = optimize(&program, &mut attachment);
    assert_eq!((done.threads, done.blocked), (2, 1), "{done:?}");
    victim.assert_alive();
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    victim.end();
}

#[test]
fn thread_that_hangs_in_the_kernel_is_reported() {
    let program = Program::compile("hangs.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let process = Process::open(victim.pid(), ProbeOptions::default()).unwrap();
    // The other threads must stop within this time on a busy machine, too.
    let max_pause = Duration::from_secs(2);
    let mut attachment = Attachment::open(process, &program.state(), max_pause).unwrap();
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    attachment.begin().unwrap();
    let error = attachment.reserve(&loaded.range, 64 << 10, false).unwrap_err();
    assert!(matches!(error, LiveError::NotStopped { missing: 1, .. }), "{error}");
    victim.assert_alive();
    // Borrowed code is not restored yet, because the threads could not be stopped.
    let record = find_record(&program.state(), attachment.process().identity()).unwrap().unwrap();
    assert_eq!(record.max_pause(), Some(max_pause));
    let borrowed = record.borrowed.unwrap();
    let now = |attachment: &Attachment| {
        attachment.process().memory().read(borrowed.address, borrowed.original.len()).unwrap()
    };
    assert_ne!(now(&attachment), borrowed.original);
    victim.end_hang();
    attachment.reserve(&loaded.range, 64 << 10, false).unwrap();
    assert_eq!(now(&attachment), borrowed.original);
    victim.end();
}
