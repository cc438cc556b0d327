//! How each system is compiled, as data.
//!
//! A recipe is two pure functions: from a variant to [`Flags`], and from flags to a [`Plan`], the
//! commands to run. One module per system; a recipe that configures and then runs a build tool
//! (cmake, meson, autoconf) gives the steps of those tools instead of a compiler's.

mod sqlite;

use std::path::{Path, PathBuf};

use crate::shell::quote_command;
use crate::{Compiler, Source, System, Variant};

/// The flags that a recipe gives to the compiler, without the names of files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// For each source file.
    pub compile: Vec<String>,
    /// For the link.
    pub link: Vec<String>,
}

impl Flags {
    /// Whether the result depends on the CPU of the machine that compiles.
    #[must_use]
    pub fn depends_on_host(&self) -> bool {
        let native = ["-march=native", "-mtune=native", "-mcpu=native"];
        self.compile.iter().chain(&self.link).any(|flag| native.contains(&flag.as_str()))
    }
}

/// One command of a plan. Relative paths are relative to the directory that the build is made in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does, for messages: `compiling sqlite3.c`.
    pub name: String,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// The files that it reads.
    pub inputs: Vec<PathBuf>,
    /// The file that it makes.
    pub output: PathBuf,
}

impl Step {
    /// As one would paste it into a shell.
    #[must_use]
    pub fn to_shell(&self) -> String {
        quote_command(&self.program, &self.args)
    }
}

/// The commands that make a build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// To run in this order.
    pub steps: Vec<Step>,
    /// The file that the engine will load or start, relative to the build's directory.
    pub artifact: PathBuf,
    /// Files to remove when all is done.
    pub scratch: Vec<PathBuf>,
}

/// The version of a system's recipe: part of the fingerprint, raised with every change to it that
/// the flags do not show.
#[must_use]
pub const fn version(system: System) -> u32 {
    match system {
        System::Sqlite => sqlite::VERSION,
    }
}

/// The file name of what a system's recipe makes.
#[must_use]
pub const fn artifact_name(system: System) -> &'static str {
    match system {
        System::Sqlite => sqlite::LIBRARY,
    }
}

/// Which flags a variant means for a system. `lto_linker` is what the compiler needs to link
/// objects for link-time optimization ([`Compiler::lto_linker`]); `extra` comes after the
/// variant's own flags, so that it wins.
#[must_use]
pub fn flags(
    system: System,
    variant: &Variant,
    compiler: &Compiler,
    lto_linker: &[String],
    extra: &[String],
) -> Flags {
    match system {
        System::Sqlite => sqlite::flags(variant, compiler.kind, lto_linker, extra),
    }
}

/// The commands that compile `source`, unpacked in `source_dir`, with these flags.
#[must_use]
pub fn plan(source: &Source, source_dir: &Path, compiler: &Compiler, flags: &Flags) -> Plan {
    match source.system() {
        System::Sqlite => sqlite::plan(source_dir, &compiler.path, flags),
    }
}

/// Whether these flags ask for link-time optimization; the last word counts.
#[must_use]
pub fn asks_for_lto<'a>(flags: impl IntoIterator<Item = &'a str>) -> bool {
    flags.into_iter().fold(false, |lto, flag| match flag {
        "-fno-lto" => false,
        _ => lto || flag == "-flto" || flag.starts_with("-flto="),
    })
}

/// Whether a flag speaks to the linker alone. Compilers warn when such a flag comes with `-c`.
fn only_for_the_link(flag: &str) -> bool {
    ["-Wl,", "-l", "-L", "-fuse-ld="].iter().any(|prefix| flag.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_on_lto_counts() {
        assert!(!asks_for_lto(["-O2"]));
        assert!(asks_for_lto(["-flto"]));
        assert!(asks_for_lto(["-fno-lto", "-flto=thin"]));
        assert!(!asks_for_lto(["-flto", "-fno-lto"]));
    }

    #[test]
    fn native_flags_tie_a_build_to_the_host() {
        let flags = |flag: &str| Flags { compile: vec![flag.to_owned()], link: Vec::new() };
        assert!(flags("-march=native").depends_on_host());
        assert!(flags("-mcpu=native").depends_on_host());
        assert!(!flags("-march=x86-64-v3").depends_on_host());
    }
}
