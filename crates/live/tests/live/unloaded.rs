//! A library is unloaded while functions of it lead to new code.

use dbdyno_live::{Activation, Patch};

use crate::copies::{attach, copy, optimize};
use crate::victim::Program;

/// Has the program do this, then checks that nothing but the library's functions is lost.
fn after(steps: &[u8]) {
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
    victim.is_well();
    for step in steps {
        victim.ask(*step);
    }
    let bytes = |at: u64| attachment.process().memory().read(at, 5).ok();
    let there: Vec<_> = of_library.iter().map(|entry| bytes(entry.address)).collect();
    assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
    attachment.undo().unwrap();
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    attachment.redo().unwrap();
    assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(attachment.generations()[0].entries.len(), of_program);
    victim.is_well();
    optimize(&program, &mut attachment);
    victim.is_well();
    attachment.undo().unwrap();
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    let bytes = |at: u64| attachment.process().memory().read(at, 5).ok();
    let now: Vec<_> = of_library.iter().map(|entry| bytes(entry.address)).collect();
    assert_eq!(now, there);
    victim.end();
}

#[test]
fn the_rest_can_be_undone_and_redone_and_optimized_anew() {
    after(b"u");
}

#[test]
fn the_rest_can_be_changed_also_when_something_else_is_in_its_place() {
    after(b"um");
}
