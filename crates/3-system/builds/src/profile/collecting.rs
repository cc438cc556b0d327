//! Collection of a compiler's profile, from counters or from samples.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;
use memchr::memmem;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, elf};
use rustix::fs::FileType;

use super::{CLANGS, CollectionLock, Profile, Raw};
use crate::command::clean_command;
use crate::elf::starts_with;
use crate::error::{io_error, last_lines};
use crate::trusted_tree::visit;
use crate::{Build, BuildError, Compiler, CompilerKind, ProblemKind, recipe};

/// The tool that merges the counters of instrumented programs of this clang.
pub(crate) fn find_profdata(compiler: &Compiler) -> Result<PathBuf, BuildError> {
    compiler.llvm_tool("profdata", "merging clang's profile")
}

/// A profile that is being collected. Dropping it removes the raw files.
#[derive(Debug)]
pub struct Collection<'b> {
    pub(super) lock: CollectionLock,
    pub(super) raw: Raw,
    pub(super) instrumented: &'b Build,
}

impl Collection<'_> {
    /// Environment variables for the instrumented program.
    pub fn environment(&self) -> Vec<(String, String)> {
        let raw = self.raw.path.to_string_lossy().into_owned();
        let (name, value) = match self.instrumented.compiler.name {
            CompilerKind::Gcc => ("GCOV_PREFIX", raw),
            // A pool of four files: processes of the same program merge their counts into them.
            CompilerKind::Clang => ("LLVM_PROFILE_FILE", format!("{raw}/%4m.profraw")),
        };
        vec![(name.to_owned(), value)]
    }

    /// Discards what was collected so far. No instrumented program may be running.
    pub fn discard(&self) -> Result<(), BuildError> {
        self.raw.empty()
    }

    /// Stores the profile, after all instrumented programs have exited.
    pub fn finish(self) -> Result<Profile, BuildError> {
        let data = self.lock.begin_part()?;
        let build = self.instrumented;
        match build.compiler.name {
            CompilerKind::Gcc => self.take_gcc_counters(&data)?,
            CompilerKind::Clang => self.merge_clang_counters(&data)?,
        }
        self.lock.store(build, None)
    }

    fn take_gcc_counters(&self, data: &Path) -> Result<(), BuildError> {
        let raw = &self.raw.path;
        let taken = take_gcc(self.instrumented, raw, data);
        match taken.map_err(io_error("taking the counters in", raw))? {
            0 => Err(self.nothing()),
            _ => Ok(()),
        }
    }

    fn merge_clang_counters(&self, data: &Path) -> Result<(), BuildError> {
        let (raw, copies) = (&self.raw.path, self.lock.making.part().join("counters"));
        let taken = fs::create_dir(&copies).and_then(|()| take_clang(raw, &copies));
        let taken = taken.map_err(io_error("taking the counters in", raw))?;
        if taken.is_empty() {
            return Err(self.nothing());
        }
        self.merge(&taken, data)?;
        fs::remove_dir_all(&copies).map_err(io_error("removing", &copies))
    }

    fn merge(&self, counters: &[PathBuf], data: &Path) -> Result<(), BuildError> {
        let tool = find_profdata(&self.instrumented.compiler.locate())?;
        let output = clean_command(&tool)
            .arg("merge")
            .arg("-o")
            .arg(data.join(CLANGS))
            .args(counters)
            .output()
            .map_err(io_error("starting", &tool))?;
        if output.status.success() {
            return Ok(());
        }
        let log = last_lines(&String::from_utf8_lossy(&output.stderr));
        let reason = format!("{} cannot merge the raw data:\n{log}", tool.display());
        Err(BuildError::profile(self.what(), &self.raw.path, reason))
    }

    fn nothing(&self) -> BuildError {
        let reason = "there is no raw data: the instrumented program did not exit normally";
        BuildError::profile(self.what(), &self.raw.path, reason)
    }

    fn what(&self) -> String {
        let Build { system, source_version, variant, .. } = self.instrumented;
        format!("{system} {source_version} as {variant}")
    }
}

