//! Huge pages for new code, unloaded and unreadable files, and filters of the system calls that map memory.

use std::path::Path;
use std::{fs, thread};

use dbdyno_live::{Activation, Attachment, Module, Patch, ProbeOptions, Process};

use crate::copies::{MAX_PAUSE, attach, attach_with, copy, optimize};
use crate::victim::{Program, Victim};

/// Bytes of huge pages in the code of new memory of a program.
fn huge_bytes(flags: &[&str]) -> u64 {
    let program = Program::compile("huge.c", "gcc", flags);
    let mut victim = program.start();
    let options = ProbeOptions { allow_seccomp: true, ..ProbeOptions::default() };
    let mut attachment = attach_with(&program, victim.pid(), options);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    attachment.begin().unwrap();
    let area = attachment.reserve(&loaded.range, 3 << 20, true).unwrap();
    attachment.process().memory().write(area.address, &[0xc3]).unwrap();
    attachment.process().memory().write(area.address + (2 << 20), &[0xc3]).unwrap();
    let text = fs::read_to_string(format!("/proc/{}/smaps", victim.pid())).unwrap();
    let (_, code) = text.split_once(&format!("{:x}-", area.address)).unwrap();
    let field = code.lines().find_map(|line| line.strip_prefix("AnonHugePages:")).unwrap();
    let kibibytes: u64 = field.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    // The setting of the program is as before.
    victim.assert_alive();
    drop(attachment);
    victim.end();
    kibibytes << 10
}

#[test]
fn new_code_has_huge_pages_even_if_the_process_disables_them() {
    let permitted = huge_bytes(&["-O2", "-DPERMITTED"]);
    if permitted < 4 << 20 {
        return dbdyno_fuzz::skip(&format!(
            "the machine has no free huge pages ({permitted} bytes)"
        ));
    }
    assert_eq!(huge_bytes(&["-O2"]), permitted);
}

#[test]
fn filter_that_forbids_huge_pages_is_respected() {
    assert_eq!(huge_bytes(&["-O2", "-DFILTERED"]), 0);
    // Also if dbdyno cannot read it.
    thread::spawn(|| {
        filter_own_system_calls();
        assert_eq!(huge_bytes(&["-O2", "-DFILTERED"]), 0);
    })
    .join()
    .unwrap();
}

/// Adds a filter that permits everything to this thread. The kernel then shows it no filters of others.
fn filter_own_system_calls() {
    let code = (libc::BPF_RET | libc::BPF_K) as u16;
    let mut step = libc::sock_filter { code, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW };
    let filter = libc::sock_fprog { len: 1, filter: &raw mut step };
    // SAFETY: numbers, and a live filter.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter), 0);
    }
}

/// Makes the program execute these steps, then checks that only the library's functions are forgotten.
fn check_after(steps: &[u8]) {
    let flags = ["-O2", "-shared", "-fPIC"];
    let library = Program::compile("plugin.c", "gcc", &flags);
    let name = format!("-DLIBRARY=\"{}\"", library.path.display());
    let program = Program::compile("plugin.c", "gcc", &["-O2", &name]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    attachment.begin().unwrap();
    let mut patch = Patch::default();
    let module = copy(&program, &mut attachment, &mut patch);
    let of_program = patch.entries.len();
    copy(&library, &mut attachment, &mut patch);
    let of_library = patch.entries[of_program..].to_vec();
    attachment.install(&patch).unwrap();
    victim.assert_alive();
    for step in steps {
        victim.ask(*step);
    }
    let bytes = |at: u64| attachment.process().memory().read(at, 5).ok();
    let before: Vec<_> = of_library.iter().map(|entry| bytes(entry.address)).collect();
    assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    attachment.redo().unwrap();
    assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(attachment.generations()[0].entries.len(), of_program);
    victim.assert_alive();
    optimize(&program, &mut attachment);
    victim.assert_alive();
    attachment.undo().unwrap();
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    let bytes = |at: u64| attachment.process().memory().read(at, 5).ok();
    let now: Vec<_> = of_library.iter().map(|entry| bytes(entry.address)).collect();
    assert_eq!(now, before);
    victim.end();
}

#[test]
fn other_functions_are_undone_redone_and_optimized_after_unload() {
    check_after(b"u");
}

#[test]
fn other_functions_are_undone_and_redone_after_remapping() {
    check_after(b"um");
}

#[test]
fn code_mapped_from_a_device_is_not_read() {
    let program = Program::compile("zero.c", "gcc", &["-O1"]);
    let victim = program.start();
    let attachment = attach(&program, &victim);
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps);
    let device = loaded.iter().find(|it| it.path == Path::new("/dev/zero")).unwrap();
    // Reading it would never end.
    let error = Module::open(attachment.process(), device).unwrap_err().to_string();
    assert!(error.contains("regular file"), "{error}");
}

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
    attachment.retire_unused(None).unwrap();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}
