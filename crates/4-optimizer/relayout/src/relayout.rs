//! The result of a layout.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::bytes::ConstantMemory;
use crate::{RejectReason, SamplePrecision};

/// New code for a process, and how to redirect functions to it.
///
/// To apply it, write and protect the regions, register the frame sections, then patch the entries
/// while all threads are stopped. To undo it, write back [`EntryPatch::original`]; the regions stay
/// mapped.
#[derive(Debug, Clone, Default)]
pub struct Relayout {
    /// New memory, in whole pages. The regions of a module are contiguous.
    pub regions: Vec<Region>,
    pub entries: Vec<EntryPatch>,
    /// Slots of virtual tables to be redirected, too, by address. Each is independent of all other patches.
    pub virtual_slots: Vec<VirtualSlot>,
    /// Unwind information to register, one section per module with moved functions.
    pub frames: Vec<FrameSection>,
    /// Symbols of the new code for profilers and debuggers, by address.
    pub symbols: Vec<Symbol>,
    pub tables: Vec<TableCopy>,
    /// Contents of read-only slots that direct calls rely on.
    pub slots: Vec<Slot>,
    /// Counters of executed blocks, in memory outside of the regions.
    pub counters: Vec<Counter>,
    /// Addresses of original and copied instructions.
    pub map: AddressMap,
    pub statistics: Statistics,
}

/// The content of memory of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Region {
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// The patch that redirects a function to its copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryPatch {
    pub function: u64,
    /// Address of the patch: after the first instruction of the function, where tracing tools set
    /// breakpoints (uprobes).
    ///
    /// No thread and no saved context may be inside `address + 1 .. address + 5` when it is written.
    /// Threads there can be moved with [`AddressMap::to_copy`], because these instructions are always
    /// copied. No return address and no branch of the module points there; functions for which that
    /// is not proven are rejected.
    pub address: u64,
    /// The bytes before the patch; undo writes them back.
    pub original: [u8; 5],
    /// The patch: a jump to `copy`.
    pub patch: [u8; 5],
    /// The copy of the instruction at `address`.
    pub copy: u64,
}

impl EntryPatch {
    /// Size in bytes of the jump that a patch is.
    pub const SIZE: u64 = 5;
}

/// A slot of a virtual table that may refer to the copy of its function.
///
/// It is in memory that the loader has made read-only. The program only calls what it contains: the address
/// of the function is not loaded by code, which may compare it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VirtualSlot {
    /// Address of the slot, 8 bytes.
    pub address: u64,
    /// Start address of the original function: its content.
    pub function: u64,
    pub copy: u64,
}

/// A complete `.eh_frame` section for copied code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameSection {
    /// Start address, inside a read-only region.
    pub address: u64,
    /// Size in bytes, with the terminator.
    pub size: u64,
}

/// Content of a slot that the loader has made read-only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    pub address: u64,
    /// Content, as returned by [`crate::AddressSpace::read_slot`].
    pub content: u64,
}

/// A counter of the executions of a block: 4 bytes, which overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Counter {
    /// Original start address of the block.
    pub block: u64,
    pub address: u64,
}

impl Counter {
    /// Size of a counter in bytes.
    pub const SIZE: u64 = 4;
}

/// A copied jump table of 4-byte offsets relative to its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableCopy {
    pub original: u64,
    pub copy: u64,
    pub entries: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    pub address: u64,
    pub size: u64,
    /// The function's name with the suffix `.relaid` or `.relaid.cold`.
    pub name: String,
    pub original: u64,
}

impl Symbol {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.size
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Statistics {
    pub samples: u64,
    /// Samples in functions of the modules.
    pub samples_in_functions: u64,
    /// Samples in functions that were moved.
    pub samples_moved: u64,
    /// How well the samples show which blocks of the moved functions are executed.
    pub precision: SamplePrecision,
    /// Functions with at least one sample.
    pub functions_sampled: u64,
    /// Functions hot enough to be moved.
    pub functions_seen: u64,
    pub functions_moved: u64,
    /// Functions that could not be moved, by reason.
    pub rejected: BTreeMap<RejectReason, u64>,
    /// Samples in functions that could not be moved, by reason.
    pub rejected_samples: BTreeMap<RejectReason, u64>,
    /// Why the copies of functions rejected as [`RejectReason::Unproven`] were not used, with their names.
    pub unproven: Vec<String>,
    /// Functions moved by the exact counts of their blocks.
    pub functions_counted: u64,
    /// Functions without a place for a counter, by name.
    pub uncountable: Vec<String>,
    /// Size of the copied hot code in bytes.
    pub hot_bytes: u64,
    /// Size of the copied cold code in bytes.
    pub cold_bytes: u64,
    /// Size of unwind information, exception tables and jump tables in bytes.
    pub data_bytes: u64,
    pub jump_tables_seen: u64,
    pub jump_tables_copied: u64,
    pub stubs_bypassed: u64,
    pub effect: PredictedEffect,
}

/// Effect of the new layout on the moved functions, predicted from the profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
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

    fn needs_relocation(&self) -> bool {
        false
    }
}

impl Region {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes.len() as u64
    }
}

/// Maps original instructions to their copies and back.
///
/// Jumps that were added to a copy have no original instruction; [`AddressMap::to_original`] maps
/// them to the instruction that they jump to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AddressMap {
    /// Original address and copy address, by original address.
    copies: Vec<(u64, u64)>,
    /// Copy address and original address, by copy address.
    originals: Vec<(u64, u64)>,
}

impl AddressMap {
    /// A map from pairs (original, copy) of all copied instructions, and pairs (copy, original) of
    /// all instructions that exist in the copy.
    pub fn new(mut copies: Vec<(u64, u64)>, mut originals: Vec<(u64, u64)>) -> Self {
        copies.sort_unstable();
        originals.sort_unstable();
        Self { copies, originals }
    }

    pub fn to_copy(&self, original: u64) -> Option<u64> {
        find(&self.copies, original)
    }

    pub fn to_original(&self, copy: u64) -> Option<u64> {
        find(&self.originals, copy)
    }

    /// All pairs (original, copy), by original address.
    pub fn pairs(&self) -> impl ExactSizeIterator<Item = (u64, u64)> + '_ {
        self.copies.iter().copied()
    }
}

fn find(pairs: &[(u64, u64)], address: u64) -> Option<u64> {
    let found = pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
    Some(pairs[found].1)
}
