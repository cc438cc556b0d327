//! What is written to have one generation in force, or none, and in which order.
//!
//! An entry leads to a copy; the exit of a copy that is not in force leads back to the entry. Both
//! at once would be a loop without end, and we may be killed between any two writes. So what comes
//! into force loses its exits first, then all entries change, and what they no longer lead to gets
//! its exits last.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::LiveError;
use crate::patch::JumpPatch;

/// Bytes to be replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CodeEdit {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
    /// What is there now is several instructions: nobody may stand between them, or return there.
    pub(crate) splits: bool,
}

impl CodeEdit {
    /// Addresses that lie inside the new bytes' first instruction and were starts of old ones.
    pub(crate) fn inside(&self) -> Range<u64> {
        self.address + 1..self.address + self.bytes.len() as u64
    }
}

/// One generation, as it is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GenerationTarget<'a> {
    pub(crate) entries: &'a [JumpPatch],
    pub(crate) exits: &'a [JumpPatch],
    /// Its entries are to lead into it; otherwise its exits are to lead out of it.
    pub(crate) in_force: bool,
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SwitchPlan {
    /// To be written one after the other. After each of them every way ends in code that runs,
    /// whether all before it were written or those that nobody was in the way of.
    pub(crate) edits: Vec<CodeEdit>,
    /// Where somebody else has written.
    pub(crate) foreign: Vec<u64>,
}

/// The steps, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// What comes into force no longer leads back to its entries.
    CloseExits,
    /// Entries lead to what comes into force, or nowhere.
    Entries,
    /// What is not in force leads back to the entries, which lead there no more.
    OpenExits,
}

/// A place that we have patched, or are about to.
struct PatchSite<'a> {
    step: Step,
    original: &'a [u8],
    wanted: &'a [u8],
    patches: Vec<&'a [u8]>,
}

impl<'a> PatchSite<'a> {
    fn new(step: Step, original: &'a [u8]) -> Self {
        Self { step, original, wanted: original, patches: Vec::new() }
    }

    fn add(&mut self, patch: &'a [u8], is_wanted: bool) {
        self.patches.push(patch);
        if is_wanted {
            self.wanted = patch;
        }
    }
}

