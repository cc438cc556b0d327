//! Reader for LLVM bitcode: objects of clang's link-time optimization.
//!
//! Without a recorded command line, the attributes of each function still contain the CPU and some
//! other settings.

use std::collections::BTreeMap;

use crate::effective::{
    Effective, Family, LtoForm, Optimization, RecordedCompiler, StackProtector,
};
use crate::flags::Producer;

const MAGIC: &[u8] = b"BC\xC0\xDE";
const WRAPPER: &[u8] = &[0xDE, 0xC0, 0x17, 0x0B];

// Ids of blocks, records and attributes, which are the same in all versions of LLVM.
const MODULE: u32 = 8;
const ATTRIBUTE_GROUPS: u32 = 10;
const IDENTIFICATION: u32 = 13;
const METADATA: u32 = 15;
const SUMMARY: u32 = 20;
const IDENTIFICATION_STRING: u64 = 1;
const SOURCE_NAME: u64 = 16;
const GROUP: u64 = 3;
const METADATA_STRINGS: u64 = 35;
const OF_FUNCTION: u64 = 0xFFFF_FFFF;
const ALWAYS_INLINE: u64 = 2;
const NO_INLINE: u64 = 14;
const PROTECT: u64 = 26;
const PROTECT_ALL: u64 = 27;
const PROTECT_STRONG: u64 = 28;
const UNWIND_TABLE: u64 = 33;
const OPTIMIZE_NONE: u64 = 37;

#[derive(Clone, Debug, Default)]
pub(super) struct Module {
    /// The compiler, with its command line if recorded.
    pub(super) producer: Option<Producer>,
    pub(super) source: Option<String>,
    /// The settings in the attributes of functions.
    pub(super) effective: Effective,
}

/// Whether the data begins like bitcode, with or without the wrapper header.
pub(super) fn is_bitcode(data: &[u8]) -> bool {
    data.starts_with(MAGIC) || data.starts_with(WRAPPER)
}

/// Reads a module as far as possible; `None` if it ends before the identification.
pub(super) fn module(data: &[u8]) -> Option<Module> {
    let data = unwrap(data)?.strip_prefix(MAGIC)?;
    let mut found = Found::default();
    // A truncated module is used as far as it could be read; one without any content is an error.
    let whole = read_aligned(data, &mut found);
    (whole.is_some() || found.identification.is_some()).then(|| found.module())
}

/// `data` begins after the magic number. That is one 32-bit word long, so alignment is unaffected.
fn read_aligned(data: &[u8], found: &mut Found) -> Option<()> {
    read(data, |item| match item {
        Item::Block(MODULE | IDENTIFICATION | ATTRIBUTE_GROUPS | METADATA) => Next::On,
        Item::Block(SUMMARY) => {
            found.thin = true;
            Next::Over
        }
        Item::Block(_) => Next::Over,
        Item::Record(IDENTIFICATION, record) if record.code == IDENTIFICATION_STRING => {
            found.identification = Some(record.text());
            Next::On
        }
        Item::Record(MODULE, record) if record.code == SOURCE_NAME => {
            found.source = Some(record.text());
            Next::On
        }
        Item::Record(ATTRIBUTE_GROUPS, record) if record.code == GROUP => {
            found.group(&record.values);
            Next::On
        }
        Item::Record(METADATA, record) if record.code == METADATA_STRINGS => {
            let _ = found.strings(&record.values, record.blob);
            Next::Over
        }
        Item::Record(..) => Next::On,
    })
}

