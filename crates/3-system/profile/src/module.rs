//! The programs and libraries of a process: where they are mapped, their functions, and how to unwind them.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{fs, io};

use dbdyno_machine::Mapping;
use dbdyno_types::Sha256;
use dbdyno_types::profile::BETWEEN;
use framehop::{ExplicitModuleSectionInfo, MayAllocateDuringUnwind, Unwinder, UnwinderNative};
use gimli::{BaseAddresses, CallFrameInstruction, CieOrFde, EhFrame, NativeEndian, UnwindSection};
use memmap2::Mmap;
use object::elf::PF_X;
use object::{
    File, Object, ObjectSection, ObjectSegment, ObjectSymbol, SectionKind, SegmentFlags, SymbolKind,
};

use crate::debug::{DebugInfo, Named, split_file};
use crate::{imports, sources};

/// The library that the kernel maps into each process.
const KERNEL_LIBRARY: &str = "[vdso]";

/// So many functions between those of two source files can be of many others: then nothing is known of them.
const WIDEST: usize = 400;

/// The mappings of code of a process; none if it has ended.
pub(crate) fn code_of(pid: u32) -> Vec<Mapping> {
    let text = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    text.lines().filter_map(code_in).collect()
}

/// The mapping of a line of `/proc/PID/maps`, if it is code of a file or of the kernel's library.
fn code_in(line: &str) -> Option<Mapping> {
    let is_named = |name: &str| name.starts_with('/') || name == KERNEL_LIBRARY;
    Mapping::parse(line).filter(|mapping| mapping.executable && is_named(&mapping.name))
}

/// A function of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    /// As stated in the file.
    pub range: Range<u64>,
    /// Its symbol; `None` in a stripped program.
    pub symbol: Option<String>,
    /// The name of its source file, by texts of messages and assertions that it or those around it refer to, or of two
    /// files with [`BETWEEN`] them; `None` if it is not known.
    pub source: Option<Rc<str>>,
}

/// The functions of a file, in ascending order, and its unwind tables.
#[derive(Default)]
pub(crate) struct Contents {
    /// See [`dbdyno_types::profile::ModuleBuild`].
    build: String,
    functions: Vec<Code>,
    /// The parts of functions that were called by none.
    starts: Vec<Range<u64>>,
    /// The slots for functions of other files, with their symbols.
    slots: Vec<(u64, String)>,
    debug: Option<DebugInfo>,
    /// The loaded segments of code in the file, with their stated addresses minus their offsets.
    segments: Vec<(Range<u64>, u64)>,
    tables: HashMap<&'static str, (Range<u64>, Rc<[u8]>)>,
}

impl Contents {
    /// Reads the file of a mapping as the process sees it.
    fn read(pid: u32, mapping: &Mapping) -> io::Result<Self> {
        let Mapping { range: Range { start: first, end }, name: path, .. } = mapping;
        if path == KERNEL_LIBRARY {
            let mut data = vec![0; usize::try_from(end - first).map_err(io::Error::other)?];
            memory(pid)?.read_exact_at(&mut data, *first)?;
            return Self::parse(&data, None).map_err(io::Error::other);
        }
        // Also if the file was replaced meanwhile.
        let mapped = PathBuf::from(format!("/proc/{pid}/map_files/{first:x}-{end:x}"));
        let visible = Path::new(&format!("/proc/{pid}/root")).join(&path[1..]);
        let (path, data) = map(&mapped)
            .map(|data| (mapped, data))
            .or_else(|_| map(&visible).map(|data| (visible, data)))?;
        Self::parse(&data, Some(&path)).map_err(io::Error::other)
    }

    /// Reads the file with this content, which is at this path if it is not in memory only.
    fn parse(data: &[u8], path: Option<&Path>) -> Result<Self, object::Error> {
        let file = File::parse(data)?;
        let mut contents = Self { build: build(&file), ..Self::default() };
        for segment in file.segments() {
            let is_code = matches!(segment.flags(), SegmentFlags::Elf { p_flags, .. } if p_flags & PF_X == PF_X);
            let (offset, size) = segment.file_range();
            if is_code {
                let difference = segment.address().wrapping_sub(offset);
                contents.segments.push((offset..offset.saturating_add(size), difference));
            }
        }
        for name in [".eh_frame", ".eh_frame_hdr"] {
            if let Some(section) = file.section_by_name(name) {
                let range = section.address()..section.address().saturating_add(section.size());
                contents.tables.insert(name, (range, section.uncompressed_data()?.into()));
            }
        }
        contents.slots = imports::slots(&file);
        contents.debug = path.and_then(|path| DebugInfo::read(&file, path));
        contents.functions = functions(&file);
        contents.add_split_file();
        contents.functions.extend(imports::stubs(&file, &contents.slots));
        contents.functions.sort_by_key(|one| one.range.start);
        contents.functions.dedup_by(|next, kept| next.range.start == kept.range.start);
        contents.add_functions_without_symbol();
        contents.add_sources(&sources::references(&file));
        Ok(contents)
    }

