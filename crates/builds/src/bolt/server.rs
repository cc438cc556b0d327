//! A copy of a finished server that takes no room.

use std::fs;
use std::io;
use std::path::Path;

/// Makes `to` a folder with the same files as `from`, but for the one at `except`, which is still
/// to be made: links to them where the file system can, else copies.
pub(crate) fn link_all(from: &Path, to: &Path, except: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let path = entry?.path();
        let Some(name) = path.file_name() else { continue };
        let target = to.join(name);
        let meta = fs::symlink_metadata(&path)?;
        if path == except {
            continue;
        } else if meta.is_dir() {
            link_all(&path, &target, except)?;
        } else if meta.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(&path)?, &target)?;
        } else {
            fs::hard_link(&path, &target).or_else(|_| fs::copy(&path, &target).map(drop))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_there_but_what_is_still_to_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("bin")).unwrap();
        for name in ["bin/postgres", "bin/initdb", "version"] {
            fs::write(from.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("initdb", from.join("bin/link")).unwrap();
        link_all(&from, &to, &from.join("bin/postgres")).unwrap();
        assert!(!to.join("bin/postgres").exists());
        assert_eq!(fs::read_to_string(to.join("bin/link")).unwrap(), "bin/initdb");
        assert_eq!(fs::read_to_string(to.join("version")).unwrap(), "version");
    }
}
