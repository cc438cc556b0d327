//! Huge pages for new code.

use std::{fs, thread};

use dbdyno_live::{Module, ProbeOptions};

use crate::copies::attach_with;
use crate::victim::Program;

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
