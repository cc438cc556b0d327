//! Functions copied bit by bit, which is enough to test everything but the copying.

use std::time::Duration;

use dbdyno_live::{Block, Entry, InForce, Keeper, Module, Patch, Permit, Process, State, Switched};

use crate::victim::{Program, Victim};

pub const BOUND: Duration = Duration::from_millis(500);

pub fn keeper(program: &Program, victim: &Victim) -> Keeper {
    keeper_of(program, victim.pid())
}

pub fn keeper_of(program: &Program, pid: u32) -> Keeper {
    let process = Process::open(pid, Permit::default()).unwrap();
    Keeper::open(process, &program.state(), BOUND).unwrap()
}

/// Copies the victim's leaves into new memory.
pub fn optimize(program: &Program, keeper: &mut Keeper) -> Switched {
    let (patch, _) = prepare(program, keeper);
    keeper.install(&patch).unwrap()
}

pub fn prepare(program: &Program, keeper: &mut Keeper) -> (Patch, Module) {
    keeper.begin().unwrap();
    let mut patch = Patch::default();
    let module = copy(program, keeper, &mut patch);
    (patch, module)
}

/// Adds copies of the leaves of a program, or of a library, to a patch.
pub fn copy(program: &Program, keeper: &mut Keeper, patch: &mut Patch) -> Module {
    let maps = keeper.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let module = Module::open(keeper.process(), &loaded).unwrap();
    let area = keeper.reserve(module.range(), 64 << 10, false).unwrap();
    let mut next = area.start;
    for (address, size) in program.functions("leaf_") {
        let from = module.bias() + address;
        // As it is in the file: what is in memory may be patched.
        let bytes = module.original(&(from..from + size)).unwrap().to_vec();
        patch.entries.push(Entry {
            address: from,
            original: bytes[..5].to_vec(),
            patch: jump(from, next),
        });
        patch.exits.push(Entry {
            address: next,
            original: bytes[..5].to_vec(),
            patch: jump(next, from),
        });
        patch.map.copies.extend((0..size).map(|at| (from + at, next + at)));
        patch.map.originals.extend((0..size).map(|at| (next + at, from + at)));
        patch.blocks.push(Block { address: next, bytes });
        next += size.next_multiple_of(32);
    }
    patch.entries.retain(Entry::is_on_one_page);
    patch.exits.retain(Entry::is_on_one_page);
    assert!(patch.entries.len() > 2);
    patch.map.copies.sort_unstable();
    patch.map.originals.sort_unstable();
    module
}

fn jump(from: u64, to: u64) -> Vec<u8> {
    let distance = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
    [&[0xe9], &distance[..]].concat()
}

fn original_bytes_are_back(keeper: &Keeper, module: &Module) {
    assert_eq!(module.differences(keeper.process()).unwrap(), []);
    assert_eq!(keeper.now().unwrap(), InForce::No);
}

#[test]
fn a_thread_in_a_loop_is_moved_into_the_new_code() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut keeper = keeper(&program, &victim);
    let done = optimize(&program, &mut keeper);
    assert!(done.moved > 0, "{done:?}");
    victim.is_well();
    // Back in the program's own code, so that the copy can be freed.
    assert!(keeper.undo().unwrap().moved > 0);
    keeper.retire_unused().unwrap();
    assert!(keeper.free().unwrap() > 0);
    assert_eq!(keeper.generations(), []);
    victim.end();
}

fn there_and_back(compiler: &str, flags: &[&str]) {
    let program = Program::compile("threads.c", compiler, flags);
    let mut victim = program.start();
    let mut keeper = keeper(&program, &victim);
    let (patch, module) = prepare(&program, &mut keeper);
    let done = keeper.install(&patch).unwrap();
    assert_eq!(done.replaced + done.busy.len(), patch.entries.len());
    assert!(done.threads >= 9, "{done:?}");
    victim.is_well();
    assert_eq!(
        keeper.now().unwrap(),
        if done.busy.is_empty() { InForce::Yes } else { InForce::Partly }
    );
    let foreign = module.differences(keeper.process()).unwrap();
    assert!(!foreign.is_empty());
    keeper.undo().unwrap();
    original_bytes_are_back(&keeper, &module);
    victim.is_well();
    keeper.redo().unwrap();
    assert_ne!(keeper.now().unwrap(), InForce::No);
    victim.is_well();
    for _ in 0..5 {
        optimize(&program, &mut keeper);
        victim.is_well();
        assert!(keeper.generations().len() <= 4);
    }
    keeper.undo().unwrap();
    original_bytes_are_back(&keeper, &module);
    keeper.retire_unused().unwrap();
    for _ in 0..20 {
        keeper.free().unwrap();
    }
    assert_eq!(keeper.generations(), []);
    let maps = keeper.process().maps().unwrap();
    assert!(!maps.all().iter().any(|it| it.inode == 0 && it.executable && it.name.is_empty()));
    victim.end();
}

