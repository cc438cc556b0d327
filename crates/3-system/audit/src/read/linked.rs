use std::path::{Path, PathBuf};

use dbdyno_units::Bytes;
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{Object, ObjectSection, ObjectSegment, SectionFlags, elf};

use super::unit::{fill_by_signs, of_debug, recorded};
use super::{Unit, code, dwarf, map, switches};
use crate::audit::Evidence;
use crate::binary::{Binary, BinaryKind, Code, Protections, Records, Relro, Sizes};
use crate::effective::{Effective, Family, LtoForm, Machine, Position, StackProtector};
use crate::error::ReadError;
use crate::read::unit::Signs;

/// The contents of a program or shared library.
#[derive(Debug)]
pub(crate) struct Linked {
    pub(crate) binary: Binary,
    /// The recorded units: one per source file or per command line, or one for the whole file.
    pub(crate) units: Vec<Unit>,
}

/// Reads a linked file; `path` is also used to find separate debug information.
pub(crate) fn linked(path: &Path, data: &[u8]) -> Result<Linked, ReadError> {
    let file = object::File::parse(data)?;
    let details = match &file {
        object::File::Elf32(file) => details(file),
        object::File::Elf64(file) => details(file),
        _ => return Err(ReadError("not an ELF file".to_owned())),
    };
    let machine = Machine::of(&file);
    let comments = switches::comments(&file)?;
    let signs = Signs::of(&file);
    let code = code::scan(&file);
    let lines = switches::command_lines(&file, &comments)?;
    let build_id = file.build_id().ok().flatten().map(hex);

    let mut debug_units = dwarf::units(&file, path)?;
    let mut debug_file = None;
    if debug_units.is_empty()
        && let Some((found, units)) = separate_debug(&file, path, build_id.as_deref())
    {
        debug_units = units;
        debug_file = Some(found);
    }
    let records = Records {
        debug: !debug_units.is_empty(),
        debug_file,
        command_lines: !lines.is_empty(),
        symbols: file.symbols().next().is_some(),
        relocations: file.sections().any(|section| {
            section.name().is_ok_and(|name| matches!(name, ".rela.text" | ".rel.text"))
        }),
    };
    // The link has nothing to generate for an empty library.
    let is_empty = records.debug && !debug_units.iter().any(|unit| unit.has_code);
    let mut units: Vec<Unit> =
        debug_units.into_iter().map(|found| of_debug(found, machine)).collect();
    if units.iter().all(|unit| unit.flags.is_none()) && !lines.is_empty() {
        units = lines
            .iter()
            .map(|producer| recorded(producer, machine, Evidence::CommandLine))
            .collect();
    }
    // The calls of single units are unknown here, but their record contains all requested flags.
    // Calls of the stack protector's handler are a finding about the whole file.
    for unit in units.iter_mut().filter(|unit| unit.flags.is_some()) {
        unit.effective.stack_protector.get_or_insert(StackProtector::Off);
    }
    let is_gcc = |unit: &Unit| {
        unit.effective.compiler.as_ref().is_some_and(|compiler| compiler.family == Family::Gcc)
    };
    let is_generated = units.iter().any(|unit| unit.effective.lto == Some(LtoForm::Linked));
    let link_time = match (is_generated, units.iter().any(|unit| unit.flags.is_some())) {
        (true, _) => Some(true),
        // clang does not record it.
        (false, true) if !is_empty && units.iter().any(is_gcc) => Some(false),
        _ => None,
    };
    if units.iter().all(|unit| unit.flags.is_none()) {
        units = vec![whole(&comments, &signs, &details, code.as_ref())];
    }
    let binary = Binary {
        path: path.to_owned(),
        kind: details.kind,
        architecture: format!("{:?}", file.architecture()).to_lowercase(),
        build_id,
        comments,
        sizes: sizes(&file, data.len() as u64),
        records,
        protections: Protections {
            relro: details.relro,
            executable_stack: details.executable_stack,
            control_flow: details.control_flow,
            stack_protector: signs.stack_protector,
            fortified: signs.fortified,
            assertions: signs.assertions,
        },
        link_time_code: link_time,
        code,
    };
    Ok(Linked { binary, units })
}

