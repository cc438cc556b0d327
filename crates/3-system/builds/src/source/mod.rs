//! Sources of systems: origins, fetching, versions.

mod history;
mod store;

use std::fs::{self, File, Metadata};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use flate2::write::ZlibDecoder;
use serde::{Deserialize, Serialize};
use sha2::Digest;

use crate::error::io_error;
use crate::fetching::TREE;
use crate::store::{Held, Kind, Query};
use crate::{BuildError, Cache, Lookup, Sha256, SourceOrigin, System};

pub use history::{Commit, CommitRange, HistoryError, RangeRequest};
pub use store::Sources;

/// The source of one version of a system, on this machine.
#[derive(Clone, Debug)]
pub struct Source {
    system: System,
    about: Known,
    content: Content,
}

/// What is known about a source, as stored in the cache.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Known {
    origin: SourceOrigin,
    version: String,
    sha256: Sha256,
    revision: Option<String>,
}

/// The location of the files.
#[derive(Clone, Debug)]
enum Content {
    /// Part of this program.
    Bundled,
    /// In a directory of the user.
    Folder(PathBuf),
    /// In a directory of the cache, locked against removal.
    Cached { folder: PathBuf, _held: Held<Known> },
}

impl Source {
    /// The bundled SQLite amalgamation.
    pub fn bundled_sqlite() -> Self {
        Self {
            system: System::Sqlite,
            about: Known {
                origin: SourceOrigin::Bundled,
                version: VERSION.to_owned(),
                sha256: SQLITE[0].sha256,
                revision: None,
            },
            content: Content::Bundled,
        }
    }

    pub const fn system(&self) -> System {
        self.system
    }

    pub const fn name(&self) -> &'static str {
        self.system.name()
    }

    /// The version stated in the source.
    pub fn version(&self) -> &str {
        &self.about.version
    }

    pub const fn origin(&self) -> &SourceOrigin {
        &self.about.origin
    }

    /// The revision: a commit, or a package's version.
    pub fn revision(&self) -> Option<&str> {
        self.about.revision.as_deref()
    }

    /// The checksum: of the amalgamation's `sqlite3.c`, of the tarball, of the `.dsc` file of a
    /// Debian source package (which contains those of its files), or of all files of a directory
    /// with their names.
    pub const fn sha256(&self) -> &Sha256 {
        &self.about.sha256
    }

    /// The directory of the user that has not the content any more for which the checksum was computed;
    /// `None` for one that has, and for sources in the cache.
    pub(crate) fn edited(&self) -> Result<Option<&Path>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let sha256 = tree_sha256(folder).map_err(io_error("reading the source in", folder))?;
        Ok((sha256 != self.about.sha256).then_some(folder))
    }

    /// When a file in the user's directory was last changed; `None` for sources in the cache.
    pub(crate) fn last_change(&self) -> Result<Option<SystemTime>, BuildError> {
        let Content::Folder(folder) = &self.content else { return Ok(None) };
        let last = last_change(folder);
        let last = last.map_err(io_error("reading the source in", folder))?;
        Ok(Some(last))
    }

    /// The directory with the source. The bundled source is unpacked into the cache; its path does
    /// not change, so that paths in debug information remain valid.
    pub fn unpack(&self, cache: &Cache) -> Result<PathBuf, BuildError> {
        match &self.content {
            Content::Bundled => unpack_bundled(&self.about, cache),
            Content::Folder(folder) | Content::Cached { folder, .. } => Ok(folder.clone()),
        }
    }
}

const VERSION: &str = env!("DBDYNO_SQLITE_VERSION");

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

