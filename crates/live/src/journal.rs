//! What was done to a process, on disk before it is done.
//!
//! One directory per process, one file that is replaced as a whole. Whoever finds it can tell every
//! byte's original, whatever moment its writer died at. It need not survive the machine: no
//! process does.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_relayout::AddressMap;
use serde::{Deserialize, Serialize};

use crate::LiveError;
use crate::identity::Identity;
use crate::maps::{Mapping, Maps};
use crate::patch::{JumpPatch, hex};

/// The layout of the file.
const FORMAT: u32 = 1;

/// All that was done to one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRecord {
    /// The layout of this record.
    pub format: u32,
    /// Whose.
    pub identity: Identity,
    /// The program, for people.
    pub program: PathBuf,
    /// A place for a few instructions that was lent from the program.
    pub scratch: Option<BorrowedCode>,
    /// Oldest first.
    pub generations: Vec<Generation>,
}

/// Bytes of the program that were overwritten for a moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorrowedCode {
    /// Where.
    pub address: u64,
    /// What was there.
    #[serde(with = "hex")]
    pub original: Vec<u8>,
}

/// One optimization of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    /// Counts from 1.
    pub number: u32,
    /// When it was made, seconds since 1970.
    pub made: u64,
    /// How far it got.
    pub state: GenerationState,
    /// The memory that it added.
    pub areas: Vec<Area>,
    /// What leads into it.
    pub entries: Vec<JumpPatch>,
    /// The files that these lie in.
    #[serde(default)]
    pub homes: Vec<PatchedMapping>,
    /// What leads out of it again when it is not in force.
    pub exits: Vec<JumpPatch>,
    /// Where its unwind information is.
    pub frames: Vec<u64>,
    /// Tells its code from what else may be in its memory; `None` until it was written.
    #[serde(default)]
    pub digest: Option<u64>,
}

/// A file with entries, as it was mapped when they were written. A library may be unloaded, and
/// something else take its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchedMapping {
    /// Its addresses.
    pub range: Range<u64>,
    /// Where in the file they start.
    pub offset: u64,
    /// The file's device and number.
    pub file: ((u32, u32), u64),
}

impl PatchedMapping {
    /// The mappings of files that some of these entries lie in.
    #[must_use]
    pub fn of(entries: &[JumpPatch], maps: &Maps) -> Vec<Self> {
        let files = maps.all().iter().filter(|mapping| mapping.inode != 0);
        let mut homes: Vec<Self> = files.map(Self::at).collect();
        homes.retain(|home| entries.iter().any(|entry| home.range.contains(&entry.address)));
        homes
    }

    fn at(mapping: &Mapping) -> Self {
        Self {
            range: mapping.range.clone(),
            offset: mapping.offset,
            file: (mapping.device, mapping.inode),
        }
    }

    /// Whether an address holds something else now than the same byte of this file.
    #[must_use]
    pub fn has_moved_out(&self, address: u64, maps: &Maps) -> bool {
        let place = |home: &Self| (home.file, home.offset.wrapping_add(address - home.range.start));
        let now = maps.at(address).map(Self::at);
        self.range.contains(&address) && now.is_none_or(|now| place(&now) != place(self))
    }
}

/// How far a generation got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationState {
    /// Memory is being added, code written; nothing leads there.
    Preparing,
    /// Its entries are being written, or taken back: any of them may be there.
    Switching,
    /// In force.
    Active,
    /// Taken back; can be put in force again.
    #[serde(alias = "undone")]
    Inactive,
    /// Another one took its place; its memory is freed when nobody is in it.
    Retired,
    /// Its memory is being freed.
    Freeing,
}

/// Memory that was added: code that never changes, executable and not writable; then, side by
/// side with it, what the unwinder and our stubs write to, not executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    /// Its first address.
    pub address: u64,
    /// Bytes of code; its last page is for stubs of ours.
    pub code: u64,
    /// Bytes of data.
    pub data: u64,
}

impl Area {
    /// All its addresses.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.code + self.data
    }

    /// The addresses of its code.
    #[must_use]
    pub fn code_range(&self) -> Range<u64> {
        self.address..self.address + self.code
    }

    /// The addresses of its data.
    #[must_use]
    pub fn data_range(&self) -> Range<u64> {
        self.address + self.code..self.address + self.code + self.data
    }

    /// Where stubs go.
    #[must_use]
    pub fn stub(&self) -> u64 {
        const PAGE: u64 = 4096;
        self.address + self.code - PAGE
    }
}

/// A process's record on disk, locked against other dbdynos.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    record: JournalRecord,
    _lock: File,
}

