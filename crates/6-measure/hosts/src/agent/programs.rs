//! Copies of servers' programs that are not installed on the host.
//!
//! ```text
//! programs/<name>/        a complete copy
//! programs/<name>.part/   one that is being made, or was interrupted: it is completed later
//! programs/<name>.lock    locked by the agents that use or make it; its time is that of the last use
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dbdyno_machine::default_cache_path;
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_types::Sha256;

use crate::protocol::{EntryKind, FilePart, TreeEntry, TreeState};

/// Copies that were not used for this time are removed.
const UNUSED_AFTER: Duration = Duration::from_secs(30 * 24 * 3_600);

#[derive(Debug, Default)]
pub(super) struct Programs {
    /// The locks of those that are used.
    used: Vec<File>,
    /// The one that is being made.
    making: Option<Making>,
}

/// A copy that is being made.
#[derive(Debug)]
struct Making {
    part: PathBuf,
    folder: PathBuf,
    lock: File,
    entries: Vec<TreeEntry>,
    /// The files that were written since they were last verified.
    written: BTreeSet<usize>,
}

impl Programs {
    /// Opens the copy with this name. A complete one cannot be removed until the agent ends.
    pub fn open(&mut self, name: &str) -> io::Result<TreeState> {
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(invalid(format!("the name `{name}` of a copy")));
        }
        self.making = None;
        let cache = default_cache_path().ok_or_else(|| invalid("its environment has no HOME"))?;
        let all = cache.join("programs");
        // Servers run as other users.
        SafeDir::create_trusted(&all, 0o755).map_err(io::Error::other)?;
        remove_unused(&all, name);
        let folder = all.join(name);
        let lock = File::options().create(true).append(true).open(all.join(format!("{name}.lock")));
        let lock = lock.map_err(doing("locking", &folder))?;
        lock.set_modified(SystemTime::now()).map_err(doing("locking", &folder))?;
        // Whoever makes it holds the exclusive lock.
        if let Err(error) = lock.try_lock_shared() {
            return match error {
                TryLockError::WouldBlock => Ok(TreeState::Busy),
                TryLockError::Error(error) => Err(doing("locking", &folder)(error)),
            };
        }
        if folder.is_dir() {
            self.used.push(lock);
            return Ok(TreeState::Complete(folder));
        }
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(TreeState::Busy),
            Err(TryLockError::Error(error)) => return Err(doing("locking", &folder)(error)),
        }
        let part = all.join(format!("{name}.part"));
        let (entries, written) = (Vec::new(), BTreeSet::new());
        self.making = Some(Making { part, folder: folder.clone(), lock, entries, written });
        Ok(TreeState::Incomplete(folder))
    }

    /// Creates directories and links, and removes what does not belong to the copy. Returns the files that
    /// are not complete, with the bytes that are there.
    pub fn fill(&mut self, entries: Vec<TreeEntry>) -> io::Result<Vec<(usize, u64)>> {
        let making = self.making()?;
        if let Some(path) = misplaced(&entries) {
            return Err(invalid(format!("the path {}", path.display())));
        }
        fs::create_dir_all(&making.part).map_err(doing("creating", &making.part))?;
        // Until everything is verified, no other user can reach it.
        set_mode(&making.part, 0o700)?;
        let known: BTreeSet<&Path> = entries.iter().map(|entry| entry.path.as_path()).collect();
        remove_others(&making.part, &making.part, &known)?;
        let mut missing = Vec::new();
        for (number, TreeEntry { path, kind }) in entries.iter().enumerate() {
            let path = making.part.join(path);
            let found = fs::symlink_metadata(&path).ok();
            let is_kind = found.as_ref().is_some_and(|found| match kind {
                EntryKind::Directory => found.is_dir(),
                EntryKind::File { size, .. } => found.is_file() && found.len() <= *size,
                EntryKind::Link(target) => fs::read_link(&path).is_ok_and(|known| known == *target),
            });
            if let (Some(found), false) = (&found, is_kind) {
                let removed =
                    if found.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(doing("removing", &path))?;
            }
            match kind {
                EntryKind::Directory => {
                    if !is_kind {
                        fs::create_dir(&path).map_err(doing("creating", &path))?;
                    }
                    set_mode(&path, 0o755)?;
                }
                EntryKind::Link(target) => {
                    if !is_kind {
                        symlink(target, &path).map_err(doing("creating", &path))?;
                    }
                }
                EntryKind::File { size, sha256, .. } => {
                    let there = found.filter(|_| is_kind).map(|found| found.len());
                    match there {
                        Some(length) if length < *size => missing.push((number, length)),
                        Some(_) if sha256_of(&path)? == *sha256 => {}
                        Some(_) | None => {
                            File::create(&path).map_err(doing("creating", &path))?;
                            missing.push((number, 0));
                        }
                    }
                }
            }
        }
        making.entries = entries;
        Ok(missing)
    }

    /// Writes a part of a file.
    pub fn put(&mut self, part: &FilePart) -> io::Result<()> {
        let making = self.making()?;
        let entry =
            making.entries.get(part.entry).ok_or_else(|| invalid("the number of a file"))?;
        let EntryKind::File { size, .. } = entry.kind else {
            return Err(invalid("the number of a file"));
        };
        let data = BASE64_STANDARD.decode(&part.data).map_err(io::Error::other)?;
        if part.offset.saturating_add(data.len() as u64) > size {
            return Err(invalid(format!("the length of {}", entry.path.display())));
        }
        let path = making.part.join(&entry.path);
        let write = || File::options().write(true).create(true).truncate(false).open(&path);
        let written = write().and_then(|file| file.write_all_at(&data, part.offset));
        written.map_err(doing("writing", &path))?;
        making.written.insert(part.entry);
        Ok(())
    }

    /// Verifies all files that were written, and renames the copy to its name. A file with another content
    /// is removed, so that it is sent again.
    pub fn finish(&mut self) -> io::Result<()> {
        let making = self.making()?;
        for (number, TreeEntry { path, kind }) in making.entries.iter().enumerate() {
            let EntryKind::File { sha256, executable, .. } = kind else { continue };
            let path = making.part.join(path);
            if making.written.contains(&number) && sha256_of(&path)? != *sha256 {
                fs::remove_file(&path).map_err(doing("removing", &path))?;
                let text = format!("{} has another checksum here: try again", path.display());
                return Err(io::Error::other(text));
            }
            set_mode(&path, if *executable { 0o755 } else { 0o644 })?;
        }
        set_mode(&making.part, 0o755)?;
        fs::rename(&making.part, &making.folder).map_err(doing("renaming", &making.part))?;
        if let Some(Making { lock, folder, .. }) = self.making.take() {
            lock.lock_shared().map_err(doing("locking", &folder))?;
            self.used.push(lock);
        }
        Ok(())
    }

    fn making(&mut self) -> io::Result<&mut Making> {
        self.making.as_mut().ok_or_else(|| invalid("a request for a copy that is not open"))
    }
}

