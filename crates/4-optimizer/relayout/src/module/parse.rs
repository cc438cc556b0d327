//! Parsing an ELF file into a [`Module`].

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use gimli::UnwindSection;
use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use object::elf::{
    EM_X86_64, NoteType, PF_W, PF_X, PT_GNU_EH_FRAME, PT_GNU_RELRO, PT_LOAD, R_X86_64_GLOB_DAT,
    R_X86_64_JUMP_SLOT, SectionHeader64,
};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader, SectionHeader};
use object::{
    Endianness, LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable,
    RelocationTarget, SymbolKind,
};

use crate::module::{Function, FunctionSymbol, Module, Segment, Stub};
use crate::virtual_tables::{RelocatedWord, virtual_slots};
use crate::{ModuleError, Region};

/// Maximum number of loadable segments, and of sections of linkage stubs; linkers make up to ten. Each
/// may cover the whole file.
const MAX_PARTS: usize = 64;

/// How often a byte of the file may be in a segment.
const MAX_OVERLAP: u64 = 2;

/// Maximum length of a symbol's name, which many symbols can share; functions with longer ones have
/// none.
const MAX_NAME: usize = 16 << 10;

type Elf<'a> = ElfFile64<'a, LittleEndian>;

pub(super) fn parse(name: &str, file: &[u8], bias: u64) -> Result<Module, ModuleError> {
    check_kind(name, file)?;
    let elf = Elf::parse(file).map_err(|error| damaged(name, error))?;
    let segments = segments(name, &elf, file, bias)?;
    if !segments.iter().any(|segment| segment.executable) {
        return Err(unsupported(name, "an ELF file without executable code"));
    }
    let build_id = elf.build_id().map_err(|error| damaged(name, error))?.map(hex);
    let symbols = symbols(&elf, bias);
    let frames = frames(&elf, file, bias);
    let mut module = Module {
        name: name.to_owned(),
        build_id,
        bias,
        segments,
        frames,
        read_only_after_start: relro(&elf, bias),
        static_probes: static_probes(&elf, bias),
        ..Module::default()
    };
    let linker = linker_ranges(&elf, bias);
    module.functions = functions(name, &module, &symbols, &linker)?;
    module.symbols = best_names(symbols);
    read_relocations(&elf, &mut module);
    module.stubs = stubs(&elf, &module);
    module.restartable = restartable(&elf, &module);
    Ok(module)
}

fn damaged(name: &str, reason: impl ToString) -> ModuleError {
    ModuleError::Elf { name: name.to_owned(), reason: reason.to_string() }
}

fn unsupported(name: &str, found: &str) -> ModuleError {
    ModuleError::Unsupported { name: name.to_owned(), found: found.to_owned() }
}

