//! Static probes (USDT): instructions without effect that tracing tools replace by breakpoints.

use object::elf::NoteType;
use object::read::elf::{ElfFile64, SectionHeader};
use object::{LittleEndian, Object, ObjectSection};

/// The type and the name of their descriptions, as in `sys/sdt.h` of SystemTap.
const PROBE: NoteType = NoteType(3);
const NAME: &[u8] = b"stapsdt";

/// The section whose address tells by how much a tool has moved the file (`prelink`).
const BASE: &str = ".stapsdt.base";

/// The addresses of the static probes of a file that is loaded at `bias`.
pub(super) fn static_probes(elf: &ElfFile64<'_, LittleEndian>, bias: u64) -> Vec<u64> {
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
}
