//! A thread that cannot be stopped is reported.

use std::time::Duration;

use dbdyno_live::{Attachment, LiveError, Module, ProbeOptions, Process, find_record};

use crate::victim::Program;

#[test]
fn thread_that_hangs_in_the_kernel_is_reported() {
    let program = Program::compile("hangs.c", "gcc", &["-O2"]);
    let mut victim = program.start();
    let process = Process::open(victim.pid(), ProbeOptions::default()).unwrap();
    let mut attachment =
        Attachment::open(process, &program.state(), Duration::from_millis(50)).unwrap();
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    attachment.begin().unwrap();
    let error = attachment.reserve(&loaded.range, 64 << 10, false).unwrap_err();
    assert!(matches!(error, LiveError::NotStopped { missing: 1, .. }), "{error}");
    victim.assert_alive();
    // Borrowed code is not restored yet, because the threads could not be stopped.
    let record = find_record(&program.state(), attachment.process().identity()).unwrap().unwrap();
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
