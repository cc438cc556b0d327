//! Bytewise copies of functions, to test everything except the layout.

use std::fs;
use std::time::Duration;

use dbdyno_live::{
    Activation, Attachment, BytePatch, GenerationState, JournalRecord, LiveError, MAX_CODE, Module,
    Patch, ProbeOptions, Process, Switched,
};
use dbdyno_relayout::{AddressMap, Region};

use crate::victim::{Program, Victim};

/// Threads stop when they run, which takes long on a busy machine.
pub const MAX_PAUSE: Duration = Duration::from_secs(30);

/// For processes that are killed or stopped meanwhile: the program stands still for four times as long.
const SHORT_PAUSE: Duration = Duration::from_millis(500);

pub fn attach(program: &Program, victim: &Victim) -> Attachment {
    attach_to(program, victim.pid())
}

pub fn attach_to(program: &Program, pid: u32) -> Attachment {
    attach_with(program, pid, ProbeOptions { unmap: true, ..ProbeOptions::default() })
}

pub fn attach_with(program: &Program, pid: u32, options: ProbeOptions) -> Attachment {
    attach_for(program, pid, options, MAX_PAUSE)
}

/// For processes that other tests start to kill or stop them.
pub fn attach_as_helper(program: &Program, pid: u32) -> Attachment {
    attach_briefly(program, pid, SHORT_PAUSE)
}

/// With a maximum pause for threads that do not stop.
pub fn attach_briefly(program: &Program, pid: u32, pause: Duration) -> Attachment {
    attach_for(program, pid, ProbeOptions { unmap: true, ..ProbeOptions::default() }, pause)
}

fn attach_for(program: &Program, pid: u32, options: ProbeOptions, pause: Duration) -> Attachment {
    let process = Process::open(pid, options).unwrap();
    Attachment::open(process, &program.state(), pause).unwrap()
}

/// Copies the leaf functions of a test program into new memory.
pub fn optimize(program: &Program, attachment: &mut Attachment) -> Switched {
    let (patch, _) = prepare(program, attachment);
    attachment.install(&patch).unwrap()
}

pub fn prepare(program: &Program, attachment: &mut Attachment) -> (Patch, Module) {
    attachment.begin().unwrap();
    let mut patch = Patch::default();
    let module = copy(program, attachment, &mut patch);
    (patch, module)
}

/// Adds copies of the leaf functions of a program or a library to a patch.
pub fn copy(program: &Program, attachment: &mut Attachment, patch: &mut Patch) -> Module {
    let maps = attachment.process().maps().unwrap();
    let loaded = Module::loaded(&maps).into_iter().find(|it| it.path == program.path).unwrap();
    let module = Module::open(attachment.process(), &loaded).unwrap();
    let area = attachment.reserve(&loaded.range, 64 << 10, false).unwrap();
    let mut next = area.address;
    let mut pairs: Vec<(u64, u64)> = patch.map.pairs().collect();
    for (address, size) in program.functions("leaf_") {
        let from = module.bias() + address;
        // From the file, because the memory may be patched.
        let bytes = module.original(&(from..from + size)).unwrap().to_vec();
        patch.entries.push(BytePatch {
            address: from,
            original: bytes[..5].to_vec(),
            patch: jump(from, next),
        });
        patch.exits.push(BytePatch {
            address: next,
            original: bytes[..5].to_vec(),
            patch: jump(next, from),
        });
        pairs.extend((0..size).map(|at| (from + at, next + at)));
        patch.blocks.push(Region { address: next, bytes });
        next += size.next_multiple_of(32);
    }
    patch.entries.retain(BytePatch::is_on_one_page);
    patch.exits.retain(BytePatch::is_on_one_page);
    assert!(patch.entries.len() > 2);
    let originals = pairs.iter().map(|(original, copy)| (*copy, *original)).collect();
    patch.map = AddressMap::new(pairs, originals);
    module
}

fn jump(from: u64, to: u64) -> Vec<u8> {
    let distance = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
    [&[0xe9], &distance[..]].concat()
}

fn assert_undone(attachment: &Attachment, module: &Module) {
    assert_eq!(module.differences(attachment.process()).unwrap(), []);
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
}

#[test]
fn thread_in_a_loop_is_moved_into_the_new_code() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let done = optimize(&program, &mut attachment);
    assert!(done.moved > 0, "{done:?}");
    victim.assert_alive();
    // Moved back to the original code, so that the copy can be freed.
    assert!(attachment.undo().unwrap().moved > 0);
    attachment.retire_unused(None).unwrap();
    assert!(attachment.free().unwrap() > 0);
    assert_eq!(attachment.generations(), []);
    victim.end();
}