/// The only unit of a file without recorded command lines, from its other properties.
fn whole(comments: &[String], signs: &Signs, details: &Details, code: Option<&Code>) -> Unit {
    let effective = Effective {
        compiler: switches::compiler(comments),
        frame_pointers: code.and_then(Code::frame_pointers),
        position: Some(match details.kind {
            BinaryKind::Program => Position::Fixed,
            BinaryKind::PieProgram => Position::Pie,
            BinaryKind::Library => Position::Pic,
        }),
        control_flow: Some(details.control_flow),
        ..Effective::default()
    };
    let mut unit =
        Unit { effective, evidence: vec![Evidence::Code], code: code.cloned(), ..Unit::default() };
    fill_by_signs(&mut unit, signs);
    // A complete program with a stack protector would call the handler. A static one contains it, since
    // the C library has a stack protector.
    if details.needs_libraries {
        unit.effective.stack_protector.get_or_insert(StackProtector::Off);
    }
    unit
}

/// Properties from a file's headers.
struct Details {
    kind: BinaryKind,
    relro: Relro,
    executable_stack: Option<bool>,
    control_flow: bool,
    /// Whether it needs shared libraries.
    needs_libraries: bool,
}

fn details<'data, Elf: FileHeader>(file: &ElfFile<'data, Elf>) -> Details {
    let endian = file.endian();
    let (mut has_relro, mut executable_stack, mut has_interpreter) = (false, None, false);
    for segment in file.elf_program_headers() {
        match segment.p_type(endian) {
            elf::PT_GNU_RELRO => has_relro = true,
            elf::PT_INTERP => has_interpreter = true,
            elf::PT_GNU_STACK => {
                executable_stack = Some(segment.p_flags(endian).contains(elf::PF_X));
            }
            _ => {}
        }
    }
    let (mut now, mut pie, mut needs_libraries) = (false, false, false);
    if let Ok(dynamic) = file.elf_dynamic_table() {
        for entry in dynamic.iter() {
            let value: u64 = entry.val;
            match entry.tag {
                elf::DT_NEEDED => needs_libraries = true,
                elf::DT_BIND_NOW => now = true,
                elf::DT_FLAGS => now |= value & elf::DF_BIND_NOW.0 != 0,
                elf::DT_FLAGS_1 => {
                    now |= value & elf::DF_1_NOW.0 != 0;
                    pie |= value & elf::DF_1_PIE.0 != 0;
                }
                _ => {}
            }
        }
    }
    let is_dynamic = file.elf_header().e_type(endian) == elf::ET_DYN;
    Details {
        kind: match (is_dynamic, pie || has_interpreter) {
            (false, _) => BinaryKind::Program,
            (true, true) => BinaryKind::PieProgram,
            (true, false) => BinaryKind::Library,
        },
        relro: match (has_relro, now) {
            (false, _) => Relro::None,
            (true, false) => Relro::Partial,
            (true, true) => Relro::Full,
        },
        executable_stack,
        control_flow: marks_jump_targets(file),
        needs_libraries,
    }
}

/// Whether all objects were compiled with marked targets of indirect jumps.
fn marks_jump_targets<Elf: FileHeader>(file: &ElfFile<'_, Elf>) -> bool {
    let endian = file.endian();
    let marked = || -> object::read::Result<bool> {
        for section in file.elf_section_table().iter() {
            let Some(mut notes) = section.notes(endian, file.data())? else { continue };
            while let Some(note) = notes.next()? {
                let Some(mut properties) = note.gnu_properties(endian) else { continue };
                while let Some(property) = properties.next()? {
                    let bit = match property.pr_type() {
                        elf::GNU_PROPERTY_X86_FEATURE_1_AND => elf::GNU_PROPERTY_X86_FEATURE_1_IBT,
                        elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND => {
                            elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI
                        }
                        _ => continue,
                    };
                    return Ok(property.data_u32(endian)? & bit != 0);
                }
            }
        }
        Ok(false)
    };
    marked().unwrap_or(false)
}

