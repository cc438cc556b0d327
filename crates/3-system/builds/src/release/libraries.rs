//! Libraries that the programs of a release need and this machine does not have.
//!
//! Compiled programs for all distributions expect libraries that newer ones have under another name or not at all.
//! They may be in the release, where the loader does not search for them; else they come from a suite of Debian.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use dbdyno_types::ReleaseFile;

use object::elf;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader as _, ProgramHeader as _};

use super::debian::{UNPACK, unpack_package};
use super::loader::{PATCHELF, interpreter, read_program};
use crate::apt::{Apt, DPKG, GET, Lists};
use crate::command::network_command;
use crate::error::io_error;
use crate::fetching::Fetching;
use crate::store::listed;
use crate::{BuildError, Cache};

/// Libraries, each with its package of Debian and the last suite that has it. They need the C library only.
const IN_DEBIAN: [(&str, &str, &str); 7] = [
    // Renamed in trixie.
    ("libaio.so.1", "libaio1", "bookworm"),
    ("libnuma.so.1", "libnuma1", "bookworm"),
    ("libcrypt.so.1", "libcrypt1", "bookworm"),
    ("libtinfo.so.5", "libtinfo5", "bookworm"),
    ("libncurses.so.5", "libncurses5", "bookworm"),
    ("libssl.so.1.1", "libssl1.1", "bullseye"),
    ("libcrypto.so.1.1", "libssl1.1", "bullseye"),
];

/// The directory in a release for the libraries from Debian.
const FROM_DEBIAN: &str = "libraries-of-debian";

/// Lets the programs of a tree find their libraries. Returns the packages that this takes. Libraries that cannot be had
/// are an error if they are `required`: programs of an archive may be for another host that has them.
pub(super) fn complete(
    fetching: &Fetching<'_>,
    cache: &Cache,
    tree: &Path,
    programs: &[PathBuf],
    required: bool,
) -> Result<Vec<ReleaseFile>, BuildError> {
    let linked = linked(programs)?;
    let (mut folders, mut tried, mut packages) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    let is_needed = |left: &BTreeSet<String>, name: &String| !left.contains(name);
    let mut left = BTreeSet::new();
    loop {
        let mut names = missing(&linked, &folders);
        names.retain(|name| is_needed(&left, name));
        if names.is_empty() {
            break;
        }
        let mut others = Vec::new();
        for name in names {
            let is_new = tried.insert(name.clone());
            let folder = folder_with(tree, &name).map_err(io_error("searching", tree))?;
            match folder.filter(|_| is_new) {
                Some(folder) => {
                    folders.insert(folder);
                }
                None if is_new && package_of(&name).is_some() && GET.is_installed() => {
                    others.push(name);
                }
                None if required => return Err(lacking(fetching, &name)),
                None => {
                    (fetching.report)(format!("this machine does not have {name}"));
                    left.insert(name);
                }
            }
        }
        for (suite, libraries) in by_suite(&others) {
            let into = tree.join(FROM_DEBIAN);
            packages.extend(fetch(fetching, cache, suite, &libraries, &into)?);
            folders.insert(into);
        }
    }
    let is_missing = || {
        let names = missing(&linked, &BTreeSet::new());
        names.into_iter().find(|name| is_needed(&left, name))
    };
    if is_missing().is_none() {
        return Ok(packages);
    }
    for (program, _) in &linked {
        set_folders(fetching, tree, program, &folders)?;
    }
    is_missing().map_or(Ok(packages), |name| Err(lacking(fetching, &name)))
}

/// A library that Debian has, with its package, and the suite.
fn package_of(name: &str) -> Option<(&'static str, &'static str, &'static str)> {
    IN_DEBIAN.into_iter().find(|(library, ..)| *library == name)
}

/// Those of the libraries that Debian has, by suite, each with its package.
fn by_suite(names: &[String]) -> BTreeMap<&'static str, BTreeMap<&'static str, &'static str>> {
    let mut suites: BTreeMap<_, BTreeMap<_, _>> = BTreeMap::new();
    for (library, package, suite) in names.iter().filter_map(|name| package_of(name)) {
        suites.entry(suite).or_default().insert(library, package);
    }
    suites
}

fn lacking(fetching: &Fetching<'_>, name: &str) -> BuildError {
    fetching.failed(
        "looking for its libraries",
        format!("this machine does not have {name}"),
        format!(
            "install the package that has it, which `apt-file search {name}` or `dnf provides '*/{name}'` names, or \
             use a release of Debian, `release = {{ debian = \"…\" }}`, which has its own libraries"
        ),
    )
}

/// The loaders that can list libraries without running the program. Another one, which a program may name, could run it.
const LOADERS: [&str; 2] = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];