fn check_kind(name: &str, file: &[u8]) -> Result<(), ModuleError> {
    if !file.starts_with(b"\x7fELF") {
        return Err(damaged(name, "it does not start with the ELF signature"));
    }
    match file.get(4) {
        Some(2) => {}
        Some(1) => return Err(unsupported(name, "a 32-bit ELF file")),
        _ => return Err(unsupported(name, "an ELF file of unknown class")),
    }
    if file.get(5) != Some(&1) {
        return Err(unsupported(name, "a big-endian ELF file"));
    }
    let header = object::elf::FileHeader64::<Endianness>::parse(file)
        .map_err(|error| damaged(name, error))?;
    let machine = header.e_machine.get(Endianness::Little);
    if machine != EM_X86_64 {
        return Err(unsupported(name, &format!("an ELF file for machine {}", machine.0)));
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn segments(name: &str, elf: &Elf, file: &[u8], bias: u64) -> Result<Vec<Segment>, ModuleError> {
    let mut segments = Vec::new();
    let mut left = (file.len() as u64).saturating_mul(MAX_OVERLAP);
    for header in elf.elf_program_headers() {
        if header.p_type(LittleEndian) != PT_LOAD {
            continue;
        }
        let flags = header.p_flags(LittleEndian);
        let bytes = header.data(LittleEndian, file).map_err(|()| {
            damaged(name, format!("segment at {:#x} is cut off", header.p_vaddr(LittleEndian)))
        })?;
        let address = header.p_vaddr(LittleEndian).wrapping_add(bias);
        let memory_size = header.p_memsz(LittleEndian).max(bytes.len() as u64);
        // User space is below; this also keeps sums of addresses from overflowing.
        if address.checked_add(memory_size).is_none_or(|end| end > 1 << 48) {
            let what = format!("segment at {address:#x} of {memory_size} bytes is out of range");
            return Err(damaged(name, what));
        }
        left = left
            .checked_sub(bytes.len() as u64)
            .filter(|_| segments.len() < MAX_PARTS)
            .ok_or_else(|| {
                unsupported(name, "an ELF file with too many or overlapping segments")
            })?;
        segments.push(Segment {
            address,
            bytes: bytes.to_vec(),
            memory_size,
            executable: flags.contains(PF_X),
            writable: flags.contains(PF_W),
        });
    }
    Ok(segments)
}

fn relro(elf: &Elf, bias: u64) -> Vec<Range<u64>> {
    elf.elf_program_headers()
        .iter()
        .filter(|header| header.p_type(LittleEndian) == PT_GNU_RELRO)
        .map(|header| {
            let start = header.p_vaddr(LittleEndian).wrapping_add(bias);
            // The loader protects whole pages, up to the last page boundary in the range.
            start..start.saturating_add(header.p_memsz(LittleEndian)) & !0xfff
        })
        .collect()
}

fn linker_ranges(elf: &Elf, bias: u64) -> Vec<Range<u64>> {
    elf.sections()
        .filter(|section| {
            section.name().is_ok_and(|name| [".init", ".fini"].contains(&name) || is_plt(name))
        })
        .map(|section| {
            let start = section.address().wrapping_add(bias);
            start..start.saturating_add(section.size())
        })
        .take(MAX_PARTS)
        .collect()
}

/// Whether a section of this name has linkage stubs.
fn is_plt(name: &str) -> bool {
    name == ".plt" || name.starts_with(".plt.")
}

struct FoundSymbol {
    address: u64,
    size: u64,
    name: String,
    global: bool,
}

fn is_name(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
}

fn symbols(elf: &Elf, bias: u64) -> Vec<FoundSymbol> {
    let tables = [elf.symbol_table(), elf.dynamic_symbol_table()];
    tables
        .into_iter()
        .flatten()
        .flat_map(|table| table.symbols().collect::<Vec<_>>())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter_map(|symbol| {
            let name = symbol.name().ok().filter(|name| is_name(name))?;
            Some(FoundSymbol {
                address: symbol.address().wrapping_add(bias),
                size: symbol.size(),
                name: name.to_owned(),
                global: symbol.is_global(),
            })
        })
        .collect()
}

/// One name per address: global before local, then shortest, then alphabetical.
fn best_names(mut symbols: Vec<FoundSymbol>) -> Vec<FunctionSymbol> {
    symbols.sort_by(|a, b| {
        let key = |symbol: &FoundSymbol| (symbol.address, !symbol.global, symbol.name.len());
        key(a).cmp(&key(b)).then_with(|| a.name.cmp(&b.name))
    });
    symbols
        .dedup_by(|later, earlier| later.address == earlier.address && later.name == earlier.name);
    let mut seen: HashMap<String, u32> = HashMap::new();
    let mut names: Vec<FunctionSymbol> = symbols
        .into_iter()
        .map(|symbol| {
            let local = (!symbol.global).then(|| {
                let number = seen.entry(symbol.name.clone()).or_default();
                *number += 1;
                *number
            });
            FunctionSymbol { address: symbol.address, name: symbol.name, local }
        })
        .collect();
    names.dedup_by_key(|name| name.address);
    names
}

/// The `.eh_frame` section, by the section table or else by `PT_GNU_EH_FRAME`. Empty without a section
/// table: relocations and linkage stubs are unknown then, so that no function can be moved.
fn frames(elf: &Elf, file: &[u8], bias: u64) -> Region {
    if let Some(section) = elf.section_by_name(".eh_frame")
        && let Ok(bytes) = section.data()
    {
        let address = section.address().wrapping_add(bias);
        return Region { address, bytes: bytes.to_vec() };
    }
    if elf.elf_section_table().is_empty() {
        return Region::default();
    }
    frames_by_header(elf, file, bias).unwrap_or_default()
}

fn frames_by_header(elf: &Elf, file: &[u8], bias: u64) -> Option<Region> {
    let headers = elf.elf_program_headers();
    let header = headers.iter().find(|header| header.p_type(LittleEndian) == PT_GNU_EH_FRAME)?;
    let bytes = header.data(LittleEndian, file).ok()?;
    let at = header.p_vaddr(LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame_hdr(at);
    let parsed = gimli::EhFrameHdr::new(bytes, gimli::LittleEndian).parse(&bases, 8).ok()?;
    let start = parsed.eh_frame_ptr().direct().ok()?;
    // Its size is not recorded; it ends with a terminator, inside its segment.
    let segment = headers.iter().find(|header| {
        let address = header.p_vaddr(LittleEndian);
        header.p_type(LittleEndian) == PT_LOAD
            && (address..address + header.p_filesz(LittleEndian)).contains(&start)
    })?;
    let bytes = segment.data(LittleEndian, file).ok()?;
    let offset = usize::try_from(start - segment.p_vaddr(LittleEndian)).ok()?;
    Some(Region { address: start.wrapping_add(bias), bytes: bytes.get(offset..)?.to_vec() })
}

/// Functions by address: one per frame description, and one per symbol outside of these.
fn functions(
    name: &str,
    module: &Module,
    symbols: &[FoundSymbol],
    linker: &[Range<u64>],
) -> Result<Vec<Function>, ModuleError> {
    let mut functions = Vec::new();
    let is_linker = |address: u64| linker.iter().any(|range| range.contains(&address));
    for_each_frame(name, module, |start, size, offset| {
        let Some(end) = start.checked_add(size) else { return };
        if size > 0
            && end <= 1 << 48
            && module.is_executable(start)
            && module.is_executable(end - 1)
        {
            let linker = is_linker(start);
            let frame = Some(offset);
            functions.push(Function { start, end, frame, overlapped: false, linker });
        }
    })?;
    functions.sort_by_key(|function| (function.start, function.end));
    let known = functions.len();
    for symbol in symbols {
        let range = symbol.address..symbol.address.saturating_add(symbol.size);
        let before = functions[..known].partition_point(|function| function.start < range.end);
        let covered = before > 0 && functions[before - 1].end > range.start;
        if !range.is_empty() && !covered && module.is_executable(range.start) {
            functions.push(Function {
                start: range.start,
                end: range.end,
                frame: None,
                overlapped: false,
                linker: is_linker(range.start),
            });
        }
    }
    functions.sort_by_key(|function| (function.start, function.frame.is_none(), function.end));
    // Symbols at the same address are aliases of one function.
    functions.dedup_by(|later, earlier| later.start == earlier.start && later.frame.is_none());
    // Several may be inside one, so each is compared with the one that ends last.
    let mut last = 0;
    for index in 1..functions.len() {
        if functions[last].end > functions[index].start {
            functions[last].overlapped = true;
            functions[index].overlapped = true;
        }
        if functions[last].end < functions[index].end {
            last = index;
        }
    }
    Ok(functions)
}

fn for_each_frame(
    name: &str,
    module: &Module,
    mut found: impl FnMut(u64, u64, usize),
) -> Result<(), ModuleError> {
    let frames = &module.frames;
    let section = gimli::EhFrame::new(&frames.bytes, gimli::LittleEndian);
    let bases = gimli::BaseAddresses::default().set_eh_frame(frames.address);
    let mut entries = section.entries(&bases);
    let mut descriptions = HashMap::new();
    let mut offset = 0;
    let broken = |offset: usize, error: gimli::Error| ModuleError::Unwind {
        name: name.to_owned(),
        offset,
        reason: error.to_string(),
    };
    while let Some(entry) = entries.next().map_err(|error| broken(offset, error))? {
        let partial = match entry {
            gimli::CieOrFde::Cie(cie) => {
                offset = cie.offset();
                descriptions.insert(offset, cie);
                continue;
            }
            gimli::CieOrFde::Fde(partial) => partial,
        };
        offset = partial.offset();
        let frame = partial
            .parse(|section, bases, at| match descriptions.get(&at.0) {
                Some(cie) => Ok(cie.clone()),
                None => section.cie_from_offset(bases, at),
            })
            .map_err(|error| broken(offset, error))?;
        found(frame.initial_address(), frame.len(), offset);
    }
    Ok(())
}

/// Reads the names of slots, the code addresses in data, the virtual tables, and the relocations of code.
fn read_relocations(elf: &Elf, module: &mut Module) {
    let names = elf.dynamic_symbol_table();
    let mut pointers = Vec::new();
    let mut words = BTreeMap::new();
    for (offset, relocation) in elf.dynamic_relocations().into_iter().flatten() {
        let address = module.to_address(offset);
        if module.is_executable(address) {
            module.relocated_text.push(address);
        }
        if let RelocationTarget::Symbol(index) = relocation.target() {
            let symbol = names.as_ref().and_then(|table| table.symbol_by_index(index).ok());
            let is_slot = matches!(
                relocation.flags(),
                object::RelocationFlags::Elf { r_type }
                    if r_type == R_X86_64_JUMP_SLOT || r_type == R_X86_64_GLOB_DAT
            );
            if let Some(symbol) = symbol {
                if is_slot
                    && let Ok(name) = symbol.name()
                    && is_name(name)
                {
                    module.slot_names.insert(address, name.to_owned());
                }
                let target = symbol.address().wrapping_add_signed(relocation.addend());
                let target = module.to_address(target);
                pointers.push(target);
                let defined = (!symbol.is_undefined()).then_some(target);
                let name = symbol.name().unwrap_or_default();
                words.insert(address, RelocatedWord::of_symbol(name, defined));
            }
        } else {
            let target = module.to_address(relocation.addend().cast_unsigned());
            pointers.push(target);
            words.insert(address, RelocatedWord::Address(target));
        }
    }
    for address in packed_relocations(elf).map(|offset| module.to_address(offset)) {
        if let Some(target) = module.word(address) {
            words.insert(address, RelocatedWord::Address(module.to_address(target)));
        }
    }
    module.relocated_text.sort_unstable();
    words.retain(|address, _| module.is_read_only_after_start(*address));
    let starts = |address| {
        module.functions.binary_search_by_key(&address, |function| function.start).is_ok()
    };
    module.virtual_slots = virtual_slots(&words, |address| module.word(address), starts);
    // Without relocations, or with packed ones, the addresses are in the data. Older linkers put constants
    // into the segment of the code.
    for segment in &module.segments {
        let first = (segment.address.next_multiple_of(8) - segment.address) as usize;
        for word in segment.bytes.get(first..).unwrap_or_default().as_chunks::<8>().0 {
            let value = u64::from_le_bytes(*word);
            pointers.push(value);
            pointers.push(module.to_address(value));
        }
    }
    pointers.retain(|&pointer| module.is_executable(pointer));
    pointers.sort_unstable();
    pointers.dedup();
    module.code_pointers = pointers;
}

/// The words to which the loader only adds where the file is (`DT_RELR`); they contain the address in the
/// file.
fn packed_relocations<'a>(elf: &Elf<'a>) -> impl Iterator<Item = u64> + use<'a> {
    let (sections, data) = (elf.elf_section_table(), elf.data());
    let packed = |section: &SectionHeader64<LittleEndian>| section.relr(LittleEndian, data).ok()?;
    // Linkers make one such section.
    sections.iter().find_map(packed).into_iter().flatten()
}

/// The linkage stubs (PLT): address and the slot that each jumps through.
fn stubs(elf: &Elf, module: &Module) -> HashMap<u64, Stub> {
    let mut stubs = HashMap::new();
    let tables = elf.sections().filter(|section| section.name().is_ok_and(is_plt));
    for section in tables.take(MAX_PARTS) {
        let Ok(bytes) = section.data() else { continue };
        stubs.extend(stubs_in(bytes, module.to_address(section.address())));
    }
    stubs
}

/// Start addresses of restartable sequences, from the section that describes them.
fn restartable(elf: &Elf, module: &Module) -> Vec<u64> {
    let Some(section) = elf.section_by_name("__rseq_cs") else { return Vec::new() };
    let range = section.address()..section.address().saturating_add(section.size());
    let relocated = elf
        .dynamic_relocations()
        .into_iter()
        .flatten()
        .filter(|(offset, _)| range.contains(offset))
        .map(|(_, relocation)| module.to_address(relocation.addend().cast_unsigned()));
    let words = section.data().unwrap_or_default().as_chunks::<8>().0.iter();
    let written = words.map(|word| module.to_address(u64::from_le_bytes(*word)));
    relocated.chain(written.filter(|address| module.is_executable(*address))).collect()
}

/// The type and the name of their descriptions, as in `sys/sdt.h` of SystemTap.
const PROBE: NoteType = NoteType(3);
const NAME: &[u8] = b"stapsdt";

/// The section whose address tells by how much a tool has moved the file (`prelink`).
const BASE: &str = ".stapsdt.base";

/// The addresses of the static probes of a file that is loaded at `bias`.
fn static_probes(elf: &Elf, bias: u64) -> Vec<u64> {
    let base = elf.section_by_name(BASE).map(|section| section.address());
    let (sections, data) = (elf.elf_section_table(), elf.data());
    let notes = sections.iter().filter_map(|section| section.notes(LittleEndian, data).ok()?);
    let mut probes = Vec::new();
    for mut notes in notes {
        while let Ok(Some(note)) = notes.next() {
            if note.n_type(LittleEndian) == PROBE && note.name() == NAME {
                probes.extend(address(note.desc(), base).map(|probe| probe.wrapping_add(bias)));
            }
        }
    }
    probes
}

/// The address in a description: the first word, which assumes that the base is at the second one.
fn address(description: &[u8], base: Option<u64>) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(*description.get(at..)?.first_chunk()?));
    let (probe, assumed) = (word(0)?, word(8)?);
    let moved = base.filter(|_| assumed != 0).map_or(0, |base| base.wrapping_sub(assumed));
    Some(probe.wrapping_add(moved))
}

