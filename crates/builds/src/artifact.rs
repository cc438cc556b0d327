use std::path::PathBuf;

use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::{Compiler, CompilerKind, Fingerprint, Sha256, System};

/// The result of compiling one source with one variant: what `build.json` in its folder holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Build {
    /// Identifies it.
    pub fingerprint: Fingerprint,
    /// What was compiled.
    pub system: System,
    /// Which version of it.
    pub source_version: String,
    /// The checksum of the source's text.
    pub source_sha256: Sha256,
    /// The name of the variant.
    pub variant: String,
    /// What compiled it.
    pub compiler: CompilerUsed,
    /// The flags for each source file: the recipe's, the variant's, the extra ones.
    pub flags: Vec<String>,
    /// The flags for the link.
    pub link_flags: Vec<String>,
    /// The commands that were run, to be pasted into a shell.
    pub commands: Vec<String>,
    /// The shared library; absolute.
    pub library: PathBuf,
    /// The library's checksum.
    pub library_sha256: Sha256,
    /// The library's section `.text`: its compiled code.
    pub text_size: Bytes,
    /// All sections of the library that can be executed.
    pub executable_size: Bytes,
    /// The part of the library's file that is loaded: about what `strip` leaves of it.
    pub stripped_size: Bytes,
    /// The library's file.
    pub file_size: Bytes,
    /// How long compiling and linking took.
    pub compile_time: Nanos,
}

/// The compiler of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerUsed {
    /// Its family.
    pub name: CompilerKind,
    /// The program.
    pub path: PathBuf,
    /// The number alone: `12.2.0`.
    pub version: String,
    /// The first line that it prints for `--version`.
    pub version_line: String,
    /// What it compiles for.
    pub target: String,
    /// The first line that its linker prints for `--version`; `None` where it would not say.
    pub linker: Option<String>,
}

impl From<&Compiler> for CompilerUsed {
    fn from(compiler: &Compiler) -> Self {
        Self {
            name: compiler.kind,
            path: compiler.path.clone(),
            version: compiler.version.clone(),
            version_line: compiler.version_line.clone(),
            target: compiler.target.clone(),
            linker: compiler.linker.clone(),
        }
    }
}
