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
    /// What it is.
    pub kind: BinaryKind,
    /// For which processor: `x86_64`.
    pub architecture: String,
    /// The linker's digest of its content.
    pub build_id: Option<String>,
    /// What compilers and linkers left in it: names and versions.
    pub comments: Vec<String>,
    /// How large it is.
    pub sizes: Sizes,
    /// What there is to read about it.
    pub records: Records,
    /// What protects it.
    pub protections: Protections,
    /// Whether the link generated code, as link-time optimization does. gcc records it.
    pub link_time_code: Option<bool>,
    /// What its machine code shows; `None` for processors other than x86-64.
    pub code: Option<Code>,
}

/// What a linked file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BinaryKind {
    /// A program for a fixed address.
    Program,
    /// A program for any address.
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

/// How large a file is, by several measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sizes {
    /// The section `.text`: the compiled code.
    pub text: Option<Bytes>,
    /// All sections that can be executed.
    pub executable: Bytes,
    /// The part that is loaded to run it: about what `strip` leaves.
    pub stripped: Option<Bytes>,
    /// The whole file, with symbols and debug information.
    pub file: Bytes,
}

/// What is recorded in a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    /// Debug information, here or in a file of its own.
    pub debug: bool,
    /// That other file.
    pub debug_file: Option<PathBuf>,
    /// Command lines in a section of their own.
    pub command_lines: bool,
    /// Names of functions.
    pub symbols: bool,
    /// The linker's relocations, which a layout optimizer needs to move functions.
    pub relocations: bool,
}

/// What protects a file against misuse of its errors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protections {
    /// Tables of addresses that are made read-only.
    pub relro: Relro,
    /// Whether the stack can be executed.
    pub executable_stack: Option<bool>,
    /// Whether targets of indirect jumps are marked in all of its objects.
    pub control_flow: bool,
    /// Whether anything calls the stack protector's handler.
    pub stack_protector: bool,
    /// The functions of the C library with checked bounds that it calls.
    pub fortified: Vec<String>,
    /// Whether anything calls the handler of failed assertions.
    pub assertions: bool,
}

/// Which tables of addresses are made read-only after loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Relro {
    /// None.
    None,
    /// Some: functions are still looked up when they are first called.
    Partial,
    /// All: every function is looked up at the start (`-z now`).
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
