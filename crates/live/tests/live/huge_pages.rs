//! Huge pages for new code.

use std::fs;

use dbdyno_live::Module;

use crate::copies::attach;
use crate::victim::Program;

/// Bytes of huge pages in the code of new memory of a program.
fn huge_bytes(flags: &[&str]) -> u64 {
    let program = Program::compile("huge.c", "gcc", flags);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
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
        return println!("skipped: the machine has no free huge pages ({permitted} bytes)");
    }
    assert_eq!(huge_bytes(&["-O2"]), permitted);
}
