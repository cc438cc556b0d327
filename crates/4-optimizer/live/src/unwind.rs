//! Registration of new code with the process's unwinder.
//!
//! C++ exceptions only pass through frames that libgcc has a description of. It is registered with
//! `__register_frame_info`, which takes a mutex and in newer versions allocates. So it must be called by
//! a thread that holds no lock, while all others run: see [`crate::trace::call_functions`].

use std::fs;
use std::ops::Range;

use object::read::elf::ElfFile64;
use object::{Endianness, Object, ObjectSymbol, SymbolKind, elf};

use crate::journal::{Area, Generation};
use crate::module::Module;
use crate::patch::PAGE;
use crate::process::Process;
use crate::trace::{self, FunctionCall, StubData};
use crate::{LiveError, arch};

/// Addresses of the functions of the process's unwinder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unwinder {
    register: u64,
    deregister: u64,
}

/// Maps an instruction of new code to its original.
pub(crate) type Original<'a> = &'a (dyn Fn(u64) -> u64 + Sync);

/// Size of the data for the unwinder and for stubs, in bytes.
pub(crate) const DATA_SIZE: u64 = 128 << 10;
/// Size of the unwinder's `struct object` for a list of frames; 48 bytes in all versions so far.
const OBJECT_SIZE: u64 = 64;
const OBJECTS_OFFSET: u64 = 64;
const VECTORS_OFFSET: u64 = 16 << 10;
const VECTORS_SIZE: u32 = 16 << 10;
/// Maximum number of lists of frames.
pub(crate) const MAX_LISTS: usize = ((VECTORS_OFFSET - OBJECTS_OFFSET) / OBJECT_SIZE) as usize;

impl Unwinder {
    /// The unwinder of a process; `None` if no shared one is loaded.
    pub(crate) fn of(process: &Process) -> Result<Option<Self>, LiveError> {
        let Some(module) = libgcc(process)?.filter(|_| !may_use_another(process)) else {
            return Ok(None);
        };
        let Ok(file) = ElfFile64::<Endianness>::parse(module.bytes()) else { return Ok(None) };
        let address = |name: &str| {
            let functions = file.dynamic_symbols().filter(|symbol| {
                symbol.is_definition()
                    && symbol.kind() == SymbolKind::Text
                    && symbol.name() == Ok(name)
            });
            Some(module.bias().wrapping_add(functions.last()?.address()))
        };
        let found = address("__register_frame_info").zip(address("__deregister_frame_info"));
        Ok(found.map(|(register, deregister)| Self { register, deregister }))
    }

    /// The calls that register lists of frames. Objects of the unwinder are in `data`.
    pub(crate) fn register(&self, data: &Range<u64>, lists: &[u64]) -> Vec<FunctionCall> {
        let objects = (data.start + OBJECTS_OFFSET..).step_by(OBJECT_SIZE as usize);
        let call = |(&list, object): (&u64, u64)| FunctionCall {
            address: self.register,
            arguments: [list, object, 0],
        };
        lists.iter().zip(objects).map(call).collect()
    }

    /// The calls that remove lists of frames.
    pub(crate) fn deregister(&self, lists: &[u64]) -> Vec<FunctionCall> {
        let call = |list: &u64| FunctionCall { address: self.deregister, arguments: [*list, 0, 0] };
        lists.iter().map(call).collect()
    }
}

/// Whether `libunwind`, of LLVM or another one, may have taken the place of libgcc, whose functions it defines by the same
/// names: the first definition counts, in the program's own libraries, then in those that they and preloaded ones such as
/// tcmalloc need.
fn may_use_another(process: &Process) -> bool {
    const OTHER: &str = "libunwind.so";
    let maps = process.maps();
    if maps.is_ok_and(|maps| Module::with_prefix(&maps, OTHER).is_none()) {
        return false;
    }
    let program = fs::read(format!("/proc/{}/exe", process.pid())).unwrap_or_default();
    let mut libraries = needed(&program).into_iter();
    let first = libraries.find(|name| name.starts_with(LIBGCC) || name.starts_with(OTHER));
    first.is_none_or(|name| name.starts_with(OTHER))
}

