//! Programs of a server that are copied to a host: a release, or what was compiled here.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use dbdyno_types::Sha256;
use dbdyno_units::Bytes;
use tempfile::TempDir;

use crate::protocol::{
    EntryKind, FilePart, FillTree, FinishTree, OpenTree, Put, TreeEntry, TreeState,
};
use crate::{HostConnection, HostError};

/// Bytes of a part of a file.
const PART: usize = 128 << 10;

/// Parts that are sent before the first is answered.
const WINDOW: usize = 8;

const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// How long another dbdyno may take to make the same copy.
const BUSY_TIMEOUT: Duration = Duration::from_secs(3_600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyProgress {
    /// Another dbdyno is making it.
    Waiting,
    /// It is being sent.
    Sending {
        /// Bytes that are on the host.
        done: Bytes,
        total: Bytes,
    },
}

/// The files of a server's programs.
#[derive(Clone, Debug)]
pub struct ProgramTree {
    entries: Vec<TreeEntry>,
    /// The files with the content, by the number of the entry.
    sources: BTreeMap<usize, PathBuf>,
    /// The directory with some of the files, removed with the value.
    _staging: Option<Arc<TempDir>>,
}

impl ProgramTree {
    /// Reads all files below `root`. Those of `replaced`, by their path below `root`, have the content of
    /// another file. Links that lead out of it are replaced by what they lead to.
    pub fn read(root: &Path, replaced: &BTreeMap<PathBuf, PathBuf>) -> io::Result<Self> {
        let mut tree = Self { entries: Vec::new(), sources: BTreeMap::new(), _staging: None };
        let canonical = root.canonicalize()?;
        tree.add_all(&canonical, root, Path::new(""), replaced, &mut Vec::new())?;
        Ok(tree)
    }

    /// Keeps a directory with some of the files.
    pub fn with_staging(self, staging: TempDir) -> Self {
        Self { _staging: Some(Arc::new(staging)), ..self }
    }

    /// The checksum of all of it, 64 hexadecimal digits.
    pub fn sha256(&self) -> String {
        Sha256::of(&serde_json::to_vec(&self.entries).unwrap_or_default()).to_string()
    }

    fn add_all(
        &mut self,
        root: &Path,
        folder: &Path,
        inner: &Path,
        replaced: &BTreeMap<PathBuf, PathBuf>,
        above: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        let canonical = folder.canonicalize()?;
        if above.contains(&canonical) {
            return Ok(());
        }
        above.push(canonical);
        let mut names: Vec<_> =
            fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?;
        names.sort();
        for name in names {
            let (file, path) = (folder.join(&name), inner.join(&name));
            let is_link = fs::symlink_metadata(&file)?.is_symlink();
            // A link to nothing is of no use there.
            let Ok(metadata) = fs::metadata(&file) else { continue };
            let target = fs::read_link(&file).ok().filter(|target| target.is_relative());
            if let (true, Some(target), true) =
                (is_link, target, file.canonicalize()?.starts_with(root))
            {
                self.entries.push(TreeEntry { path, kind: EntryKind::Link(target) });
            } else if metadata.is_dir() {
                let kind = EntryKind::Directory;
                self.entries.push(TreeEntry { path: path.clone(), kind });
                self.add_all(root, &file, &path, replaced, above)?;
            } else if metadata.is_file() {
                let source = replaced.get(&path).unwrap_or(&file).clone();
                let (size, sha256) = Sha256::with_size_of_file(&source)?;
                let executable = metadata.permissions().mode() & 0o100 != 0;
                self.sources.insert(self.entries.len(), source);
                let (size, sha256) = (size.as_bytes(), sha256.to_string());
                let kind = EntryKind::File { size, sha256, executable };
                self.entries.push(TreeEntry { path, kind });
            }
        }
        above.pop();
        Ok(())
    }

    fn total(&self) -> u64 {
        let size = |entry: &TreeEntry| match entry.kind {
            EntryKind::File { size, .. } => size,
            EntryKind::Directory | EntryKind::Link(_) => 0,
        };
        self.entries.iter().map(size).sum()
    }
}

impl HostConnection {
    /// Copies programs to the host, unless they are there under this name, which depends on their content.
    /// Continues an interrupted copy, and waits while another dbdyno makes it. `tree` gets the directory
    /// there. Returns this directory; the copy stays on the host. Setting `cancel` interrupts the copy.
    pub fn copy_programs(
        &self,
        name: &str,
        tree: &mut dyn FnMut(&Path) -> io::Result<ProgramTree>,
        progress: &mut dyn FnMut(CopyProgress),
        cancel: &AtomicBool,
    ) -> Result<PathBuf, HostError> {
        let started = Instant::now();
        let mut waits = false;
        let folder = loop {
            self.check_cancelled(cancel)?;
            match self.call(OpenTree(name.to_owned()))? {
                TreeState::Complete(folder) => return Ok(folder),
                TreeState::Incomplete(folder) => break folder,
                TreeState::Busy if started.elapsed() < BUSY_TIMEOUT => {
                    if !std::mem::replace(&mut waits, true) {
                        progress(CopyProgress::Waiting);
                    }
                    std::thread::sleep(Duration::from_millis(500));
                }
                TreeState::Busy => {
                    let time = BUSY_TIMEOUT.as_secs() / 60;
                    return Err(self.failed(format!(
                        "another dbdyno has not finished copying the same programs for {time} min"
                    )));
                }
            }
        };
        let here = |error: io::Error| {
            self.failed(format!("reading the programs for it here, to copy them: {error}"))
        };
        let tree = tree(&folder).map_err(here)?;
        let missing = self.call(FillTree(tree.entries.clone()))?;
        self.send_files(&tree, missing, progress, cancel)?;
        self.call(FinishTree())?;
        let (bytes, time) = (tree.total(), started.elapsed());
        tracing::info!(host = self.name(), name, bytes, ?time, "copied programs");
        Ok(folder)
    }

    fn check_cancelled(&self, cancel: &AtomicBool) -> Result<(), HostError> {
        match cancel.load(Ordering::Relaxed) {
            true => Err(self.failed("copying programs was interrupted")),
            false => Ok(()),
        }
    }

    fn send_files(
        &self,
        tree: &ProgramTree,
        missing: Vec<(usize, u64)>,
        progress: &mut dyn FnMut(CopyProgress),
        cancel: &AtomicBool,
    ) -> Result<(), HostError> {
        let here = |error: io::Error| {
            self.failed(format!("reading the programs for it here, to copy them: {error}"))
        };
        let total = tree.total();
        let left: u64 = missing
            .iter()
            .map(|(number, there)| match tree.entries.get(*number).map(|entry| &entry.kind) {
                Some(EntryKind::File { size, .. }) => size.saturating_sub(*there),
                _ => 0,
            })
            .sum();
        let mut done = total.saturating_sub(left);
        let mut reported = Instant::now();
        let mut report = |done: u64| {
            if reported.elapsed() >= REPORT_INTERVAL {
                reported = Instant::now();
                let (done, total) = (Bytes::from_bytes(done), Bytes::from_bytes(total));
                progress(CopyProgress::Sending { done, total });
            }
        };
        let mut window = Vec::new();
        for (entry, mut offset) in missing {
            let Some(source) = tree.sources.get(&entry) else { continue };
            let mut file = File::open(source).map_err(here)?;
            file.seek(SeekFrom::Start(offset)).map_err(here)?;
            loop {
                let mut bytes = Vec::with_capacity(PART);
                let read = (&mut file).take(PART as u64).read_to_end(&mut bytes).map_err(here)?;
                if read == 0 {
                    break;
                }
                let data = BASE64_STANDARD.encode(&bytes);
                window.push(Put(FilePart { entry, offset, data }));
                offset += read as u64;
                done += read as u64;
                if window.len() == WINDOW {
                    self.call_all(std::mem::take(&mut window))?;
                    self.check_cancelled(cancel)?;
                    report(done);
                }
            }
        }
        self.call_all(window)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn tree_has_everything_that_is_needed_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir(dir.path().join("share")).unwrap();
        fs::write(dir.path().join("share/words"), "words").unwrap();
        fs::write(dir.path().join("patched"), "patched").unwrap();
        fs::write(root.join("bin/server"), "original").unwrap();
        symlink("server", root.join("bin/inner")).unwrap();
        symlink("missing", root.join("bin/dangling")).unwrap();
        symlink(dir.path().join("share"), root.join("share")).unwrap();
        symlink(&root, root.join("bin/loop")).unwrap();
        let replaced = BTreeMap::from([("bin/server".into(), dir.path().join("patched"))]);
        let tree = ProgramTree::read(&root, &replaced).unwrap();
        let kinds: Vec<String> = tree
            .entries
            .iter()
            .map(|TreeEntry { path, kind }| {
                let path = path.display();
                match kind {
                    EntryKind::Directory => format!("{path}/"),
                    EntryKind::File { size, .. } => format!("{path} {size}"),
                    EntryKind::Link(target) => format!("{path} -> {}", target.display()),
                }
            })
            .collect();
        let expected =
            ["bin/", "bin/inner -> server", "bin/loop/", "bin/server 7", "share/", "share/words 5"];
        assert_eq!(kinds, expected);
        assert_eq!(tree.total(), 12);
        assert_eq!(fs::read(&tree.sources[&3]).unwrap(), b"patched");
        assert_ne!(tree.sha256(), ProgramTree::read(&root, &BTreeMap::new()).unwrap().sha256());
    }
}
