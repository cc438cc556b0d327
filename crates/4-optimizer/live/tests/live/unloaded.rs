//! A library with redirected functions is unloaded.

use dbdyno_live::{Activation, Patch};

use crate::copies::{attach, copy, optimize};
use crate::victim::Program;

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
