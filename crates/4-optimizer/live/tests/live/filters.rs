//! System call filters.

use dbdyno_live::{Activation, Attachment, ProbeOptions, Process};

use crate::copies::{MAX_PAUSE, attach, optimize};
use crate::victim::{Program, Victim};

/// The program; an error if dbdyno may not read its filter.
fn start(program: &Program) -> Result<(Victim, Attachment), String> {
    let victim = program.start();
    match Process::open(victim.pid(), ProbeOptions::default()) {
        Ok(process) => {
            let attachment = Attachment::open(process, &program.state(), MAX_PAUSE).unwrap();
            Ok((victim, attachment))
        }
        Err(error) => {
            assert!(error.to_string().contains("only root outside of such filters"), "{error}");
            Err(error.to_string())
        }
    }
}

#[test]
fn process_whose_filter_forbids_executable_memory_is_refused_and_lives() {
    let program = Program::compile("filter.c", "gcc", &["-O2"]);
    let (mut victim, mut attachment) = match start(&program) {
        Ok(started) => started,
        Err(reason) => return dbdyno_fuzz::skip(&reason),
    };
    let error = attachment.begin().unwrap_err().to_string();
    assert!(error.contains("(seccomp) kills the process for mmap of executable memory"), "{error}");
    assert_eq!(attachment.generations(), []);
    victim.assert_alive();
    victim.end();
}

#[test]
fn process_whose_filter_permits_all_calls_is_optimized() {
    let program = Program::compile("filter.c", "gcc", &["-O2", "-DEXECUTABLE"]);
    let (mut victim, mut attachment) = match start(&program) {
        Ok(started) => started,
        Err(reason) => return dbdyno_fuzz::skip(&reason),
    };
    optimize(&program, &mut attachment);
    assert_eq!(attachment.activation().unwrap(), Activation::Full);
    victim.assert_alive();
    attachment.undo().unwrap();
    drop(attachment);
    // Also by another dbdyno, which unmaps the code.
    let mut attachment = attach(&program, &victim);
    attachment.retire_unused().unwrap();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}
