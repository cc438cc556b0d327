//! Sampled profiles: of how often code was executed clang's own tool makes a profile for clang.
//!
//! gcc has no such profiles here. Since version 12 it expects another format than what
//! `create_gcov` writes, and says no more than that it met an unexpected tag.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};

use crate::binary::InvalidBinary;
use crate::compiler::clean_command;
use crate::failure::last_lines;
use crate::{Build, BuildError, Compiler, CompilerKind};

/// What ran of one file of a build. Addresses are those in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SampledCode {
    /// The file.
    pub file: PathBuf,
    /// Samples that are in it.
    pub samples: u64,
    /// Instructions that were executed one after the other: the first one's address, the last
    /// one's, and how often, on a scale that all files share.
    pub ranges: Vec<(u64, u64, u64)>,
    /// Calls: address of the call, of what was called, and how often.
    pub calls: Vec<(u64, u64, u64)>,
}

/// The tools that make a compiler's profile of what was sampled.
#[derive(Clone, Debug)]
pub struct SampleTools {
    generate: PathBuf,
    merge: PathBuf,
}

impl SampleTools {
    /// Those that belong to this compiler.
    ///
    /// # Errors
    /// It knows no profiles that could be made here, or its tools are not installed.
    pub fn of(compiler: &Compiler) -> Result<Self, BuildError> {
        if compiler.kind == CompilerKind::Gcc {
            return Err(BuildError::NoSampledProfiles { compiler: compiler.to_string() });
        }
        // Debian's names of these tools have a version where that of the compiler has none; the
        // folder that the compiler's name leads to has them without.
        let find = |name: &str| {
            let own = compiler.tool(name);
            let beside = compiler.resolved.with_file_name(format!("llvm-{name}"));
            let found = [own.clone(), beside].into_iter().find(|path| path.is_file());
            found.ok_or_else(|| BuildError::MissingTool {
                tool: own.display().to_string(),
                purpose: "making a profile of samples for clang".to_owned(),
                package: format!("llvm-{}", compiler.version.split('.').next().unwrap_or("")),
            })
        };
        Ok(Self { generate: find("profgen")?, merge: find("profdata")? })
    }

    /// Makes the profile `to` of what ran of a build; `scratch` is for files on the way.
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
    /// The tool's own form of it: lines with hexadecimal addresses, counted from `base`, after a
    /// line with their number; then the same for calls.
    fn to_text(&self, base: u64) -> String {
        let mut text = String::new();
        let off = |address: u64| address.wrapping_sub(base);
        // Writing to a string does not fail.
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

/// What the tool counts addresses from: where the first part with code begins, in whole pages.
fn base_of(file: &[u8]) -> Result<u64, InvalidBinary> {
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
    let said = last_lines(&String::from_utf8_lossy(&output.stderr));
    Err(BuildError::Profile {
        what: build.to_string(),
        profile: about.to_owned(),
        reason: format!("{} cannot make it ({}):\n{said}", tool.display(), output.status),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::testing::compiler;

    #[test]
    fn addresses_are_counted_from_the_code() {
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
    fn the_first_code_of_a_file_is_found() {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let base = base_of(&own).unwrap();
        assert_eq!(base % 4096, 0);
        assert!(base_of(b"text").is_err());
    }

    #[test]
    fn what_cannot_be_had_is_refused_with_its_reason() {
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
