//! An ELF image as mapped in a process.

mod parse;

use std::collections::HashMap;
use std::ops::Range;

use crate::Region;
use crate::bytes::ConstantMemory;

/// Why a file cannot be parsed as a module.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// The file is not an ELF file, or is damaged.
    #[error("{name}: cannot be read as an ELF file: {reason}")]
    Elf { name: String, reason: String },
    /// An ELF file of another kind.
    #[error(
        "{name}: is {found}; only 64-bit x86-64 executables and shared libraries can be optimized"
    )]
    Unsupported { name: String, found: String },
    /// The unwind information is damaged.
    #[error("{name}: unwind information (.eh_frame) at offset {offset:#x}: {reason}")]
    Unwind { name: String, offset: usize, reason: String },
}

/// A linkage stub (PLT).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stub {
    /// The slot that it jumps through.
    slot: u64,
    /// Whether it loads its number into `r11` before, as stubs of mold do: lazy binding takes it from there.
    loads_number: bool,
}

/// An x86-64 ELF image as mapped in a process: its bytes by absolute address, and its functions.
#[derive(Debug, Default)]
pub struct Module {
    name: String,
    build_id: Option<String>,
    bias: u64,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    /// Its `.eh_frame` section.
    frames: Region,
    symbols: Vec<FunctionSymbol>,
    read_only_after_start: Vec<Range<u64>>,
    stubs: HashMap<u64, Stub>,
    slot_names: HashMap<u64, String>,
    code_pointers: Vec<u64>,
    relocated_text: Vec<u64>,
    virtual_slots: Vec<(u64, u64)>,
    restartable: Vec<u64>,
    static_probes: Vec<u64>,
}

#[derive(Debug)]
struct FunctionSymbol {
    address: u64,
    name: String,
    /// For a local symbol: its number among those of the same name, by address from 1 on.
    local: Option<u32>,
}

/// A loaded segment of the file.
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

/// A function or a fragment of one (`.cold`): the range of one frame description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    pub start: u64,
    pub end: u64,
    /// Offset of its frame description in `.eh_frame`. `None`: it only has a symbol.
    pub(crate) frame: Option<usize>,
    pub(crate) overlapped: bool,
    /// Whether the linker generated it (PLT, `.init`, `.fini`).
    pub(crate) linker: bool,
}

impl Function {
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    pub fn size(&self) -> u64 {
        self.end - self.start
    }
}

impl Module {
    /// Parses an executable or shared library (`file`: its content) that is mapped `bias` bytes above
    /// its link-time addresses. `name` is used in messages and reports.
    ///
    /// # Errors
    /// The file is damaged, or is not a 64-bit x86-64 ELF file with an executable segment.
    pub fn parse(name: &str, file: &[u8], bias: u64) -> Result<Self, ModuleError> {
        parse::parse(name, file, bias)
    }

    /// The name given to [`Module::parse`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The build ID in hexadecimal, if the file has one.
    pub fn build_id(&self) -> Option<&str> {
        self.build_id.as_deref()
    }

    /// Absolute address minus link-time address.
    pub fn bias(&self) -> u64 {
        self.bias
    }

    pub fn to_offset(&self, address: u64) -> u64 {
        address.wrapping_sub(self.bias)
    }

    pub fn to_address(&self, offset: u64) -> u64 {
        offset.wrapping_add(self.bias)
    }

    /// From the lowest to the highest mapped address.
    pub fn extent(&self) -> Range<u64> {
        let start = self.segments.iter().map(|segment| segment.address).min().unwrap_or(0);
        let end = self.segments.iter().map(|segment| segment.range().end).max().unwrap_or(0);
        start..end
    }

    pub fn contains(&self, address: u64) -> bool {
        self.segments.iter().any(|segment| segment.range().contains(&address))
    }

    pub fn executable(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.segments.iter().filter(|segment| segment.executable).map(Segment::range)
    }

    pub fn is_executable(&self, address: u64) -> bool {
        self.executable().any(|range| range.contains(&address))
    }

