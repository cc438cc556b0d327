//! One ELF image as it is mapped in a process.

mod parse;

use std::collections::HashMap;
use std::ops::Range;

use crate::ModuleError;
use crate::bytes::ConstantMemory;

/// One x86-64 ELF image as it is mapped in a process: its bytes by absolute address, and what can
/// be known about its functions.
#[derive(Debug)]
pub struct Module {
    name: String,
    build_id: Option<String>,
    bias: u64,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    frames: EhFrameSection,
    symbols: Vec<FunctionSymbol>,
    read_only_after_start: Vec<Range<u64>>,
    stubs: HashMap<u64, u64>,
    slot_names: HashMap<u64, String>,
    code_pointers: Vec<u64>,
    relocated_text: Vec<u64>,
    restartable: Vec<u64>,
}

/// The name of a function.
#[derive(Debug)]
struct FunctionSymbol {
    address: u64,
    name: String,
    /// For a symbol that other files cannot see: its number, from 1 on by address, among those
    /// of the same name.
    local: Option<u32>,
}

/// A loaded part of the file.
#[derive(Debug)]
struct Segment {
    address: u64,
    bytes: Vec<u8>,
    memory_size: u64,
    executable: bool,
    writable: bool,
}

impl Segment {
    fn range(&self) -> Range<u64> {
        self.address..self.address + self.memory_size
    }
}

/// The `.eh_frame` section.
#[derive(Debug, Default)]
pub(crate) struct EhFrameSection {
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

/// A function or a fragment of one (`.cold`): what one frame description covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// First address.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// Offset of its frame description in `.eh_frame`. `None`: known from a symbol only.
    pub(crate) frame: Option<usize>,
    /// Whether another function's extent overlaps its own.
    pub(crate) overlapped: bool,
    /// Whether it is the linker's (PLT, `.init`, `.fini`).
    pub(crate) linker: bool,
}

impl Function {
    /// Its extent.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

impl Module {
    /// Reads an executable or shared library (`file`: the whole file) that is mapped `bias` bytes
    /// above its link-time addresses. `name` is for messages and reports.
    ///
    /// # Errors
    /// When the file is not 64-bit x86-64 ELF with something executable, or is damaged.
    pub fn parse(name: &str, file: &[u8], bias: u64) -> Result<Self, ModuleError> {
        parse::parse(name, file, bias)
    }

    /// The name given to [`Module::parse`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The build id in hexadecimal, where there is one.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Absolute address minus link-time address.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    /// The link-time address of an absolute one.
    pub fn to_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    /// The absolute address of a link-time one.
    pub fn to_address(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.bias)
    }

    /// From the first to behind the last mapped byte.
    pub fn extent(&self) -> Range<u64> {
        let start = self.segments.iter().map(|segment| segment.address).min().unwrap_or(0);
        let end = self.segments.iter().map(|segment| segment.range().end).max().unwrap_or(0);
        start..end
    }

    /// Whether the address lies in one of its mapped parts.
    pub fn contains(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.range().contains(&address))
    }

    /// Address ranges of its executable parts.
    pub fn executable(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.segments.iter().filter(|segment| segment.executable).map(Segment::range)
    }

    /// Whether the address lies in an executable part.
    pub fn is_executable(&self, address: u64) -> bool {
        self.executable().any(|range| range.contains(&address))
    }

    /// The bytes of the file that are mapped from `address` on; `None` when fewer than `size` are.
    pub fn bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| segment.range().contains(&address))?;
        let start = usize::try_from(address - segment.address).ok()?;
        segment.bytes.get(start..start.checked_add(size)?)
    }

    /// Functions and fragments by address.
    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    /// The function whose extent holds the address.
    pub fn function_at(&self, address: u64) -> Option<&Function> {
        self.function_index(address).map(|index| &self.functions[index])
    }

    pub(crate) fn function_index(&self, address: u64) -> Option<usize> {
        let behind = self.functions.partition_point(|function| function.start <= address);
        let index = behind.checked_sub(1)?;
        (address < self.functions[index].end).then_some(index)
    }

    /// A name for an address: a symbol's, or `module+0xoffset`.
    pub fn name_at(&self, address: u64) -> String {
        match self.symbol_at(address) {
            Some(symbol) => symbol.to_owned(),
            None => format!("{}+{:#x}", self.name, self.to_offset(address)),
        }
    }

    /// The symbol that begins at an address.
    pub fn symbol_at(&self, address: u64) -> Option<&str> {
        self.symbol(address).map(|symbol| symbol.name.as_str())
    }

    /// The same, with a number for symbols that other files cannot see: `name/1`.
    pub(crate) fn unique_symbol_at(&self, address: u64) -> Option<String> {
        let symbol = self.symbol(address)?;
        Some(match symbol.local {
            Some(number) => format!("{}/{number}", symbol.name),
            None => symbol.name.clone(),
        })
    }

    fn symbol(&self, address: u64) -> Option<&FunctionSymbol> {
        let found = self.symbols.binary_search_by_key(&address, |symbol| symbol.address).ok()?;
        Some(&self.symbols[found])
    }

    /// The slot that a stub of the linkage table (PLT) jumps through.
    pub fn stub_slot(&self, address: u64) -> Option<u64> {
        self.stubs.get(&address).copied()
    }

    /// The symbol whose address the loader puts into a slot.
    pub fn slot_name(&self, slot: u64) -> Option<&str> {
        self.slot_names.get(&slot).map(String::as_str)
    }

    /// Whether the loader makes these 8 bytes read-only before the program begins.
    pub fn is_read_only_after_start(&self, address: u64) -> bool {
        self.read_only_after_start
            .iter()
            .any(|range| range.start <= address && address.saturating_add(8) <= range.end)
    }

    /// Whether data or relocations hold an address inside the range, ends excluded on the left.
    pub(crate) fn has_pointer_into(&self, range: Range<u64>) -> bool {
        let first = self.code_pointers.partition_point(|&pointer| pointer < range.start);
        self.code_pointers.get(first).is_some_and(|&pointer| pointer < range.end)
    }

    /// Whether the loader writes into the range.
    pub(crate) fn is_relocated(&self, range: &Range<u64>) -> bool {
        // A relocation writes 8 bytes at most.
        let first = self.relocated_text.partition_point(|&at| at.saturating_add(8) <= range.start);
        self.relocated_text.get(first).is_some_and(|&at| at < range.end)
    }

    /// Whether a restartable sequence begins in the range.
    pub(crate) fn is_restartable(&self, range: &Range<u64>) -> bool {
        self.restartable.iter().any(|start| range.contains(start))
    }

    pub(crate) fn frames(&self) -> &EhFrameSection {
        &self.frames
    }
}

impl ConstantMemory for Module {
    /// The bytes at `address` if nobody can have changed them: they are mapped read-only from the
    /// file, and not relocated.
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| segment.range().contains(&address))?;
        if segment.writable { None } else { self.bytes(address, size) }
    }

    fn is_moved(&self) -> bool {
        self.bias != 0
    }
}