/// The bitcode inside the wrapper, if there is one.
fn unwrap(data: &[u8]) -> Option<&[u8]> {
    if !data.starts_with(WRAPPER) {
        return Some(data);
    }
    let field = |at: usize| -> Option<usize> {
        let bytes: [u8; 4] = data.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (start, length) = (field(8)?, field(12)?);
    data.get(start..start.checked_add(length)?)
}

#[derive(Default)]
struct Found {
    identification: Option<String>,
    source: Option<String>,
    thin: bool,
    /// Producer strings, possibly with command lines.
    producers: Vec<String>,
    commands: Vec<Vec<String>>,
    cpus: BTreeMap<String, usize>,
    frame_pointers: BTreeMap<String, usize>,
    groups: usize,
    unoptimized: usize,
    /// Groups that no function has without optimization.
    optimized: usize,
    protector: Option<StackProtector>,
}

impl Found {
    /// Reads a group of attributes, which several functions may share.
    fn group(&mut self, values: &[u64]) {
        let [_, OF_FUNCTION, attributes @ ..] = values else { return };
        self.groups += 1;
        let mut keys = Vec::new();
        let mut rest = attributes;
        while let [kind, tail @ ..] = rest {
            rest = match (kind, tail) {
                (0, [key, rest @ ..]) => {
                    self.attribute(*key);
                    keys.push(*key);
                    rest
                }
                (1, [key, _, rest @ ..]) => {
                    keys.push(*key);
                    rest
                }
                (6, [_, _, rest @ ..]) | (5, [_, rest @ ..]) => rest,
                (3, text) => word(text).1,
                (4, text) => {
                    let (key, text) = word(text);
                    let (value, rest) = word(text);
                    match key.as_str() {
                        "target-cpu" => *self.cpus.entry(value).or_default() += 1,
                        "frame-pointer" => *self.frame_pointers.entry(value).or_default() += 1,
                        _ => {}
                    }
                    rest
                }
                // A kind added by a newer LLVM, of unknown length.
                _ => break,
            };
        }
        // Only definitions have unwind tables. Without optimization, none may be inlined, unless it must be.
        let is_unoptimized =
            [OPTIMIZE_NONE, NO_INLINE, ALWAYS_INLINE].iter().any(|it| keys.contains(it));
        self.optimized += usize::from(keys.contains(&UNWIND_TABLE) && !is_unoptimized);
    }

    fn attribute(&mut self, key: u64) {
        let protector = match key {
            OPTIMIZE_NONE => {
                self.unoptimized += 1;
                return;
            }
            PROTECT => StackProtector::Basic,
            PROTECT_STRONG => StackProtector::Strong,
            PROTECT_ALL => StackProtector::All,
            _ => return,
        };
        self.protector = self.protector.max(Some(protector));
    }

    /// Reads all strings of the metadata: first their lengths, then their characters.
    fn strings(&mut self, values: &[u64], blob: &[u8]) -> Option<()> {
        let [count, offset] = values else { return None };
        let (lengths, mut text) = blob.split_at_checked(usize::try_from(*offset).ok()?)?;
        let mut lengths = Bits::new(lengths);
        for _ in 0..*count {
            let length = usize::try_from(lengths.variable(6)?).ok()?;
            let (string, rest) = text.split_at_checked(length)?;
            text = rest;
            let string = String::from_utf8_lossy(string);
            if string.contains("clang version ") {
                self.producers.push(string.into_owned());
            } else if string.starts_with('/') {
                // Paths of source files also begin with a slash, but no options follow.
                self.commands
                    .extend(Producer::of_clang_command(&string).filter(|flags| !flags.is_empty()));
            }
        }
        Some(())
    }

    fn module(self) -> Module {
        let mut producer = self.producers.iter().map(|text| Producer::parse(text)).max_by_key(
            // The one with a command line is from the debug information.
            |producer| producer.flags.is_some(),
        );
        if let Some(producer) = &mut producer
            && producer.flags.is_none()
        {
            producer.flags = self.commands.into_iter().next();
        }
        let version = self.identification.as_deref().and_then(|text| text.strip_prefix("LLVM"));
        let compiler = producer.as_ref().map(|producer| producer.compiler.clone()).or_else(|| {
            Some(RecordedCompiler { family: Family::Clang, version: version?.to_owned() })
        });
        // Single functions may have the attribute in optimized code, too.
        let unoptimized = self.unoptimized > 0 && self.optimized == 0;
        let effective = Effective {
            compiler,
            optimization: unoptimized.then_some(Optimization::O0),
            lto: Some(if self.thin { LtoForm::Thin } else { LtoForm::Slim }),
            march: most(&self.cpus),
            frame_pointers: most(&self.frame_pointers).map(|value| value != "none"),
            stack_protector: match self.protector {
                None if self.groups > 0 => Some(StackProtector::Off),
                protector => protector,
            },
            ..Effective::default()
        };
        Module { producer, source: self.source, effective }
    }
}

/// A zero-terminated string and the values after it.
fn word(values: &[u64]) -> (String, &[u64]) {
    match values.iter().position(|value| *value == 0) {
        Some(end) => (characters(&values[..end]), &values[end + 1..]),
        None => (characters(values), &[]),
    }
}

fn most(counts: &BTreeMap<String, usize>) -> Option<String> {
    counts.iter().max_by_key(|(_, count)| **count).map(|(value, _)| value.clone())
}

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
