//! Reader for the LLVM bitstream container of blocks and records. Implements only what is needed to
//! read some blocks and skip the others.
//!
//! Source: LLVM Bitcode File Format, "Bitstream Format".

use std::collections::BTreeMap;

/// The block that defines abbreviations for other blocks (`BLOCKINFO`).
const BLOCK_INFO: u32 = 0;
const SET_BLOCK: u64 = 1;

/// The encoding of a record.
type Abbreviation = Vec<Operand>;

#[derive(Clone, Copy, Debug)]
enum Operand {
    Literal(u64),
    Fixed(u32),
    Variable(u32),
    Char6,
    Array,
    Blob,
}

/// A record: its code, its values, and its blob, if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Record<'data> {
    pub(super) code: u64,
    pub(super) values: Vec<u64>,
    pub(super) blob: &'data [u8],
}

impl Record<'_> {
    /// The values as text.
    pub(super) fn text(&self) -> String {
        characters(&self.values)
    }
}

/// Converts values to text; values that are not characters are skipped.
pub(super) fn characters(values: &[u64]) -> String {
    values.iter().filter_map(|value| char::from_u32(u32::try_from(*value).ok()?)).collect()
}

/// What to do after an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Continue; enter the block, if the item is one.
    On,
    /// Skip the block, or the rest of the block that contains the record.
    Over,
}

/// An item of a stream.
pub(super) enum Item<'a, 'data> {
    /// The start of a block with this id.
    Block(u32),
    /// A record in a block with this id.
    Record(u32, &'a Record<'data>),
}

/// Reads a stream after its magic number and passes blocks and records to `visit`. `None` if the
/// stream is malformed; `visit` has then received all items before the error.
pub(super) fn read<'data>(
    data: &'data [u8],
    mut visit: impl FnMut(Item<'_, 'data>) -> Next,
) -> Option<()> {
    let mut walk = Walk { bits: Bits { data, at: 0 }, given: BTreeMap::new(), given_operands: 0 };
    while walk.bits.left() >= 64 {
        // Only blocks are at the top level; padding with zeros may follow the last one.
        if walk.bits.fixed(2)? != 1 {
            return None;
        }
        walk.block(&mut visit, 0)?;
    }
    Some(())
}

/// Limit of the operands of all abbreviations of a block, and of those from `BLOCKINFO`. They are copied
/// for each block. LLVM's have about a hundred.
const MAX_OPERANDS: usize = 1_024;

/// Nesting limit, higher than in any module: a malformed stream must not exhaust the stack.
const DEEPEST: u32 = 16;

struct Walk<'data> {
    bits: Bits<'data>,
    /// Abbreviations from `BLOCKINFO`, by block id.
    given: BTreeMap<u32, Vec<Abbreviation>>,
    given_operands: usize,
}

impl<'data> Walk<'data> {
    fn block(&mut self, visit: &mut impl FnMut(Item<'_, 'data>) -> Next, depth: u32) -> Option<()> {
        let number = u32::try_from(self.bits.variable(8)?).ok()?;
        let width = u32::try_from(self.bits.variable(4)?).ok()?;
        self.bits.align();
        let words = self.bits.fixed(32)?;
        let end = self.bits.at.checked_add(words.checked_mul(32)?)?;
        if end > self.bits.end() || !(2..=32).contains(&width) || depth > DEEPEST {
            return None;
        }
        // `BLOCKINFO` is always read, because other blocks need its abbreviations.
        if number != BLOCK_INFO && visit(Item::Block(number)) == Next::Over {
            self.bits.at = end;
            return Some(());
        }
        let mut abbreviations = self.given.get(&number).cloned().unwrap_or_default();
        let mut operands: usize = abbreviations.iter().map(|one| one.len() + 1).sum();
        let mut speaks_of = None;
        while self.bits.at < end {
            match self.bits.fixed(width)? {
                0 => break,
                1 => self.block(visit, depth + 1)?,
                2 => {
                    let abbreviation = self.abbreviation()?;
                    operands += abbreviation.len() + 1;
                    if operands > MAX_OPERANDS {
                        return None;
                    }
                    match (number, speaks_of) {
                        (BLOCK_INFO, Some(block)) => {
                            self.given_operands += abbreviation.len() + 1;
                            if self.given_operands > MAX_OPERANDS {
                                return None;
                            }
                            self.given.entry(block).or_default().push(abbreviation);
                        }
                        (BLOCK_INFO, None) => return None,
                        _ => abbreviations.push(abbreviation),
                    }
                }
                id => {
                    let record = match id {
                        3 => self.plain_record()?,
                        _ => {
                            let index = usize::try_from(id - 4).ok()?;
                            self.short_record(abbreviations.get(index)?)?
                        }
                    };
                    if number == BLOCK_INFO {
                        if record.code == SET_BLOCK {
                            speaks_of = Some(u32::try_from(*record.values.first()?).ok()?);
                        }
                    } else if visit(Item::Record(number, &record)) == Next::Over {
                        break;
                    }
                }
            }
        }
        self.bits.at = end;
        Some(())
    }

