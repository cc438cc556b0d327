//! Reader for LLVM bitcode: objects of clang's link-time optimization.
//!
//! Without a recorded command line, the attributes of each function still contain the CPU and some
//! other settings.

use std::collections::BTreeMap;

use super::bitstream::{Bits, Item, Next, characters, read};
use crate::effective::{
    Effective, Family, LtoForm, Optimization, Position, RecordedCompiler, StackProtector,
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

/// The contents of a module.
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
        Item::Record(IDENTIFICATION, record) => {
            if record.code == IDENTIFICATION_STRING {
                found.identification = Some(record.text());
            }
            Next::On
        }
        Item::Record(MODULE, record) => {
            if record.code == SOURCE_NAME {
                found.source = Some(record.text());
            }
            Next::On
        }
        Item::Record(ATTRIBUTE_GROUPS, record) => {
            if record.code == GROUP {
                found.group(&record.values);
            }
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
            position: None::<Position>,
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

/// The most frequent value.
fn most(counts: &BTreeMap<String, usize>) -> Option<String> {
    counts.iter().max_by_key(|(_, count)| **count).map(|(value, _)| value.clone())
}
