use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, statat};

use super::{Refusal, SafeDir};

/// A file or directory in a listed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WalkEntry {
    pub path: PathBuf,
    /// Whether it is a regular file, a directory, a symbolic link or something else.
    pub kind: FileType,
}

/// Each level has an open descriptor.
const DEEPEST: usize = 100;

impl SafeDir {
    /// Lists everything beneath the directory, sorted by name, each directory before its content.
    /// Symbolic links are listed and not followed.
    ///
    /// # Errors
    /// A directory cannot be read, or a [`Refusal`] if there are more than `limit` entries or very
    /// deep directories.
    pub fn walk(&self, limit: usize) -> io::Result<Vec<WalkEntry>> {
        let mut found = Vec::new();
        self.walk_into(Path::new(""), 0, limit, &mut found)?;
        Ok(found)
    }

    fn walk_into(
        &self,
        inner: &Path,
        depth: usize,
        limit: usize,
        found: &mut Vec<WalkEntry>,
    ) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(Refusal::TooDeep(DEEPEST).into());
        }
        let left = limit.saturating_sub(found.len());
        for WalkEntry { path: name, kind } in self.read_entries(left, limit)? {
            let path = inner.join(&name);
            found.push(WalkEntry { path: path.clone(), kind });
            if kind == FileType::Directory {
                let dir = self.dir(&name)?;
                dir.walk_into(&path, depth + 1, limit, found)?;
            }
        }
        Ok(())
    }

    /// Lists the directory, sorted by name.
    ///
    /// # Errors
    /// It cannot be read, or a [`Refusal`] if there are more than `limit` entries.
    pub fn entries(&self, limit: usize) -> io::Result<Vec<WalkEntry>> {
        self.read_entries(limit, limit)
    }

    fn read_entries(&self, left: usize, limit: usize) -> io::Result<Vec<WalkEntry>> {
        let mut entries = Vec::new();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        for entry in Dir::new(openat(self, ".", flags, Mode::empty())?)? {
            let entry = entry?;
            let name = entry.file_name();
            if [c".", c".."].contains(&name) {
                continue;
            }
            if entries.len() == left {
                return Err(Refusal::TooMany(limit).into());
            }
            let kind = match entry.file_type() {
                // Some file systems do not store types in directories.
                FileType::Unknown => {
                    let stat = statat(self, name, AtFlags::SYMLINK_NOFOLLOW)?;
                    FileType::from_raw_mode(stat.st_mode)
                }
                kind => kind,
            };
            let path = PathBuf::from(OsStr::from_bytes(name.to_bytes()));
            entries.push(WalkEntry { path, kind });
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn walk_lists_links_without_entering_them() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("b/c")).unwrap();
        fs::write(dir.path().join("b/c/d"), "").unwrap();
        symlink("/etc", dir.path().join("a")).unwrap();
        let safe = SafeDir::open(dir.path()).unwrap();
        let found = safe.walk(4).unwrap();
        let found: Vec<_> =
            found.iter().map(|entry| (entry.path.to_str().unwrap(), entry.kind)).collect();
        let (link, folder, file) = (FileType::Symlink, FileType::Directory, FileType::RegularFile);
        assert_eq!(found, [("a", link), ("b", folder), ("b/c", folder), ("b/c/d", file)]);
        let more = safe.walk(3).unwrap_err();
        assert_eq!(Refusal::of(&more), Some(Refusal::TooMany(3)));
    }

    #[test]
    fn walk_refuses_very_deep_directories() {
        let dir = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEEPEST + 2).collect();
        fs::create_dir_all(dir.path().join(deep)).unwrap();
        let error = SafeDir::open(dir.path()).unwrap().walk(1000).unwrap_err();
        assert_eq!(Refusal::of(&error), Some(Refusal::TooDeep(DEEPEST)));
    }
}
