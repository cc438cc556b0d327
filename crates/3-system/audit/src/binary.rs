//! Programs and shared libraries as a whole, and the results of decoding their machine code.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use dbdyno_types::words;
use dbdyno_units::{Bytes, LimitedText, Share};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    pub path: PathBuf,
    pub kind: BinaryKind,
    /// The architecture: `x86_64`.
    pub architecture: String,
    /// The build id: the linker's digest of the content.
    pub build_id: Option<String>,
    /// The `.comment` section: names and versions of compilers and linkers.
    pub comments: Vec<String>,
    pub sizes: Sizes,
    pub records: Records,
    /// Protection against exploits of memory errors.
    pub protections: Protections,
    /// Whether the link generated code, as link-time optimization does. gcc records it; `None` also without any code to
    /// generate.
    pub link_time_code: Option<bool>,
    /// The results of decoding the machine code; `None` for architectures other than x86-64.
    pub code: Option<Code>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryKind {
    /// A program with a fixed load address.
    Program,
    /// A position-independent program.
    PieProgram,
    Library,
}

impl fmt::Display for BinaryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Program => "program",
            Self::PieProgram => "position-independent program",
            Self::Library => "shared library",
        })
    }
}

/// The size of a file and of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// Sections of code, without stubs for calls of libraries; `None` without any.
    pub text: Option<Bytes>,
    /// All executable sections.
    pub executable: Bytes,
    /// The part covered by segments: approximately the size after `strip`.
    pub stripped: Option<Bytes>,
    pub file: Bytes,
}

/// Information recorded in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Debug information, in the file or in a separate one.
    pub debug: bool,
    /// The separate debug file, if there is one.
    pub debug_file: Option<PathBuf>,
    /// Command lines in a separate section (`.GCC.command.line`).
    pub command_lines: bool,
    pub symbols: bool,
    /// Relocations kept by the linker (`--emit-relocs`), which layout optimizers need to move
    /// functions.
    pub relocations: bool,
}

/// Protection of a file against exploits of memory errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protections {
    /// Address tables that are read-only after loading.
    pub relro: Relro,
    /// Whether the stack is executable; `None` if not recorded.
    pub executable_stack: Option<bool>,
    /// Whether targets of indirect jumps are marked in all of its objects.
    pub control_flow: bool,
    /// Whether it calls the stack protector's handler.
    pub stack_protector: bool,
    /// The called C library functions with bounds checks.
    pub fortified: Vec<String>,
    /// Whether it calls the handler of failed assertions.
    pub assertions: bool,
}

words! {
    /// Which address tables are read-only after loading (RELRO).
    Relro {
        None = "none",
        /// Some: functions are still resolved at their first call.
        Partial = "partial",
        /// All: every function is resolved at startup (`-z now`).
        Full = "full",
    }
}

/// Properties of a file's machine code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Code {
    /// Number of functions decoded.
    pub functions: u64,
    /// The source of the function bounds.
    pub found: FunctionsFrom,
    pub instructions: u64,
    /// Number of invalid instructions: data within the code.
    pub undecodable: u64,
    /// Number of functions that call others. Leaf functions may lack a frame pointer even with
    /// `-fno-omit-frame-pointer`.
    pub callers: u64,
    /// Number of these whose prologue sets up a frame pointer.
    pub framed: u64,
    /// Instructions beyond the architecture's baseline. In a library that selects code at run time,
    /// a few functions have them; in code compiled with `-march`, many.
    pub extensions: BTreeMap<Extension, ExtensionUse>,
    /// Functions that begin a hardware transaction (`xbegin`). Layout optimizers must neither split
    /// nor move them.
    pub transactional: Vec<Function>,
}

impl Code {
    /// The share of functions that use an extension.
    pub fn share(&self, extension: Extension) -> Share {
        let functions = self.extensions.get(&extension).map_or(0, |used| used.functions);
        share(functions, self.functions)
    }

    /// Whether functions keep a frame pointer; `None` if there are too few functions to decide.
    pub fn frame_pointers(&self) -> Option<bool> {
        // Some functions set it up only on the path that needs it, so half is a high share.
        (self.callers >= 10).then(|| self.framed * 2 > self.callers)
    }
}

fn share(part: u64, whole: u64) -> Share {
    Share::from_fraction(if whole == 0 { 0.0 } else { part as f64 / whole as f64 })
}

/// The source of function bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FunctionsFrom {
    /// The symbol table.
    Symbols,
    /// The unwind tables, which stripped files keep.
    Unwinding,
    /// None: each section counts as one function.
    #[default]
    Sections,
}

/// An instruction set extension beyond the architecture's baseline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Extension {
    /// SSE3 to SSE4.2, POPCNT.
    Sse4,
    Avx,
    /// BMI1 and BMI2.
    Bmi,
    /// FMA, F16C, LZCNT, MOVBE.
    Fma,
    Avx2,
    /// AVX-512 in any form.
    Avx512,
}

impl fmt::Display for Extension {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sse4 => "SSE3 to 4.2",
            Self::Avx => "AVX",
            Self::Bmi => "BMI",
            Self::Fma => "FMA",
            Self::Avx2 => "AVX2",
            Self::Avx512 => "AVX-512",
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionUse {
    pub functions: u64,
    pub instructions: u64,
    /// Examples of these functions.
    pub examples: Vec<Function>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its symbol; `None` in a stripped file.
    pub name: Option<String>,
    /// Its address in the file's address space.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
}

impl Function {
    /// Its demangled name, or its address.
    pub fn readable(&self) -> String {
        match &self.name {
            Some(name) => demangled(name).unwrap_or_else(|| name.clone()),
            None => format!("{:#x}", self.address),
        }
    }
}

fn demangled(name: &str) -> Option<String> {
    let mut text = LimitedText::default();
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    symbol.structured_demangle(&mut text, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(text.0)
}
