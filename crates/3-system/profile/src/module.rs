//! The programs and libraries of a process: where they are mapped, their functions, and how to unwind them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use std::{fs, io};

use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Unwinder, UnwinderNative};
use gimli::{BaseAddresses, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use object::elf::PF_X;
use object::{File, Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, SymbolKind};

use crate::sources;

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Mapping {
    range: (u64, u64),
    /// Of the first byte in the file.
    offset: u64,
    path: String,
}

/// The mappings of code of a process; none if it has ended.
pub(crate) fn code_of(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(Mapping::parse).collect()
}

impl Mapping {
    /// Of a line of `/proc/PID/maps`, if it is code of a file.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (first, end) = words.next()?.split_once('-')?;
        let is_code = words.next()?.as_bytes().get(2) == Some(&b'x');
        let offset = u64::from_str_radix(words.next()?, 16).ok()?;
        let path = words.nth(2)?.trim_start();
        let hex = |text| u64::from_str_radix(text, 16).ok();
        (is_code && path.starts_with('/')).then_some(())?;
        Some(Self { range: (hex(first)?, hex(end)?), offset, path: path.to_owned() })
    }

    /// The file's name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// As stated in the file.
    pub range: Range<u64>,
    /// Its symbol; `None` in a stripped program.
    pub symbol: Option<String>,
    /// The name of its source file, by texts of messages and assertions that it refers to; `None` if there are none.
    pub source: Option<Rc<str>>,
}

/// The functions of a file, in ascending order, and its unwind tables.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    functions: Vec<Code>,
    /// The loaded segments of code in the file, with their stated addresses minus their offsets.
    segments: Vec<(Range<u64>, u64)>,
    tables: HashMap<&'static str, (Range<u64>, Rc<[u8]>)>,
}

impl Contents {
    /// Reads the file of a mapping as the process sees it.
    fn read(pid: u32, mapping: &Mapping) -> io::Result<Self> {
        let Mapping { range: (first, end), path, .. } = mapping;
        // Also if the file was replaced meanwhile.
        let data = fs::read(format!("/proc/{pid}/map_files/{first:x}-{end:x}"))
            .or_else(|_| fs::read(Path::new(&format!("/proc/{pid}/root")).join(&path[1..])))?;
        Self::parse(&data).map_err(io::Error::other)
    }

    fn parse(data: &[u8]) -> Result<Self, object::Error> {
        let file = File::parse(data)?;
        let mut contents = Self::default();
        for segment in file.segments() {
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
            let (offset, size) = segment.file_range();
            if is_code {
                let difference = segment.address().wrapping_sub(offset);
                contents.segments.push((offset..offset + size, difference));
            }
        }
        for name in [".eh_frame", ".eh_frame_hdr"] {
            if let Some(section) = file.section_by_name(name) {
                let range = section.address()..section.address() + section.size();
                contents.tables.insert(name, (range, section.uncompressed_data()?.into()));
            }
        }
        let symbols = file.symbols().chain(file.dynamic_symbols());
        let function = |symbol: object::Symbol<'_, '_>| {
            let is_code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
            let range = symbol.address()..symbol.address() + symbol.size();
            let name = symbol.name().ok()?;
            (is_code && symbol.size() > 0).then(|| Code {
                range,
                symbol: Some(name.to_owned()),
                source: None,
            })
        };
        contents.functions = symbols.filter_map(function).collect();
        let unnamed = contents.ranges_of_unwind_tables();
        contents.functions.sort_by_key(|one| one.range.start);
        contents.functions.dedup_by(|next, kept| next.range.start == kept.range.start);
        let named = std::mem::take(&mut contents.functions);
        let has_symbol = |range: &Range<u64>| {
            let after = named.partition_point(|one| one.range.start <= range.start);
            after.checked_sub(1).is_some_and(|at| named[at].range.contains(&range.start))
        };
        let unnamed = unnamed.into_iter().filter(|range| !has_symbol(range));
        let unnamed: Vec<Code> =
            unnamed.map(|range| Code { range, symbol: None, source: None }).collect();
        contents.functions = named.into_iter().chain(unnamed).collect();
        contents.functions.sort_by_key(|one| one.range.start);
        contents.add_sources(&sources::references(&file));
        Ok(contents)
    }

    /// Notes the source files of functions that refer to their names, and of those between two functions of one file:
    /// the linker puts the functions of a file side by side.
    fn add_sources(&mut self, references: &[(u64, Rc<str>)]) {
        for (address, source) in references {
            let after = self.functions.partition_point(|one| one.range.start <= *address);
            let Some(at) = after.checked_sub(1) else { continue };
            if self.functions[at].range.contains(address) {
                self.functions[at].source.get_or_insert_with(|| Rc::clone(source));
            }
        }
        let known = self.functions.iter().enumerate();
        let known: Vec<usize> =
            known.filter(|(_, one)| one.source.is_some()).map(|(at, _)| at).collect();
        for pair in known.windows(2) {
            let (first, last) = (pair[0], pair[1]);
            if self.functions[first].source == self.functions[last].source {
                let source = self.functions[first].source.clone();
                self.functions[first..last].iter_mut().for_each(|one| one.source = source.clone());
            }
        }
    }