impl Journal {
    /// Opens the journal of a process, or starts one.
    ///
    /// # Errors
    /// Another dbdyno holds it, or it cannot be read or written.
    pub fn open(state: &Path, identity: &Identity, program: &Path) -> Result<Self, LiveError> {
        forget_the_dead(state);
        let directory = directory(state, identity);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(LiveError::file("making", &directory))?;
        let lock = lock(&directory, identity.pid)?;
        let record = match read(&directory)? {
            Some(record) if record.identity == *identity => record,
            _ => JournalRecord {
                format: FORMAT,
                identity: identity.clone(),
                program: program.to_owned(),
                scratch: None,
                generations: Vec::new(),
            },
        };
        Ok(Self { directory, record, _lock: lock })
    }

    /// What is on record.
    #[must_use]
    pub fn record(&self) -> &JournalRecord {
        &self.record
    }

    /// Where other files about the process may be kept.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Keeps which instruction of a generation stands for which.
    ///
    /// # Errors
    /// It could not be written.
    pub fn keep_map(&self, number: u32, map: &AddressMap) -> Result<(), LiveError> {
        let path = self.map_path(number);
        let written = postcard::to_allocvec(map)
            .map_err(std::io::Error::other)
            .and_then(|bytes| fs::write(&path, bytes));
        written.map_err(LiveError::file("writing", &path))
    }

    /// What was kept; empty where nothing was, so that nothing stands for anything.
    #[must_use]
    pub fn map(&self, number: u32) -> AddressMap {
        let bytes = fs::read(self.map_path(number)).unwrap_or_default();
        postcard::from_bytes(&bytes).unwrap_or_default()
    }

    /// Forgets what was kept.
    pub(crate) fn forget_map(&self, number: u32) {
        // It takes a little room until the process ends, should this fail.
        let _ = fs::remove_file(self.map_path(number));
    }

    fn map_path(&self, number: u32) -> PathBuf {
        self.directory.join(format!("map-{number}"))
    }

    /// Changes the record, and has it stored before it returns.
    ///
    /// # Errors
    /// It could not be written; the record is as before.
    pub fn change(&mut self, change: impl FnOnce(&mut JournalRecord)) -> Result<(), LiveError> {
        let mut record = self.record.clone();
        change(&mut record);
        let text = serde_json::to_vec(&record).map_err(|error| LiveError::File {
            doing: "writing",
            path: self.directory.clone(),
            source: error.into(),
        })?;
        store(&self.directory, &text)
            .map_err(LiveError::file("writing the journal in", &self.directory))?;
        self.record = record;
        Ok(())
    }
}

/// Where journals are kept: gone when the machine starts anew, where there is such a place.
#[must_use]
pub fn default_state() -> PathBuf {
    // SAFETY: takes nothing and cannot fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    if is_root {
        return PathBuf::from("/run/dbdyno");
    }
    let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    match (from("XDG_RUNTIME_DIR"), from("XDG_STATE_HOME"), from("HOME")) {
        (Some(runtime), ..) => PathBuf::from(runtime).join("dbdyno"),
        (_, Some(state), _) => PathBuf::from(state).join("dbdyno"),
        (_, _, Some(home)) => PathBuf::from(home).join(".local/state/dbdyno"),
        _ => std::env::temp_dir().join("dbdyno"),
    }
}

/// The record of a process, without taking the lock; `None` where there is none.
///
/// # Errors
/// It cannot be read or understood.
pub fn find_record(state: &Path, identity: &Identity) -> Result<Option<JournalRecord>, LiveError> {
    let record = read(&directory(state, identity))?;
    Ok(record.filter(|record| record.identity == *identity))
}

/// What a process's journal keeps of a generation: see [`Journal::keep_map`].
pub(crate) fn find_map(state: &Path, identity: &Identity, number: u32) -> AddressMap {
    let path = directory(state, identity).join(format!("map-{number}"));
    postcard::from_bytes(&fs::read(path).unwrap_or_default()).unwrap_or_default()
}

/// The records of all processes that are still alive.
#[must_use]
pub fn live_records(state: &Path) -> Vec<JournalRecord> {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| read(&entry.path()).ok().flatten());
    let mut records: Vec<_> = records.filter(|record| record.identity.is_alive()).collect();
    records.sort_by_key(|record| record.identity.pid);
    records
}

pub(crate) fn directory(state: &Path, identity: &Identity) -> PathBuf {
    state.join(format!("{}-{}", identity.pid, identity.started))
}

fn read(directory: &Path) -> Result<Option<JournalRecord>, LiveError> {
    let path = directory.join("journal.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error)
            if matches!(
                error.kind(),
                std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(None);
        }
        Err(error) => return Err(LiveError::file("reading", &path)(error)),
    };
    let unclear = |source: std::io::Error| LiveError::File {
        doing: "understanding",
        path: path.clone(),
        source,
    };
    let record: JournalRecord =
        serde_json::from_slice(&text).map_err(|error| unclear(error.into()))?;
    if record.format != FORMAT {
        let text = format!("it has format {}, this dbdyno knows {FORMAT}", record.format);
        return Err(unclear(std::io::Error::other(text)));
    }
    Ok(Some(record))
}

