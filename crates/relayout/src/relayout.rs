//! The result: what to write where.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::bytes::ConstantMemory;
use crate::{AddressMap, RejectReason};

/// What to write into a process, and where.
///
/// Order: write the regions and protect them, register the frame sections, then patch the entries
/// while all threads are stopped. Undo: write back [`EntryPatch::original`]; the regions stay mapped.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Relayout {
    /// New memory; the regions of one module follow each other without a gap.
    pub regions: Vec<Region>,
    /// What to patch in the original code, by address.
    pub entries: Vec<EntryPatch>,
    /// Unwind information to register, one per module with moved functions.
    pub frames: Vec<FrameSection>,
    /// Names for the new code, for profilers and debuggers, by address.
    pub symbols: Vec<Symbol>,
    /// Jump tables that were copied into read-only regions.
    pub tables: Vec<TableCopy>,
    /// Contents of read-only slots that calls rely on.
    pub slots: Vec<Slot>,
    /// Which copied instruction stands for which original one.
    pub map: AddressMap,
    /// What was done and what was not.
    pub statistics: Statistics,
}

/// What a region's memory may be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Read and execute.
    Code,
    /// Read only.
    ReadOnly,
}

/// New memory with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Region {
    /// Index of the module that it serves.
    pub module: usize,
    /// Where it must lie; a multiple of 4096.
    pub address: u64,
    /// Its content; a multiple of 4096 bytes.
    pub bytes: Vec<u8>,
    /// How it is protected once written.
    pub protection: Protection,
}

/// One function's redirection to its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPatch {
    /// Index of the module.
    pub module: usize,
    /// First address of the original function.
    pub function: u64,
    /// Name, or `module+0xoffset` where there is none.
    pub name: String,
    /// Where the patch goes: behind `endbr64` where there is one.
    ///
    /// No thread may be inside `address + 1 .. address + 5` when it is written, and no saved
    /// context may point there. A thread that is can be moved with [`AddressMap::to_copy`]: the
    /// instructions there are always copied. No return address and no branch of the module
    /// points there; functions of which that is not proven are rejected.
    pub address: u64,
    /// The bytes that must be there now, and that undo writes back.
    pub original: [u8; 5],
    /// The bytes to write: a jump to `copy`.
    pub patch: [u8; 5],
    /// The copy of the instruction at `address`.
    pub copy: u64,
}

/// A complete `.eh_frame` section for copied code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrameSection {
    /// Index of the module.
    pub module: usize,
    /// Where the section begins, inside a read-only region.
    pub address: u64,
    /// Bytes including the terminator.
    pub size: u64,
}

/// What a slot that the loader has made read-only holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slot {
    /// Its address.
    pub address: u64,
    /// Its content, as [`crate::AddressSpace::read_slot`] said.
    pub content: u64,
}

/// A copied jump table of 4-byte offsets from its own beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableCopy {
    /// Where the original is.
    pub original: u64,
    /// Where the copy is.
    pub copy: u64,
    /// How many entries it has.
    pub entries: u64,
}

/// A name for new code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Symbol {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// The function's name with `.relaid` or `.relaid.cold` behind it.
    pub name: String,
    /// First address of the original function.
    pub original: u64,
}

/// What was done and what was not.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Samples given.
    pub samples: u64,
    /// Samples in functions of the modules.
    pub samples_in_functions: u64,
    /// Samples in functions that were moved.
    pub samples_moved: u64,
    /// Functions with at least one sample.
    pub functions_sampled: u64,
    /// Functions that were looked at: hot enough to be moved.
    pub functions_seen: u64,
    /// Functions that were moved.
    pub functions_moved: u64,
    /// Functions left alone, by reason.
    pub rejected: BTreeMap<RejectReason, u64>,
    /// Samples in functions left alone, by reason.
    pub rejected_samples: BTreeMap<RejectReason, u64>,
    /// Bytes of copied hot code.
    pub hot_bytes: u64,
    /// Bytes of copied cold code.
    pub cold_bytes: u64,
    /// Bytes of unwind information, exception tables and jump tables.
    pub data_bytes: u64,
    /// Indirect jumps through jump tables in moved functions.
    pub jump_tables_seen: u64,
    /// Those whose table was copied.
    pub jump_tables_copied: u64,
    /// Calls that no longer go through a stub of the linkage table.
    pub stubs_bypassed: u64,
    /// What the moved code's profile predicts.
    pub effect: PredictedEffect,
}

/// What the profile predicts for the moved functions, before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictedEffect {
    /// Share of control transfers between blocks that fall through, 0 to 1. `None`: no transfers.
    pub fall_through_before: Option<f64>,
    /// The same in the copy.
    pub fall_through_after: Option<f64>,
    /// 64-byte cache lines with executed instructions.
    pub lines_before: u64,
    /// The same in the copy.
    pub lines_after: u64,
    /// 4096-byte pages with executed instructions.
    pub pages_before: u64,
    /// The same in the copy.
    pub pages_after: u64,
}

impl ConstantMemory for Relayout {
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let region = self.regions.iter().find(|region| region.range().contains(&address))?;
        let start = usize::try_from(address - region.address).ok()?;
        region.bytes.get(start..start.checked_add(size)?)
    }

    fn is_moved(&self) -> bool {
        false
    }
}

impl Region {
    /// The addresses that it takes.
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes.len() as u64
    }
}
