//! Symbols of new code, for `perf` and for debuggers.

use std::fs::{File, Permissions};
use std::io::{Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use dbdyno_machine::ProcessIdentity;
use dbdyno_relayout::{Region, Symbol};
use object::write::{Object, StandardSection, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, SectionKind, SymbolFlags, SymbolKind, SymbolScope,
};
use rustix::fs::{XattrFlags, fsetxattr};

use crate::journal::Area;
use crate::patch::Patch;
use crate::probe::Status;

/// A gdb script that loads the symbols of all new code in a process, updated with each optimization.
/// `None` if there are no symbols.
pub fn gdb_script(state: &Path, identity: &ProcessIdentity) -> Option<PathBuf> {
    let script = script(&crate::journal::directory(state, identity));
    script.exists().then_some(script)
}

/// How the names of [`Symbol`]s end.
const SUFFIXES: [&str; 2] = [".relaid", ".relaid.cold"];

/// Whether a line is of new code.
fn is_own(line: &str) -> bool {
    SUFFIXES.iter().any(|suffix| line.ends_with(suffix))
}

fn path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Adds symbols, and removes existing ones whose code has been freed.
///
/// The file has addresses of code, which `/proc` shows only to the process's user and root, so nobody else may read it.
/// `perf` ignores it unless it belongs to its own user or root. So it belongs to the user of dbdyno, and an access control
/// list lets the process's user read it as well.
pub(crate) fn write_perf_map<'a>(
    pid: u32,
    symbols: &[Symbol],
    areas: impl Iterator<Item = &'a Area>,
) {
    let areas: Vec<Range<u64>> = areas.map(Area::code_range).collect();
    let user = rustix::process::geteuid().as_raw();
    if let Some(mut file) = open_own(pid, true)
        // One of an earlier version was readable for all.
        && file.set_permissions(Permissions::from_mode(0o600)).is_ok()
    {
        if let Some(reader) = user_of(pid).filter(|reader| *reader != user)
            && let Err(error) = let_read(&file, reader)
        {
            tracing::debug!(pid, reader, %error, "perf of the process's user finds no symbols");
        }
        let _ = rewrite(&mut file, symbols, &areas);
    }
}

/// Opens the file, if it belongs to this user alone.
fn open_own(pid: u32, create: bool) -> Option<File> {
    // The directory is writable for all: do not follow links, do not wait for a pipe, and do not change
    // files of others.
    let file = File::options()
        .read(true)
        .write(true)
        .create(create)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path(pid))
        .ok()?;
    let user = rustix::process::geteuid().as_raw();
    let data = file.metadata().ok()?;
    (data.is_file() && data.uid() == user && data.nlink() == 1).then_some(file)
}

/// Removes the file of a process that has exited, if it has nothing but symbols of new code: a just-in-time compiler
/// writes to a file of the same name.
pub(crate) fn remove_perf_map(pid: u32) {
    let Some(mut file) = open_own(pid, false) else { return };
    let mut text = String::new();
    if file.read_to_string(&mut text).is_ok() && !text.is_empty() && text.lines().all(is_own) {
        // If it fails, the file stays.
        let _ = fs::remove_file(path(pid));
    }
}

fn user_of(pid: u32) -> Option<u32> {
    let status = Status::of(pid).ok()?;
    status.field("Uid")?.split_whitespace().nth(1)?.parse().ok()
}