/// The stubs in a section with these bytes at `start`, by the address that each is called at.
fn stubs_in(bytes: &[u8], start: u64) -> Vec<(u64, Stub)> {
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut stubs = Vec::new();
    let (mut first, mut loads_number) = (None, false);
    while decoder.can_decode() {
        let instruction = decoder.decode();
        if let Some(slot) = jumped_through(&instruction) {
            stubs.push((instruction.ip(), Stub { slot, loads_number }));
            stubs.extend(first.map(|first| (first, Stub { slot, loads_number })));
        }
        let (is_mark, is_number) =
            (instruction.mnemonic() == Mnemonic::Endbr64, loads_its_number(&instruction));
        first = if is_mark || is_number { first.or(Some(instruction.ip())) } else { None };
        loads_number = is_number;
    }
    stubs
}

fn jumped_through(instruction: &Instruction) -> Option<u64> {
    let is_jump = instruction.mnemonic() == Mnemonic::Jmp
        && instruction.op0_kind() == OpKind::Memory
        && instruction.is_ip_rel_memory_operand();
    is_jump.then(|| instruction.ip_rel_memory_address())
}

/// Whether it loads the number of a stub into `r11`, as in stubs of mold.
fn loads_its_number(instruction: &Instruction) -> bool {
    instruction.mnemonic() == Mnemonic::Mov
        && instruction.op_kind(0) == OpKind::Register
        && instruction.op_register(0) == Register::R11D
        && instruction.op_kind(1) == OpKind::Immediate32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_moves_with_the_base() {
        let description = [0x1234_u64, 0x9000, 0].map(u64::to_le_bytes).concat();
        assert_eq!(address(&description, None), Some(0x1234));
        assert_eq!(address(&description, Some(0x9000)), Some(0x1234));
        assert_eq!(address(&description, Some(0x9100)), Some(0x1334));
        assert_eq!(address(&description[..12], Some(0x9000)), None);
    }

    /// `jmp [rip+0x100]`.
    const JUMP: [u8; 6] = [0xff, 0x25, 0, 1, 0, 0];
    const ENDBR: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
    /// `mov r11d, 5`.
    const NUMBER: [u8; 6] = [0x41, 0xbb, 5, 0, 0, 0];

    #[test]
    fn stubs_of_every_linker_are_found_at_their_first_instruction() {
        for before in [&[][..], &ENDBR, &NUMBER, &[&ENDBR[..], &NUMBER].concat()] {
            let bytes = [&[0xcc, 0xcc], before, &JUMP, &[0x68, 1, 0, 0, 0]].concat();
            let jump = 0x1002 + before.len() as u64;
            let found = stubs_in(&bytes, 0x1000);
            let stub = Stub { slot: jump + 6 + 0x100, loads_number: before.ends_with(&NUMBER) };
            assert!(found.contains(&(0x1002, stub)), "{before:x?}: {found:x?}");
            assert!(found.contains(&(jump, stub)), "{before:x?}: {found:x?}");
        }
    }

    #[test]
    fn other_code_is_part_of_no_stub() {
        // push 1; jmp [rip+0x100]
        let found = stubs_in(&[&[0x68, 1, 0, 0, 0][..], &JUMP].concat(), 0x1000);
        assert_eq!(found, [(0x1005, Stub { slot: 0x110b, loads_number: false })]);
        // jmp to another stub.
        assert_eq!(stubs_in(&[0xe9, 0, 0, 0, 0], 0x1000), []);
    }
}
