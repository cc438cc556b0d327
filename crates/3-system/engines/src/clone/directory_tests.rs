use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{chown, symlink};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{CWD, openat, renameat, symlinkat};
use rustix::process::geteuid;
use rustix::thread::{set_thread_gid, set_thread_groups, set_thread_uid};

use super::*;

/// The user ID of `nobody`, who stands for the user of a server.
const SERVER: u32 = 65_534;

#[test]
fn directory_is_cloned_with_modes_and_without_server_identity() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("a"), dir.path().join("b"));
    fs::create_dir_all(from.join("inner")).unwrap();
    fs::write(from.join("inner/data"), vec![7; 9_000]).unwrap();
    fs::write(from.join("auto.cnf"), "server_uuid").unwrap();
    let closed = Permissions::from_mode(0o600);
    fs::set_permissions(from.join("inner/data"), closed).unwrap();
    fs::set_permissions(&from, Permissions::from_mode(0o750)).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(from.join("socket")).unwrap();
    clone_directory(&from, &to).unwrap();
    assert_eq!(fs::read(to.join("inner/data")).unwrap(), vec![7; 9_000]);
    let mode = |path: PathBuf| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!((mode(to.clone()), mode(to.join("inner/data"))), (0o750, 0o600));
    assert!(!to.join("auto.cnf").exists() && !to.join("socket").exists());

    let again = clone_directory(&from, &to).unwrap_err();
    assert!(again.to_string().contains("exists"), "{again}");
    assert!(to.join("inner/data").exists(), "the existing directory was removed");

    symlink("/etc", from.join("link")).unwrap();
    let error = clone_directory(&from, &dir.path().join("c")).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(!dir.path().join("c").exists());
    let error = clone_directory(&from.join("link"), &dir.path().join("c")).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

/// Data of the server's user: directories with files, and modes that must not be given to others.
fn data_of_server(data: &Path) {
    fs::create_dir_all(data).unwrap();
    for number in 0..20 {
        let inner = data.join(format!("inner{number}"));
        fs::create_dir(&inner).unwrap();
        for file in ["a", "b", "c", "d"] {
            fs::write(inner.join(file), "planted").unwrap();
            chown(inner.join(file), Some(SERVER), Some(SERVER)).unwrap();
        }
        fs::set_permissions(&inner, Permissions::from_mode(0o777)).unwrap();
        chown(inner, Some(SERVER), Some(SERVER)).unwrap();
    }
    fs::set_permissions(data, Permissions::from_mode(0o700)).unwrap();
    chown(data, Some(SERVER), Some(SERVER)).unwrap();
}

/// Replaces each directory of the copy by a link to `target`, as the server's user, until `done`.
fn plant_links(base: &OwnedFd, target: &Path, done: &AtomicBool) {
    // Of this thread only.
    set_thread_groups(&[]).unwrap();
    set_thread_gid(rustix::fs::Gid::from_raw(SERVER)).unwrap();
    set_thread_uid(rustix::fs::Uid::from_raw(SERVER)).unwrap();
    while !done.load(Ordering::Relaxed) {
        for number in 0..20 {
            let inner = format!("to/data/inner{number}");
            let _ = renameat(base, &inner, base, format!("to/data/moved{number}"));
            let _ = symlinkat(target, base.as_fd(), &inner);
        }
    }
}

#[test]
fn links_planted_by_the_servers_user_during_a_copy_are_not_followed() {
    if !geteuid().is_root() {
        dbdyno_fuzz::skip("only root copies data of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from/data"), dir.path().join("to/data"));
    let closed = dir.path().join("closed");
    data_of_server(&from);
    fs::create_dir(dir.path().join("to")).unwrap();
    fs::create_dir(&closed).unwrap();
    for (path, mode) in [(dir.path(), 0o711), (&closed, 0o700)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    let base = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
    let done = AtomicBool::new(false);
    let copied = std::thread::scope(|scope| {
        scope.spawn(|| plant_links(&base, &closed, &done));
        let copied = clone_directory(&from, &to);
        done.store(true, Ordering::Relaxed);
        copied
    });
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 0, "root wrote where a link led to");
    assert_eq!(fs::metadata(&closed).unwrap().mode() & 0o777, 0o700);
    copied.unwrap();
    assert_eq!(fs::metadata(&to).unwrap().uid(), SERVER);
}

#[test]
fn files_of_other_users_are_not_copied() {
    if !geteuid().is_root() {
        dbdyno_fuzz::skip("only root can create files of another user");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    data_of_server(&from);
    // What a hard link to a file of root's would be.
    fs::write(from.join("inner3/key"), "secret").unwrap();
    let error = clone_directory(&from, &to).unwrap_err().to_string();
    assert!(error.contains("inner3/key") && error.contains("belongs to user 0"), "{error}");
    assert!(!to.exists());
}

#[test]
fn pipes_are_left_out_and_set_user_id_bits_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (from, to) = (dir.path().join("from"), dir.path().join("to"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("program"), "").unwrap();
    fs::set_permissions(from.join("program"), Permissions::from_mode(0o6755)).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(CWD, from.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    clone_directory(&from, &to).unwrap();
    assert_eq!(fs::metadata(to.join("program")).unwrap().mode() & 0o7777, 0o755);
    assert!(!to.join("pipe").exists());
}
