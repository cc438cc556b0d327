//! Programs and libraries: their first bytes, and the paths in which they search for libraries.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use object::read::elf::{ElfFile64, Sym};
use object::{Endianness, FileKind, Object, ObjectSection, ReadCache, ReadRef, elf};

/// Whether a file starts with these bytes.
pub(crate) fn starts_with(file: &Path, sign: [u8; 4]) -> io::Result<bool> {
    let mut start = [0; 4];
    let read = File::open(file)?.read_at(&mut start, 0)?;
    Ok(start[..read] == sign)
}

/// Removes empty entries from the search paths in a file (`DT_RUNPATH`, `DT_RPATH`). They mean the
/// current directory. CMake ends paths with them, as space for longer paths at installation. Files
/// other than 64-bit ELF stay as they are.
pub(crate) fn remove_empty_entries(path: &Path) -> io::Result<()> {
    let changes = changes(&ReadCache::new(File::open(path)?)).map_err(io::Error::other)?;
    if changes.is_empty() {
        return Ok(());
    }
    let file = File::options().write(true).open(path)?;
    changes.iter().try_for_each(|(offset, text)| file.write_all_at(text, *offset))
}

/// Offsets in the file, and what to write there.
fn changes<'data>(data: impl ReadRef<'data>) -> object::Result<Vec<(u64, Vec<u8>)>> {
    if !matches!(FileKind::parse(data), Ok(FileKind::Elf64)) {
        return Ok(Vec::new());
    }
    let file = ElfFile64::<Endianness, _>::parse(data)?;
    let strings = file.section_by_name(".dynstr").and_then(|section| section.file_range());
    let Some((start, _)) = strings else { return Ok(Vec::new()) };
    let table = file.elf_dynamic_table()?;
    let mut changes = Vec::new();
    for entry in table.iter().filter(|entry| matches!(entry.tag, elf::DT_RUNPATH | elf::DT_RPATH)) {
        let text = table.string(entry)?;
        let mut shorter = without_empty_entries(text);
        // The linker stores a string that is the end of another one as a part of it. No other string
        // ends with a colon, but moved text may be used by others.
        let moved = entry.val + 1..=entry.val + text.len() as u64;
        let mut names =
            file.elf_dynamic_symbol_table().iter().map(|symbol| symbol.st_name(file.endian()));
        let is_shared = names.any(|name| moved.contains(&u64::from(name)))
            || table.iter().any(|other| other.is_string() && moved.contains(&other.val));
        if shorter.len() < text.len() && (text.starts_with(&shorter) || !is_shared) {
            shorter.resize(text.len(), 0);
            changes.push((start + entry.val, shorter));
        }
    }
    Ok(changes)
}

fn without_empty_entries(path: &[u8]) -> Vec<u8> {
    let entries = path.split(|byte| *byte == b':').filter(|entry| !entry.is_empty());
    entries.collect::<Vec<_>>().join(&b':')
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn damaged_programs_are_read_or_refused() {
        Fuzz::new(vec![fs::read("/bin/true").unwrap()]).run(|content| {
            let _ = dbdyno_audit::Sizes::of(content);
            let _ = crate::profile::collecting::base_of(content);
        });
    }

    fn run(command: &mut Command) -> String {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn empty_entries_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| dir.path().join(name);
        fs::write(file("lib.c"), "int one(void) { return 1; }\n").unwrap();
        fs::write(file("main.c"), "int one(void);\nint main(void) { return one() - 1; }\n")
            .unwrap();
        fs::create_dir(file("lib")).unwrap();
        let gcc = || {
            let mut gcc = Command::new("gcc");
            gcc.current_dir(dir.path());
            gcc
        };
        run(gcc().args(["-shared", "-fPIC", "lib.c", "-o", "lib/libone.so"]));
        for (given, left) in [
            ("$ORIGIN/lib:", "$ORIGIN/lib"),
            ("$ORIGIN/lib:::", "$ORIGIN/lib"),
            (":/nowhere::$ORIGIN/lib:", "/nowhere:$ORIGIN/lib"),
            ("/nowhere:$ORIGIN/lib", "/nowhere:$ORIGIN/lib"),
        ] {
            let path = format!("-Wl,-rpath,{given}");
            run(gcc().args(["main.c", "-o", "main", "-Llib", "-lone", &path]));
            let before = fs::read(file("main")).unwrap();
            remove_empty_entries(&file("main")).unwrap();
            assert_eq!(fs::read(file("main")).unwrap() == before, given == left, "{given}");
            let shown = run(Command::new("readelf").arg("-dW").arg(file("main")));
            assert!(shown.contains(&format!("path: [{left}]")), "{given}: {shown}");
            run(&mut Command::new(file("main")));
        }
    }

    #[test]
    fn path_that_others_use_the_end_of_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.c"), "int shared(void) { return 1; }\n").unwrap();
        let library = dir.path().join("liba.so");
        // The linker stores the function's name as the end of the path.
        let flags = ["-shared", "-fPIC", "-O1", "-Wl,-O2", "-Wl,-rpath,/a::/shared"];
        let mut gcc = Command::new("gcc");
        run(gcc.args(flags).arg(dir.path().join("a.c")).arg("-o").arg(&library));
        remove_empty_entries(&library).unwrap();
        let symbols = run(Command::new("readelf").arg("-sDW").arg(&library));
        assert!(symbols.contains(" shared"), "{symbols}");
    }

    #[test]
    fn other_files_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("Index.xml");
        for text in ["", "<charsets/>", "\x7fELF"] {
            fs::write(&path, text).unwrap();
            remove_empty_entries(&path).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }
}