/// The libraries that a program or library names itself, in their order; none if it cannot be read.
fn needed(file: &[u8]) -> Vec<String> {
    let Ok(file) = ElfFile64::<Endianness>::parse(file) else { return Vec::new() };
    let Ok(table) = file.elf_dynamic_table() else { return Vec::new() };
    let needed = table.iter().filter(|entry| entry.tag == elf::DT_NEEDED);
    let names = needed.filter_map(|entry| table.string(entry).ok());
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

const LIBGCC: &str = "libgcc_s.so";

fn libgcc(process: &Process) -> Result<Option<Module>, LiveError> {
    let library = Module::with_prefix(&process.maps()?, LIBGCC);
    library.map(|library| Module::open(process, &library)).transpose()
}

/// How libgcc looks up registered frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnwinderVersion {
    /// Up to version 12: each throw takes a lock as soon as frames are registered.
    Locking,
    /// From version 13 on.
    LockFree,
}

impl UnwinderVersion {
    /// That of a process; `None` if no shared libgcc is loaded.
    pub(crate) fn of(process: &Process) -> Result<Option<Self>, LiveError> {
        Ok(libgcc(process)?.map(|module| Self::of_file(module.bytes())))
    }

    /// libgcc 13 added functions under a new version of its symbols, as most versions do.
    fn of_file(bytes: &[u8]) -> Self {
        const FIRST: u32 = 13;
        let versions = bytes.windows(PREFIX.len()).enumerate().filter_map(|(at, found)| {
            let digits = bytes[at + PREFIX.len()..].iter().take_while(|byte| byte.is_ascii_digit());
            let number =
                || digits.fold(0, |n: u32, digit| n.saturating_mul(10) + u32::from(digit - b'0'));
            (found == PREFIX).then(number)
        });
        const PREFIX: &[u8] = b"\0GCC_";
        if versions.max().is_some_and(|newest| newest >= FIRST) {
            Self::LockFree
        } else {
            Self::Locking
        }
    }
}

/// Whether exceptions of a process take a lock that all threads share because frames were registered:
/// libgcc 12 and older.
pub fn exceptions_take_lock(
    process: &Process,
    generations: &[Generation],
) -> Result<bool, LiveError> {
    if generations.iter().all(|generation| generation.frames.is_empty()) {
        return Ok(false);
    }
    Ok(UnwinderVersion::of(process)? == Some(UnwinderVersion::Locking))
}

/// Number of functions that stubs have called with this data area.
pub(crate) fn calls_done(process: &Process, data: &Range<u64>) -> Result<usize, LiveError> {
    let bytes = process.memory().read(data.start, 4)?;
    Ok(bytes.iter().rev().fold(0, |n, byte| n << 8 | usize::from(*byte)))
}

/// Makes the process call functions of its unwinder; it counts each in the data area.
pub(crate) fn call(
    process: &Process,
    area: &Area,
    functions: &[FunctionCall],
    original: Original<'_>,
) -> Result<(), LiveError> {
    let size = arch::size_of_vectors();
    if size > VECTORS_SIZE {
        let reason =
            format!("the vector registers of this CPU need {size} bytes, which is not supported");
        return Err(LiveError::refused(process.pid(), reason));
    }
    for functions in functions.chunks(calls_at_once()) {
        trace::call_functions(process, area.stub(), functions, &stub_data(area), original)?;
    }
    Ok(())
}

/// Maximum number of calls of a stub, which has one page.
const fn calls_at_once() -> usize {
    let fixed = trace::size_of_functions(0);
    (PAGE as usize - fixed) / (trace::size_of_functions(1) - fixed)
}

/// The data for stubs in an area. Counters of executions, which threads may increment meanwhile, are behind it.
fn stub_data(area: &Area) -> StubData {
    let start = area.data_range().start;
    StubData { stack_top: start + DATA_SIZE, vectors: start + VECTORS_OFFSET, counter: start }
}

/// The reason why the process could not find its way through frames of copies of this module's code: to pass an
/// exception, or to collect garbage. `None` if it can, or never does.
pub(crate) fn obstacle(module: &Module, has_unwinder: bool) -> Option<&'static str> {
    let file = ElfFile64::<Endianness>::parse(module.bytes()).ok()?;
    if has_table_of_return_addresses(&file) {
        return Some(
            "its garbage collector looks up return addresses (OCaml), which those of new code are not among",
        );
    }
    file.section_by_name(".gcc_except_table")?;
    if !has_unwinder {
        return Some(
            "it handles exceptions, and the process uses no shared libgcc_s for them to register with",
        );
    }
    // The C library loads the unwinder on demand.
    let is_c_library = module
        .path()
        .file_name()
        .and_then(|name| name.to_str())
        .is_some_and(|name| name.starts_with("libc."));
    (!is_c_library && !uses_shared_unwinder(&file)).then_some(
        "it handles exceptions with its own unwinder, which new code cannot be registered with",
    )
}