#[test]
fn a_program_is_changed_and_changed_back_under_load() {
    there_and_back("gcc", &["-O2", "-mavx"]);
}

#[test]
fn a_program_at_fixed_addresses_too() {
    there_and_back("clang", &["-O1", "-mavx", "-no-pie", "-fno-pie", "-fcf-protection=full"]);
}

#[test]
fn another_dbdyno_finds_the_journal() {
    let program = Program::compile("threads.c", "gcc", &["-O3", "-fno-tree-vectorize", "-mavx"]);
    let mut victim = program.start();
    let mut first = keeper(&program, &victim);
    optimize(&program, &mut first);
    drop(first);
    let mut second = keeper(&program, &victim);
    assert_eq!(second.generations().len(), 1);
    assert_eq!(second.generations()[0].state, State::Active);
    second.undo().unwrap();
    assert_eq!(second.now().unwrap(), InForce::No);
    victim.is_well();
    victim.end();
}

#[test]
fn bytes_of_somebody_else_are_left_alone() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut keeper = keeper(&program, &victim);
    optimize(&program, &mut keeper);
    let address = keeper.generations()[0].entries[0].address;
    let ours = keeper.process().memory().read(address, 5).unwrap();
    // Its epoll_wait ends with EINTR for this, as the kernel has it.
    victim.may_be_disturbed();
    victim.stand_still();
    keeper.process().memory().write(address, &[0xcc]).unwrap();
    let error = keeper.undo().unwrap_err().to_string();
    assert!(error.contains("somebody else changed it"), "{error}");
    // All else is as it was, and nothing is freed that this may lead to when it is taken back.
    for entry in &keeper.generations()[0].entries[1..] {
        let now = keeper.process().memory().read(entry.address, 5).unwrap();
        assert_eq!(now, entry.original, "{:#x}", entry.address);
    }
    keeper.retire_unused().unwrap();
    assert_eq!(keeper.free().unwrap(), 0);
    keeper.process().memory().write(address, &ours).unwrap();
    victim.signal(libc::SIGCONT);
    keeper.undo().unwrap();
    victim.end();
}

#[test]
fn what_is_in_force_stays_so_on_record_when_the_next_one_fails() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut keeper = keeper(&program, &victim);
    optimize(&program, &mut keeper);
    let before = keeper.now().unwrap();
    let (patch, _) = prepare(&program, &mut keeper);
    let address = keeper.generations()[0].entries[0].address;
    let ours = keeper.process().memory().read(address, 5).unwrap();
    victim.may_be_disturbed();
    victim.stand_still();
    keeper.process().memory().write(address, &[0xcc]).unwrap();
    keeper.install(&patch).unwrap_err();
    keeper.process().memory().write(address, &ours).unwrap();
    victim.signal(libc::SIGCONT);
    let states = |keeper: &Keeper| -> Vec<(u32, State)> {
        keeper.generations().iter().map(|it| (it.number, it.state)).collect()
    };
    assert_eq!(states(&keeper), [(1, State::Active), (2, State::Preparing)]);
    assert_eq!(keeper.now().unwrap(), before);
    victim.is_well();
    // What failed is not what a redo means.
    keeper.undo().unwrap();
    assert_eq!(states(&keeper), [(1, State::Undone), (2, State::Retired)]);
    keeper.redo().unwrap();
    // Nor does it hold memory for long.
    let done = optimize(&program, &mut keeper);
    assert!(done.moved > 0, "{done:?}");
    assert_eq!(states(&keeper), [(1, State::Retired), (2, State::Active)]);
    victim.is_well();
    keeper.undo().unwrap();
    victim.end();
}