    /// `size` bytes of the file mapped at `address`; `None` if fewer are mapped.
    pub fn bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| segment.range().contains(&address))?;
        let start = usize::try_from(address - segment.address).ok()?;
        segment.bytes.get(start..start.checked_add(size)?)
    }

    /// The 8 bytes of the file mapped at `address`, as a number.
    fn word(&self, address: u64) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes(address, 8)?.try_into().ok()?))
    }

    pub fn functions(&self) -> &[Function] {
        &self.functions
    }

    pub fn function_at(&self, address: u64) -> Option<&Function> {
        self.function_index(address).map(|index| &self.functions[index])
    }

    pub(crate) fn function_index(&self, address: u64) -> Option<usize> {
        let next = self.functions.partition_point(|function| function.start <= address);
        let index = next.checked_sub(1)?;
        (address < self.functions[index].end).then_some(index)
    }

    /// A name for an address: its symbol, or `module+0xoffset`.
    pub fn name_at(&self, address: u64) -> String {
        match self.symbol_at(address) {
            Some(symbol) => symbol.to_owned(),
            None => format!("{}+{:#x}", self.name, self.to_offset(address)),
        }
    }

    pub fn symbol_at(&self, address: u64) -> Option<&str> {
        self.symbol(address).map(|symbol| symbol.name.as_str())
    }

    /// The symbol at an address, with a number if it is local: `name/1`.
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

    /// The slot that a linkage stub (PLT) jumps through.
    pub fn stub_slot(&self, address: u64) -> Option<u64> {
        self.stubs.get(&address).map(|stub| stub.slot)
    }

    /// The slot that code can jump through instead of a linkage stub. Until it is bound, the slot of a stub that loads its
    /// number leads to code that needs it.
    pub(crate) fn slot_instead_of(&self, stub: u64) -> Option<u64> {
        let Stub { slot, loads_number } = *self.stubs.get(&stub)?;
        (!loads_number || self.is_read_only_after_start(slot)).then_some(slot)
    }

    /// The symbol whose address the loader stores in a slot.
    pub fn slot_name(&self, slot: u64) -> Option<&str> {
        self.slot_names.get(&slot).map(String::as_str)
    }

    /// The name of the function at an address, or of the one that a stub there jumps to.
    pub(crate) fn called_name(&self, address: u64) -> Option<&str> {
        match self.stub_slot(address) {
            Some(slot) => self.slot_name(slot),
            None => self.symbol_at(address),
        }
    }

    /// Whether the loader makes the 8 bytes at an address read-only before the program starts.
    pub fn is_read_only_after_start(&self, address: u64) -> bool {
        self.read_only_after_start
            .iter()
            .any(|range| range.start <= address && address.saturating_add(8) <= range.end)
    }

    /// Slots of virtual tables in memory that the loader makes read-only: the address of the slot, and of the
    /// function that it contains.
    pub(crate) fn virtual_slots(&self) -> &[(u64, u64)] {
        &self.virtual_slots
    }

    /// Whether data or relocations contain an address in the range.
    pub(crate) fn has_pointer_into(&self, range: Range<u64>) -> bool {
        let first = self.code_pointers.partition_point(|&pointer| pointer < range.start);
        self.code_pointers.get(first).is_some_and(|&pointer| pointer < range.end)
    }

    /// Whether the loader modifies the range.
    pub(crate) fn is_relocated(&self, range: &Range<u64>) -> bool {
        // A relocation modifies at most 8 bytes.
        let first = self.relocated_text.partition_point(|&at| at.saturating_add(8) <= range.start);
        self.relocated_text.get(first).is_some_and(|&at| at < range.end)
    }

    /// Whether a restartable sequence starts in the range.
    pub(crate) fn is_restartable(&self, range: &Range<u64>) -> bool {
        self.restartable.iter().any(|start| range.contains(start))
    }

    /// Whether a static probe (USDT) is in the range.
    pub(crate) fn has_static_probe(&self, range: &Range<u64>) -> bool {
        self.static_probes.iter().any(|probe| range.contains(probe))
    }

    pub(crate) fn frames(&self) -> &Region {
        &self.frames
    }
}

impl ConstantMemory for Module {
    /// The bytes at `address`, if they are mapped read-only from the file.
    fn constant_bytes(&self, address: u64, size: usize) -> Option<&[u8]> {
        let segment = self.segments.iter().find(|segment| segment.range().contains(&address))?;
        if segment.writable { None } else { self.bytes(address, size) }
    }

    fn needs_relocation(&self) -> bool {
        self.bias != 0
    }
}