fn lock(directory: &Path, pid: u32) -> Result<File, LiveError> {
    let path = directory.join("lock");
    let file = File::options()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&path)
        .map_err(LiveError::file("opening", &path))?;
    // The watchdog of a dbdyno that was killed may hold it for a moment.
    const ATTEMPTS: u32 = 200;
    for attempt in 1.. {
        match file.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if attempt == ATTEMPTS => {
                return Err(LiveError::Busy { pid });
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::Error(error)) => {
                return Err(LiveError::file("locking", &path)(error));
            }
        }
    }
    Ok(file)
}

fn store(directory: &Path, text: &[u8]) -> std::io::Result<()> {
    let new = directory.join("journal.new");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    fs::rename(&new, directory.join("journal.json"))
}

/// Removes the journals of processes that ended. Their numbers may be given out again; their
/// start times are not.
fn forget_the_dead(state: &Path) {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    for directory in entries.map(|entry| entry.path()) {
        let dead = match read(&directory) {
            Ok(Some(record)) => !record.identity.is_alive(),
            _ => false,
        };
        if dead {
            // It will be tried again next time.
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn generation() -> Generation {
        Generation {
            number: 1,
            made: 0,
            state: GenerationState::Preparing,
            areas: vec![Area { address: 4096, code: 8192, data: 4096 }],
            entries: vec![JumpPatch { address: 1, original: vec![0x55; 5], patch: vec![0xe9; 5] }],
            homes: Vec::new(),
            exits: Vec::new(),
            frames: vec![5000],
            digest: None,
        }
    }

    #[test]
    fn a_record_is_found_again_and_only_by_its_process() {
        let state = tempfile::tempdir().unwrap();
        let me = Identity::of(std::process::id()).unwrap();
        let mut journal = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        let busy = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap_err();
        assert!(matches!(busy, LiveError::Busy { .. }), "{busy}");
        drop(journal);
        let found = find_record(state.path(), &me).unwrap().unwrap();
        assert_eq!(found.generations, [generation()]);
        assert_eq!(live_records(state.path()), [found]);
        let other = Identity { image: (1, 2), ..me.clone() };
        assert_eq!(find_record(state.path(), &other).unwrap(), None);
        let mode = fs::metadata(directory(state.path(), &me)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn journals_of_the_dead_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let me = Identity::of(std::process::id()).unwrap();
        let dead = Identity { started: me.started + 7, ..me.clone() };
        let mut journal = Journal::open(state.path(), &dead, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        drop(journal);
        assert!(directory(state.path(), &dead).exists());
        Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        assert!(!directory(state.path(), &dead).exists());
    }

    #[test]
    fn a_newer_format_is_refused() {
        let state = tempfile::tempdir().unwrap();
        let me = Identity::of(std::process::id()).unwrap();
        let mut journal = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.format = 99).unwrap();
        let refused = find_record(state.path(), &me).unwrap_err().to_string();
        assert!(refused.contains("format 99"), "{refused}");
    }
    #[test]
    fn a_library_is_told_from_what_took_its_place() {
        let maps = |line: &str| Maps::parse(line).unwrap();
        let library = maps("7f0000001000-7f0000003000 r-xp 00001000 fe:00 7 /lib/one.so");
        let entry = |address| JumpPatch { address, original: vec![0; 5], patch: vec![1; 5] };
        let entries = [entry(0x7f00_0000_1010), entry(0x7f00_0000_2010)];
        let [home] = &PatchedMapping::of(&entries, &library)[..] else { panic!("one mapping") };
        let has_moved_out = |line: &str| {
            let maps = maps(line);
            entries.each_ref().map(|entry| home.has_moved_out(entry.address, &maps))
        };
        assert_eq!(has_moved_out(""), [true, true]);
        // Renamed, and with other permissions for a part of it.
        let split = "7f0000001000-7f0000002000 r-xp 00001000 fe:00 7 /lib/two.so\n\
                     7f0000002000-7f0000003000 rwxp 00002000 fe:00 7 /lib/two.so (deleted)";
        assert_eq!(has_moved_out(split), [false, false]);
        // Another file; the same number on another device; the same file, loaded elsewhere.
        for other in ["00001000 fe:00 8", "00001000 fe:01 7", "00000000 fe:00 7"] {
            let line = format!("7f0000002000-7f0000003000 r-xp {other} /lib/one.so");
            assert_eq!(has_moved_out(&line), [true, true], "{line}");
        }
        assert_eq!(PatchedMapping::of(&entries, &Maps::default()), []);
    }
}
