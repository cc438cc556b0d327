//! Permissions of directories in the cache: nobody else can have changed what is compiled or read
//! by compilers, and servers, which do not run as root, can reach what they need.

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use dbdyno_machine::safe_files::SafeDir;
use rustix::process::geteuid;

use crate::error::io_error;
use crate::{BuildError, ProblemKind};

/// Checks that everything in a tree of the cache belongs to root or to dbdyno's user, that nobody
/// else can write to it, and that its symbolic links stay in it. An absent tree passes.
pub(crate) fn check(tree: &Path) -> io::Result<()> {
    visit(tree, &mut |path, metadata| {
        let refused = |reason: String| {
            let text = format!("{} {reason}", path.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        };
        let (uid, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        if ![0, geteuid().as_raw()].contains(&uid) {
            return refused(format!("belongs to user {uid}"));
        }
        if metadata.is_symlink() {
            return if stays_in(tree, path)? { Ok(()) } else { refused("leads out".to_owned()) };
        }
        if !metadata.is_file() && !metadata.is_dir() {
            return refused("is neither a file nor a directory".to_owned());
        }
        if mode & !0o755 != 0 {
            return refused(format!("has mode {mode:04o}"));
        }
        Ok(())
    })
}

/// Gives everything in an unpacked tree the modes of a source, 0644 or 0755, whatever the archive
/// says. Removes symbolic links that lead out and everything but files and directories; returns
/// their paths. Until this is done, no other user can reach the tree.
pub(crate) fn discard_permissions(tree: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    visit(tree, &mut |path, metadata| {
        if metadata.is_symlink() && stays_in(tree, path)? {
            return Ok(());
        }
        if !metadata.is_file() && !metadata.is_dir() {
            fs::remove_file(path)?;
            removed.push(path.strip_prefix(tree).unwrap_or(path).to_owned());
            return Ok(());
        }
        let executable = metadata.is_dir() || metadata.mode() & 0o100 != 0;
        let mode = if executable { 0o755 } else { 0o644 };
        if metadata.mode() & 0o7777 != mode {
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(())
    })?;
    Ok(removed)
}

/// Calls `each` with everything in a tree, each directory before its content. An absent tree has nothing; a symbolic link
/// in its place is an error, and those in it are not followed.
pub(crate) fn visit(
    tree: &Path,
    each: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let metadata = match fs::symlink_metadata(tree) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata?,
    };
    if metadata.is_symlink() {
        // Nothing behind it would be visited.
        let text = format!("{} is a symbolic link", tree.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    each(tree, &metadata)?;
    let mut waiting = Vec::new();
    if metadata.is_dir() {
        waiting.push(tree.to_owned());
    }
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let metadata = fs::symlink_metadata(&path)?;
            each(&path, &metadata)?;
            if metadata.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(())
}

/// Whether a symbolic link in a tree leads to something in the tree, or would if it existed.
fn stays_in(tree: &Path, link: &Path) -> io::Result<bool> {
    if let Ok(target) = link.canonicalize() {
        return Ok(target.starts_with(tree.canonicalize()?));
    }
    let target = fs::read_link(link)?;
    let from = link.parent().and_then(|parent| parent.strip_prefix(tree).ok());
    let mut depth = from.map_or(0, |from| from.components().count());
    let mut descends = false;
    for component in target.components() {
        match component {
            Component::Normal(_) => descends = true,
            Component::CurDir => {}
            // After the name of another link, it would lead to the parent of what that leads to.
            Component::ParentDir if depth > 0 && !descends => depth -= 1,
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// Makes a directory tree readable for all users: a server does not run as root. No other user can
/// write to the tree.
pub(crate) fn open_to_all(folder: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(folder)?;
    if meta.is_symlink() {
        return Ok(());
    }
    let mode = meta.permissions().mode();
    let more = if meta.is_dir() || mode & 0o100 != 0 { 0o555 } else { 0o444 };
    if mode & more != more {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode | more))?;
    }
    if meta.is_dir() {
        for entry in fs::read_dir(folder)? {
            open_to_all(&entry?.path())?;
        }
    }
    Ok(())
}

/// Creates a directory of the cache and its parents, and checks that only root and dbdyno's user can
/// write to them. Those that root creates are accessible to all users: servers do not run as root.
pub(crate) fn open_folder(folder: &Path) -> io::Result<()> {
    let mode = if we_are_root() { 0o755 } else { 0o700 };
    SafeDir::create_trusted(folder, mode).map(drop).map_err(io::Error::other)
}

/// As root, checks that the server's user can access the cache.
pub(crate) fn check_reach(cache: &Path) -> Result<(), BuildError> {
    if !we_are_root() {
        return Ok(());
    }
    for inner in ["builds", "profiles", "releases"] {
        let inner = cache.join(inner);
        let real = open_folder(&inner).and_then(|()| inner.canonicalize());
        let real = real.map_err(io_error("creating", &inner))?;
        let closed = |folder: &&Path| {
            let meta = fs::metadata(folder);
            meta.is_ok_and(|meta| meta.permissions().mode() & 0o001 == 0)
        };
        if let Some(folder) = real.ancestors().find(closed) {
            return Err(BuildError::new(
                ProblemKind::Machine,
                format!(
                    "builds in {} are accessible to root only, and servers do not run as root: \
                     other users cannot enter {}",
                    cache.display(),
                    folder.display()
                ),
                "choose another cache directory with --cache or XDG_CACHE_HOME",
            ));
        }
    }
    Ok(())
}

pub(crate) fn we_are_root() -> bool {
    geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn unpacked_tree_keeps_no_permissions_and_no_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("inner")).unwrap();
        fs::write(dir.path().join("key"), "private").unwrap();
        mode(&dir.path().join("key"), 0o600);
        for name in ["inner/open", "inner/setuid", "inner/plain"] {
            fs::write(tree.join(name), "x").unwrap();
        }
        mode(&tree.join("inner"), 0o777);
        mode(&tree.join("inner/open"), 0o666);
        mode(&tree.join("inner/setuid"), 0o4777);
        mode(&tree.join("inner/plain"), 0o400);
        for (name, target) in [
            ("inside", "inner/open"),
            ("inner/up", "../inner/open"),
            ("inner/dangling", "../later"),
            ("absolute", "/etc/passwd"),
            ("out", "../key"),
            ("inner/far", "../../none"),
            ("inner/hop", "../later"),
            ("through", "inner/hop/../../none"),
        ] {
            symlink(target, tree.join(name)).unwrap();
        }
        mknodat(CWD, tree.join("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(check(&tree).is_err());

        let mut removed = discard_permissions(&tree).unwrap();
        removed.sort();
        assert_eq!(removed, ["absolute", "inner/far", "out", "pipe", "through"].map(PathBuf::from));
        check(&tree).unwrap();
        let mode_of = |name: &str| fs::metadata(tree.join(name)).unwrap().mode() & 0o7777;
        assert_eq!(mode_of("inner"), 0o755);
        assert_eq!(mode_of("inner/open"), 0o644);
        assert_eq!(mode_of("inner/setuid"), 0o755);
        assert_eq!(mode_of("inner/plain"), 0o644);
        assert!(["inside", "inner/up"].iter().all(|link| tree.join(link).exists()));
        assert_eq!(fs::metadata(dir.path().join("key")).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn link_to_a_tree_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        fs::create_dir(dir.path().join("tree")).unwrap();
        symlink("tree", &link).unwrap();
        for outcome in [check(&link), discard_permissions(&link).map(|_| ())] {
            assert!(outcome.unwrap_err().to_string().ends_with("link is a symbolic link"));
        }
    }

    #[test]
    fn tree_that_others_can_write_to_fails_the_check() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        check(&tree).unwrap();
        fs::create_dir(&tree).unwrap();
        let file = tree.join("file");
        fs::write(&file, "x").unwrap();
        mode(&tree, 0o755);
        mode(&file, 0o644);
        check(&tree).unwrap();
        for wrong in [0o666, 0o664, 0o4755] {
            mode(&file, wrong);
            let error = check(&tree).unwrap_err().to_string();
            assert!(error.contains(&format!("file has mode {wrong:04o}")), "{error}");
        }
        mode(&file, 0o644);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            let error = check(&tree).unwrap_err().to_string();
            assert!(error.contains("belongs to user 65534"), "{error}");
        }
    }
}
