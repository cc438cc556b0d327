//! Damage of samples.

use proptest::prelude::*;
use proptest::sample::Index;

/// A sample and how to damage it.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    sample: usize,
    changes: Vec<Change>,
}

#[derive(Clone, Debug)]
enum Change {
    /// A number of this width in bytes, little endian.
    Number { at: At, width: usize, value: u64 },
    /// One bit is inverted.
    Flip { at: At, bit: u8 },
    /// The end is missing.
    Cut { at: At },
    /// A part is missing.
    Remove { at: At, length: usize },
    /// A part of a sample is copied to another place, and overwrites what is there or moves it.
    Copy { sample: usize, from: Index, to: At, length: usize, moves: bool },
    /// A word of the format is inserted.
    Word { word: Index, at: At },
}

/// A place; most formats have their most important fields at one of the ends.
#[derive(Clone, Debug)]
enum At {
    Anywhere(Index),
    Start(usize),
    End(usize),
}

impl At {
    fn of(&self, length: usize) -> usize {
        match self {
            Self::Anywhere(index) => index.index(length.max(1)),
            Self::Start(at) => (*at).min(length),
            Self::End(back) => length.saturating_sub(*back),
        }
    }
}

fn at() -> impl Strategy<Value = At> {
    prop_oneof![
        3 => any::<Index>().prop_map(At::Anywhere),
        2 => (0..512_usize).prop_map(At::Start),
        1 => (0..2048_usize).prop_map(At::End),
    ]
}

/// Numbers at limits, where sums and products overflow.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        0..300_u64,
        (0..64_u32, -2..=2_i64).prop_map(|(bit, more)| (1_u64 << bit).wrapping_add_signed(more)),
    ]
}

fn change(samples: usize, words: usize) -> impl Strategy<Value = Change> {
    let width = prop::sample::select(vec![1_usize, 2, 4, 8]);
    let number =
        (at(), width, number()).prop_map(|(at, width, value)| Change::Number { at, width, value });
    let flip = (at(), 0..8_u8).prop_map(|(at, bit)| Change::Flip { at, bit });
    let cut = at().prop_map(|at| Change::Cut { at });
    let remove = (at(), 1..200_usize).prop_map(|(at, length)| Change::Remove { at, length });
    let copy = (0..samples, any::<Index>(), at(), 1..500_usize, any::<bool>()).prop_map(
        |(sample, from, to, length, moves)| Change::Copy { sample, from, to, length, moves },
    );
    let word = (any::<Index>(), at()).prop_map(|(word, at)| Change::Word { word, at });
    prop_oneof![
        8 => number,
        4 => flip,
        1 => cut,
        1 => remove,
        2 => copy,
        if words > 0 { 8 } else { 0 } => word,
    ]
}

/// Damages of one of `samples` samples, with one of `words` words.
pub(crate) fn damages(samples: usize, words: usize) -> impl Strategy<Value = Damage> {
    (0..samples, prop::collection::vec(change(samples, words), 1..12))
        .prop_map(|(sample, changes)| Damage { sample, changes })
}

impl Damage {
    pub(crate) fn apply(&self, samples: &[Vec<u8>], words: &[Vec<u8>]) -> Vec<u8> {
        let mut content = samples[self.sample].clone();
        for change in &self.changes {
            change.apply(&mut content, samples, words);
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Vec<u8>, samples: &[Vec<u8>], words: &[Vec<u8>]) {
        let end = content.len();
        match self {
            Self::Number { at, width, value } => {
                let at = at.of(end);
                let bytes = value.to_le_bytes();
                content
                    .iter_mut()
                    .skip(at)
                    .zip(&bytes[..*width])
                    .for_each(|(to, from)| *to = *from);
            }
            Self::Flip { at, bit } => {
                if let Some(byte) = content.get_mut(at.of(end)) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Cut { at } => content.truncate(at.of(end)),
            Self::Remove { at, length } => {
                let at = at.of(end);
                content.drain(at..(at + length).min(end));
            }
            Self::Copy { sample, from, to, length, moves } => {
                let from_sample = &samples[*sample];
                let start = from.index(from_sample.len().max(1));
                let part = &from_sample[start.min(from_sample.len())..];
                let part = part[..(*length).min(part.len())].to_vec();
                let to = to.of(end);
                let until = if *moves { to } else { (to + part.len()).min(end) };
                content.splice(to..until, part);
            }
            Self::Word { word, at } => {
                if !words.is_empty() {
                    let at = at.of(end);
                    content.splice(at..at, words[word.index(words.len())].iter().copied());
                }
            }
        }
    }
}
