//! Threads in uninterruptible sleep.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

use dbdyno_live::{Activation, LiveError, Module};

use crate::copies::{attach, attach_briefly, optimize};
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
    attachment.retire_unused().unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    assert_eq!(attachment.generations().len(), 1);
    optimize(&program, &mut attachment);
    // It continues in optimized code.
    victim.end_hang();
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
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
