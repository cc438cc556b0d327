//! Virtual tables that refer to new code.

use dbdyno_live::{Attachment, BytePatch};
use dbdyno_relayout::Options;

use crate::copies::attach;
use crate::job::optimize_once;
use crate::killed::assert_undoable;
use crate::victim::{Program, Victim};

/// The slots of the newest optimization.
fn slots(attachment: &Attachment) -> Vec<BytePatch> {
    let newest = attachment.generations().last().unwrap();
    newest.entries.iter().filter(|entry| !entry.is_jump()).cloned().collect()
}

#[track_caller]
fn assert_content(attachment: &Attachment, slots: &[BytePatch], of: fn(&BytePatch) -> &[u8]) {
    for slot in slots {
        let now = attachment.process().memory().read(slot.address, 8).unwrap();
        assert_eq!(now, of(slot), "{slot:x?}");
    }
}

fn patched(slot: &BytePatch) -> &[u8] {
    &slot.patch
}

fn original(slot: &BytePatch) -> &[u8] {
    &slot.original
}

fn check(compiler: &str, flags: &[&str]) {
    let program = Program::compile("virtual.cpp", compiler, flags);
    let mut victim: Victim = program.start();
    let mut attachment = attach(&program, &victim);
    let done = optimize_once(&mut attachment, &Options::default());
    let first = slots(&attachment);
    // `area` of three classes, `edges` of two in four tables, and `name` in one; most of them are hot.
    assert!(first.len() >= 5 && done.code.virtual_slots == first.len(), "{done:?}");
    assert_content(&attachment, &first, patched);
    let code: Vec<_> = attachment.areas().map(dbdyno_live::Area::code_range).collect();
    for slot in &first {
        let copy = u64::from_le_bytes(slot.patch.clone().try_into().unwrap());
        assert!(code.iter().any(|range| range.contains(&copy)), "{slot:x?}");
    }
    victim.assert_alive();

    attachment.undo().unwrap();
    assert_content(&attachment, &first, original);
    victim.assert_alive();
    attachment.redo().unwrap();
    assert_content(&attachment, &first, patched);
    victim.assert_alive();

    // The next optimization replaces it; its slots have the same originals.
    optimize_once(&mut attachment, &Options::default());
    let second = slots(&attachment);
    assert_content(&attachment, &second, patched);
    for slot in &second {
        let before = first.iter().find(|one| one.address == slot.address);
        assert!(before.is_none_or(|one| one.original == slot.original && one.patch != slot.patch));
    }
    victim.assert_alive();

    let without = Options { virtual_tables: false, ..Options::default() };
    assert_eq!(optimize_once(&mut attachment, &without).code.virtual_slots, 0);
    assert_content(&attachment, &first, original);
    assert_content(&attachment, &second, original);
    victim.assert_alive();
    drop(attachment);
    assert_undoable(&program, &mut victim);
    victim.end();
}

#[test]
fn virtual_tables_refer_to_new_code_until_it_is_undone() {
    check("g++", &["-O2"]);
}

#[test]
fn virtual_tables_of_a_stripped_clang_program_refer_to_new_code() {
    check("clang++", &["-O1", "-s", "-fPIE", "-pie"]);
}

#[test]
fn virtual_tables_with_packed_relocations_refer_to_new_code() {
    check("g++", &["-O2", "-Wl,-z,pack-relative-relocs"]);
}

#[test]
fn tables_of_a_program_at_fixed_addresses_are_left_alone() {
    let program = Program::compile("virtual.cpp", "g++", &["-O2", "-no-pie"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let done = optimize_once(&mut attachment, &Options::default());
    assert!(done.code.statistics.functions_moved > 0, "{done:?}");
    // The C++ library is above, and has relocations.
    assert!(slots(&attachment).iter().all(|slot| slot.address > 1 << 32));
    victim.assert_alive();
    victim.end();
}
