//! The writes, in order, that activate one generation or none.
//!
//! An entry jumps to a copy; the exit of an inactive copy jumps back to the entry. Both together
//! would be an endless loop, and dbdyno may be killed between any two writes. Therefore the exits
//! of the generation to activate are removed first, then all entries are changed, and the exits of
//! inactive generations are written last.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::LiveError;
use crate::patch::{BytePatch, JUMP_SIZE};

/// Bytes to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeEdit {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    /// The bytes to overwrite are several instructions: no thread may be between them or return there. Not so
    /// for an address in data.
    pub(crate) splits: bool,
    /// The bytes to overwrite are a patch, so that no thread can be in the way. While they stay, a generation is
    /// active in part, or cannot be activated.
    pub(crate) removes_patch: bool,
}

impl CodeEdit {
    /// Whether it is an address in data, not a jump.
    pub(crate) fn is_address(&self) -> bool {
        self.bytes.len() != JUMP_SIZE
    }

    /// Addresses inside the new instruction where old instructions may start.
    pub(crate) fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.bytes.len() as u64
    }
}

/// A generation and its requested state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GenerationTarget<'a> {
    pub(crate) entries: &'a [BytePatch],
    pub(crate) exits: &'a [BytePatch],
    /// Whether its entries are to jump to it; otherwise its exits are to jump out of it.
    pub(crate) active: bool,
}

/// The writes of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchPlan {
    /// In the order of writing. After each of them there is no jump cycle, even if edits were
    /// skipped because their addresses were in use by threads.
    pub(crate) edits: Vec<CodeEdit>,
    /// Addresses that another program has changed.
    pub(crate) modified: Vec<u64>,
}

/// The steps, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Remove the exits of the generation to activate.
    RemoveExits,
    /// Redirect entries to the generation to activate, or restore them.
    Entries,
    /// Write the exits of inactive generations.
    WriteExits,
}

/// An address with patches of one or more generations.
struct PatchSite<'a> {
    step: Step,
    original: &'a [u8],
    requested: &'a [u8],
    patches: Vec<&'a [u8]>,
}

impl<'a> PatchSite<'a> {
    fn new(step: Step, original: &'a [u8]) -> Self {
        Self { step, original, requested: original, patches: Vec::new() }
    }

    fn add(&mut self, patch: &'a [u8], is_requested: bool) {
        self.patches.push(patch);
        if is_requested {
            self.requested = patch;
        }
    }
}

impl SwitchPlan {
    /// Compares the requested bytes with the current ones, as returned by `read`.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn new(
        targets: &[GenerationTarget<'_>],
        read: impl Fn(u64, usize) -> Result<Vec<u8>, LiveError>,
    ) -> Result<Self, LiveError> {
        let mut sites: BTreeMap<u64, PatchSite<'_>> = BTreeMap::new();
        for target in targets {
            for entry in target.entries {
                // All generations have the same original for an address.
                let new = || PatchSite::new(Step::Entries, &entry.original);
                let site = sites.entry(entry.address).or_insert_with(new);
                site.add(&entry.patch, target.active);
            }
            let step = if target.active { Step::RemoveExits } else { Step::WriteExits };
            for exit in target.exits {
                let new = || PatchSite::new(step, &exit.original);
                sites.entry(exit.address).or_insert_with(new).add(&exit.patch, !target.active);
            }
        }
        let mut plan = Self::default();
        let mut steps = Vec::new();
        for (address, site) in sites {
            let now = read(address, site.original.len())?;
            if now != site.original && !site.patches.contains(&now.as_slice()) {
                plan.modified.push(address);
            } else if now != site.requested {
                let removes_patch = now != site.original;
                let splits = !removes_patch && now.len() == JUMP_SIZE;
                let bytes = site.requested.to_vec();
                steps.push((site.step, CodeEdit { address, bytes, splits, removes_patch }));
            }
        }
        // The targets of another program's bytes are unknown, so no exit may jump there.
        steps.retain(|(step, edit)| {
            let target = jump_target(edit.address, &edit.bytes);
            *step != Step::WriteExits
                || target.is_none_or(|target| !plan.modified.contains(&target))
        });
        steps.sort_by_key(|(step, edit)| (*step, edit.address));
        plan.edits = steps.into_iter().map(|(_, edit)| edit).collect();
        Ok(plan)
    }
}