fn check_undo_and_redo(compiler: &str, flags: &[&str]) {
    let program = Program::compile("threads.c", compiler, flags);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let (patch, module) = prepare(&program, &mut attachment);
    let done = attachment.install(&patch).unwrap();
    assert_eq!(done.replaced + done.busy.len(), patch.entries.len());
    assert!(done.threads >= 9, "{done:?}");
    victim.assert_alive();
    assert_eq!(
        attachment.activation().unwrap(),
        if done.busy.is_empty() { Activation::Full } else { Activation::Partial }
    );
    let foreign = module.differences(attachment.process()).unwrap();
    assert!(!foreign.is_empty());
    attachment.undo().unwrap();
    assert_undone(&attachment, &module);
    victim.assert_alive();
    attachment.redo().unwrap();
    assert_ne!(attachment.activation().unwrap(), Activation::Inactive);
    victim.assert_alive();
    for _ in 0..5 {
        optimize(&program, &mut attachment);
        victim.assert_alive();
        assert!(attachment.generations().len() <= 4);
    }
    attachment.undo().unwrap();
    assert_undone(&attachment, &module);
    attachment.retire_unused(None).unwrap();
    for _ in 0..20 {
        attachment.free().unwrap();
    }
    assert_eq!(attachment.generations(), []);
    let maps = attachment.process().maps().unwrap();
    assert!(!maps.all().iter().any(|it| it.inode == 0 && it.executable && it.name.is_empty()));
    victim.end();
}

#[test]
fn program_under_load_is_optimized_and_undone() {
    check_undo_and_redo("gcc", &["-O2", "-mavx"]);
}

#[test]
fn replaced_code_is_kept_by_default_up_to_the_limit() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach_with(&program, victim.pid(), ProbeOptions::default());
    for _ in 0..3 {
        optimize(&program, &mut attachment);
    }
    let areas: Vec<_> = attachment.areas().copied().collect();
    assert_eq!(areas.len(), 3);
    let maps = attachment.process().maps().unwrap();
    assert!(areas.iter().all(|area| maps.at(area.address).is_some_and(|it| it.executable)));
    // Memory of a generation that was never active is freed: no thread was ever in it.
    attachment.begin().unwrap();
    let near = areas[0].range();
    let rest = MAX_CODE.as_bytes() - areas.iter().map(|area| area.code).sum::<u64>();
    attachment.reserve(&near, rest - 4096, false).unwrap();
    attachment.begin().unwrap();
    assert_eq!(attachment.generations().len(), 4);
    let error = attachment.reserve(&near, rest, false).unwrap_err().to_string();
    assert!(error.contains("above the limit of 32 MiB; --unmap removes"), "{error}");
    attachment.undo().unwrap();
    victim.assert_alive();
    drop(attachment);
    let mut attachment = attach(&program, &victim);
    for _ in 0..20 {
        attachment.begin().unwrap();
    }
    // The one to redo is kept until another one is active.
    assert_eq!(attachment.areas().copied().collect::<Vec<_>>(), areas[2..]);
    attachment.retire_unused(None).unwrap();
    for _ in 0..20 {
        attachment.begin().unwrap();
    }
    assert_eq!(attachment.areas().count(), 0);
    victim.end();
}

