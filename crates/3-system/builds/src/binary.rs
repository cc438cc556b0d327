use dbdyno_units::Bytes;
use object::read::{Object, ObjectSection, ObjectSegment};
use object::{SectionFlags, elf};

/// A file that is not a usable program or library.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidBinary {
    #[error(transparent)]
    Elf(#[from] object::Error),
    #[error("no section .text")]
    NoText,
    #[error("no loadable segment")]
    NotLoaded,
    #[error("no code")]
    NoCode,
}

/// Sizes of a program or a shared library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BinarySizes {
    /// The section `.text`.
    pub(crate) text: Bytes,
    /// All executable sections: `.text`, the PLT and others.
    pub(crate) executable: Bytes,
    /// The part covered by segments: approximately the size after `strip`.
    pub(crate) stripped: Bytes,
    /// The whole file, with symbols and debug information.
    pub(crate) file: Bytes,
}

impl BinarySizes {
    /// Reads the sizes from the content of an ELF file.
    pub(crate) fn of(content: &[u8]) -> Result<Self, InvalidBinary> {
        let file = object::File::parse(content)?;
        let text = file.section_by_name(".text").ok_or(InvalidBinary::NoText)?;
        let executable = file
            .sections()
            .filter(|section| match section.flags() {
                SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(elf::SHF_EXECINSTR),
                _ => false,
            })
            .map(|section| section.size())
            .fold(0, u64::saturating_add);
        let loaded_end = file
            .segments()
            .map(|segment| segment.file_range())
            .map(|(start, size)| start.saturating_add(size))
            .max()
            .ok_or(InvalidBinary::NotLoaded)?;
        Ok(Self {
            text: Bytes::from_bytes(text.size()),
            executable: Bytes::from_bytes(executable),
            stripped: Bytes::from_bytes(loaded_end),
            file: Bytes::from_bytes(content.len() as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn damaged_programs_are_read_or_refused() {
        Fuzz::new(vec![fs::read("/bin/true").unwrap()]).run(|content| {
            let _ = BinarySizes::of(content);
            let _ = crate::samples::base_of(content);
        });
    }

    #[test]
    fn sizes_of_sections_may_be_anything() {
        let mut program = fs::read("/bin/true").unwrap();
        let start = u64::from_le_bytes(program[0x28..0x30].try_into().unwrap());
        let sections = &mut program[usize::try_from(start).unwrap()..];
        for section in sections.chunks_exact_mut(64).filter(|section| section[8] & 4 != 0) {
            section[0x20..0x28].fill(0xff);
        }
        let sizes = BinarySizes::of(&program).unwrap();
        assert_eq!(sizes.executable, Bytes::from_bytes(u64::MAX));
    }

    #[test]
    fn sizes_of_own_program_are_ordered() {
        let sizes = BinarySizes::of(&fs::read(env::current_exe().unwrap()).unwrap()).unwrap();
        assert!(Bytes::default() < sizes.text);
        assert!(sizes.text < sizes.executable);
        assert!(sizes.executable < sizes.stripped);
        assert!(sizes.stripped < sizes.file);
    }

    #[test]
    fn non_elf_content_is_rejected() {
        assert!(BinarySizes::of(b"").is_err());
        assert!(BinarySizes::of(b"#!/bin/sh\necho").is_err());
    }
}