    /// Adds what was split from the file when it was packaged, if that is installed.
    fn add_split_file(&mut self) {
        let Some(path) = split_file(&self.build) else { return };
        let Ok(data) = map(&path) else { return };
        let Ok(file) = File::parse(&*data) else { return };
        self.functions.extend(functions(&file));
        self.debug = self.debug.take().or_else(|| DebugInfo::read(&file, &path));
    }

    /// Adds what the tables for unwinding describe and no symbol.
    fn add_functions_without_symbol(&mut self) {
        let Some((range, data)) = self.tables.get(".eh_frame").cloned() else { return };
        let frames = EhFrame::new(&data, NativeEndian);
        let bases = BaseAddresses::default().set_eh_frame(range.start);
        let mut entries = frames.entries(&bases);
        let mut unnamed = Vec::new();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let Ok(entry) = partial.parse(EhFrame::cie_from_offset) else { continue };
            let first = entry.initial_address();
            let range = first..first.wrapping_add(entry.len());
            // That it returns nowhere is said of code that nothing called.
            let to = entry.cie().return_address_register();
            let nowhere = CallFrameInstruction::Undefined { register: to };
            let mut common = entry.cie().instructions(&frames, &bases);
            let mut own = entry.instructions(&frames, &bases);
            let is_start = common.any(|rule| rule.as_ref() == Ok(&nowhere))
                || own.any(|rule| rule.as_ref() == Ok(&nowhere));
            if is_start || entry.is_signal_trampoline() {
                self.starts.push(range.clone());
            }
            let before = self.functions.partition_point(|one| one.range.start <= first);
            let last = before.checked_sub(1).map(|at| &self.functions[at]);
            if last.is_none_or(|one| !one.range.contains(&first)) {
                unnamed.push(Code { range, symbol: None, source: None });
            }
        }
        self.functions.append(&mut unnamed);
        self.functions.sort_by_key(|one| one.range.start);
    }

    /// Notes the source files of functions that refer to their names, and of those between them: the linker puts the
    /// functions of a file side by side.
    fn add_sources(&mut self, references: &[(u64, Rc<str>)]) {
        for (address, source) in references {
            let after = self.functions.partition_point(|one| one.range.start <= *address);
            let Some(at) = after.checked_sub(1) else { continue };
            if self.functions[at].range.contains(address) {
                self.functions[at].source.get_or_insert_with(|| Rc::clone(source));
            }
        }
        let known = self.functions.iter().enumerate();
        let known: Vec<(usize, Rc<str>)> =
            known.filter_map(|(at, one)| Some((at, Rc::clone(one.source.as_ref()?)))).collect();
        // The linker goes through the files several times, for code that is executed rarely, and for other code.
        let mut seen: HashSet<&str> = HashSet::new();
        for pair in known.windows(2) {
            let [(first, before), (last, after)] = pair else { continue };
            seen.insert(before);
            let source = if before == after {
                Some(Rc::clone(before))
            } else if seen.insert(after) {
                (last - first <= WIDEST).then(|| format!("{before}{BETWEEN}{after}").into())
            } else {
                seen.clear();
                None
            };
            let between = &mut self.functions[first + 1..*last];
            between.iter_mut().for_each(|one| one.source.clone_from(&source));
        }
    }

    /// The function at an address as stated in the file.
    pub fn function_at(&self, address: u64) -> Option<&Code> {
        let after = self.functions.partition_point(|one| one.range.start <= address);
        let found = self.functions.get(after.checked_sub(1)?)?;
        found.range.contains(&address).then_some(found)
    }

    /// Whether nothing called the code at an address as stated in the file: a program, a thread or the handler of a
    /// signal begins there.
    fn is_start(&self, address: u64) -> bool {
        self.starts.iter().any(|range| range.contains(&address))
    }

    /// What must be subtracted from addresses in a mapping to get those that the file states.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let Range { start: first, end } = &mapping.range;
        // Whole pages are mapped.
        let mapped = mapping.offset..mapping.offset + (end - first);
        let is_of = |segment: &Range<u64>| segment.start < mapped.end && mapped.start < segment.end;
        let (_, difference) = self.segments.iter().find(|(segment, _)| is_of(segment))?;
        Some(first.wrapping_sub(mapping.offset.wrapping_add(*difference)))
    }
}

/// The functions of a file that have symbols.
fn functions(file: &File<'_>) -> Vec<Code> {
    let function = |symbol: object::Symbol<'_, '_>| {
        let is_code = symbol.kind() == SymbolKind::Text && symbol.is_definition();
        let range = symbol.address()..symbol.address().wrapping_add(symbol.size());
        let name = symbol.name().ok()?;
        (is_code && !range.is_empty()).then(|| Code {
            range,
            symbol: Some(name.to_owned()),
            source: None,
        })
    };
    file.symbols().chain(file.dynamic_symbols()).filter_map(function).collect()
}