    /// The functions that the tables for unwinding describe.
    fn ranges_of_unwind_tables(&self) -> Vec<Range<u64>> {
        let Some((range, data)) = self.tables.get(".eh_frame") else { return Vec::new() };
        let frames = EhFrame::new(data, NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(range.start);
        let mut entries = frames.entries(&bases);
        let mut found = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            found.push(entry.initial_address()..entry.initial_address() + entry.len());
        }
        found
    }

    /// The function at an address as stated in the file.
    pub fn function_at(&self, address: u64) -> Option<&Code> {
        let after = self.functions.partition_point(|one| one.range.start <= address);
        let found = self.functions.get(after.checked_sub(1)?)?;
        found.range.contains(&address).then_some(found)
    }

    /// What must be subtracted from addresses in a mapping to get those that the file states.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let (first, end) = mapping.range;
        // Whole pages are mapped.
        let mapped = mapping.offset..mapping.offset + (end - first);
        let is_of = |segment: &Range<u64>| segment.start < mapped.end && mapped.start < segment.end;
        let (_, difference) = self.segments.iter().find(|(segment, _)| is_of(segment))?;
        Some(first.wrapping_sub(mapping.offset.wrapping_add(*difference)))
    }
}

/// A file that is mapped into a process.
pub(crate) struct Module {
    pub name: String,
    range: Range<u64>,
    bias: u64,
    contents: Rc<Contents>,
}

/// The code of a process, and its unwinder.
pub(crate) struct Space {
    pub unwinder: UnwinderNative<Rc<[u8]>, MayAllocateDuringUnwind>,
    modules: Vec<Module>,
}

/// The files that were read, by path and first address of code: processes of one server share them.
#[derive(Default)]
pub(crate) struct Files(HashMap<(String, u64), Rc<Contents>>);

impl Space {
    /// The space of a process with these mappings. Files that cannot be read have no functions.
    pub fn of(pid: u32, mappings: &[Mapping], files: &mut Files) -> Self {
        let mut unwinder = UnwinderNative::new();
        let mut modules = Vec::new();
        for mapping in mappings {
            let key = (mapping.path.clone(), mapping.offset);
            let read = || Rc::new(Contents::read(pid, mapping).unwrap_or_default());
            let contents = Rc::clone(files.0.entry(key).or_insert_with(read));
            let Some(bias) = contents.bias(mapping) else { continue };
            let range = mapping.range.0..mapping.range.1;
            let table = |name| contents.tables.get(name).cloned();
            let (eh_frame, header) = (table(".eh_frame"), table(".eh_frame_hdr"));
            let sections = ExplicitModuleSectionInfo {
                base_svma: 0,
                eh_frame_svma: eh_frame.as_ref().map(|(range, _)| range.clone()),
                eh_frame: eh_frame.map(|(_, data)| data),
                eh_frame_hdr_svma: header.as_ref().map(|(range, _)| range.clone()),
                eh_frame_hdr: header.map(|(_, data)| data),
                ..ExplicitModuleSectionInfo::default()
            };
            let name = mapping.name().to_owned();
            unwinder.add_module(framehop::Module::new(name.clone(), range.clone(), bias, sections));
            modules.push(Module { name, range, bias, contents });
        }
        modules.sort_by_key(|module| module.range.start);
        Self { unwinder, modules }
    }

    /// The module and the function at an address.
    pub fn find(&self, address: u64) -> Option<(&Module, Option<&Code>)> {
        let after = self.modules.partition_point(|module| module.range.start <= address);
        let module = self.modules.get(after.checked_sub(1)?)?;
        let is_inside = module.range.contains(&address);
        is_inside.then(|| (module, module.contents.function_at(address.wrapping_sub(module.bias))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_code_are_read() {
        let line = "561b41543000-561b41545000 r-xp 00001000 fe:00 123    /usr/sbin/my server";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.range, mapping.offset), ((0x561b_4154_3000, 0x561b_4154_5000), 0x1000));
        assert_eq!(mapping.name(), "my server");
        for other in [
            "561b41543000-561b41545000 r--p 00001000 fe:00 123    /usr/sbin/server",
            "7ffd6b3f0000-7ffd6b3f2000 r-xp 00000000 00:00 0      [vdso]",
            "561b41543000 r-xp",
        ] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[test]
    fn own_functions_are_found_by_address() {
        let own = std::process::id();
        let space = Space::of(own, &code_of(own), &mut Files::default());
        let address = mappings_of_code_are_read as fn() as usize as u64;
        let (_, code) = space.find(address).unwrap();
        let symbol = code.unwrap().symbol.clone().unwrap();
        assert!(symbol.contains("mappings_of_code_are_read"), "{symbol}");
        assert!(space.find(0x1000).is_none());
    }
}
