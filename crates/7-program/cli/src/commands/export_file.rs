//! Files that users name for exports.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::fd::{BorrowedFd, RawFd};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use dbdyno_report::export::{ExportError, OutputDir};

use crate::error::CliError;

/// Checks those files that are named.
pub fn check_all(files: &[&Option<PathBuf>]) -> Result<(), CliError> {
    files.iter().copied().flatten().try_for_each(|file| check(file))
}

/// A file, if it is named, and what is written to it.
type Export<'a, T> = (&'a Option<PathBuf>, fn(&T) -> Result<String, ExportError>);

pub fn write_all<T>(of: &T, exports: [Export<'_, T>; 3]) -> Result<(), CliError> {
    for (file, content) in exports {
        if let Some(file) = file {
            write(file, &content(of)?)?;
        }
    }
    Ok(())
}

/// Checks that a file can be written, before anything is measured or read.
pub fn check(file: &Path) -> Result<(), CliError> {
    let directory = directory_of(file);
    let reason = if file.is_dir() {
        "is a directory; name a file in it"
    } else if let Some(number) = descriptor(file) {
        if is_open_for_writing(number) {
            return Ok(());
        }
        "is not open for writing"
    } else if file.file_name().and_then(|name| name.to_str()).is_none() {
        "cannot be the name of a file"
    } else if !directory.is_dir() {
        "is in a directory that does not exist; create it first"
    } else if is_of_system(file) && !is_pipe_or_device(file) {
        "is neither a pipe nor a device; files here belong to the system"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!("{} {reason}", file.display())))
}

/// Replaces the file. An open file, such as `/dev/stdout`, a pipe or a device is written to.
pub fn write(file: &Path, text: &str) -> Result<(), CliError> {
    let failed = CliError::write(file);
    if let Some(number) = descriptor(file) {
        return write_to(number, text).map_err(failed);
    }
    if is_pipe_or_device(file) {
        return fs::write(file, text).map_err(failed);
    }
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    OutputDir::create(directory_of(file))?.replace(name, text)?;
    Ok(())
}

/// The descriptor of this process that a path names. Opened by its path, a file would be written from its start.
fn descriptor(file: &Path) -> Option<RawFd> {
    let name = file.file_name()?.to_str()?;
    let directory = file.parent()?;
    if directory == Path::new("/dev/fd") || directory == Path::new("/proc/self/fd") {
        return name.parse::<u32>().ok()?.try_into().ok();
    }
    match name {
        "stdout" if directory == Path::new("/dev") => Some(1),
        "stderr" if directory == Path::new("/dev") => Some(2),
        _ => None,
    }
}

fn is_open_for_writing(number: RawFd) -> bool {
    // The permissions of this link are those of the descriptor.
    let link = fs::symlink_metadata(format!("/proc/self/fd/{number}"));
    link.is_ok_and(|link| link.permissions().mode() & 0o200 != 0)
}

/// Writes at the position of a descriptor.
fn write_to(number: RawFd, text: &str) -> io::Result<()> {
    // SAFETY: only used to duplicate it, which fails if it is closed. It was open before dbdyno opened files.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    File::from(open.try_clone_to_owned()?).write_all(text.as_bytes())
}

/// Whether the file is not replaced but written to.
fn is_pipe_or_device(file: &Path) -> bool {
    // `/dev/stdin` is a symbolic link. Others are replaced: somebody else may have created them.
    let about = if is_of_system(file) { fs::metadata(file) } else { fs::symlink_metadata(file) };
    about.is_ok_and(|about| !about.is_file() && !about.is_symlink())
}

/// Whether the file is where the system has devices and open files.
fn is_of_system(file: &Path) -> bool {
    file.parent() == Some(Path::new("/dev"))
        || file.starts_with("/dev/fd")
        || file.starts_with("/proc")
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _};
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn pipe_is_written_to_instead_of_being_replaced() {
        let (mut reader, writer) = io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        check(Path::new(&path)).unwrap();
        write(Path::new(&path), "content").unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "content");
    }

    #[test]
    fn open_file_is_written_to_at_its_position() {
        let mut file = tempfile::tempfile().unwrap();
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        check(Path::new(&path)).unwrap();
        for text in ["first, ", "second"] {
            write(Path::new(&path), text).unwrap();
        }
        write(Path::new(&path.replace("/proc/self", "/dev")), ", third").unwrap();
        let mut read = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut read).unwrap();
        assert_eq!(read, "first, second, third");
    }

    #[test]
    fn files_of_the_system_and_descriptors_without_access_are_refused() {
        let file = File::open("/dev/null").unwrap();
        let read_only = format!("/dev/fd/{}", file.as_raw_fd());
        for path in [read_only.as_str(), "/dev/fd/100000", "/dev/no-such-file", "/proc/self/comm"] {
            let refused = check(Path::new(path)).unwrap_err();
            assert!(refused.is_usage() && refused.to_string().contains(path), "{refused}");
        }
        check(Path::new("/dev/null")).unwrap();
    }

    #[test]
    fn symbolic_link_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).unwrap();
        write(&link, "content").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_file());
    }
}
