//! Taking the counters that an instrumented program wrote, possibly as another user.
//!
//! The directory with raw data belongs to the user that the program ran as, who may have put
//! anything there. Only files with the names of counters are copied, as data: see
//! [`dbdyno_machine::safe_files`].

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;
use memchr::memmem;
use rustix::fs::FileType;

use crate::removal::listed;
use crate::{Build, recipe};

/// The extension of gcc's counters.
pub(super) const GCC: &str = "gcda";

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
pub(super) fn take_gcc(build: &Build, raw: &Path, data: &Path) -> io::Result<usize> {
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
pub(super) fn take_clang(raw: &Path, data: &Path) -> io::Result<Vec<PathBuf>> {
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

/// A build's programs and libraries.
fn programs(build: &Build) -> io::Result<Vec<PathBuf>> {
    let mut found = vec![build.artifact.clone()];
    let mut waiting = vec![build.folder.join(recipe::SERVER)];
    while let Some(folder) = waiting.pop() {
        for path in listed(&folder) {
            let kind = fs::symlink_metadata(&path)?;
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() && path != build.artifact && is_elf(&path)? {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn is_elf(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(path)?, 4), &mut start)?;
    Ok(start == b"\x7fELF")
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

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

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
}
