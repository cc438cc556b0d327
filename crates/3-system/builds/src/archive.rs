//! Unpacking of archives: zip files here, others with tar.
//!
//! What comes out is private to dbdyno's user until [`crate::trusted_tree`] has discarded permissions and links that
//! lead out.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use dbdyno_units::Bytes;
use zip::ZipArchive;

use crate::BuildError;
use crate::elf::starts_with;
use crate::error::io_error;
use crate::fetching::{Fetching, Tool};

pub(crate) const TAR: Tool = Tool { program: "tar", package: "tar" };

/// The most that a zip file may contain: far more than a server has.
const MOST: Limits = Limits { bytes: 16 << 30, entries: 200_000 };

#[derive(Clone, Copy)]
struct Limits {
    bytes: u64,
    entries: usize,
}

/// Unpacks an archive into a new directory.
pub(crate) fn unpack(
    fetching: &Fetching<'_>,
    archive: &Path,
    inside: &Path,
) -> Result<(), BuildError> {
    fs::create_dir(inside).map_err(io_error("creating", inside))?;
    if starts_with(archive, *b"PK\x03\x04").map_err(io_error("reading the archive", archive))? {
        return unzip(archive, inside, MOST, fetching.cancel).map_err(|error| match error.kind() {
            io::ErrorKind::Interrupted => BuildError::cancelled(fetching.what),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                BuildError::io("unpacking", archive, &error)
            }
            _ => fetching.failed("unpacking it", error.to_string(), "use another archive"),
        });
    }
    let name = archive.to_string_lossy();
    let args = ["--extract", "--no-same-owner", "--file", &name];
    fetching.run(TAR, "unpacking it", inside, &args).map(drop)
}

/// Refuses what is neither a file nor a directory, names that lead out, and more than `most`.
fn unzip(archive: &Path, inside: &Path, most: Limits, cancel: &AtomicBool) -> io::Result<()> {
    let mut zip = ZipArchive::new(BufReader::new(File::open(archive)?))?;
    let count = zip.len();
    if count > most.entries {
        return Err(invalid(format!("it has {count} entries, more than {}", most.entries)));
    }
    let mut left = most.bytes;
    for index in 0..count {
        if cancel.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let mut entry = zip.by_index(index)?;
        let name = entry.name()?.into_owned();
        let Some(path) = path_inside(&name) else {
            return Err(invalid(format!("its entry `{name}` leads out of its directory")));
        };
        let target = inside.join(path);
        // By its name: some archives of Java have directories without a valid mode.
        if entry.is_dir() {
            fs::create_dir_all(&target)?;
            continue;
        }
        let mode = entry.unix_mode().unwrap_or(0);
        // The types of a file, and none.
        if ![0o100_000, 0].contains(&(mode & 0o170_000)) {
            return Err(invalid(format!("its entry `{name}` is neither a file nor a directory")));
        }
        target.parent().map_or(Ok(()), fs::create_dir_all)?;
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).mode(0o600).open(&target)?;
        let written = io::copy(&mut entry.by_ref().take(left.saturating_add(1)), &mut file)?;
        let Some(rest) = left.checked_sub(written) else {
            let size = Bytes::from_bytes(most.bytes);
            return Err(invalid(format!("it unpacks to more than {size}")));
        };
        left = rest;
        // Archives of Java do not tell which files are programs.
        let mut start = [0; 4];
        let read = file.read_at(&mut start, 0)?;
        let is_program = start[..read].starts_with(b"#!") || start[..read] == *b"\x7fELF";
        if is_program || mode & 0o100 != 0 {
            file.set_permissions(Permissions::from_mode(0o700))?;
        }
    }
    Ok(())
}

