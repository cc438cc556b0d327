//! The bundled SQLite amalgamation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::ZlibDecoder;

use crate::build_dir::open_folder;
use crate::lock::Lock;
use crate::{BuildError, Sha256};

/// Its version.
pub(super) const VERSION: &str = env!("DBDYNO_SQLITE_VERSION");

/// A compressed, embedded file.
#[derive(Debug)]
struct Packed {
    name: &'static str,
    zlib: &'static [u8],
    sha256: Sha256,
}

/// The embedded files, written by `build.rs`.
static SQLITE: [Packed; 2] = [
    Packed {
        name: "sqlite3.c",
        zlib: include_bytes!(concat!(env!("OUT_DIR"), "/sqlite3.c.zlib")),
        sha256: Sha256::from_constant(env!("DBDYNO_SQLITE3_C_SHA256")),
    },
    Packed {
        name: "sqlite3.h",
        zlib: include_bytes!(concat!(env!("OUT_DIR"), "/sqlite3.h.zlib")),
        sha256: Sha256::from_constant(env!("DBDYNO_SQLITE3_H_SHA256")),
    },
];

/// The checksum of `sqlite3.c`, the only file that is compiled.
pub(super) fn sha256() -> Sha256 {
    SQLITE[0].sha256
}

/// Unpacks the files into a directory below `dir`. An existing directory with the correct content
/// is kept.
pub(super) fn unpack(dir: &Path) -> Result<PathBuf, BuildError> {
    let name = format!("sqlite-{VERSION}-{}", &sha256().to_string()[..12]);
    let folder = dir.join(&name);
    let failed = |error| BuildError::io("unpacking the source into", &folder, error);

    open_folder(dir).map_err(failed)?;
    let _lock = Lock::wait(&dir.join(format!("{name}.lock"))).map_err(failed)?;
    if SQLITE.iter().all(|file| file.is_in(&folder)) {
        return Ok(folder);
    }
    let part = dir.join(format!("{name}.part"));
    for leftover in [&part, &folder] {
        if leftover.exists() {
            fs::remove_dir_all(leftover).map_err(failed)?;
        }
    }
    fs::create_dir(&part).map_err(failed)?;
    SQLITE.iter().try_for_each(|file| file.unpack_into(&part)).map_err(failed)?;
    fs::rename(&part, &folder).map_err(failed)?;
    Ok(folder)
}

impl Packed {
    fn is_in(&self, folder: &Path) -> bool {
        Sha256::of_file(&folder.join(self.name)).is_ok_and(|sha256| sha256 == self.sha256)
    }

    fn unpack_into(&self, folder: &Path) -> io::Result<()> {
        let mut decoder = ZlibDecoder::new(File::create(folder.join(self.name))?);
        decoder.write_all(self.zlib)?;
        decoder.finish()?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Source;

    #[test]
    fn bundled_version_matches_the_amalgamation() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(dir.path()).unwrap();
        let text = fs::read(folder.join("sqlite3.c")).unwrap();
        assert_eq!(Sha256::of(&text), *source.sha256());
        let line = format!("#define SQLITE_VERSION        \"{}\"", source.version());
        assert!(String::from_utf8_lossy(&text).contains(&line));
    }

    #[test]
    fn modified_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let header = source.unpack(dir.path()).unwrap().join("sqlite3.h");
        let time = || fs::metadata(&header).unwrap().modified().unwrap();
        let first = time();
        source.unpack(dir.path()).unwrap();
        assert_eq!(time(), first);
        fs::write(&header, "edited").unwrap();
        source.unpack(dir.path()).unwrap();
        assert_eq!(Sha256::of_file(&header).unwrap(), SQLITE[1].sha256);
    }

    #[test]
    fn incomplete_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(dir.path()).unwrap();
        let part = PathBuf::from(format!("{}.part", folder.display()));
        fs::rename(&folder, &part).unwrap();
        fs::write(part.join("sqlite3.c"), "/* half").unwrap();
        source.unpack(dir.path()).unwrap();
        assert!(!part.exists());
        assert_eq!(Sha256::of_file(&folder.join("sqlite3.c")).unwrap(), *source.sha256());
    }
}
