//! The loader and the libraries of an unpacked release.
//!
//! A program is started with the loader that its header names, by an absolute path. The programs of
//! another Debian release need that release's C library, and its loader. Both are in the unpacked
//! tree, so the header and the library path of the programs are set to it: the process is then the
//! server itself. The alternative, starting the loader with the program as its argument, would make
//! the loader the program of the process.

use std::fs;
use std::path::{Path, PathBuf};

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection};

use crate::BuildError;
use crate::fetching::{Fetching, Tool};
use crate::removal::listed;

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
        let data = fs::read(program).map_err(Fetching::io("reading", program))?;
        // Others are scripts.
        linked.extend(interpreter(&data).map(|loader| (program.as_path(), loader)));
    }
    let Some((_, loader)) = linked.first() else {
        let reason = "the server program is no ELF program that loads libraries";
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

/// The loader that a program names; `None` if it is no program that loads libraries.
pub(super) fn interpreter(data: &[u8]) -> Option<String> {
    let file = ElfFile64::<object::Endianness>::parse(data).ok()?;
    let section = file.section_by_name(".interp")?;
    let text = section.data().ok()?;
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let text = std::str::from_utf8(text).ok()?;
    text.starts_with('/').then(|| text.to_owned())
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