/// The extension of gcc's counters.
const GCC: &str = "gcda";

/// The extension of clang's counters.
const CLANG: &str = "profraw";

/// The largest counters of gcc, which are those of one object.
const GCC_LIMIT: Bytes = Bytes::from_mib(64);

/// The largest counters of clang, which are those of a whole program.
const CLANG_LIMIT: Bytes = Bytes::from_mib(2 << 10);

/// Most entries in the directory of clang's counters, which has four for each program and library.
const CLANG_ENTRIES: usize = 1000;

/// The files of one profile, of dbdyno's own making.
const MODE: u32 = 0o644;

/// Copies the counters of a build's objects from `raw` to `data`. Returns their number.
///
/// gcc compiles the path of its counters into each object; the program writes them below `raw` under
/// these paths. Other files in `raw` are ignored.
fn take_gcc(build: &Build, raw: &Path, data: &Path) -> io::Result<usize> {
    let raw = SafeDir::open(raw)?;
    // A library is compiled in a directory that is renamed when it is complete.
    let unfinished = PathBuf::from(format!("{}.part", build.tree.display()));
    let trees = [&build.tree, &unfinished];
    let mut names = BTreeSet::new();
    for program in programs(build)? {
        let program = fs::read(program)?;
        names.extend(trees.iter().flat_map(|tree| {
            names_in(&program, tree).into_iter().map(|name| (tree.join(&name), name))
        }));
    }
    let mut taken = 0;
    for (full, name) in names {
        let to = data.join(&name);
        fs::create_dir_all(to.parent().unwrap_or(data))?;
        match raw.copy(full.strip_prefix("/").unwrap_or(&full), &to, MODE, GCC_LIMIT) {
            // Not every program of a server runs.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => {
                copied.map_err(|error| about(&full, error))?;
                taken += 1;
            }
        }
    }
    Ok(taken)
}

/// Copies clang's counters from `raw` to `data`. Returns the copies.
fn take_clang(raw: &Path, data: &Path) -> io::Result<Vec<PathBuf>> {
    let raw = SafeDir::open(raw)?;
    let entries = raw.entries(CLANG_ENTRIES)?;
    let names = entries.into_iter().filter(|entry| {
        entry.kind == FileType::RegularFile && is_clangs(&entry.path.to_string_lossy())
    });
    names
        .map(|entry| {
            let to = data.join(&entry.path);
            raw.copy(&entry.path, &to, MODE, CLANG_LIMIT).map_err(|error| about(&to, error))?;
            Ok(to)
        })
        .collect()
}