    fn abbreviation(&mut self) -> Option<Abbreviation> {
        let count = self.bits.variable(5)?;
        let mut operands = Vec::new();
        for _ in 0..count {
            operands.push(if self.bits.fixed(1)? == 1 {
                Operand::Literal(self.bits.variable(8)?)
            } else {
                match self.bits.fixed(3)? {
                    1 => Operand::Fixed(self.width(64)?),
                    2 => Operand::Variable(self.width(32)?),
                    3 => Operand::Array,
                    4 => Operand::Char6,
                    5 => Operand::Blob,
                    _ => return None,
                }
            });
        }
        Some(operands)
    }

    fn width(&mut self, most: u32) -> Option<u32> {
        u32::try_from(self.bits.variable(5)?).ok().filter(|width| *width <= most)
    }

    fn plain_record(&mut self) -> Option<Record<'data>> {
        let code = self.bits.variable(6)?;
        let count = self.bits.variable(6)?;
        self.enough_for(count)?;
        let values = (0..count).map(|_| self.bits.variable(6)).collect::<Option<_>>()?;
        Some(Record { code, values, blob: &[] })
    }

    fn short_record(&mut self, abbreviation: &Abbreviation) -> Option<Record<'data>> {
        let mut record = Record::default();
        let mut values = Vec::new();
        let mut operands = abbreviation.iter();
        while let Some(operand) = operands.next() {
            match operand {
                Operand::Array => {
                    let element = *operands.next()?;
                    let count = self.bits.variable(6)?;
                    // An element without bits could be repeated without end.
                    if matches!(
                        element,
                        Operand::Literal(_) | Operand::Fixed(0) | Operand::Variable(0)
                    ) && count > 0
                    {
                        return None;
                    }
                    self.enough_for(count)?;
                    for _ in 0..count {
                        values.push(self.scalar(element)?);
                    }
                }
                Operand::Blob => {
                    let length = self.bits.variable(6)?;
                    self.bits.align();
                    record.blob = self.bits.bytes(length)?;
                    self.bits.align();
                }
                scalar => values.push(self.scalar(*scalar)?),
            }
        }
        if values.is_empty() {
            return None;
        }
        record.code = values.remove(0);
        record.values = values;
        Some(record)
    }

    fn scalar(&mut self, operand: Operand) -> Option<u64> {
        const CHAR6: &[u8; 64] =
            b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
        match operand {
            Operand::Literal(value) => Some(value),
            Operand::Fixed(width) => self.bits.fixed(width),
            // A width of 0 occupies no bits.
            Operand::Variable(0) => Some(0),
            Operand::Variable(width) => self.bits.variable(width),
            Operand::Char6 => Some(u64::from(CHAR6[usize::try_from(self.bits.fixed(6)?).ok()?])),
            Operand::Array | Operand::Blob => None,
        }
    }

    /// Rejects malformed counts, to avoid allocating memory for more values than there are bits.
    fn enough_for(&self, count: u64) -> Option<()> {
        (count <= self.bits.left()).then_some(())
    }
}

/// A bit reader, lowest bit first; positions are in bits.
pub(super) struct Bits<'data> {
    data: &'data [u8],
    at: u64,
}

impl<'data> Bits<'data> {
    pub(super) const fn new(data: &'data [u8]) -> Self {
        Self { data, at: 0 }
    }

    const fn end(&self) -> u64 {
        self.data.len() as u64 * 8
    }

    const fn left(&self) -> u64 {
        self.end().saturating_sub(self.at)
    }

    fn fixed(&mut self, width: u32) -> Option<u64> {
        if u64::from(width) > self.left() {
            return None;
        }
        let mut value = 0;
        let mut have = 0;
        while have < width {
            let byte = u64::from(*self.data.get(usize::try_from(self.at / 8).ok()?)?);
            let skip = u32::try_from(self.at % 8).ok()?;
            let take = (8 - skip).min(width - have);
            value |= ((byte >> skip) & ((1 << take) - 1)) << have;
            have += take;
            self.at += u64::from(take);
        }
        Some(value)
    }

    /// A number in chunks of `width` bits (VBR). The highest bit of a chunk is set if another
    /// follows.
    pub(super) fn variable(&mut self, width: u32) -> Option<u64> {
        let more = 1_u64 << (width - 1);
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let chunk = self.fixed(width)?;
            value |= (chunk & (more - 1)).checked_shl(shift)?;
            if chunk & more == 0 {
                return Some(value);
            }
            shift += width - 1;
            // A chunk of one bit has no bit for a value, and would never end.
            if shift >= 64 || width == 1 {
                return None;
            }
        }
    }

    fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    fn bytes(&mut self, length: u64) -> Option<&'data [u8]> {
        let start = usize::try_from(self.at / 8).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        let bytes = self.data.get(start..end)?;
        self.at = end as u64 * 8;
        Some(bytes)
    }
}