/// Whether a module that handles exceptions does so with a shared unwinder. With `-static-libgcc`, only the
/// personality function is shared: it is in the C++ library.
fn uses_shared_unwinder(file: &ElfFile64<'_, Endianness>) -> bool {
    let mut symbols = file.dynamic_symbols();
    symbols.any(|symbol| symbol.is_undefined() && symbol.name() == Ok("_Unwind_Resume"))
}

/// Whether it is a program of OCaml, whose garbage collector has a table of all return addresses.
fn has_table_of_return_addresses(file: &ElfFile64<'_, Endianness>) -> bool {
    let mut symbols = file.symbols().chain(file.dynamic_symbols());
    symbols.any(|symbol| symbol.is_definition() && symbol.name() == Ok("caml_frametable"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A library compiled from C++.
    fn library(program: &str, flags: &[&str]) -> Vec<u8> {
        let directory = tempfile::tempdir().unwrap();
        let [source, library] = ["a.cc", "a.so"].map(|name| directory.path().join(name));
        fs::write(&source, program).unwrap();
        let mut compiler = std::process::Command::new("g++");
        compiler.args(["-O2", "-shared", "-fPIC"]).args(flags);
        assert!(compiler.arg("-o").arg(&library).arg(&source).status().unwrap().success());
        fs::read(&library).unwrap()
    }

    #[test]
    fn private_unwinder_is_recognized() {
        let program = "void g(); struct S { ~S(); }; void f() { S s; try { g(); } catch (int) {} }";
        let is_shared = |flags: &[&str]| {
            let file = library(program, flags);
            let file = ElfFile64::<Endianness>::parse(&*file).unwrap();
            assert!(file.section_by_name(".gcc_except_table").is_some());
            uses_shared_unwinder(&file)
        };
        assert!(is_shared(&[]));
        assert!(!is_shared(&["-static-libgcc"]));
    }

    #[test]
    fn libraries_are_named_in_order() {
        let program = "struct S { ~S(); }; void g(); void f() { S s; g(); }";
        let names = needed(&library(program, &["-Wl,--no-as-needed"]));
        let at = |prefix: &str| names.iter().position(|name| name.starts_with(prefix)).unwrap();
        assert!(at("libstdc++.so") < at(LIBGCC), "{names:?}");
        assert!(needed(b"no program").is_empty());
    }

    #[test]
    fn ocaml_is_recognized() {
        let has_table = |program: &str, flags: &[&str]| {
            let file = library(program, flags);
            has_table_of_return_addresses(&ElfFile64::<Endianness>::parse(&*file).unwrap())
        };
        let table = "extern \"C\" { long caml_frametable[] = {1}; }";
        assert!(has_table(table, &[]) && has_table(table, &["-s"]));
        assert!(!has_table(
            "extern \"C\" { extern long caml_frametable[]; long f() { return caml_frametable[0]; } }",
            &[]
        ));
    }

    #[test]
    fn stack_of_stubs_is_below_the_counters() {
        let counters = 3 << 12;
        let area = Area { address: 0x1000, code: 0x2000, data: DATA_SIZE + counters };
        let found = stub_data(&area);
        assert_eq!(found.stack_top, area.data_range().end - counters);
        assert_eq!(found.stack_top % 16, 0);
        assert!(found.vectors + u64::from(VECTORS_SIZE) < found.stack_top);
    }

    #[test]
    fn stub_fits_on_its_page() {
        let calls = calls_at_once();
        assert!(trace::size_of_functions(calls) <= PAGE as usize, "{calls}");
        assert!(trace::size_of_functions(calls + 1) > PAGE as usize, "{calls}");
        assert!(calls < MAX_LISTS);
    }

    #[test]
    fn version_of_libgcc_is_the_newest_of_its_symbol_versions() {
        let of = |names: &[u8]| UnwinderVersion::of_file(names);
        assert_eq!(of(b"\0GCC_3.0\0GCC_7.0.0\0GCC_12.0.0\0"), UnwinderVersion::Locking);
        assert_eq!(of(b"\0GCC_14.0.0\0GCC_4.8.0\0"), UnwinderVersion::LockFree);
        assert_eq!(of(b"GCC_14 is not a version: \0GCC_\0"), UnwinderVersion::Locking);
    }
}
