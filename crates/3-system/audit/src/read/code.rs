//! The machine code of a file: functions, and what their instructions show.

use std::collections::BTreeMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use iced_x86::{
    Code as Opcode, CpuidFeature, Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register,
};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use crate::binary::{Code, Extension, Function, FunctionsFrom};

/// How often a byte of code is decoded at most, as a part of different functions: symbols overlap
/// little, except in files made to keep readers busy.
const MAX_OVERLAP: usize = 8;

/// Maximum number of listed functions with transactions.
const MAX_TRANSACTIONAL: usize = 10_000;

/// Maximum number of example functions per extension.
const EXAMPLES: usize = 5;

/// Decodes all code of an x86-64 file; `None` for other machines.
pub(super) fn scan(file: &object::File<'_>) -> Option<Code> {
    if file.architecture() != object::Architecture::X86_64 {
        return None;
    }
    let (functions, found) = bounds(file);
    let mut code = Code { found, ..Code::default() };
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        // Linker stubs, not compiled functions.
        if section.name().is_ok_and(|name| name.starts_with(".plt")) {
            continue;
        }
        let Ok(data) = section.data() else { continue };
        let here = functions.of_section(&section);
        if here.is_empty() {
            let whole = Bounds { name: None, address: section.address(), size: data.len() as u64 };
            code.add(&whole, data);
        }
        let mut left = data.len().saturating_mul(MAX_OVERLAP);
        for function in here {
            let start = function.address.saturating_sub(section.address());
            let end = start.saturating_add(function.size);
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            if let Some(bytes) = range.and_then(|(start, end)| data.get(start..end)) {
                let Some(rest) = left.checked_sub(bytes.len()) else { break };
                left = rest;
                code.add(function, bytes);
            }
        }
    }
    Some(code)
}

impl Code {
    /// Counts the instructions of a function.
    fn add(&mut self, bounds: &Bounds<'_>, bytes: &[u8]) {
        let mut decoder = Decoder::with_ip(64, bytes, bounds.address, DecoderOptions::NONE);
        let mut instruction = iced_x86::Instruction::default();
        let mut used: BTreeMap<Extension, u64> = BTreeMap::new();
        let mut transactional = false;
        let mut calls = false;
        let mut prologue = Prologue::default();
        let mut number = 0_u64;
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            number += 1;
            if instruction.is_invalid() {
                self.undecodable += 1;
                continue;
            }
            prologue.see(number, &instruction);
            calls |=
                matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
            let opcode = instruction.code();
            transactional |= matches!(opcode, Opcode::Xbegin_rel16 | Opcode::Xbegin_rel32);
            if let Some(extension) = extension_of(&instruction) {
                *used.entry(extension).or_default() += 1;
            }
        }
        self.instructions += number;
        self.functions += 1;
        self.callers += u64::from(calls);
        self.framed += u64::from(calls && prologue.framed);
        for (extension, instructions) in used {
            let total = self.extensions.entry(extension).or_default();
            total.instructions += instructions;
            total.functions += 1;
            if total.examples.len() < EXAMPLES {
                total.examples.push(bounds.function());
            }
        }
        if transactional && self.transactional.len() < MAX_TRANSACTIONAL {
            self.transactional.push(bounds.function());
        }
    }
}

/// Detects whether a function begins by setting up a frame pointer.
#[derive(Default)]
struct Prologue {
    pushed: bool,
    framed: bool,
}

impl Prologue {
    fn see(&mut self, number: u64, instruction: &iced_x86::Instruction) {
        // `endbr64` may come first, and other registers may be pushed before `rbp` or after it.
        if number > 12 || self.framed {
            return;
        }
        match instruction.mnemonic() {
            Mnemonic::Push => self.pushed |= instruction.op0_register() == Register::RBP,
            Mnemonic::Mov => {
                self.framed = self.pushed
                    && instruction.op0_kind() == OpKind::Register
                    && instruction.op0_register() == Register::RBP
                    && instruction.op1_kind() == OpKind::Register
                    && instruction.op1_register() == Register::RSP;
            }
            _ => {}
        }
    }
}

/// The extension that an instruction belongs to; `None` if every x86-64 CPU has it.
fn extension_of(instruction: &iced_x86::Instruction) -> Option<Extension> {
    // Compilers emit `rep bsf` for every CPU, since older ones ignore the prefix.
    if instruction.mnemonic() == Mnemonic::Tzcnt {
        return None;
    }
    instruction.cpuid_features().iter().filter_map(|feature| of_feature(*feature)).max()
}

