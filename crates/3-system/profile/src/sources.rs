//! Source files of functions in stripped programs: messages and assertions have `__FILE__`, and the code that reports
//! them loads its address.

use std::rc::Rc;

use memchr::memchr_iter;
use object::{File, Object, ObjectSection, SectionKind};

/// Ends of names of files whose code is compiled once. Code of headers is in many functions.
const ENDS: [&str; 5] = [".cc", ".c", ".cpp", ".cxx", ".C"];

/// The longest path of a source file.
const LONGEST: usize = 400;

/// The addresses of instructions that load the address of a source file's name, with the name, as stated in the file.
pub(crate) fn references(file: &File<'_>) -> Vec<(u64, Rc<str>)> {
    if file.architecture() != object::Architecture::X86_64 {
        return Vec::new();
    }
    let of_kind = |wanted: SectionKind| {
        let sections = file.sections().filter(move |section| section.kind() == wanted);
        sections.filter_map(|section| Some((section.address(), section.data().ok()?)))
    };
    let texts: Vec<(u64, &[u8])> =
        of_kind(SectionKind::ReadOnlyString).chain(of_kind(SectionKind::ReadOnlyData)).collect();
    of_kind(SectionKind::Text).flat_map(|(address, code)| in_code(address, code, &texts)).collect()
}

/// As [`references`], in a section of code, to texts in sections with these addresses.
fn in_code(address: u64, code: &[u8], texts: &[(u64, &[u8])]) -> Vec<(u64, Rc<str>)> {
    // `lea` of an address relative to the next instruction into a 64-bit register: a prefix, 0x8d, a byte with the
    // register, and the distance.
    let load = |at: usize| {
        let instruction = code.get(at.checked_sub(1)?..at + 6)?;
        let is_load = matches!(instruction[0], 0x48 | 0x4c) && instruction[2] & 0xc7 == 0x05;
        let distance = i32::from_le_bytes(instruction[3..].try_into().ok()?);
        let start = address.wrapping_add(at as u64 - 1);
        let target = start.wrapping_add(7).wrapping_add_signed(distance.into());
        is_load.then_some((start, name_at(target, texts)?))
    };
    memchr_iter(0x8d, code).filter_map(load).collect()
}

/// The name of the source file whose path is at this address.
fn name_at(address: u64, texts: &[(u64, &[u8])]) -> Option<Rc<str>> {
    let inside = |(start, text): &(u64, &[u8])| {
        let at = usize::try_from(address.checked_sub(*start)?).ok()?;
        (at < text.len()).then_some(at)
    };
    let (at, text) = texts.iter().find_map(|one| Some((inside(one)?, one.1)))?;
    let text = &text[at..text.len().min(at + LONGEST)];
    let path = std::str::from_utf8(text.split(|byte| *byte == 0).next()?).ok()?;
    let name = path.rsplit('/').next()?;
    let is_name =
        name.len() > 2 && name.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c));
    (is_name && ENDS.iter().any(|end| name.ends_with(end))).then(|| name.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loaded_names_of_source_files_are_found() {
        let texts: &[u8] = b"no file\0/build/storage/row0sel.cc\0page.h\0a b.c\0";
        let to = |text: &str| {
            0x9000 + texts.windows(text.len()).position(|at| at == text.as_bytes()).unwrap() as u64
        };
        let mut code = vec![0x90; 3];
        let mut expected = Vec::new();
        for text in ["/build", "no file", "page.h", "a b.c", "/build"] {
            let start = 0x1000 + code.len() as u64;
            let distance = to(text).wrapping_sub(start + 7) as i32;
            code.extend([0x4c, 0x8d, 0x3d]);
            code.extend(distance.to_le_bytes());
            if text == "/build" {
                expected.push((start, Rc::from("row0sel.cc")));
            }
        }
        code.extend([0x48, 0x8d]);
        assert_eq!(in_code(0x1000, &code, &[(0x9000, texts)]), expected);
    }
}