fn invalid(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

/// The path of an entry, if it is below the directory that the archive is unpacked into.
fn path_inside(name: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for component in Path::new(name).components() {
        match component {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use dbdyno_fuzz::Fuzz;
    use tempfile::TempDir;
    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;

    const SMALL: Limits = Limits { bytes: 1000, entries: 10 };

    fn pack(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        for (name, content) in entries {
            zip.start_file(*name, SimpleFileOptions::default()).unwrap();
            zip.write_all(content).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    /// Unpacks into the directory `inside/tree`.
    fn unpacked(archive: &[u8]) -> (TempDir, io::Result<()>) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("archive");
        fs::write(&file, archive).unwrap();
        let inside = dir.path().join("inside/tree");
        fs::create_dir_all(&inside).unwrap();
        let result = unzip(&file, &inside, SMALL, &AtomicBool::new(false));
        (dir, result)
    }

    #[test]
    fn programs_can_be_executed_and_others_cannot() {
        let archive =
            pack(&[("a/bin/run", b"#!/bin/sh\n"), ("a/elf", b"\x7fELF"), ("a/text", b"x")]);
        let (dir, result) = unpacked(&archive);
        result.unwrap();
        let mode = |name: &str| {
            let file = dir.path().join("inside/tree/a").join(name);
            fs::metadata(file).unwrap().permissions().mode() & 0o777
        };
        assert_eq!([mode("bin/run"), mode("elf"), mode("text")], [0o700, 0o700, 0o600]);
    }

    #[test]
    fn names_that_lead_out_are_refused() {
        for name in ["../out", "a/../../out", "/tmp/out"] {
            // The writer would change the name.
            let stand_in = "x".repeat(name.len());
            let mut archive = pack(&[(&stand_in, b"content")]);
            while let Some(at) =
                archive.windows(name.len()).position(|part| part == stand_in.as_bytes())
            {
                archive[at..at + name.len()].copy_from_slice(name.as_bytes());
            }
            let (dir, result) = unpacked(&archive);
            let error = result.unwrap_err().to_string();
            assert!(error.contains("leads out"), "{name}: {error}");
            assert!(!dir.path().join("inside/out").exists() && !dir.path().join("out").exists());
        }
    }

    #[test]
    fn directories_are_recognized_by_their_names() {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.add_directory("a/", SimpleFileOptions::default()).unwrap();
        zip.start_file("a/b", SimpleFileOptions::default()).unwrap();
        let mut archive = zip.finish().unwrap().into_inner();
        // The directory's mode is in the upper half of its external attributes, 38 bytes into its entry.
        let entry = archive.windows(4).position(|part| part == b"PK\x01\x02").unwrap();
        archive[entry + 40..entry + 42].copy_from_slice(&0o177_777_u16.to_le_bytes());
        let (dir, result) = unpacked(&archive);
        result.unwrap();
        assert!(dir.path().join("inside/tree/a/b").is_file());
    }

    #[test]
    fn links_are_refused() {
        let mut zip = ZipWriter::new(io::Cursor::new(Vec::new()));
        zip.add_symlink("link", "/etc", SimpleFileOptions::default()).unwrap();
        let archive = zip.finish().unwrap().into_inner();
        let error = unpacked(&archive).1.unwrap_err().to_string();
        assert!(error.contains("neither a file nor a directory"), "{error}");
    }

    #[test]
    fn archives_that_unpack_to_too_much_are_refused() {
        let error = unpacked(&pack(&[("a", &[0; 600]), ("b", &[0; 600])])).1.unwrap_err();
        assert!(error.to_string().contains("unpacks to more than"), "{error}");
        unpacked(&pack(&[("a", &[0; 500]), ("b", &[0; 500])])).1.unwrap();
        let names: Vec<String> = (0..11).map(|number| number.to_string()).collect();
        let many: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), &b""[..])).collect();
        let error = unpacked(&pack(&many)).1.unwrap_err();
        assert!(error.to_string().contains("11 entries"), "{error}");
    }

    #[test]
    fn damaged_archives_write_nothing_elsewhere() {
        let archive = pack(&[("a/b", b"content"), ("c", b"more")]);
        Fuzz::new(vec![archive]).words(&["../", "/", "PK\x03\x04"]).run(|archive| {
            let (dir, _) = unpacked(archive);
            let count = |inner: &str| fs::read_dir(dir.path().join(inner)).unwrap().count();
            assert_eq!((count(""), count("inside")), (2, 1));
        });
    }
}