fn unpack_bundled(about: &Known, cache: &Cache) -> Result<PathBuf, BuildError> {
    let name = format!("sqlite-{VERSION}-{}", &about.sha256.to_string()[..12]);
    let is_whole = |folder: &Path| SQLITE.iter().all(|file| file.is_in(&folder.join(TREE)));
    let query = Query {
        check: &|_: &mut Known, folder| match is_whole(folder) {
            true => Ok(()),
            false => Err("it was changed".to_owned()),
        },
        cancel: &AtomicBool::new(false),
        on_wait: &|| {},
        on_invalid: &|_| {},
    };
    let held = match cache.entry(Kind::Source, &name).lookup(&query)? {
        Lookup::Found(held) => held,
        Lookup::Cancelled => return Err(BuildError::cancelled(name)),
        Lookup::Missing(making) => {
            let part = making.begin()?;
            let tree = part.join(TREE);
            fs::create_dir(&tree)
                .and_then(|()| SQLITE.iter().try_for_each(|file| file.unpack_into(&tree)))
                .map_err(io_error("unpacking the source into", &tree))?;
            making.publish(&part, about.clone())?
        }
    };
    Ok(held.folder.join(TREE))
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

/// Computes the checksum of all files with their names, except `.git`.
fn tree_sha256(folder: &Path) -> io::Result<Sha256> {
    let mut hasher = sha2::Sha256::new();
    visit(folder, &mut |path, meta| {
        let whole = folder.join(path);
        let content = if meta.is_symlink() {
            Sha256::of(fs::read_link(&whole)?.as_os_str().as_bytes())
        } else if meta.is_file() {
            Sha256::of_file(&whole)?
        } else {
            return Ok(());
        };
        let name = path.as_os_str().as_bytes();
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update([u8::from(meta.is_symlink())]);
        hasher.update(content.as_bytes());
        Ok(())
    })?;
    Ok(Sha256::finish(hasher))
}

/// When a file was last written, renamed or created, or its permissions were changed; except in
/// `.git`. Unlike the modification time, this cannot be set back.
fn last_change(folder: &Path) -> io::Result<SystemTime> {
    let mut last = SystemTime::UNIX_EPOCH;
    visit(folder, &mut |_, meta| {
        let seconds = u64::try_from(meta.ctime()).unwrap_or(0);
        let nanos = u32::try_from(meta.ctime_nsec()).unwrap_or(0);
        last = last.max(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos));
        Ok(())
    })?;
    Ok(last)
}

/// Calls `each` with the relative path of everything but directories, in a fixed order.
fn visit(
    folder: &Path,
    each: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) -> io::Result<()> {
    let mut waiting = vec![PathBuf::new()];
    // In reverse order, because the last one is processed next.
    while let Some(inner) = waiting.pop() {
        let mut names: Vec<_> = fs::read_dir(folder.join(&inner))?
            .map(|entry| Ok(entry?.file_name()))
            .collect::<io::Result<_>>()?;
        names.sort_unstable();
        for name in names.into_iter().rev().filter(|name| name != ".git") {
            let path = inner.join(name);
            let meta = fs::symlink_metadata(folder.join(&path))?;
            if meta.is_dir() {
                waiting.push(path);
            } else {
                each(&path, &meta)?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;
    use crate::{CacheDir, Source};

    fn cache_in(dir: &TempDir) -> Cache {
        Cache::new(&CacheDir::open(dir.path()).unwrap())
    }

    #[test]
    fn bundled_version_matches_the_amalgamation() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(&cache_in(&dir)).unwrap();
        let text = fs::read(folder.join("sqlite3.c")).unwrap();
        assert_eq!(Sha256::of(&text), *source.sha256());
        let line = format!("#define SQLITE_VERSION        \"{}\"", source.version());
        assert!(String::from_utf8_lossy(&text).contains(&line));
    }

    #[test]
    fn modified_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let header = source.unpack(&cache_in(&dir)).unwrap().join("sqlite3.h");
        let time = || fs::metadata(&header).unwrap().modified().unwrap();
        let first = time();
        source.unpack(&cache_in(&dir)).unwrap();
        assert_eq!(time(), first);
        fs::write(&header, "edited").unwrap();
        source.unpack(&cache_in(&dir)).unwrap();
        assert_eq!(Sha256::of_file(&header).unwrap(), SQLITE[1].sha256);
    }

    #[test]
    fn incomplete_source_is_unpacked_again() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::bundled_sqlite();
        let folder = source.unpack(&cache_in(&dir)).unwrap();
        let entry = folder.parent().unwrap();
        let part = PathBuf::from(format!("{}.part", entry.display()));
        fs::rename(entry, &part).unwrap();
        fs::write(part.join("tree/sqlite3.c"), "/* half").unwrap();
        source.unpack(&cache_in(&dir)).unwrap();
        assert!(!part.exists());
        assert_eq!(Sha256::of_file(&folder.join("sqlite3.c")).unwrap(), *source.sha256());
    }

    #[test]
    fn checksum_depends_on_names_and_contents_but_not_on_git() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            tree_sha256(folder.path()).unwrap()
        };
        let first = write("a/b.c", "int x;");
        let second = write("a/b.c", "int y;");
        assert_ne!(first, second);
        assert_eq!(write("a/b.c", "int x;"), first);
        assert_eq!(write(".git/index", "anything"), first);
        assert_ne!(write("a/c.c", "int x;"), first);
        fs::remove_file(folder.path().join("a/b.c")).unwrap();
        assert_ne!(tree_sha256(folder.path()).unwrap(), first);
    }
}
