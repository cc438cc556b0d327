//! The loader and the libraries of an unpacked release.
//!
//! A program is started with the loader that its header names, by an absolute path. The programs of
//! another Debian release need that release's C library, and its loader. Both are in the unpacked
//! tree, so the header and the library path of the programs are set to it: the process is then the
//! server itself. The alternative, starting the loader with the program as its argument, would make
//! the loader the program of the process.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use super::{Release, linked_programs};
use crate::command::network_command;
use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::store::listed;
use crate::{BuildError, Sha256};

pub(super) const PATCHELF: Tool = Tool { program: "patchelf", package: "patchelf" };

/// Sets the loader and the libraries of these programs in `tree` to those that will be in `folder`,
/// which `tree` is renamed to.
pub(super) fn set(
    fetching: &Fetching<'_>,
    programs: &[PathBuf],
    tree: &Path,
    folder: &Path,
) -> Result<(), BuildError> {
    let doing = "setting the loader of its programs";
    let libraries = library_folders(tree);
    let mut linked: Vec<(&Path, String)> = Vec::new();
    for program in programs {
        let data = read_program(program)?;
        // Others are scripts.
        linked.extend(interpreter(&data).map(|loader| (program.as_path(), loader)));
    }
    let Some((_, loader)) = linked.first() else {
        let reason = "the server program is not dynamically linked";
        return Err(fetching.failed(doing, reason, "use another release"));
    };
    let name = Path::new(loader).file_name().unwrap_or_default();
    let folders = libraries.iter().map(PathBuf::as_path);
    let folders = folders.chain(["lib64", "usr/lib64", "lib", "usr/lib"].map(Path::new));
    let inner = folders.map(|inner| inner.join(name)).find(|file| tree.join(file).is_file());
    let Some(inner) = inner else {
        let reason = format!("its packages do not have the loader {loader}");
        return Err(fetching.failed(doing, reason, "use another release"));
    };
    let loader = folder.join(inner).to_string_lossy().into_owned();
    let paths: Vec<_> =
        libraries.iter().map(|inner| folder.join(inner).to_string_lossy().into_owned()).collect();
    let paths = paths.join(":");
    // DT_RPATH, not DT_RUNPATH, which would not apply to the libraries of plugins.
    let mut args = vec!["--set-interpreter", &loader, "--force-rpath", "--set-rpath", &paths];
    let files: Vec<_> = linked.iter().map(|(file, _)| file.to_string_lossy()).collect();
    args.extend(files.iter().map(|file| &**file));
    fetching.run(PATCHELF, doing, fetching.part, &args)?;
    Ok(())
}

/// The directories with shared libraries in a tree, relative to it.
fn library_folders(tree: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for inner in ["lib", "usr/lib"] {
        let multiarch = listed(&tree.join(inner)).filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.contains("-linux-gnu") && path.is_dir()
        });
        let mut folders: Vec<PathBuf> =
            multiarch.filter_map(|path| Some(path.strip_prefix(tree).ok()?.to_owned())).collect();
        folders.sort();
        all.extend(folders);
    }
    all
}

/// The most bytes of a program: a small archive can have a file of any size.
const MOST_OF_PROGRAM: u64 = 2 << 30;

pub(super) fn read_program(program: &Path) -> Result<Vec<u8>, BuildError> {
    let read = || match fs::metadata(program)?.len() {
        size if size > MOST_OF_PROGRAM => Err(io::Error::other(format!("it has {size} bytes"))),
        _ => fs::read(program),
    };
    read().map_err(io_error("reading", program))
}

/// The loader that a program names; `None` if it is not dynamically linked.
pub(super) fn interpreter(data: &[u8]) -> Option<String> {
    let file = ElfFile64::<object::Endianness>::parse(data).ok()?;
    let section = file.section_by_name(".interp")?;
    let text = section.data().ok()?;
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let text = std::str::from_utf8(text).ok()?;
    text.starts_with('/').then(|| text.to_owned())
}

impl Release {
    /// A name for copies of this release, which depends on its files.
    pub fn copy_name(&self) -> String {
        let identity = (self.origin(), self.files(), self.inner_program());
        let key = Sha256::of(&serde_json::to_vec(&identity).unwrap_or_default()).to_string();
        format!("{}-{}", self.system(), &key[..24])
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The server program, relative to [`Self::folder`].
    pub fn inner_program(&self) -> &Path {
        self.program.strip_prefix(&self.folder).unwrap_or(&self.program)
    }

    /// Whether it runs with a loader and libraries of its own.
    pub fn has_own_loader(&self) -> bool {
        self.own_loader(&self.program).is_some()
    }

    /// The programs that a copy in `folder` needs instead of this release's, because they contain its path:
    /// written to the empty directory `staging`, by the path in the release.
    pub fn relocate(
        &self,
        folder: &Path,
        staging: &Path,
    ) -> Result<BTreeMap<PathBuf, PathBuf>, BuildError> {
        let mut replaced = BTreeMap::new();
        for file in linked_programs(self.system(), &self.folder, self.inner_program()) {
            let Some(loader) = self.own_loader(&file) else { continue };
            let inner = file.strip_prefix(&self.folder).unwrap_or(&file).to_owned();
            let copy = staging.join(format!("{}", replaced.len()));
            fs::copy(&file, &copy).map_err(io_error("copying", &file))?;
            let paths = patchelf(&["--print-rpath"], &file)?;
            let moved = |path: &str| match Path::new(path).strip_prefix(&self.folder) {
                Ok(inner) => folder.join(inner).to_string_lossy().into_owned(),
                Err(_) => path.to_owned(),
            };
            let paths: Vec<String> = paths.trim().split(':').map(moved).collect();
            let (loader, paths) = (moved(&loader), paths.join(":"));
            let args = ["--set-interpreter", &loader, "--force-rpath", "--set-rpath", &paths];
            patchelf(&args, &copy)?;
            replaced.insert(inner, copy);
        }
        Ok(replaced)
    }

    /// The loader of a program, if it is one of the release.
    fn own_loader(&self, program: &Path) -> Option<String> {
        let loader = interpreter(&fs::read(program).ok()?)?;
        Path::new(&loader).starts_with(&self.folder).then_some(loader)
    }
}

fn patchelf(args: &[&str], file: &Path) -> Result<String, BuildError> {
    let output = network_command(PATCHELF.program).args(args).arg(file).output();
    let output = output
        .map_err(|error| PATCHELF.cannot_start("copying a release to another host", &error))?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(BuildError::io("setting the loader of", file, &io::Error::other(message)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn loader_of_a_program_is_read() {
        let shell = fs::read("/bin/sh").unwrap();
        let loader = interpreter(&shell).unwrap();
        assert!(loader.contains("/ld-") && Path::new(&loader).is_file(), "{loader}");
        assert_eq!(interpreter(b"#!/bin/sh\n"), None);
    }

    #[test]
    fn damaged_programs_have_no_loader_or_a_path() {
        let shell = fs::read("/bin/sh").unwrap();
        Fuzz::new(vec![shell]).run(|data| {
            assert!(interpreter(data).is_none_or(|loader| loader.starts_with('/')));
        });
    }
}