/// Lets a user read a file of mode 0600, with an access control list as in `acl(5)`.
fn let_read(file: &File, reader: u32) -> io::Result<()> {
    const VERSION: u32 = 2;
    const NOBODY: u32 = u32::MAX;
    const READ: u16 = 4;
    const WRITE: u16 = 2;
    // Tag, permissions, user: the owner, the reader, the group, the mask, all others.
    let entries: [(u16, u16, u32); 5] = [
        (0x01, READ | WRITE, NOBODY),
        (0x02, READ, reader),
        (0x04, 0, NOBODY),
        (0x10, READ, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let mut list = VERSION.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    fsetxattr(file, "system.posix_acl_access", &list, XattrFlags::empty())?;
    Ok(())
}

fn rewrite(file: &mut File, symbols: &[Symbol], areas: &[Range<u64>]) -> io::Result<()> {
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let is_new = |at: u64| symbols.iter().any(|symbol| symbol.range().contains(&at));
    let mut text = String::new();
    for line in before.lines() {
        let is_kept = |at: u64| areas.iter().any(|area| area.contains(&at)) && !is_new(at);
        // Others are those of a just-in-time compiler.
        if !is_own(line) || start(line).is_some_and(is_kept) {
            text.push_str(line);
            text.push('\n');
        }
    }
    for Symbol { address, size, name, .. } in symbols {
        text.push_str(&format!("{address:x} {size:x} {name}\n"));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

pub(super) fn script(directory: &Path) -> PathBuf {
    directory.join("names.gdb")
}

/// Writes the files of a generation and updates the script. Errors are ignored.
///
/// gdb finds code by mapped files, and the new code is in none. Without frame descriptions it guesses the return address of
/// functions without a frame pointer.
pub(crate) fn write_symbol_files(directory: &Path, number: u32, patch: &Patch) {
    // A killed dbdyno may have left files of an earlier generation with this number.
    remove(directory, number);
    for (index, code) in modules(patch).iter().enumerate() {
        let path = directory.join(file_name(number, index, code));
        let _ = code.to_object().map(|bytes| fs::write(path, bytes));
    }
    let _ = write_script(directory, None);
}

/// Removes the files of a freed generation. The script never refers to a missing file.
pub(crate) fn forget_symbols(directory: &Path, number: u32) {
    let _ = write_script(directory, Some(number));
    remove(directory, number);
}

fn remove(directory: &Path, number: u32) {
    for (path, _) in files(directory).into_iter().filter(|(path, _)| is_of(path, number)) {
        let _ = fs::remove_file(path);
    }
}

fn is_of(path: &Path, number: u32) -> bool {
    name(path).starts_with(&prefix(number))
}

fn write_script(directory: &Path, without: Option<u32>) -> io::Result<()> {
    let mut text = String::new();
    let is_left_out = |path: &Path| without.is_some_and(|number| is_of(path, number));
    for (path, sections) in files(directory).into_iter().filter(|(path, _)| !is_left_out(path)) {
        // gdb only interprets these two characters inside quotation marks.
        let path = path.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        text.push_str(&format!("add-symbol-file \"{path}\" {sections}\n"));
    }
    if text.is_empty() {
        return fs::remove_file(script(directory));
    }
    let new = directory.join("names.gdb.new");
    fs::write(&new, text)?;
    fs::rename(new, script(directory))
}

/// The code of one module and its frame descriptions.
struct ModuleCode<'a> {
    code: &'a Region,
    frames: Option<Region>,
    symbols: Vec<&'a Symbol>,
}

/// The code of a patch by module. The frame descriptions of a module follow its code.
fn modules(patch: &Patch) -> Vec<ModuleCode<'_>> {
    let mut modules: Vec<ModuleCode<'_>> = Vec::new();
    let mut blocks: Vec<&Region> = patch.blocks.iter().collect();
    blocks.sort_by_key(|block| block.address);
    for block in blocks {
        let range = block.range();
        let inside = |symbol: &&Symbol| range.contains(&symbol.address);
        let symbols: Vec<&Symbol> = patch.symbols.iter().filter(inside).collect();
        if !symbols.is_empty() {
            modules.push(ModuleCode { code: block, frames: None, symbols });
        } else if let Some(last) = modules.last_mut() {
            let list = patch.frames.iter().find(|list| range.contains(list));
            last.frames = list.and_then(|list| frames(block, *list)).or(last.frames.take());
        }
    }
    modules
}

/// A list of frames, with the length of zero that ends it.
fn frames(block: &Region, list: u64) -> Option<Region> {
    let start = usize::try_from(list.checked_sub(block.address)?).ok()?;
    let all = block.bytes.get(start..)?;
    let mut end = 0;
    loop {
        let length = u32::from_le_bytes(all.get(end..end + 4)?.try_into().ok()?);
        end += 4 + usize::try_from(length).ok()?;
        if length == 0 {
            return Some(Region { address: list, bytes: all.get(..end)?.to_vec() });
        }
    }
}

impl ModuleCode<'_> {
    /// A relocatable object file; the reader has to specify the addresses of its sections.
    fn to_object(&self) -> object::write::Result<Vec<u8>> {
        let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
        let text = object.section_id(StandardSection::Text);
        object.append_section_data(text, &self.code.bytes, 16);
        if let Some(frames) = &self.frames {
            let id = object.add_section(Vec::new(), b".eh_frame".into(), SectionKind::ReadOnlyData);
            object.append_section_data(id, &frames.bytes, 8);
        }
        for symbol in &self.symbols {
            object.add_symbol(object::write::Symbol {
                name: symbol.name.clone().into_bytes(),
                value: symbol.address - self.code.address,
                size: symbol.size,
                kind: SymbolKind::Text,
                scope: SymbolScope::Linkage,
                weak: false,
                section: SymbolSection::Section(text),
                flags: SymbolFlags::None,
            });
        }
        object.write()
    }
}

fn prefix(number: u32) -> String {
    format!("code-{number}-")
}

/// The file name, which has the addresses of the sections: `code-GENERATION-INDEX-CODE-FRAMES.o`.
fn file_name(number: u32, index: usize, module: &ModuleCode<'_>) -> String {
    let frames = module.frames.as_ref().map_or(0, |frames| frames.address);
    format!("{}{index}-{:x}-{frames:x}.o", prefix(number), module.code.address)
}

/// The files in the directory and their section addresses in gdb's syntax.
fn files(directory: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut found: Vec<(PathBuf, String)> = entries
        .filter_map(|entry| {
            let path = entry.path();
            let sections = sections(&name(&path))?;
            Some((path, sections))
        })
        .collect();
    found.sort();
    found
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn sections(name: &str) -> Option<String> {
    let fields: Vec<&str> = name.strip_prefix("code-")?.strip_suffix(".o")?.split('-').collect();
    let [_, _, code, frames] = fields[..] else { return None };
    Some(match frames {
        "0" => format!("0x{code}"),
        _ => format!("0x{code} -s .eh_frame 0x{frames}"),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn symbol(address: u64, name: &str) -> Symbol {
        Symbol { address, size: 16, name: name.into(), original: 0 }
    }

    fn write_symbol(pid: u32) {
        let area = Area { address: 0x1000, code: 0x1000, data: 0 };
        write_perf_map(pid, &[symbol(0x1000, "moved")], [area].iter());
    }

    #[test]
    fn file_is_readable_only_for_its_user() {
        // A process ID that no process has, and a leftover of an earlier version.
        let pid = 2_000_000_000 + std::process::id();
        let path = path(pid);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_symbol(pid);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        let text = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, text.as_str()), (0o600, "1000 10 moved\n"));
        // Links are not followed.
        let target = tempfile::NamedTempFile::new().unwrap();
        symlink(target.path(), &path).unwrap();
        write_symbol(pid);
        fs::remove_file(&path).unwrap();
        assert_eq!(target.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn user_of_the_process_may_read_it_and_others_may_not() {
        if !rustix::process::geteuid().is_root() {
            dbdyno_fuzz::skip("only root can read as other users");
            return;
        }
        let probe = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        if let Err(error) = let_read(probe.as_file(), 65_534) {
            dbdyno_fuzz::skip(&format!("no access control lists in /tmp: {error}"));
            return;
        }
        let mut process = Command::new("sleep").arg("60").uid(65_534).gid(65_534).spawn().unwrap();
        let path = path(process.id());
        write_symbol(process.id());
        let readable = |user: u32| {
            let mut test = Command::new("test");
            test.arg("-r").arg(&path).uid(user).gid(user).status().unwrap().success()
        };
        let allowed = [readable(65_534), readable(65_533)];
        let owner = fs::metadata(&path).unwrap().uid();
        // The process's user cannot have this file changed.
        fs::write(&path, "planted").unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        write_symbol(process.id());
        let planted = fs::read_to_string(&path).unwrap();
        fs::remove_file(&path).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!((allowed, owner, planted.as_str()), ([true, false], 0, "planted"));
    }

    #[test]
    fn file_of_an_exited_process_is_removed_unless_others_wrote_to_it() {
        // A process ID that no process has.
        let pid = 1_900_000_000 + std::process::id();
        let path = path(pid);
        let is_removed = |text: &str| {
            fs::write(&path, text).unwrap();
            remove_perf_map(pid);
            let is_removed = !path.exists();
            let _ = fs::remove_file(&path);
            is_removed
        };
        let own = "1000 10 one.relaid\n1010 10 two.relaid.cold\n";
        assert!(is_removed(own));
        assert!(!is_removed(&format!("{own}2000 10 compiled\n")));
        assert!(!is_removed(""));
        // No file is created.
        remove_perf_map(pid);
        assert!(!path.exists());
    }

    #[test]
    fn user_of_this_process_is_known() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(user_of(std::process::id()), Some(own));
    }

    #[test]
    fn symbols_of_freed_code_are_removed() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"9000 10 of a just-in-time compiler\n").unwrap();
        file.rewind().unwrap();
        let before = [symbol(0x1000, "old.relaid"), symbol(0x2000, "kept.relaid")];
        rewrite(&mut file, &before, &[]).unwrap();
        file.rewind().unwrap();
        rewrite(&mut file, &[symbol(0x3000, "new.relaid")], &[0x2000..0x2800, 0x3000..0x3800])
            .unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        let own = "2000 10 kept.relaid\n3000 10 new.relaid\n";
        assert_eq!(text, format!("9000 10 of a just-in-time compiler\n{own}"));
    }
}
