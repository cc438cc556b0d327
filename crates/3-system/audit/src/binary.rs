//! Programs and shared libraries as a whole.

use std::fmt;
use std::path::PathBuf;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::code::Code;

/// A program or a shared library.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    /// The file.
    pub path: PathBuf,
    /// The kind of file.
    pub kind: BinaryKind,
    /// The architecture: `x86_64`.
    pub architecture: String,
    /// The build id: the linker's digest of the content.
    pub build_id: Option<String>,
    /// The `.comment` section: names and versions of compilers and linkers.
    pub comments: Vec<String>,
    /// The sizes of the file and its parts.
    pub sizes: Sizes,
    /// The recorded information.
    pub records: Records,
    /// Protection against exploits of memory errors.
    pub protections: Protections,
    /// Whether the link generated code, as link-time optimization does. gcc records it.
    pub link_time_code: Option<bool>,
    /// The results of decoding the machine code; `None` for architectures other than x86-64.
    pub code: Option<Code>,
}

/// The kind of a linked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryKind {
    /// A program with a fixed load address.
    Program,
    /// A position-independent program.
    PieProgram,
    /// A shared library.
    Library,
}

impl fmt::Display for BinaryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Program => "program",
            Self::PieProgram => "position independent program",
            Self::Library => "shared library",
        })
    }
}

/// The size of a file and of its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The section `.text`.
    pub text: Option<Bytes>,
    /// All executable sections.
    pub executable: Bytes,
    /// The part covered by segments: approximately the size after `strip`.
    pub stripped: Option<Bytes>,
    /// The whole file, with symbols and debug information.
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
    /// A symbol table.
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

/// Which address tables are read-only after loading (RELRO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relro {
    None,
    /// Some: functions are still resolved at their first call.
    Partial,
    /// All: every function is resolved at startup (`-z now`).
    Full,
}

impl fmt::Display for Relro {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Partial => "partial",
            Self::Full => "full",
        })
    }
}