impl Sizes {
    /// The sizes of a program or library with this content; the error says why it cannot be read.
    pub fn of(content: &[u8]) -> Result<Self, String> {
        let file = object::File::parse(content).map_err(|error| error.to_string())?;
        Ok(sizes(&file, content.len() as u64))
    }
}

fn sizes(file: &object::File<'_>, whole: u64) -> Sizes {
    let is_executable = |section: &object::Section<'_, '_>| match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(elf::SHF_EXECINSTR),
        _ => false,
    };
    let size_of = |is_counted: &dyn Fn(&object::Section<'_, '_>) -> bool| {
        let sections = file.sections().filter(|one| is_executable(one) && is_counted(one));
        sections.map(|section| section.size()).reduce(u64::saturating_add)
    };
    // BOLT leaves the code that it moved in `.bolt.org.text`, and adds `.text` and `.text.cold`.
    let text = size_of(&|section| {
        section.name().is_ok_and(|name| name.starts_with(".text") || name == ".bolt.org.text")
    });
    let executable = size_of(&|_| true).unwrap_or_default();
    let stripped = file
        .segments()
        .map(|segment| segment.file_range())
        .map(|(start, size)| start.saturating_add(size))
        .max();
    Sizes {
        text: text.map(Bytes::from_bytes),
        executable: Bytes::from_bytes(executable),
        stripped: stripped.map(Bytes::from_bytes),
        file: Bytes::from_bytes(whole),
    }
}

/// Reads separate debug information, as installed by packages, from the places where debuggers
/// search.
fn separate_debug(
    file: &object::File<'_>,
    path: &Path,
    build_id: Option<&str>,
) -> Option<(PathBuf, Vec<dwarf::DebugUnit>)> {
    let mut places = Vec::new();
    if let Some((start, rest)) = build_id.and_then(|id| id.split_at_checked(2)) {
        let name = format!("{start}/{rest}.debug");
        places.push(Path::new("/usr/lib/debug/.build-id").join(name));
    }
    let link = file.gnu_debuglink().ok().flatten();
    if let Some((name, _)) = link
        && let (Ok(name), Some(directory)) = (std::str::from_utf8(name), path.parent())
        && !name.contains('/')
    {
        places.push(directory.join(name));
        places.push(directory.join(".debug").join(name));
    }
    for place in places {
        let Ok(Some(data)) = map(&place) else { continue };
        let Ok(debug) = object::File::parse(&*data) else { continue };
        // A debug file of another build would contain other flags.
        let same = match build_id {
            Some(id) => debug.build_id().ok().flatten().map(hex).as_deref() == Some(id),
            None => link.is_some_and(|(_, sum)| sum == crc32fast::hash(&data)),
        };
        let units =
            if same { dwarf::units(&debug, &place).unwrap_or_default() } else { Vec::new() };
        if !units.is_empty() {
            return Some((place, units));
        }
    }
    None
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::{env, fs};

    use super::*;

    #[test]
    fn sizes_of_sections_may_be_anything() {
        let mut program = fs::read("/bin/true").unwrap();
        let start = u64::from_le_bytes(program[0x28..0x30].try_into().unwrap());
        let sections = &mut program[usize::try_from(start).unwrap()..];
        for section in sections.chunks_exact_mut(64).filter(|section| section[8] & 4 != 0) {
            section[0x20..0x28].fill(0xff);
        }
        let sizes = Sizes::of(&program).unwrap();
        assert_eq!(sizes.executable, Bytes::from_bytes(u64::MAX));
    }

    #[test]
    fn sizes_of_own_program_are_ordered() {
        let sizes = Sizes::of(&fs::read(env::current_exe().unwrap()).unwrap()).unwrap();
        let (text, stripped) = (sizes.text.unwrap(), sizes.stripped.unwrap());
        assert!(Bytes::default() < text);
        assert!(text < sizes.executable);
        assert!(sizes.executable < stripped);
        assert!(stripped < sizes.file);
    }

    #[test]
    fn non_elf_content_has_no_sizes() {
        assert!(Sizes::of(b"").is_err());
        assert!(Sizes::of(b"#!/bin/sh\necho").is_err());
    }
}