/// The build ID of a file, or a hash of its code.
fn build(file: &File<'_>) -> String {
    if let Ok(Some(id)) = file.build_id() {
        return id.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let code = file.sections().filter(|section| section.kind() == SectionKind::Text);
    let code: Vec<&[u8]> = code.filter_map(|section| section.data().ok()).collect();
    Sha256::of(&code.concat()).to_string()
}

fn map(path: &Path) -> io::Result<Mmap> {
    let file = fs::File::open(path)?;
    // SAFETY: the mapping is private and read-only, and its contents are treated as untrusted bytes. If the file is
    // truncated meanwhile, this process is killed by SIGBUS, and so is the server that executes it.
    unsafe { Mmap::map(&file) }
}

/// The memory of a process.
pub(crate) fn memory(pid: u32) -> io::Result<fs::File> {
    fs::File::open(format!("/proc/{pid}/mem"))
}

/// A file that is mapped into a process.
pub(crate) struct Module {
    pub name: String,
    range: Range<u64>,
    bias: u64,
    contents: Rc<Contents>,
}

impl Module {
    /// See [`dbdyno_types::profile::ModuleBuild`].
    pub fn build(&self) -> &str {
        &self.contents.build
    }

    /// What debug information tells about an address in the process.
    pub fn debug_functions(&self, address: u64) -> Vec<Named> {
        let debug = self.contents.debug.as_ref();
        debug.map(|one| one.functions(address.wrapping_sub(self.bias))).unwrap_or_default()
    }
}

/// The code of a process, and its unwinder.
pub(crate) struct Space {
    pub unwinder: UnwinderNative<Rc<[u8]>, MayAllocateDuringUnwind>,
    modules: Vec<Module>,
    /// The symbols of slots in which the loader wrote the first address of a function that has no symbol.
    chosen: HashMap<u64, String>,
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
            let key = (mapping.name.clone(), mapping.offset);
            let read = || Rc::new(Contents::read(pid, mapping).unwrap_or_default());
            let contents = Rc::clone(files.0.entry(key).or_insert_with(read));
            let Some(bias) = contents.bias(mapping) else { continue };
            let range = mapping.range.clone();
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
            let name = mapping.name.rsplit('/').next().unwrap_or_default().to_owned();
            unwinder.add_module(framehop::Module::new(name.clone(), range.clone(), bias, sections));
            modules.push(Module { name, range, bias, contents });
        }
        modules.sort_by_key(|module| module.range.start);
        let mut space = Self { unwinder, modules, chosen: HashMap::new() };
        if let Ok(memory) = memory(pid) {
            space.chosen = space.names_in_slots(&memory);
        }
        space
    }

    fn names_in_slots(&self, memory: &fs::File) -> HashMap<u64, String> {
        let mut chosen: HashMap<u64, String> = HashMap::new();
        let slots = self.modules.iter().flat_map(|module| {
            let slots = module.contents.slots.iter();
            slots.map(move |(slot, symbol)| (slot.wrapping_add(module.bias), symbol))
        });
        for (slot, symbol) in slots {
            let mut target = [0; 8];
            if memory.read_exact_at(&mut target, slot).is_err() {
                continue;
            }
            let target = u64::from_ne_bytes(target);
            let Some((module, Some(code))) = self.find(target) else { continue };
            if code.symbol.is_none() && code.range.start.wrapping_add(module.bias) == target {
                let name = match chosen.remove(&target) {
                    Some(known) => imports::common_name(known, symbol.clone()),
                    None => symbol.clone(),
                };
                chosen.insert(target, name);
            }
        }
        chosen
    }

    /// The symbol of a function of a module, or the name by which others call it.
    pub fn symbol<'a>(&'a self, module: &Module, code: &'a Code) -> Option<&'a str> {
        let name = || self.chosen.get(&code.range.start.wrapping_add(module.bias));
        code.symbol.as_ref().or_else(name).map(String::as_str)
    }

    /// Whether nothing called the code at an address.
    pub fn is_start(&self, address: u64) -> bool {
        let found = self.find(address);
        found.is_some_and(|(module, _)| module.contents.is_start(address.wrapping_sub(module.bias)))
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
    use std::ffi::c_char;

    use dbdyno_fuzz::Fuzz;
    use framehop::{CacheNative, UnwindRegsNative};

    use super::*;

    unsafe extern "C" {
        fn strlen(text: *const c_char) -> usize;
    }

    #[test]
    fn mappings_of_code_are_read() {
        let line = "561b41543000-561b41545000 r-xp 00001000 fe:00 123    /usr/sbin/my server";
        let mapping = code_in(line).unwrap();
        assert_eq!(mapping.range, 0x561b_4154_3000..0x561b_4154_5000);
        assert_eq!((mapping.offset, &*mapping.name), (0x1000, "/usr/sbin/my server"));
        for other in [
            "561b41543000-561b41545000 r--p 00001000 fe:00 123    /usr/sbin/server",
            "7ffd6b3f0000-7ffd6b3f2000 r-xp 00000000 00:00 0      ",
            "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]",
            "561b41543000 r-xp",
        ] {
            assert_eq!(code_in(other), None, "{other}");
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
        // It has a symbol of its own only if the C library is not stripped.
        let address = strlen as unsafe extern "C" fn(*const c_char) -> usize as usize as u64;
        let (module, code) = space.find(address).unwrap();
        let symbol = space.symbol(module, code.unwrap());
        assert!(symbol.is_some_and(|symbol| symbol.contains("strlen")), "{symbol:?}");
        assert!(!space.is_start(address));
        assert!(module.build().len() >= 16, "{}", module.build());
    }

    #[test]
    fn functions_between_those_of_source_files_are_of_these() {
        let code = |at: u64| Code { range: at * 16..at * 16 + 16, symbol: None, source: None };
        let named = |names: &[(u64, &str)], count: u64| -> Vec<Option<String>> {
            let functions = (0..count).map(code).collect();
            let mut contents = Contents { functions, ..Contents::default() };
            let references: Vec<(u64, Rc<str>)> =
                names.iter().map(|(at, name)| (at * 16 + 5, Rc::from(*name))).collect();
            contents.add_sources(&references);
            let sources = contents.functions.iter().map(|one| one.source.as_deref());
            sources.map(|source| source.map(str::to_owned)).collect()
        };
        // The linker comes to `a.cc` again.
        let names = [(1, "a.cc"), (3, "b.cc"), (5, "b.cc"), (7, "a.cc"), (9, "c.cc")];
        let expected = [
            None,
            Some("a.cc"),
            Some("a.cc…b.cc"),
            Some("b.cc"),
            Some("b.cc"),
            Some("b.cc"),
            None,
            Some("a.cc"),
            Some("a.cc…c.cc"),
            Some("c.cc"),
            None,
        ];
        assert_eq!(named(&names, 11), expected.map(|name| name.map(str::to_owned)));
        let far = named(&[(0, "a.cc"), (900, "b.cc")], 901);
        assert_eq!(far.iter().flatten().count(), 2);
    }

    #[test]
    fn damaged_libraries_are_read_or_refused() {
        // The smallest that there is.
        let own = std::process::id();
        let library = code_of(own).into_iter().find(|one| one.name == KERNEL_LIBRARY);
        let Some(Mapping { range: Range { start: first, end }, .. }) = library else {
            return dbdyno_fuzz::skip("the kernel maps no library");
        };
        let mut data = vec![0; (end - first) as usize];
        memory(own).unwrap().read_exact_at(&mut data, first).unwrap();
        let contents = Contents::parse(&data, None).unwrap();
        let mut symbols = contents.functions.iter().filter_map(|one| one.symbol.as_deref());
        assert!(symbols.any(|symbol| symbol.contains("gettime")));
        Fuzz::new(vec![data]).run(|data| {
            if let Ok(contents) = Contents::parse(data, None) {
                unwind(contents);
            }
        });
    }

    /// Unwinds stacks with the tables of a file. Every second word on them is an address of code, the others are of the
    /// stack.
    fn unwind(contents: Contents) {
        const CODE: u64 = 0x10_0000;
        const STACK: u64 = 0x7000_0000;
        const SIZE: u64 = 4 << 10;
        let (range, name) = (CODE..CODE + 2 * SIZE, "/damaged".to_owned());
        let mapping = Mapping { range, name, ..Mapping::default() };
        let mut files = Files::default();
        files.0.insert((mapping.name.clone(), mapping.offset), Rc::new(contents));
        let space = Space::of(std::process::id(), &[mapping], &mut files);
        let mut read = |address: u64| match address.checked_sub(STACK) {
            Some(offset) if offset < SIZE && offset % 16 < 8 => Ok(CODE + offset * 2),
            Some(offset) if offset < SIZE => Ok(address + 8),
            _ => Err(()),
        };
        let mut cache = CacheNative::<MayAllocateDuringUnwind>::new();
        for address in (CODE..CODE + 2 * SIZE).step_by(199) {
            let registers = UnwindRegsNative::new(address, STACK, STACK + 64);
            let mut all = space.unwinder.iter_frames(address, registers, &mut cache, &mut read);
            let _ = (0..256).take_while(|_| matches!(all.next(), Ok(Some(_)))).count();
            let _ = space.is_start(address);
        }
    }
}
