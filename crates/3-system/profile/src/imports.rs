//! Functions of other files that a file calls. It has a slot for the address of each, which the loader fills. Where a
//! library has several versions of a function for different CPUs, only the slot tells the name of the chosen one.

use std::collections::HashMap;

use memchr::memchr_iter;
use object::elf::{R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};
use object::{
    Architecture, File, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget,
};

use crate::module::Code;
use crate::names::STUB;

const SLOTS: [object::elf::RelocationType; 4] =
    [R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT, R_AARCH64_GLOB_DAT, R_AARCH64_JUMP_SLOT];

/// The slots of a file, as stated in it, with the symbols of what they are for.
pub(crate) fn slots(file: &File<'_>) -> Vec<(u64, String)> {
    let symbols = file.dynamic_symbol_table();
    let relocations = file.dynamic_relocations().into_iter().flatten();
    let slot = |(address, relocation): (u64, object::Relocation)| {
        let RelocationFlags::Elf { r_type } = relocation.flags() else { return None };
        let RelocationTarget::Symbol(index) = relocation.target() else { return None };
        let symbol = symbols.as_ref()?.symbol_by_index(index).ok()?;
        let name = symbol.name().ok().filter(|name| !name.is_empty())?;
        SLOTS.contains(&r_type).then(|| (address, name.to_owned()))
    };
    relocations.filter_map(slot).collect()
}

/// The pieces of code of a file that only jump to where a slot points.
pub(crate) fn stubs(file: &File<'_>, slots: &[(u64, String)]) -> Vec<Code> {
    if file.architecture() != Architecture::X86_64 {
        return Vec::new();
    }
    let names: HashMap<u64, &str> =
        slots.iter().map(|(address, name)| (*address, name.as_str())).collect();
    let is_of_stubs = |section: &object::Section<'_, '_>| {
        section.name().is_ok_and(|name| name.starts_with(".plt"))
    };
    let mut found = Vec::new();
    for section in file.sections().filter(is_of_stubs) {
        found.extend(in_code(section.address(), section.data().unwrap_or_default(), &names));
    }
    found
}

/// As [`stubs`], in a section at this address.
fn in_code(address: u64, code: &[u8], names: &HashMap<u64, &str>) -> Vec<Code> {
    let section_end = address.saturating_add(code.len() as u64);
    // A jump to the address in a slot: 0xff, 0x25, and the distance of the slot from the next instruction.
    let stub = |at: usize| {
        let instruction = code.get(at..at + 6).filter(|bytes| bytes[1] == 0x25)?;
        let distance = i32::from_le_bytes(instruction[2..].try_into().ok()?);
        let jump = address.wrapping_add(at as u64);
        let name = names.get(&jump.wrapping_add(6).wrapping_add_signed(distance.into()))?;
        // Stubs begin at multiples of 8, with at most 5 bytes before the jump, and are 8 or 16 bytes long.
        let start = jump & !7;
        let symbol = Some(format!("{name}{STUB}"));
        let end = start.saturating_add(16).min(section_end);
        Some(Code { range: start..end, symbol, source: None })
    };
    memchr_iter(0xff, code).filter_map(stub).collect()
}

/// Of names of one function, the one that is commonest: `memcmp` rather than `bcmp`, `strchr` rather than `index`. The
/// same whatever the order.
pub(crate) fn common_name(one: String, other: String) -> String {
    let rank = |name: &str| !(name.starts_with("mem") || name.starts_with("str"));
    if (rank(&one), &one) <= (rank(&other), &other) { one } else { other }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;

    #[test]
    fn stubs_are_found_by_the_slots_that_they_jump_through() {
        let slot = |next: u64, slot: u64| (slot.wrapping_sub(next) as i32).to_le_bytes();
        // The first entry of the table is for the loader.
        let mut code = vec![0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25];
        code.extend(slot(0x100c, 0x4008));
        code.resize(16, 0x90);
        // With a mark for indirect jumps before it, and without.
        code.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25]);
        code.extend(slot(0x101a, 0x4010));
        code.resize(32, 0x90);
        code.extend([0xff, 0x25]);
        code.extend(slot(0x1026, 0x4018));
        code.resize(40, 0x90);
        let names = HashMap::from([(0x4010, "memcpy"), (0x4018, "_Znwm")]);
        let found: Vec<(Range<u64>, String)> = in_code(0x1000, &code, &names)
            .into_iter()
            .map(|one| (one.range, one.symbol.unwrap()))
            .collect();
        let expected = [(0x1010..0x1020, "memcpy@plt"), (0x1020..0x1028, "_Znwm@plt")];
        assert_eq!(found, expected.map(|(range, name)| (range, name.to_owned())));
    }

    #[test]
    fn common_name_does_not_depend_on_the_order() {
        for (one, other) in [("memcmp", "bcmp"), ("strchr", "index"), ("memcpy", "memmove")] {
            assert_eq!(common_name(one.to_owned(), other.to_owned()), one);
            assert_eq!(common_name(other.to_owned(), one.to_owned()), one);
        }
    }
}