fn invalid(what: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{what} is invalid"))
}

fn doing(doing: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    let text = format!("{doing} {}", path.display());
    move |error| io::Error::new(error.kind(), format!("{text}: {error}"))
}

/// Whether a path leads to something in a directory.
fn is_inner(path: &Path) -> bool {
    let mut components = path.components().peekable();
    components.peek().is_some() && components.all(|one| matches!(one, Component::Normal(_)))
}

/// A path outside of the copy, that occurs twice, or that is not in a directory of the copy: a link may lead out of it.
fn misplaced(entries: &[TreeEntry]) -> Option<&Path> {
    let mut known = BTreeSet::new();
    let mut folders = BTreeSet::from([Path::new("")]);
    for TreeEntry { path, kind } in entries {
        let is_placed = path.parent().is_some_and(|folder| folders.contains(folder));
        if !is_inner(path) || !is_placed || !known.insert(path) {
            return Some(path);
        }
        if *kind == EntryKind::Directory {
            folders.insert(path);
        }
    }
    None
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    let set = fs::set_permissions(path, Permissions::from_mode(mode));
    set.map_err(doing("setting the permissions of", path))
}

fn sha256_of(path: &Path) -> io::Result<String> {
    Sha256::of_file(path).map(String::from).map_err(doing("reading", path))
}

/// Removes what is not known in a directory of a copy.
fn remove_others(part: &Path, folder: &Path, known: &BTreeSet<&Path>) -> io::Result<()> {
    for entry in fs::read_dir(folder).map_err(doing("reading", folder))? {
        let path = entry?.path();
        let is_dir = fs::symlink_metadata(&path)?.is_dir();
        let is_known = path.strip_prefix(part).is_ok_and(|inner| known.contains(inner));
        match (is_known, is_dir) {
            (true, true) => remove_others(part, &path, known)?,
            (true, false) => {}
            (false, true) => fs::remove_dir_all(&path).map_err(doing("removing", &path))?,
            (false, false) => fs::remove_file(&path).map_err(doing("removing", &path))?,
        }
    }
    Ok(())
}

