//! Properties of the machine code, for files without recorded flags.

use std::collections::BTreeMap;

use iced_x86::{
    Code as Opcode, CpuidFeature, Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind, Register,
};
use object::{Object, ObjectSection, SectionKind};

use super::functions::{Bounds, bounds};
use crate::code::{Code, Extension, ExtensionUse, Function};

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
    let mut tally = Tally::default();
    for section in file.sections().filter(|section| section.kind() == SectionKind::Text) {
        // Linker stubs, not compiled functions.
        if section.name().is_ok_and(|name| name.starts_with(".plt")) {
            continue;
        }
        let Ok(data) = section.data() else { continue };
        let here = functions.of_section(&section);
        if here.is_empty() {
            let whole = Bounds { name: None, address: section.address(), size: data.len() as u64 };
            tally.function(&whole, data);
        }
        let mut left = data.len().saturating_mul(MAX_OVERLAP);
        for function in here {
            let start = function.address.saturating_sub(section.address());
            let end = start.saturating_add(function.size);
            let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
            if let Some(code) = range.and_then(|(start, end)| data.get(start..end)) {
                let Some(rest) = left.checked_sub(code.len()) else { break };
                left = rest;
                tally.function(function, code);
            }
        }
    }
    Some(tally.code(found))
}

#[derive(Default)]
struct Tally {
    functions: u64,
    callers: u64,
    framed: u64,
    instructions: u64,
    undecodable: u64,
    extensions: BTreeMap<Extension, ExtensionUse>,
    transactional: Vec<Function>,
}

impl Tally {
    fn function(&mut self, bounds: &Bounds<'_>, code: &[u8]) {
        let mut decoder = Decoder::with_ip(64, code, bounds.address, DecoderOptions::NONE);
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

    fn code(self, found: crate::code::FunctionsFrom) -> Code {
        Code {
            functions: self.functions,
            found,
            instructions: self.instructions,
            undecodable: self.undecodable,
            callers: self.callers,
            framed: self.framed,
            extensions: self.extensions,
            transactional: self.transactional,
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
