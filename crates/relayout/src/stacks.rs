//! The tops of the stacks of sampled threads, reduced to the words that may be return addresses.

/// Maximum number of stacks that are kept. The callers of hot functions are known from fewer.
const MAX_STACKS: usize = 1 << 18;
/// Size in bytes of a word of the stack.
const WORD: u64 = 8;
/// Number of bits of an address in user space, with four-level page tables.
const ADDRESS_BITS: u32 = 48;

/// The top of a thread's stack when it was sampled.
#[derive(Debug, Clone, Copy)]
pub struct StackTop<'a> {
    /// Address of the next instruction.
    pub instruction: u64,
    /// The register `rsp`.
    pub stack_pointer: u64,
    /// The register `rbp`.
    pub frame_pointer: u64,
    /// Content of the stack, from the stack pointer on.
    pub content: &'a [u8],
}

/// One stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stack<'a> {
    /// Address of the next instruction.
    pub(crate) instruction: u64,
    /// Distance in bytes of `rbp` from the stack pointer; `None`: it does not point into the recorded part.
    pub(crate) frame_pointer: Option<u64>,
    /// Index of a word in its upper bits, and an address.
    words: &'a [u64],
}

impl Stack<'_> {
    /// The address of code at a distance in bytes from the stack pointer.
    pub(crate) fn code_at(&self, distance: u64) -> Option<u64> {
        let index = distance.is_multiple_of(WORD).then_some(distance / WORD)?;
        let found = self.words.binary_search_by_key(&index, |word| word >> ADDRESS_BITS).ok()?;
        Some(address(self.words[found]))
    }
}

fn address(word: u64) -> u64 {
    word & ((1 << ADDRESS_BITS) - 1)
}

/// Where the data of a stack is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    instruction: u64,
    frame_pointer: Option<u32>,
    /// Number of its words.
    words: u32,
}

/// Stacks of many samples: some 80 bytes each. Of too many, regularly distributed ones are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Stacks {
    entries: Vec<Entry>,
    /// The words of all stacks, one after the other.
    words: Vec<u64>,
    /// Logarithm of the number of samples of which one is kept.
    thinned: u32,
    /// Samples since the last one that was kept.
    skipped: u64,
}

impl Stacks {
    /// Adds a stack. `is_code` tells which words are kept.
    pub(crate) fn add(&mut self, top: &StackTop<'_>, is_code: impl Fn(u64) -> bool) {
        self.skipped += 1;
        if self.skipped >> self.thinned == 0 {
            return;
        }
        self.skipped = 0;
        let end = WORD * u64::from(u16::MAX);
        let frame_pointer = top.frame_pointer.checked_sub(top.stack_pointer);
        let frame_pointer = frame_pointer.filter(|distance| *distance < end);
        let words = (0..u64::from(u16::MAX)).zip(top.content.chunks_exact(8)).filter_map(|it| {
            let (index, bytes) = it;
            let word = u64::from_le_bytes(bytes.try_into().ok()?);
            let is_kept = word >> ADDRESS_BITS == 0 && is_code(word);
            is_kept.then_some(index << ADDRESS_BITS | word)
        });
        let before = self.words.len();
        self.words.extend(words);
        self.entries.push(Entry {
            instruction: top.instruction,
            frame_pointer: frame_pointer.map(|distance| distance as u32),
            words: (self.words.len() - before) as u32,
        });
        if self.entries.len() > MAX_STACKS {
            self.thin();
        }
    }

    /// Drops every second stack, and half of those that follow.
    fn thin(&mut self) {
        let mut thinned = Self { thinned: self.thinned + 1, ..Self::default() };
        for (entry, words) in self.parts().step_by(2) {
            thinned.entries.push(*entry);
            thinned.words.extend_from_slice(words);
        }
        *self = thinned;
    }

    fn parts(&self) -> impl Iterator<Item = (&Entry, &[u64])> {
        let mut rest = &*self.words;
        self.entries.iter().map(move |entry| {
            let (words, after) = rest.split_at(entry.words as usize);
            rest = after;
            (entry, words)
        })
    }

    /// All stacks that were kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Stack<'_>> {
        self.parts().map(|(entry, words)| Stack {
            instruction: entry.instruction,
            frame_pointer: entry.frame_pointer.map(u64::from),
            words,
        })
    }

    /// The same stacks at the addresses of the original code.
    pub(crate) fn to_originals(&self, original: impl Fn(u64) -> u64) -> Self {
        let mut mapped = self.clone();
        for entry in &mut mapped.entries {
            entry.instruction = original(entry.instruction);
        }
        for word in &mut mapped.words {
            let at = address(*word);
            *word = *word - at + address(original(at));
        }
        mapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn top(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn add(stacks: &mut Stacks, instruction: u64, frame_pointer: u64, words: &[u64]) {
        let content = &top(words);
        let stack_pointer = 0x7000;
        let top = StackTop { instruction, stack_pointer, frame_pointer, content };
        stacks.add(&top, |word| (0x100..0x200).contains(&word));
    }

    #[test]
    fn words_of_code_are_kept_with_their_places() {
        let mut stacks = Stacks::default();
        add(&mut stacks, 1, 0x7010, &[5, 0x100, 0x1ff, 0x200, 0xffff_0000_0000_0100]);
        add(&mut stacks, 2, 0x6ff8, &[0x101]);
        let [first, second] = stacks.iter().collect::<Vec<_>>().try_into().unwrap();
        let found: Vec<_> = (0..48).filter_map(|at| Some((at, first.code_at(at)?))).collect();
        assert_eq!(found, [(8, 0x100), (16, 0x1ff)]);
        assert_eq!((first.instruction, first.frame_pointer), (1, Some(16)));
        assert_eq!((second.instruction, second.frame_pointer), (2, None));
        assert_eq!(second.code_at(0), Some(0x101));
    }

    #[test]
    fn copies_are_mapped_to_their_originals() {
        let mut stacks = Stacks::default();
        add(&mut stacks, 0x150, 0, &[0x160, 0x110]);
        let mapped = stacks.to_originals(|at| if at >= 0x150 { at - 0x50 } else { at });
        let stack = mapped.iter().next().unwrap();
        assert_eq!(
            (stack.instruction, stack.code_at(0), stack.code_at(8)),
            (0x100, Some(0x110), Some(0x110))
        );
    }

    #[test]
    fn of_too_many_stacks_every_second_or_fourth_is_kept() {
        let mut stacks = Stacks::default();
        for number in 0..3 * MAX_STACKS as u64 {
            add(&mut stacks, number, 0, &[0x100 + number % 7]);
        }
        let kept: Vec<u64> = stacks.iter().map(|stack| stack.instruction).collect();
        assert!((MAX_STACKS / 2..=MAX_STACKS).contains(&kept.len()), "{}", kept.len());
        assert!(kept.windows(2).all(|pair| pair[1] - pair[0] <= 4), "{:?}", &kept[..9]);
        assert!(stacks.iter().all(|it| it.code_at(0) == Some(0x100 + it.instruction % 7)));
    }
}
