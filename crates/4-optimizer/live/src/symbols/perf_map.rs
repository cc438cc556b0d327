//! The file `/tmp/perf-PID.map`, where `perf` looks for symbols of generated code.
//!
//! It has addresses of code, which `/proc` shows only to the process's user and root, so nobody else
//! may read it. `perf` ignores it unless it belongs to its own user or root. So it belongs to the user
//! of dbdyno, and an access control list lets the process's user read it as well.

use std::fs::{File, Permissions};
use std::io::{self, Read, Seek, Write};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

use rustix::fs::{XattrFlags, fsetxattr};

use crate::journal::Area;
use crate::patch::CodeSymbol;

fn path(pid: u32) -> PathBuf {
    PathBuf::from(format!("/tmp/perf-{pid}.map"))
}

/// Adds symbols, and removes existing ones whose code has been freed.
pub(crate) fn write<'a>(pid: u32, symbols: &[CodeSymbol], areas: impl Iterator<Item = &'a Area>) {
    let areas: Vec<Range<u64>> = areas.map(Area::code_range).collect();
    // The directory is writable for all: do not follow links, do not wait for a pipe, and do not change
    // files of others.
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path(pid));
    let user = rustix::process::geteuid().as_raw();
    let is_ours = |file: &File| {
        file.metadata().is_ok_and(|data| data.is_file() && data.uid() == user && data.nlink() == 1)
    };
    if let Ok(mut file) = file
        && is_ours(&file)
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

/// The effective user of a process.
fn user_of(pid: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
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

fn rewrite(file: &mut File, symbols: &[CodeSymbol], areas: &[Range<u64>]) -> io::Result<()> {
    let mut before = String::new();
    file.read_to_string(&mut before)?;
    let start = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let is_new = |at: u64| symbols.iter().any(|symbol| symbol.range.contains(&at));
    let mut text = String::new();
    for line in before.lines() {
        let is_kept = |at: u64| areas.iter().any(|area| area.contains(&at)) && !is_new(at);
        if start(line).is_some_and(is_kept) {
            text.push_str(line);
            text.push('\n');
        }
    }
    for symbol in symbols {
        let (start, size) = (symbol.range.start, symbol.range.end - symbol.range.start);
        text.push_str(&format!("{start:x} {size:x} {}\n", symbol.name));
    }
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    use super::*;

    fn write_symbol(pid: u32) {
        let symbol = CodeSymbol { range: 0x1000..0x1010, name: "moved".into() };
        let area = Area { address: 0x1000, code: 0x1000, data: 0 };
        write(pid, &[symbol], [area].iter());
    }

    #[test]
    fn file_is_readable_only_for_its_user() {
        // A process ID that no process has, and a leftover of an earlier version.
        let pid = 2_000_000_000 + std::process::id();
        let path = path(pid);
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        write_symbol(pid);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((mode & 0o777, text.as_str()), (0o600, "1000 10 moved\n"));
        // Links are not followed.
        let target = tempfile::NamedTempFile::new().unwrap();
        symlink(target.path(), &path).unwrap();
        write_symbol(pid);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(target.as_file().metadata().unwrap().len(), 0);
    }

    #[test]
    fn user_of_the_process_may_read_it_and_others_may_not() {
        if !rustix::process::geteuid().is_root() {
            println!("skipped: only root can read as other users");
            return;
        }
        let probe = tempfile::NamedTempFile::new_in("/tmp").unwrap();
        if let Err(error) = let_read(probe.as_file(), 65_534) {
            println!("skipped: no access control lists in /tmp: {error}");
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
        let owner = std::fs::metadata(&path).unwrap().uid();
        // The process's user cannot have this file changed.
        std::fs::write(&path, "planted").unwrap();
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        write_symbol(process.id());
        let planted = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert_eq!((allowed, owner, planted.as_str()), ([true, false], 0, "planted"));
    }

    #[test]
    fn user_of_this_process_is_known() {
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(user_of(std::process::id()), Some(own));
    }

    #[test]
    fn symbols_of_freed_code_are_removed() {
        let symbol =
            |start: u64, name: &str| CodeSymbol { range: start..start + 16, name: name.into() };
        let mut file = tempfile::tempfile().unwrap();
        rewrite(&mut file, &[symbol(0x1000, "old"), symbol(0x2000, "kept")], &[]).unwrap();
        file.rewind().unwrap();
        rewrite(&mut file, &[symbol(0x3000, "new")], &[0x2000..0x2800, 0x3000..0x3800]).unwrap();
        file.rewind().unwrap();
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "2000 10 kept\n3000 10 new\n");
    }
}