/// The target of a jump.
fn jump_target(address: u64, bytes: &[u8]) -> Option<u64> {
    let distance = bytes.strip_prefix(&[0xe9])?.try_into().ok().map(i32::from_le_bytes)?;
    (address + 5).checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Two functions with copies in two generations, one below the program and one above.
    const FUNCTIONS: [u64; 2] = [0x10_0000, 0x10_0100];
    const COPIES: [[u64; 2]; 2] = [[0x1000, 0x1100], [0x20_0000, 0x20_0100]];
    const ORIGINAL: [u8; 5] = [0x55, 0x48, 0x89, 0xe5, 0x50];

    type Bytes = BTreeMap<u64, Vec<u8>>;

    fn jump(from: u64, to: u64) -> BytePatch {
        let distance = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
        let patch = [&[0xe9], &distance[..]].concat();
        BytePatch { address: from, original: ORIGINAL.to_vec(), patch }
    }

    /// The address that a thread at `from` reaches; `None` in an endless loop.
    fn end_of_path(memory: &Bytes, from: u64) -> Option<u64> {
        let mut at = from;
        for _ in 0..=memory.len() {
            match jump_target(at, &memory[&at]) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
        None
    }

    struct Fixture {
        entries: Vec<Vec<BytePatch>>,
        exits: Vec<Vec<BytePatch>>,
    }

    impl Fixture {
        fn new() -> Self {
            let each = |make: fn((u64, u64)) -> BytePatch| {
                let pairs = COPIES.iter().map(|copies| FUNCTIONS.into_iter().zip(*copies));
                pairs.map(|pairs| pairs.map(make).collect()).collect()
            };
            Self {
                entries: each(|(function, copy)| jump(function, copy)),
                exits: each(|(function, copy)| jump(copy, function)),
            }
        }

        fn untouched() -> Bytes {
            let all = COPIES.iter().flatten().chain(&FUNCTIONS);
            all.map(|address| (*address, ORIGINAL.to_vec())).collect()
        }

        fn plan(&self, memory: &Bytes, number: Option<usize>) -> SwitchPlan {
            let targets: Vec<GenerationTarget<'_>> = (0..COPIES.len())
                .map(|index| GenerationTarget {
                    entries: &self.entries[index],
                    exits: &self.exits[index],
                    active: Some(index) == number,
                })
                .collect();
            SwitchPlan::new(&targets, |address, _| Ok(memory[&address].clone())).unwrap()
        }
    }

    #[test]
    fn no_jump_cycle_exists_if_killed_after_any_write() {
        let fixture = Fixture::new();
        let mut seen = BTreeSet::from([Fixture::untouched()]);
        let mut left: Vec<Bytes> = seen.iter().cloned().collect();
        // From every reachable state, all switches, with all combinations of addresses in use.
        while let Some(memory) = left.pop() {
            for number in [None, Some(0), Some(1)] {
                let plan = fixture.plan(&memory, number);
                assert!(plan.modified.is_empty());
                for busy in 0..1_u32 << plan.edits.len() {
                    let is_busy = |index: usize| busy >> index & 1 == 1;
                    let (mut now, mut done) = (memory.clone(), true);
                    for (index, edit) in plan.edits.iter().enumerate() {
                        if is_busy(index) && edit.splits {
                            done = false;
                            continue;
                        }
                        now.insert(edit.address, edit.bytes.clone());
                        for address in now.keys() {
                            let end = end_of_path(&now, *address);
                            assert!(end.is_some(), "{number:?} from {address:#x}: {now:x?}");
                        }
                        if seen.insert(now.clone()) {
                            left.push(now.clone());
                        }
                    }
                    if done {
                        assert_active(&now, number);
                    }
                }
            }
        }
        assert!(seen.len() > 40, "{}", seen.len());
    }

    fn assert_active(memory: &Bytes, number: Option<usize>) {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let copy = number.map_or(*function, |number| COPIES[number][index]);
            let all = [*function, COPIES[0][index], COPIES[1][index]];
            let ends = all.map(|address| end_of_path(memory, address));
            assert_eq!(ends, [Some(copy); 3], "{number:?} {memory:x?}");
        }
    }

    #[test]
    fn nothing_is_written_where_bytes_are_as_requested_or_modified_by_others() {
        let fixture = Fixture::new();
        let mut memory = Fixture::untouched();
        for edit in fixture.plan(&memory, Some(0)).edits {
            memory.insert(edit.address, edit.bytes);
        }
        assert_eq!(fixture.plan(&memory, Some(0)), SwitchPlan::default());
        memory.insert(FUNCTIONS[1], vec![0xcc; 5]);
        let plan = fixture.plan(&memory, None);
        assert_eq!(plan.modified, [FUNCTIONS[1]]);
        // Its copy gets no exit: after a breakpoint, execution may continue anywhere.
        let edited: Vec<u64> = plan.edits.iter().map(|edit| edit.address).collect();
        assert_eq!(edited, [FUNCTIONS[0], COPIES[0][0]]);
    }
}