/// The programs that are dynamically linked, each with its loader, if that is one of [`LOADERS`].
fn linked(programs: &[PathBuf]) -> Result<Vec<(PathBuf, &'static str)>, BuildError> {
    let mut all = Vec::new();
    for program in programs {
        let data = read_program(program)?;
        if has_auditor(&data) {
            let why = "it names a library for auditing, which the loader would execute";
            return Err(BuildError::io("reading", program, &io::Error::other(why)));
        }
        let named = interpreter(&data);
        let loader = LOADERS.into_iter().find(|loader| named.as_deref() == Some(*loader));
        all.extend(loader.map(|loader| (program.clone(), loader)));
    }
    Ok(all)
}

/// Whether a program lets the loader execute a library while it only lists what is needed. Damaged ones do not.
fn has_auditor(data: &[u8]) -> bool {
    let found = || -> object::Result<bool> {
        let header = FileHeader64::<object::Endianness>::parse(data)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, data)? {
            let Some(entries) = segment.dynamic(endian, data)? else { continue };
            let is_auditor = |entry: &elf::Dyn64<_>| {
                [elf::DT_AUDIT, elf::DT_DEPAUDIT].contains(&entry.d_tag.get(endian))
            };
            if entries.iter().any(is_auditor) {
                return Ok(true);
            }
        }
        Ok(false)
    };
    found().unwrap_or_default()
}

/// The libraries that are not found, even if they are searched in `folders`. The loader only loads the programs; nothing
/// of them runs.
fn missing(linked: &[(PathBuf, &'static str)], folders: &BTreeSet<PathBuf>) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for (program, loader) in linked {
        let mut command = network_command(loader);
        // As ldd does; `--list` would end at the first library that is not found.
        command.arg(program).env("LD_TRACE_LOADED_OBJECTS", "1").env_remove("LD_LIBRARY_PATH");
        if !folders.is_empty() {
            let folders: Vec<_> = folders.iter().map(|folder| folder.to_string_lossy()).collect();
            command.env("LD_LIBRARY_PATH", folders.join(":"));
        }
        // Without its loader, the program does not start, which is explained then.
        let Ok(output) = command.output() else { continue };
        all.extend(not_found(&String::from_utf8_lossy(&output.stdout)));
    }
    all
}

/// The names in what a loader prints.
fn not_found(text: &str) -> impl Iterator<Item = String> {
    let names = text.lines().filter_map(|line| line.trim().strip_suffix("=> not found"));
    names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty() && !name.contains('/'))
}

/// The directory in a tree with a library. One with a longer name, such as `libx.so.6.2`, gets a link: packages of npm
/// have no links.
fn folder_with(tree: &Path, name: &str) -> io::Result<Option<PathBuf>> {
    let mut waiting = vec![tree.to_owned()];
    let mut longer: Option<PathBuf> = None;
    while let Some(folder) = waiting.pop() {
        if folder.join(name).is_file() {
            return Ok(Some(folder));
        }
        for path in listed(&folder) {
            let metadata = fs::symlink_metadata(&path)?;
            let is_longer = {
                let file_name = path.file_name().unwrap_or_default().to_string_lossy();
                file_name.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'))
            };
            if metadata.is_dir() {
                waiting.push(path);
            } else if metadata.is_file() && is_longer {
                longer = Some(path);
            }
        }
    }
    let Some(longer) = longer else { return Ok(None) };
    let (Some(folder), Some(file)) = (longer.parent(), longer.file_name()) else { return Ok(None) };
    symlink(file, folder.join(name))?;
    Ok(Some(folder.to_owned()))
}

/// Copies libraries from their packages in a suite of Debian into a directory. Returns the packages.
fn fetch(
    fetching: &Fetching<'_>,
    cache: &Cache,
    suite: &str,
    libraries: &BTreeMap<&str, &str>,
    into: &Path,
) -> Result<Vec<ReleaseFile>, BuildError> {
    let names = libraries.keys().copied().collect::<Vec<_>>().join(", ");
    if let Some(tool) = [DPKG, UNPACK, PATCHELF].iter().find(|tool| !tool.is_installed()) {
        return Err(tool.missing(format!("fetching {names}")));
    }
    (fetching.report)(format!("fetching {names}, which this machine does not have"));
    let lists = Lists::Packages;
    let _lists = fetching.lock_lists(cache, &lists.name(suite), &format!("packages of {suite}"))?;
    let apt = Apt::prepare(fetching, lists, suite, &cache.root().join("apt"))?;
    let folder = fetching.part.join(format!("with-{names}"));
    fs::create_dir(&folder).map_err(io_error("creating", &folder))?;
    let packages: BTreeSet<&str> = libraries.values().copied().collect();
    let args: Vec<&str> = ["--quiet=2", "download"].into_iter().chain(packages).collect();
    apt.run(GET, "downloading libraries", &folder, &args)?;
    let is_package = |file: &PathBuf| file.extension().is_some_and(|end| end == "deb");
    let mut files: Vec<PathBuf> = listed(&folder).filter(is_package).collect();
    files.sort();
    let inside = folder.join("inside");
    let mut fetched = Vec::new();
    for file in files {
        fetched.push(unpack_package(fetching, &file, &folder)?);
    }
    fs::create_dir_all(into).map_err(io_error("creating", into))?;
    for name in libraries.keys() {
        let found = folder_with(&inside, name).map_err(io_error("searching", &inside))?;
        let library = found.ok_or_else(|| lacking(fetching, name))?.join(name);
        fs::copy(&library, into.join(name)).map_err(io_error("copying", &library))?;
    }
    Ok(fetched)
}