impl SwitchPlan {
    /// Compares what is to be with what `read` finds.
    ///
    /// # Errors
    /// Those of `read`.
    pub(crate) fn new(
        parts: &[GenerationTarget<'_>],
        read: impl Fn(u64, usize) -> Result<Vec<u8>, LiveError>,
    ) -> Result<Self, LiveError> {
        let mut places: BTreeMap<u64, PatchSite<'_>> = BTreeMap::new();
        for part in parts {
            for entry in part.entries {
                // All generations have the same original for an address.
                let new = || PatchSite::new(Step::Entries, &entry.original);
                let place = places.entry(entry.address).or_insert_with(new);
                place.add(&entry.patch, part.in_force);
            }
            let step = if part.in_force { Step::CloseExits } else { Step::OpenExits };
            for exit in part.exits {
                let new = || PatchSite::new(step, &exit.original);
                places.entry(exit.address).or_insert_with(new).add(&exit.patch, !part.in_force);
            }
        }
        let mut plan = Self::default();
        let mut steps = Vec::new();
        for (address, place) in places {
            let now = read(address, place.original.len())?;
            if now != place.original && !place.patches.contains(&now.as_slice()) {
                plan.foreign.push(address);
            } else if now != place.wanted {
                let splits = now == place.original;
                steps
                    .push((place.step, CodeEdit { address, bytes: place.wanted.to_vec(), splits }));
            }
        }
        // Where what somebody else has written leads is not known: nothing of ours leads there.
        steps.retain(|(step, edit)| {
            let target = jump_target(edit.address, &edit.bytes);
            *step != Step::OpenExits || target.is_none_or(|target| !plan.foreign.contains(&target))
        });
        steps.sort_by_key(|(step, edit)| (*step, edit.address));
        plan.edits = steps.into_iter().map(|(_, edit)| edit).collect();
        Ok(plan)
    }
}

/// Where a jump leads.
fn jump_target(address: u64, bytes: &[u8]) -> Option<u64> {
    let distance = bytes.strip_prefix(&[0xe9])?.try_into().ok().map(i32::from_le_bytes)?;
    (address + 5).checked_add_signed(distance.into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Two functions, and copies of both in two generations: one has its memory below the
    /// program, the other above.
    const FUNCTIONS: [u64; 2] = [0x10_0000, 0x10_0100];
    const COPIES: [[u64; 2]; 2] = [[0x1000, 0x1100], [0x20_0000, 0x20_0100]];
    const ORIGINAL: [u8; 5] = [0x55, 0x48, 0x89, 0xe5, 0x50];

    type Bytes = BTreeMap<u64, Vec<u8>>;

    fn jump(from: u64, to: u64) -> JumpPatch {
        let distance = (to.wrapping_sub(from + 5) as u32).to_le_bytes();
        let patch = [&[0xe9], &distance[..]].concat();
        JumpPatch { address: from, original: ORIGINAL.to_vec(), patch }
    }

    /// Where a thread comes to that goes on at an address; `None` if it goes round for ever.
    fn end_of_way(memory: &Bytes, from: u64) -> Option<u64> {
        let mut at = from;
        for _ in 0..=memory.len() {
            match jump_target(at, &memory[&at]) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
        None
    }

    struct Lab {
        entries: Vec<Vec<JumpPatch>>,
        exits: Vec<Vec<JumpPatch>>,
    }

    impl Lab {
        fn new() -> Self {
            let each = |make: fn((u64, u64)) -> JumpPatch| {
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
            let parts: Vec<GenerationTarget<'_>> = (0..COPIES.len())
                .map(|index| GenerationTarget {
                    entries: &self.entries[index],
                    exits: &self.exits[index],
                    in_force: Some(index) == number,
                })
                .collect();
            SwitchPlan::new(&parts, |address, _| Ok(memory[&address].clone())).unwrap()
        }
    }

    #[test]
    fn killed_after_any_write_every_way_ends_in_code_that_runs() {
        let lab = Lab::new();
        let mut seen = BTreeSet::from([Lab::untouched()]);
        let mut left: Vec<Bytes> = seen.iter().cloned().collect();
        // Whatever was left behind, everything can follow, with any threads in the way.
        while let Some(memory) = left.pop() {
            for number in [None, Some(0), Some(1)] {
                let plan = lab.plan(&memory, number);
                assert!(plan.foreign.is_empty());
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
                            let end = end_of_way(&now, *address);
                            assert!(end.is_some(), "{number:?} from {address:#x}: {now:x?}");
                        }
                        if seen.insert(now.clone()) {
                            left.push(now.clone());
                        }
                    }
                    if done {
                        is_in_force(&now, number);
                    }
                }
            }
        }
        assert!(seen.len() > 40, "{}", seen.len());
    }

    fn is_in_force(memory: &Bytes, number: Option<usize>) {
        for (index, function) in FUNCTIONS.iter().enumerate() {
            let copy = number.map_or(*function, |number| COPIES[number][index]);
            let all = [*function, COPIES[0][index], COPIES[1][index]];
            let ends = all.map(|address| end_of_way(memory, address));
            assert_eq!(ends, [Some(copy); 3], "{number:?} {memory:x?}");
        }
    }

    #[test]
    fn nothing_is_written_where_all_is_as_wanted_or_somebody_elses() {
        let lab = Lab::new();
        let mut memory = Lab::untouched();
        for edit in lab.plan(&memory, Some(0)).edits {
            memory.insert(edit.address, edit.bytes);
        }
        assert_eq!(lab.plan(&memory, Some(0)), SwitchPlan::default());
        memory.insert(FUNCTIONS[1], vec![0xcc; 5]);
        let plan = lab.plan(&memory, None);
        assert_eq!(plan.foreign, [FUNCTIONS[1]]);
        // Its copy does not lead back there: who knows what a breakpoint goes on with.
        let edited: Vec<u64> = plan.edits.iter().map(|edit| edit.address).collect();
        assert_eq!(edited, [FUNCTIONS[0], COPIES[0][0]]);
    }
}