/// Whether it is a file of a pool (`%4m`): the number of the program, and the one in the pool.
fn is_clangs(name: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let stem = name.strip_suffix(CLANG).and_then(|stem| stem.strip_suffix('.'));
    let parts = stem.and_then(|stem| stem.split_once('_'));
    parts.is_some_and(|(program, number)| digits(program) && digits(number))
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn programs(build: &Build) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![build.artifact.clone()];
    visit(&build.folder.join(recipe::SERVER), &mut |path, meta| {
        if meta.is_file() && path != build.artifact && starts_with(path, *b"\x7fELF")? {
            found.push(path.to_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

/// The paths of counters below `tree` that are compiled into a program, relative to `tree`.
fn names_in(program: &[u8], tree: &Path) -> BTreeSet<PathBuf> {
    let start = format!("{}/", tree.display());
    let after = |at: usize| &program[at + start.len()..];
    let ends = |text: &[u8]| text.iter().position(|byte| *byte == 0);
    memmem::find_iter(program, start.as_bytes())
        .filter_map(|at| {
            let text = after(at);
            let name = str::from_utf8(&text[..ends(text)?]).ok()?;
            normal(Path::new(name)).filter(|name| is_gccs(name))
        })
        .collect()
}

/// Whether a path has the extension of gcc's counters.
pub(super) fn is_gccs(name: &Path) -> bool {
    name.extension().is_some_and(|extension| extension == GCC)
}

/// The path without `..`, which compilers get from makefiles; `None` if it leads out of the tree.
fn normal(name: &Path) -> Option<PathBuf> {
    let mut normal = PathBuf::new();
    for component in name.components() {
        match component {
            Component::Normal(name) => normal.push(name),
            Component::ParentDir if normal.pop() => {}
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(normal)
}

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
    pub fn of(compiler: &Compiler) -> Result<Self, BuildError> {
        if compiler.kind == CompilerKind::Gcc {
            return Err(BuildError::new(
                ProblemKind::Other,
                format!(
                    "sampled profiles are not supported for {compiler}: gcc 12 and later reject the \
                     output of create_gcov in Debian's autofdo (string lengths in words instead of \
                     bytes)"
                ),
                "compile with clang, or use `pgo = \"instrument\"`",
            ));
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
            let unusable = |reason| BuildError::unusable(build, &code.file, reason);
            let bytes = fs::read(&code.file).map_err(io_error("reading", &code.file))?;
            let text = code.to_text(base_of(&bytes).map_err(unusable)?);
            let counts = scratch.join(format!("{number}.counts"));
            fs::write(&counts, text).map_err(io_error("writing", &counts))?;
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
pub(crate) fn base_of(file: &[u8]) -> Result<u64, String> {
    const PAGE: u64 = 4096;
    let file = ElfFile64::<Endianness>::parse(file).map_err(|error| error.to_string())?;
    let endian = file.endian();
    let code = file.elf_program_headers().iter().find(|header| {
        header.p_type(endian) == elf::PT_LOAD && header.p_flags(endian).contains(elf::PF_X)
    });
    let code = code.ok_or("no code")?;
    Ok(code.p_vaddr(endian) / PAGE * PAGE)
}

fn run(command: &mut Command, build: &Build, about: &Path) -> Result<(), BuildError> {
    let tool = PathBuf::from(command.get_program());
    let output = command.output().map_err(io_error("starting", &tool))?;
    if output.status.success() {
        return Ok(());
    }
    let log = last_lines(&String::from_utf8_lossy(&output.stderr));
    let (tool, status) = (tool.display(), output.status);
    let reason = format!("{tool} cannot convert the samples ({status}):\n{log}");
    Err(BuildError::profile(build, about, reason))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;
    use crate::recipe::testing::compiler;

    #[test]
    fn names_of_counters_are_those_in_the_program() {
        let program =
            b"\x7fELF\x01/tree/a/b.gcda\0\0/tree/a/../c.gcda\0/tree/a.c\0/tree.part/d.gcda\0\
                        /tree/../e.gcda\0/tree/a/b.gcda\0/other/f.gcda\0/tree/cut.gcda";
        let names = |tree: &str| -> Vec<PathBuf> {
            names_in(program, Path::new(tree)).into_iter().collect()
        };
        assert_eq!(names("/tree"), [Path::new("a/b.gcda"), Path::new("c.gcda")]);
        assert_eq!(names("/tree.part"), [Path::new("d.gcda")]);
    }

    #[test]
    fn damaged_programs_name_only_counters_in_the_tree() {
        let program = b"\x7fELF\x01/tree/a/b.gcda\0/tree/a/../c.gcda\0/tree/./d.gcda\0".to_vec();
        Fuzz::new(vec![program]).words(&["/tree/", "../", "/", ".gcda", "\0"]).run(|program| {
            for name in names_in(program, Path::new("/tree")) {
                assert!(name.components().all(|part| matches!(part, Component::Normal(_))));
                assert!(is_gccs(&name));
            }
        });
    }

    #[test]
    fn only_numbered_files_are_clangs_counters() {
        assert!(is_clangs("1234_0.profraw"));
        for name in ["_0.profraw", "1_.profraw", "1.profraw", "a_0.profraw", "1_0.profdata", "1_0"]
        {
            assert!(!is_clangs(name), "{name}");
        }
    }

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