/// Adds directories of a tree to those in which a program searches for libraries, relative to the program: copies on
/// other hosts are elsewhere.
fn set_folders(
    fetching: &Fetching<'_>,
    tree: &Path,
    program: &Path,
    folders: &BTreeSet<PathBuf>,
) -> Result<(), BuildError> {
    let doing = "setting the libraries of its programs";
    let file = program.to_string_lossy();
    let old = fetching.run(PATCHELF, doing, fetching.part, &["--print-rpath", &file])?;
    let inner = |path: &Path| path.strip_prefix(tree).unwrap_or(path).to_owned();
    let depth = inner(program).components().count().saturating_sub(1);
    let up = "../".repeat(depth);
    let new = folders.iter().map(|folder| format!("$ORIGIN/{up}{}", inner(folder).display()));
    let old = Some(old.trim().to_owned()).filter(|old| !old.is_empty());
    let paths: Vec<String> = old.into_iter().chain(new).collect();
    // DT_RPATH, as for a loader of its own.
    let paths = paths.join(":");
    fetching.run(
        PATCHELF,
        doing,
        fetching.part,
        &["--force-rpath", "--set-rpath", &paths, &file],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    const LISTED: &str = "\tlinux-vdso.so.1 (0x00007f1c)\n\tlibaio.so.1 => not found\n\
                          \tlibc.so.6 => /lib/libc.so.6 (0x0)\n\tlib/../x => not found\n";

    #[test]
    fn missing_libraries_are_read_from_the_list_of_a_loader() {
        assert_eq!(not_found(LISTED).collect::<Vec<_>>(), ["libaio.so.1"]);
        let samples = vec![LISTED.into()];
        Fuzz::new(samples).words(&["=> not found", "\n", "/", ".."]).run(|text| {
            let text = String::from_utf8_lossy(text);
            assert!(not_found(&text).all(|name| !name.contains('/')));
        });
    }

    #[test]
    fn missing_libraries_of_a_suite_are_fetched_together() {
        let names = ["libaio.so.1", "libcrypto.so.1.1", "libnuma.so.1", "libssl.so.1.1"];
        let suites = by_suite(&names.map(str::to_owned));
        let bookworm = [("libaio.so.1", "libaio1"), ("libnuma.so.1", "libnuma1")];
        let bullseye = [("libcrypto.so.1.1", "libssl1.1"), ("libssl.so.1.1", "libssl1.1")];
        assert_eq!(suites.keys().copied().collect::<Vec<_>>(), ["bookworm", "bullseye"]);
        assert_eq!(suites["bookworm"], BTreeMap::from(bookworm));
        assert_eq!(suites["bullseye"], BTreeMap::from(bullseye));
    }

    #[test]
    fn library_with_a_longer_name_gets_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("native/lib");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("libicuuc.so.60.2"), "library").unwrap();
        assert_eq!(folder_with(dir.path(), "libicui18n.so.60").unwrap(), None);
        let found = folder_with(dir.path(), "libicuuc.so.60").unwrap();
        assert_eq!(found.as_ref(), Some(&folder));
        assert_eq!(fs::read_to_string(folder.join("libicuuc.so.60")).unwrap(), "library");
        assert_eq!(folder_with(dir.path(), "libicuuc.so.60").unwrap(), found);
    }

    #[test]
    fn program_with_an_auditor_is_not_given_to_the_loader() {
        let program = Path::new("/bin/sh");
        let mut data = fs::read(program).unwrap();
        assert!(!has_auditor(&data) && !has_auditor(&data[..100]));
        // The loader sets the value of this entry, which is 0 in the file.
        let debug = [elf::DT_DEBUG.0 as u64, 0].map(u64::to_le_bytes).concat();
        let at: Vec<usize> =
            (0..data.len() - 15).step_by(8).filter(|at| data[*at..].starts_with(&debug)).collect();
        for at in at {
            data[at..at + 8].copy_from_slice(&(elf::DT_AUDIT.0 as u64).to_le_bytes());
        }
        assert!(has_auditor(&data));
        let dir = tempfile::tempdir().unwrap();
        let audited = dir.path().join("sh");
        fs::write(&audited, data).unwrap();
        let error = linked(&[audited]).unwrap_err().to_string();
        assert!(error.contains("a library for auditing"), "{error}");
    }

    #[test]
    fn libraries_of_programs_here_are_found() {
        let programs = [PathBuf::from("/bin/sh")];
        assert_eq!(missing(&linked(&programs).unwrap(), &BTreeSet::new()), BTreeSet::new());
    }
}
