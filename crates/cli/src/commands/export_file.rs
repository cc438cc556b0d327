//! Files that users name for exports.

use std::fs;
use std::path::Path;

use dbdyno_report::export;

use crate::error::CliError;

/// Checks that a file can be written, before anything is measured or read.
pub fn check(file: &Path) -> Result<(), CliError> {
    let directory = directory_of(file);
    let reason = if file.is_dir() {
        "is a directory; name a file in it"
    } else if file.file_name().and_then(|name| name.to_str()).is_none() {
        "cannot be the name of a file"
    } else if !directory.is_dir() {
        "is in a directory that does not exist; create it first"
    } else {
        return Ok(());
    };
    Err(CliError::Usage(format!("{} {reason}", file.display())))
}

/// Replaces the file. A pipe or a device, such as `/dev/stdout`, is written to.
pub fn write(file: &Path, text: &str) -> Result<(), CliError> {
    if is_pipe_or_device(file) {
        return fs::write(file, text)
            .map_err(|source| CliError::Write { path: file.to_owned(), source });
    }
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    export::replace(directory_of(file), name, text)?;
    Ok(())
}

/// Whether the file is not replaced but written to.
fn is_pipe_or_device(file: &Path) -> bool {
    // `/dev/stdout` is a symbolic link. Others are replaced: somebody else may have created them.
    let is_of_system = file.parent() == Some(Path::new("/dev"))
        || file.starts_with("/dev/fd")
        || file.starts_with("/proc");
    let about = if is_of_system { fs::metadata(file) } else { fs::symlink_metadata(file) };
    about.is_ok_and(|about| !about.is_file() && !about.is_symlink())
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::fd::AsRawFd as _;

    use super::*;

    #[test]
    fn pipe_is_written_to_instead_of_being_replaced() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
        check(Path::new(&path)).unwrap();
        write(Path::new(&path), "content").unwrap();
        drop(writer);
        let mut read = String::new();
        reader.read_to_string(&mut read).unwrap();
        assert_eq!(read, "content");
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