fn of_feature(feature: CpuidFeature) -> Option<Extension> {
    use CpuidFeature as F;
    Some(match feature {
        F::SSE3 | F::SSSE3 | F::SSE4_1 | F::SSE4_2 | F::POPCNT => Extension::Sse4,
        F::AVX => Extension::Avx,
        F::BMI1 | F::BMI2 => Extension::Bmi,
        F::FMA | F::F16C | F::LZCNT | F::MOVBE => Extension::Fma,
        F::AVX2 => Extension::Avx2,
        F::AVX512F
        | F::AVX512VL
        | F::AVX512BW
        | F::AVX512DQ
        | F::AVX512CD
        | F::AVX512_VBMI
        | F::AVX512_VBMI2
        | F::AVX512_VNNI
        | F::AVX512_BITALG
        | F::AVX512_IFMA
        | F::AVX512_VPOPCNTDQ
        | F::AVX512_BF16
        | F::AVX512_FP16 => Extension::Avx512,
        _ => return None,
    })
}

#[derive(Clone, Debug)]
pub(super) struct Bounds<'data> {
    /// Not copied: many symbols can share a long name.
    pub(super) name: Option<&'data [u8]>,
    pub(super) address: u64,
    pub(super) size: u64,
}

impl Bounds<'_> {
    pub(super) fn function(&self) -> Function {
        Function { name: self.name.map(super::name), address: self.address, size: self.size }
    }
}

pub(super) struct Functions<'data> {
    /// By section index, from symbols; sorted by address.
    by_section: BTreeMap<usize, Vec<Bounds<'data>>>,
    /// From unwind tables, which have no sections; sorted by address.
    by_address: Vec<Bounds<'data>>,
}

impl<'data> Functions<'data> {
    pub(super) fn of_section(&self, section: &object::Section<'_, '_>) -> &[Bounds<'data>] {
        if let Some(functions) = self.by_section.get(&section.index().0) {
            return functions;
        }
        let end = section.address().saturating_add(section.size());
        let first = self.by_address.partition_point(|f| f.address < section.address());
        let last = self.by_address.partition_point(|f| f.address < end);
        &self.by_address[first..last]
    }
}

/// The functions according to symbols or, in a stripped file, unwind tables.
pub(super) fn bounds<'data>(file: &object::File<'data>) -> (Functions<'data>, FunctionsFrom) {
    let mut by_section: BTreeMap<usize, Vec<Bounds<'data>>> = BTreeMap::new();
    for symbol in file.symbols() {
        let is_function = symbol.kind() == SymbolKind::Text && symbol.size() > 0;
        if let (true, Some(section)) = (is_function, symbol.section_index()) {
            by_section.entry(section.0).or_default().push(Bounds {
                name: symbol.name_bytes().ok(),
                address: symbol.address(),
                size: symbol.size(),
            });
        }
    }
    for functions in by_section.values_mut() {
        sort(functions);
    }
    if !by_section.is_empty() {
        return (Functions { by_section, by_address: Vec::new() }, FunctionsFrom::Symbols);
    }
    let mut by_address = by_unwinding(file).unwrap_or_default();
    sort(&mut by_address);
    let from = match by_address.is_empty() {
        true => FunctionsFrom::Sections,
        false => FunctionsFrom::Unwinding,
    };
    name_exported(file, &mut by_address);
    (Functions { by_section, by_address }, from)
}

/// Sorts by address and keeps one function per address: the largest.
fn sort(functions: &mut Vec<Bounds<'_>>) {
    functions.sort_by(|a, b| a.address.cmp(&b.address).then(b.size.cmp(&a.size)));
    functions.dedup_by_key(|function| function.address);
}

/// The functions according to `.eh_frame`. `None` for unlinked objects, where the addresses are not
/// yet known.
fn by_unwinding<'data>(file: &object::File<'data>) -> Option<Vec<Bounds<'data>>> {
    if file.kind() == object::ObjectKind::Relocatable {
        return None;
    }
    let section = file.section_by_name(".eh_frame")?;
    let data = section.data().ok()?;
    let endian = if file.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let mut frames = EhFrame::from(EndianSlice::new(data, endian));
    frames.set_address_size(if file.is_64() { 8 } else { 4 });
    let address_of = |name: &str| file.section_by_name(name).map(|section| section.address());
    let mut bases = BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = address_of(".text") {
        bases = bases.set_text(text);
    }
    if let Some(got) = address_of(".got") {
        bases = bases.set_got(got);
    }
    let mut entries = frames.entries(&bases);
    let mut functions = Vec::new();
    while let Ok(Some(entry)) = entries.next() {
        if let CieOrFde::Fde(partial) = entry
            && let Ok(fde) = partial.parse(EhFrame::cie_from_offset)
            && fde.len() > 0
        {
            let (address, size) = (fde.initial_address(), fde.len());
            functions.push(Bounds { name: None, address, size });
        }
    }
    Some(functions)
}

/// Adds names of exported functions, which a stripped file keeps.
fn name_exported<'data>(file: &object::File<'data>, functions: &mut [Bounds<'data>]) {
    for symbol in file.dynamic_symbols() {
        if symbol.kind() == SymbolKind::Text
            && symbol.is_definition()
            && let Ok(index) =
                functions.binary_search_by_key(&symbol.address(), |function| function.address)
        {
            functions[index].name = symbol.name_bytes().ok();
        }
    }
}