/// Limits the address space of a program to `more` bytes more than it has.
fn limit_address_space(victim: &Victim, more: u64) {
    let statm = fs::read_to_string(format!("/proc/{}/statm", victim.pid())).unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = libc::rlimit { rlim_cur: pages * 4096 + more, rlim_max: libc::RLIM_INFINITY };
    let pid = victim.pid().cast_signed();
    // SAFETY: the structure lives during the call; no old limit is returned.
    let done = unsafe { libc::prlimit(pid, libc::RLIMIT_AS, &limit, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

#[test]
fn memory_of_a_mapping_that_failed_in_part_is_unmapped() {
    const CODE: u64 = 16 << 20;
    let program = Program::compile("huge.c", "gcc", &["-O2", "-DPERMITTED"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let before = attachment.process().maps().unwrap();
    let near = before.all()[0].range.clone();
    // Enough for the data only, and for the code only.
    for more in [4 << 20, CODE + (64 << 10)] {
        attachment.begin().unwrap();
        limit_address_space(&victim, more);
        let error = attachment.reserve(&near, CODE, false).unwrap_err().to_string();
        assert!(error.contains("could not map executable memory"), "{error}");
        assert_eq!(attachment.process().maps().unwrap(), before);
        victim.assert_alive();
    }
    victim.end();
}

#[test]
fn program_at_fixed_addresses_is_optimized_and_undone() {
    check_undo_and_redo("clang", &["-O1", "-mavx", "-no-pie", "-fno-pie", "-fcf-protection=full"]);
}

#[test]
fn another_dbdyno_finds_the_journal() {
    let program = Program::compile("threads.c", "gcc", &["-O3", "-fno-tree-vectorize", "-mavx"]);
    let mut victim = program.start();
    let mut first = attach(&program, &victim);
    optimize(&program, &mut first);
    drop(first);
    let mut second = attach(&program, &victim);
    assert_eq!(second.generations().len(), 1);
    assert_eq!(second.generations()[0].state, GenerationState::Active);
    second.undo().unwrap();
    assert_eq!(second.activation().unwrap(), Activation::Inactive);
    victim.assert_alive();
    victim.end();
}

#[test]
fn code_that_is_not_mapped_any_more_is_not_activated() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    attachment.undo().unwrap();
    let journal = attachment.directory().join("journal.json");
    drop(attachment);
    let stored = fs::read(&journal).unwrap();
    let mut record: JournalRecord = serde_json::from_slice(&stored).unwrap();
    record.generations[0].areas[0].address = 0x1_0000;
    fs::write(&journal, serde_json::to_vec(&record).unwrap()).unwrap();
    let mut attachment = attach(&program, &victim);
    let error = attachment.redo().unwrap_err();
    assert!(matches!(error, LiveError::NothingToRedo { .. }), "{error}");
    assert_eq!(attachment.activation().unwrap(), Activation::Inactive);
    assert_eq!(attachment.generations()[0].state, GenerationState::Inactive);
    victim.assert_alive();
    victim.end();
}

#[test]
fn bytes_changed_by_another_program_are_kept() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    let address = attachment.generations()[0].entries[0].address;
    let ours = attachment.process().memory().read(address, 5).unwrap();
    // The kernel makes its epoll_wait fail with EINTR.
    victim.accept_eintr();
    victim.stop();
    attachment.process().memory().write(address, &[0xcc]).unwrap();
    let error = attachment.undo().unwrap_err().to_string();
    assert!(error.contains("was changed by another program"), "{error}");
    // All others are restored, and code that the changed bytes may still lead to is not freed.
    for entry in &attachment.generations()[0].entries[1..] {
        let now = attachment.process().memory().read(entry.address, 5).unwrap();
        assert_eq!(now, entry.original, "{:#x}", entry.address);
    }
    attachment.retire_unused(None).unwrap();
    assert_eq!(attachment.free().unwrap(), 0);
    attachment.process().memory().write(address, &ours).unwrap();
    victim.signal(libc::SIGCONT);
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn active_generation_stays_active_when_the_next_one_fails() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    optimize(&program, &mut attachment);
    let before = attachment.activation().unwrap();
    let (patch, _) = prepare(&program, &mut attachment);
    let address = attachment.generations()[0].entries[0].address;
    let ours = attachment.process().memory().read(address, 5).unwrap();
    victim.accept_eintr();
    victim.stop();
    attachment.process().memory().write(address, &[0xcc]).unwrap();
    attachment.install(&patch).unwrap_err();
    attachment.process().memory().write(address, &ours).unwrap();
    victim.signal(libc::SIGCONT);
    let states = |attachment: &Attachment| -> Vec<(u32, GenerationState)> {
        attachment.generations().iter().map(|it| (it.number, it.state)).collect()
    };
    assert_eq!(
        states(&attachment),
        [(1, GenerationState::Active), (2, GenerationState::Preparing)]
    );
    assert_eq!(attachment.activation().unwrap(), before);
    victim.assert_alive();
    // Redo activates the first one, not the failed one.
    attachment.undo().unwrap();
    assert_eq!(
        states(&attachment),
        [(1, GenerationState::Inactive), (2, GenerationState::Retired)]
    );
    attachment.redo().unwrap();
    // The memory of the failed one is freed.
    let done = optimize(&program, &mut attachment);
    assert!(done.moved > 0, "{done:?}");
    assert_eq!(states(&attachment), [(1, GenerationState::Retired), (2, GenerationState::Active)]);
    victim.assert_alive();
    attachment.undo().unwrap();
    victim.end();
}

#[test]
fn inactive_generation_can_be_redone_until_another_one_is_active() {
    let program = Program::compile("threads.c", "gcc", &["-O2", "-mavx"]);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let states = |attachment: &Attachment| -> Vec<(u32, GenerationState)> {
        attachment.generations().iter().map(|it| (it.number, it.state)).collect()
    };
    optimize(&program, &mut attachment);
    attachment.undo().unwrap();
    // Failed before it was activated.
    prepare(&program, &mut attachment);
    assert_eq!(
        states(&attachment),
        [(1, GenerationState::Inactive), (2, GenerationState::Preparing)]
    );
    attachment.redo().unwrap();
    assert_eq!(states(&attachment)[0], (1, GenerationState::Active));
    victim.assert_alive();
    attachment.undo().unwrap();
    optimize(&program, &mut attachment);
    assert_eq!(states(&attachment), [(1, GenerationState::Retired), (2, GenerationState::Active)]);
    attachment.undo().unwrap();
    assert_eq!(
        states(&attachment),
        [(1, GenerationState::Retired), (2, GenerationState::Inactive)]
    );
    victim.end();
}

#[test]
fn more_lists_of_frames_than_fit_into_one_stub_are_registered_and_removed() {
    let flags = ["-O2", "-mavx", "-Wl,--no-as-needed", "-lgcc_s"];
    let program = Program::compile("threads.c", "gcc", &flags);
    let mut victim = program.start();
    let mut attachment = attach(&program, &victim);
    let (mut patch, _) = prepare(&program, &mut attachment);
    // Empty lists, which libgcc ignores.
    let end = attachment.areas().last().unwrap().stub();
    patch.frames = (1..=100).map(|index| end - index * 8).collect();
    attachment.install(&patch).unwrap();
    victim.assert_alive();
    attachment.undo().unwrap();
    attachment.retire_unused(None).unwrap();
    assert!(attachment.free().unwrap() > 0);
    victim.end();
}
