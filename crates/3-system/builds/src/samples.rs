//! Sampled profiles: conversion of execution counts to a clang profile with LLVM's tools.
//!
//! Not supported for gcc: since version 12 it expects another format than `create_gcov` writes, and
//! reports only an unexpected tag.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};

use crate::binary::InvalidBinary;
use crate::command::clean_command;
use crate::failure::last_lines;
use crate::{Build, BuildError, Compiler, CompilerKind};

/// Executed code of one file of a build. Addresses are the file's virtual addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledCode {
    pub file: PathBuf,
    /// Number of samples in the file.
    pub samples: u64,
    /// Ranges of instructions executed in sequence: address of the first, address of the last,
    /// count. Counts of all files have the same scale.
    pub ranges: Vec<(u64, u64, u64)>,
    /// Calls: address of the call instruction, address of the callee, count.
    pub calls: Vec<(u64, u64, u64)>,
}

/// The tools that convert samples to a compiler's profile.
#[derive(Clone, Debug)]
pub struct SampleTools {
    generate: PathBuf,
    merge: PathBuf,
}

impl SampleTools {
    /// Finds the tools of this compiler.
    ///
    /// # Errors
    /// When the compiler has no supported profile format, or its tools are not installed.
    pub fn of(compiler: &Compiler) -> Result<Self, BuildError> {
        if compiler.kind == CompilerKind::Gcc {
            return Err(BuildError::NoSampledProfiles { compiler: compiler.to_string() });
        }
        let find = |name: &str| compiler.llvm_tool(name, "making a profile of samples for clang");
        Ok(Self { generate: find("profgen")?, merge: find("profdata")? })
    }

    /// Converts the executed code of a build to the profile `to`. `scratch` is a directory for
    /// temporary files.
    pub(crate) fn convert(
        &self,
        build: &Build,
        code: &[SampledCode],
        scratch: &Path,
        to: &Path,
    ) -> Result<(), BuildError> {
        let mut parts = Vec::new();
        for (number, code) in code.iter().enumerate() {
            let unusable = |reason: InvalidBinary| BuildError::Unusable {
                what: build.to_string(),
                path: code.file.clone(),
                reason: reason.to_string(),
            };
            let bytes = fs::read(&code.file)
                .map_err(|error| BuildError::io("reading", &code.file, error))?;
            let text = code.to_text(base_of(&bytes).map_err(unusable)?);
            let counts = scratch.join(format!("{number}.counts"));
            fs::write(&counts, text).map_err(|error| BuildError::io("writing", &counts, error))?;
            let part = scratch.join(format!("{number}.part"));
            let mut command = clean_command(&self.generate);
            command.arg(format!("--binary={}", code.file.display()));
            command.arg(format!("--unsymbolized-profile={}", counts.display()));
            command.arg("--format=text").arg(format!("--output={}", part.display()));
            run(&mut command, build, &code.file)?;
            parts.push(part);
        }
        let mut command = clean_command(&self.merge);
        command.args(["merge", "--sample", "--text", "-o"]).arg(to).args(parts);
        run(&mut command, build, to)
    }
}

impl SampledCode {
    /// Formats the counts for `llvm-profgen`: the number of ranges, then one range per line, with
    /// hexadecimal addresses relative to `base`; then the same for calls.
    fn to_text(&self, base: u64) -> String {
        let mut text = String::new();
        let off = |address: u64| address.wrapping_sub(base);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}", self.ranges.len());
        for &(first, last, count) in &self.ranges {
            let _ = writeln!(text, "{:x}-{:x}:{count}", off(first), off(last));
        }
        let _ = writeln!(text, "{}", self.calls.len());
        for &(from, to, count) in &self.calls {
            let _ = writeln!(text, "{:x}->{:x}:{count}", off(from), off(to));
        }
        text
    }
}

/// The address that `llvm-profgen` expects addresses relative to: the start of the first executable
/// segment, rounded down to a page.
pub(crate) fn base_of(file: &[u8]) -> Result<u64, InvalidBinary> {
    const PAGE: u64 = 4096;
    let file = ElfFile64::<Endianness>::parse(file)?;
    let endian = file.endian();
    let code = file.elf_program_headers().iter().find(|header| {
        header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian).contains(elf::PF_X)
    });
    let code = code.ok_or(InvalidBinary::NoCode)?;
    Ok(code.p_vaddr(endian) / PAGE * PAGE)
}

fn run(command: &mut Command, build: &Build, about: &Path) -> Result<(), BuildError> {
    let tool = PathBuf::from(command.get_program());
    let output = command.output().map_err(|error| BuildError::io("starting", &tool, error))?;
    if output.status.success() {
        return Ok(());
    }
    let log = last_lines(&String::from_utf8_lossy(&output.stderr));
    Err(BuildError::Profile {
        what: build.to_string(),
        profile: about.to_owned(),
        reason: format!(
            "{} cannot convert the samples ({}):\n{log}",
            tool.display(),
            output.status
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::testing::compiler;

    #[test]
    fn addresses_are_relative_to_base() {
        let code = SampledCode {
            ranges: vec![(0x2010, 0x2018, 7), (0x2020, 0x2020, 640)],
            calls: vec![(0x2018, 0x20a0, 7)],
            ..SampledCode::default()
        };
        let text = "2\n10-18:7\n20-20:640\n1\n18->a0:7\n";
        assert_eq!(code.to_text(0x2000), text);
        assert_eq!(SampledCode::default().to_text(0x2000), "0\n0\n");
    }

    #[test]
    fn base_is_page_aligned() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let base = base_of(&own).unwrap();
        assert_eq!(base % 4096, 0);
        assert!(base_of(b"text").is_err());
    }

    #[test]
    fn unsupported_compiler_and_missing_tools_are_reported() {
        let gcc = SampleTools::of(&compiler(CompilerKind::Gcc)).unwrap_err().to_string();
        assert!(gcc.contains("gcc 12.2.0") && gcc.contains("with clang"), "{gcc}");
        let clang = Compiler {
            path: PathBuf::from("/nowhere/clang-99"),
            resolved: PathBuf::from("/nowhere/bin/clang"),
            version: "99.1.0".to_owned(),
            ..compiler(CompilerKind::Clang)
        };
        let missing = SampleTools::of(&clang).unwrap_err().to_string();
        assert!(missing.contains("/nowhere/llvm-profgen-99"), "{missing}");
        assert!(missing.ends_with("apt-get install llvm-99"), "{missing}");
    }
}
