//! A library is unloaded while functions of it lead to new code.

use dbdyno_live::{InForce, Patch};

use crate::copies::{copy, keeper, optimize};
use crate::victim::Program;

/// Has the program do this, then checks that nothing but the library's functions is lost.
fn after(steps: &[u8]) {
    let flags = ["-O2", "-shared", "-fPIC"];
    let library = Program::compile("plugin.c", "gcc", &flags);
    let name = format!("-DLIBRARY=\"{}\"", library.path.display());
    let program = Program::compile("plugin.c", "gcc", &["-O2", &name]);
    let mut victim = program.start();
    let mut keeper = keeper(&program, &victim);
    keeper.begin().unwrap();
    let mut patch = Patch::default();
    let module = copy(&program, &mut keeper, &mut patch);
    let of_program = patch.entries.len();
    copy(&library, &mut keeper, &mut patch);
    let of_library = patch.entries[of_program..].to_vec();
    keeper.install(&patch).unwrap();
    victim.is_well();
    for step in steps {
        victim.ask(*step);
    }
    let bytes = |at: u64| keeper.process().memory().read(at, 5).ok();
    let there: Vec<_> = of_library.iter().map(|entry| bytes(entry.address)).collect();
    assert_ne!(keeper.now().unwrap(), InForce::No);
    keeper.undo().unwrap();
    assert_eq!(keeper.now().unwrap(), InForce::No);
    assert_eq!(module.differences(keeper.process()).unwrap(), []);
    keeper.redo().unwrap();
    assert_ne!(keeper.now().unwrap(), InForce::No);
    assert_eq!(keeper.generations()[0].entries.len(), of_program);
    victim.is_well();
    optimize(&program, &mut keeper);
    victim.is_well();
    keeper.undo().unwrap();
    assert_eq!(module.differences(keeper.process()).unwrap(), []);
    let bytes = |at: u64| keeper.process().memory().read(at, 5).ok();
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
