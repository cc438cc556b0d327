//! Copies of finished servers as hard links.

use std::fs;
use std::io;
use std::path::Path;

/// Creates the directory `to` with the files of `from`, without the file `except`, which BOLT
/// writes. Files are hard links where the file system supports it, otherwise copies.
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
    fn all_files_but_the_excepted_one_are_linked() {
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