/// Removes the other copies that nobody has used for a while. Errors are ignored: the next agent tries again.
fn remove_unused(all: &Path, except: &str) {
    for entry in fs::read_dir(all).into_iter().flatten().flatten() {
        let file_name = entry.file_name().to_string_lossy().into_owned();
        let Some(name) = file_name.strip_suffix(".lock").filter(|name| *name != except) else {
            continue;
        };
        let is_old = |metadata: fs::Metadata| {
            metadata.modified()?.elapsed().map_err(io::Error::other).map(|age| age > UNUSED_AFTER)
        };
        let Ok(lock) = File::open(entry.path()) else { continue };
        if entry.metadata().and_then(is_old).unwrap_or(false) && lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(all.join(name));
            let _ = fs::remove_dir_all(all.join(format!("{name}.part")));
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    fn making(base: &Path) -> Programs {
        let part = base.join("a.part");
        let folder = base.join("a");
        let lock = File::create(base.join("a.lock")).unwrap();
        let (entries, written) = (Vec::new(), BTreeSet::new());
        let making = Making { part, folder, lock, entries, written };
        Programs { used: Vec::new(), making: Some(making) }
    }

    fn entries(content: &[u8]) -> Vec<TreeEntry> {
        let sha256 = Sha256::of(content).to_string();
        let kind = EntryKind::File { size: content.len() as u64, sha256, executable: true };
        vec![
            TreeEntry { path: "bin".into(), kind: EntryKind::Directory },
            TreeEntry { path: "bin/server".into(), kind },
            TreeEntry { path: "bin/link".into(), kind: EntryKind::Link("server".into()) },
        ]
    }

    fn part(offset: u64, data: &[u8]) -> FilePart {
        FilePart { entry: 1, offset, data: BASE64_STANDARD.encode(data) }
    }

    #[test]
    fn interrupted_copy_is_completed() {
        let base = tempfile::tempdir().unwrap();
        let mut first = making(base.path());
        assert_eq!(first.fill(entries(b"0123456789")).unwrap(), [(1, 0)]);
        first.put(&part(0, b"0123")).unwrap();
        drop(first);
        fs::write(base.path().join("a.part/bin/other"), "left").unwrap();

        let mut second = making(base.path());
        assert_eq!(second.fill(entries(b"0123456789")).unwrap(), [(1, 4)]);
        second.put(&part(4, b"456789")).unwrap();
        second.finish().unwrap();
        let copy = base.path().join("a");
        assert_eq!(fs::read(copy.join("bin/link")).unwrap(), b"0123456789");
        assert!(!copy.join("bin/other").exists());
        let mode = fs::metadata(copy.join("bin/server")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn other_content_is_sent_again() {
        let base = tempfile::tempdir().unwrap();
        let mut programs = making(base.path());
        programs.fill(entries(b"right")).unwrap();
        programs.put(&part(0, b"wrong")).unwrap();
        let error = programs.finish().unwrap_err().to_string();
        assert!(error.contains("another checksum"), "{error}");
        assert!(!base.path().join("a").exists());
        assert_eq!(programs.fill(entries(b"right")).unwrap(), [(1, 0)]);
        programs.put(&part(0, b"right")).unwrap();
        programs.finish().unwrap();
    }

    #[test]
    fn damaged_lists_of_entries_stay_in_the_copy() {
        let sample = serde_json::to_vec(&entries(b"right")).unwrap();
        let words = ["../", "\"bin\"", "\"bin/server\"", "{\"link\":\"/tmp\"}", "\"directory\""];
        Fuzz::new(vec![sample]).words(&words).run(|bytes| {
            let Ok(entries) = serde_json::from_slice::<Vec<TreeEntry>>(bytes) else { return };
            let base = tempfile::tempdir().unwrap();
            let mut programs = making(base.path());
            let _ = programs.fill(entries);
            let _ = programs.put(&part(0, b"right"));
            let _ = programs.finish();
            for entry in fs::read_dir(base.path()).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(["a", "a.part", "a.lock"].iter().any(|known| name == *known), "{name:?}");
            }
        });
    }

    #[test]
    fn nothing_is_written_outside_of_the_copy() {
        let base = tempfile::tempdir().unwrap();
        let mut programs = making(base.path());
        for path in ["../x", "/x", "", "a/../../x"] {
            let entry = TreeEntry { path: path.into(), kind: EntryKind::Directory };
            assert!(programs.fill(vec![entry]).is_err(), "{path}");
        }
        let link = |path: &str| {
            let kind = EntryKind::Link(base.path().join("elsewhere"));
            TreeEntry { path: path.into(), kind }
        };
        for (at, path) in [(0, "bin"), (2, "bin/server"), (3, "bin/server")] {
            let mut entries = entries(b"right");
            entries.insert(at, link(path));
            let error = programs.fill(entries).unwrap_err().to_string();
            assert!(error.contains("the path bin"), "{at}: {error}");
        }
        let mut below = entries(b"right");
        below[0] = link("bin");
        assert!(programs.fill(below).is_err(), "a file below a link");
        programs.fill(entries(b"right")).unwrap();
        assert!(programs.put(&part(1, b"right")).is_err(), "too long");
        assert!(programs.put(&FilePart { entry: 0, ..part(0, b"x") }).is_err());
        assert!(programs.put(&FilePart { entry: 9, ..part(0, b"x") }).is_err());
        assert!(Programs::default().open("../x").is_err());
    }
}
