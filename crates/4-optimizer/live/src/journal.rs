//! The journal of a process: every change is recorded on disk before it is made.
//!
//! One directory per process, with one file that is replaced atomically. It contains the original
//! of every changed byte, so that changes can be undone even if dbdyno was killed. It need not
//! survive a reboot, because no process does.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write};
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dbdyno_machine::ProcessIdentity;
use dbdyno_machine::safe_files::SafeDir;
use dbdyno_relayout::AddressMap;
use serde::{Deserialize, Serialize};

use crate::memory::{Mapping, Maps};
use crate::patch::{BytePatch, PAGE, PatchList, hex};
use crate::process::identify;
use crate::process_lock::lock_patiently;
use crate::{LiveError, symbols};

const FORMAT: u32 = 1;

/// The changes to one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalRecord {
    pub format: u32,
    pub identity: ProcessIdentity,
    /// The machine and the namespace in which its process has this number: several may share a directory. `None` in
    /// journals of old versions.
    pub namespace: Option<String>,
    pub program: PathBuf,
    /// Code of the program that is temporarily overwritten.
    pub borrowed: Option<BorrowedCode>,
    /// Whether huge pages, which the process has disabled (`PR_SET_THP_DISABLE`), are enabled temporarily.
    #[serde(default)]
    pub enabled_huge_pages: bool,
    /// Generations, oldest first.
    pub generations: Vec<Generation>,
}

/// Code of the program that is temporarily overwritten.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BorrowedCode {
    pub address: u64,
    #[serde(with = "hex")]
    pub original: Vec<u8>,
    /// The mapping that it is in; `None` in journals of earlier versions.
    #[serde(default)]
    pub mapping: Option<PatchedMapping>,
}

/// One optimization of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Generation {
    pub number: u32,
    /// In seconds since 1970.
    pub made: u64,
    pub state: GenerationState,
    /// Memory added to the process.
    pub areas: Vec<Area>,
    /// Jumps from the original code, and addresses in virtual tables.
    pub entries: PatchList,
    /// The mappings that the entries are in.
    #[serde(default)]
    pub mappings: Vec<PatchedMapping>,
    /// Jumps back to the original code, written while it is inactive.
    pub exits: PatchList,
    /// Addresses of its unwind information.
    pub frames: Vec<u64>,
    /// Digest of its code; `None` until the code was written.
    pub digest: Option<u64>,
    /// Whether its code counts executions, so that it is slow: it is only active while they are counted, and
    /// never redone.
    #[serde(default)]
    pub counts: bool,
    /// The maximum pause when it was made, in milliseconds; `None` in journals of old versions.
    pub max_pause_ms: Option<u64>,
}

impl GenerationState {
    /// Whether entries may be redirected.
    pub const fn may_be_active(self) -> bool {
        matches!(self, Self::Active | Self::Switching)
    }
}

impl Generation {
    /// Whether a redo may activate it, also if dbdyno was killed before it recorded an undo.
    pub fn is_redoable(&self) -> bool {
        !self.counts && (self.state.may_be_active() || self.state == GenerationState::Inactive)
    }

    /// Whether its entries were redirected at any time, as far as is known.
    pub fn was_activated(&self) -> bool {
        // The digest is stored before the first entry is redirected. Journals of old versions have none.
        self.digest.is_some() || !self.entries.is_empty()
    }

    pub fn code_size(&self) -> u64 {
        self.areas.iter().map(|area| area.code).sum()
    }
}

/// A mapping that entries were written to. A library may be unloaded, and another mapping may replace
/// it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchedMapping {
    pub range: Range<u64>,
    pub offset: u64,
    /// Device and inode of the file.
    pub file: ((u32, u32), u64),
}

impl PatchedMapping {
    /// The file mappings that contain any of these entries.
    pub fn of(entries: &[BytePatch], maps: &Maps) -> Vec<Self> {
        let files = maps.all().iter().filter(|mapping| mapping.inode != 0);
        let mut found: Vec<Self> = files.map(Self::at).collect();
        found.retain(|mapping| entries.iter().any(|entry| mapping.range.contains(&entry.address)));
        found
    }

    pub(crate) fn at(mapping: &Mapping) -> Self {
        Self {
            range: mapping.range.clone(),
            offset: mapping.offset,
            file: (mapping.device, mapping.inode),
        }
    }

    /// Whether an address no longer maps the same byte of the file.
    pub fn was_replaced_at(&self, address: u64, maps: &Maps) -> bool {
        let position = |it: &Self| (it.file, it.offset.wrapping_add(address - it.range.start));
        let was_moved = |now: &Mapping| position(&Self::at(now)) != position(self);
        // Called for each entry of hundreds of generations.
        self.range.contains(&address) && maps.at(address).is_none_or(was_moved)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GenerationState {
    /// Memory and code are being added; no entry is redirected.
    #[default]
    Preparing,
    /// Its entries are being redirected or restored: any of them may be redirected.
    Switching,
    /// Its entries are redirected.
    Active,
    /// Its entries are restored; can be redone.
    Inactive,
    /// Replaced. It is kept, or freed when no thread uses it: see
    /// [`ProbeOptions::unmap`](crate::ProbeOptions::unmap).
    Retired,
    Freeing,
}

/// Memory added to a process: executable code that the process cannot write, followed by writable data
/// for the unwinder and for stubs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Area {
    pub address: u64,
    /// Size of the code in bytes; its last page is for stubs.
    pub code: u64,
    pub data: u64,
}

impl Area {
    pub fn range(&self) -> Range<u64> {
        self.address..self.address + self.code + self.data
    }

    pub fn code_range(&self) -> Range<u64> {
        self.address..self.address + self.code
    }

    pub fn data_range(&self) -> Range<u64> {
        self.address + self.code..self.address + self.code + self.data
    }

    pub fn stub(&self) -> u64 {
        self.address + self.code - PAGE
    }
}

/// The journal of a process, locked against other dbdynos.
#[derive(Debug)]
pub struct Journal {
    directory: PathBuf,
    record: JournalRecord,
    maps: AddressMaps,
    _lock: File,
}

impl Journal {
    /// Opens or creates the journal of a process in a directory that no other user can write to:
    /// see [`state_dir`].
    pub fn open(
        state: &Path,
        identity: &ProcessIdentity,
        program: &Path,
    ) -> Result<Self, LiveError> {
        remove_exited(state);
        let directory = directory(state, identity);
        let lock = loop {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&directory)
                .map_err(LiveError::file("creating", &directory))?;
            // Another dbdyno may remove it before it is locked.
            if let Some(lock) = lock(&directory, identity.pid)? {
                break lock;
            }
        };
        let record = match read(&directory)? {
            Some(record) if record.identity == *identity => record,
            _ => JournalRecord {
                format: FORMAT,
                identity: identity.clone(),
                namespace: own_namespace(),
                program: program.to_owned(),
                borrowed: None,
                enabled_huge_pages: false,
                generations: Vec::new(),
            },
        };
        let maps = AddressMaps::new(&directory);
        Ok(Self { directory, record, maps, _lock: lock })
    }

    pub fn record(&self) -> &JournalRecord {
        &self.record
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn maps(&self) -> &AddressMaps {
        &self.maps
    }

    /// Changes the record and stores it.
    ///
    /// # Errors
    /// It could not be written; then it is not changed.
    pub fn change(&mut self, change: impl FnOnce(&mut JournalRecord)) -> Result<(), LiveError> {
        let mut record = self.record.clone();
        change(&mut record);
        let text = serde_json::to_vec(&record)
            .map_err(|error| LiveError::file("writing", &self.directory)(error.into()))?;
        store(&self.directory, &text)
            .map_err(LiveError::file("writing the journal in", &self.directory))?;
        self.record = record;
        Ok(())
    }
}

impl JournalRecord {
    /// Whether nothing in the process belongs to dbdyno.
    pub fn is_empty(&self) -> bool {
        self.generations.is_empty() && self.borrowed.is_none() && !self.enabled_huge_pages
    }

    /// The maximum pause with which the newest optimization was made.
    pub fn max_pause(&self) -> Option<Duration> {
        self.generations.iter().rev().find_map(|it| it.max_pause_ms).map(Duration::from_millis)
    }
}

impl Drop for Journal {
    /// Removes a journal without content.
    fn drop(&mut self) {
        if self.record.is_empty() {
            // If it fails, the directory stays until the process exits.
            let _ = fs::remove_dir_all(&self.directory);
        }
    }
}

/// The directory for journals that the user chose, or the default, which is not removed before the next boot: that of
/// `XDG_RUNTIME_DIR` is when its user logs out, and a server runs on. It is created, accessible to its owner only. Bytes
/// from journals are written to processes, so no other user can write to it or replace a component of its path.
pub fn state_dir(chosen: Option<&Path>) -> Result<PathBuf, LiveError> {
    let path = match chosen {
        Some(path) => path.to_owned(),
        None => {
            let from = |name: &str| std::env::var_os(name);
            default_state(rustix::process::geteuid().is_root(), from).ok_or_else(|| {
                let what = "no directory for journals; set XDG_STATE_HOME or HOME to an absolute path, or \
                             name a directory with --state";
                LiveError::Failed(what.to_owned())
            })?
        }
    };
    SafeDir::create_trusted(&path, 0o700)?;
    Ok(path)
}

/// Relative paths are ignored, as required by the XDG Base Directory Specification.
fn default_state(root: bool, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    if root {
        return Some(PathBuf::from("/run/dbdyno"));
    }
    let from = |name, inner| {
        let path = PathBuf::from(variable(name)?);
        path.is_absolute().then(|| path.join(inner))
    };
    from("XDG_STATE_HOME", "dbdyno/live").or_else(|| from("HOME", ".local/state/dbdyno/live"))
}

/// The record of a process, without the lock; `None` if there is none.
pub fn find_record(
    state: &Path,
    identity: &ProcessIdentity,
) -> Result<Option<JournalRecord>, LiveError> {
    let record = read(&directory(state, identity))?;
    Ok(record.filter(|record| record.identity == *identity))
}

/// The records of all running processes with code of dbdyno, active or not.
pub fn live_records(state: &Path) -> Vec<JournalRecord> {
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    let records = entries.filter_map(|entry| read(&entry.path()).ok().flatten());
    let records = records.filter(|record| !record.is_empty() && record.identity.is_alive());
    let mut records: Vec<_> = records.collect();
    records.sort_by_key(|record| record.identity.pid);
    records
}

pub(crate) fn directory(state: &Path, identity: &ProcessIdentity) -> PathBuf {
    state.join(format!("{}-{}", identity.pid, identity.start_ticks))
}

fn read(directory: &Path) -> Result<Option<JournalRecord>, LiveError> {
    let path = directory.join("journal.json");
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(LiveError::file("reading", &path)(error)),
    };
    let invalid = |source: std::io::Error| LiveError::file("parsing", &path)(source);
    let record: JournalRecord =
        serde_json::from_slice(&text).map_err(|error| invalid(error.into()))?;
    if record.format != FORMAT {
        let text = format!("it has format {}; this dbdyno supports format {FORMAT}", record.format);
        return Err(invalid(std::io::Error::other(text)));
    }
    Ok(Some(record))
}

/// Locks a directory; `None` if it was removed meanwhile.
fn lock(directory: &Path, pid: u32) -> Result<Option<File>, LiveError> {
    let path = directory.join("lock");
    let file = match File::options().append(true).create(true).mode(0o600).open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(LiveError::file("opening", &path)(error)),
    };
    if !lock_patiently(&file).map_err(LiveError::file("locking", &path))? {
        return Err(LiveError::Locked { pid, by: None });
    }
    let inode = |metadata: std::io::Result<fs::Metadata>| metadata.map(|it| it.ino()).ok();
    Ok((inode(fs::metadata(&path)) == inode(file.metadata())).then_some(file))
}

fn store(directory: &Path, text: &[u8]) -> std::io::Result<()> {
    let new = directory.join("journal.new");
    let mut file =
        File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text)?;
    fs::rename(&new, directory.join("journal.json"))
}

/// This machine and the namespace of process numbers; `None` if it cannot be read.
fn own_namespace() -> Option<String> {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", machine.trim(), namespace.display()))
}

/// Removes the journals of processes that have exited, and their symbols for `perf`. Those of other machines and
/// containers stay: whether their processes run is not known here.
pub fn remove_exited(state: &Path) {
    let own = own_namespace();
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    for directory in entries.map(|entry| entry.path()) {
        let Ok(Some(JournalRecord { identity, namespace, .. })) = read(&directory) else {
            continue;
        };
        if namespace.is_some() && namespace != own {
            continue;
        }
        let has_exited = match identify(identity.pid) {
            Err(LiveError::Exited { .. }) => {
                symbols::remove_perf_map(identity.pid);
                true
            }
            Err(_) => false,
            // Who may not trace a process does not see its image.
            Ok(now) if now.start_ticks == identity.start_ticks && now.image == (0, 0) => false,
            // It may have executed another program.
            Ok(_) => !identity.is_alive(),
        };
        if has_exited {
            // If it fails, it is retried next time.
            let _ = fs::remove_dir_all(&directory);
        }
    }
}

/// The maps by number of the generation. Each file is read once, because every switch needs all of them.
#[derive(Debug)]
pub(crate) struct AddressMaps {
    directory: PathBuf,
    known: Mutex<BTreeMap<u32, Arc<AddressMap>>>,
}

impl AddressMaps {
    pub(crate) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), known: Mutex::default() }
    }

    pub(crate) fn store(&self, number: u32, map: &AddressMap) -> Result<(), LiveError> {
        let path = path(&self.directory, number);
        let written = postcard::to_allocvec(map)
            .map_err(std::io::Error::other)
            .and_then(|bytes| fs::write(&path, bytes));
        written.map_err(LiveError::file("writing", &path))?;
        self.known().insert(number, Arc::new(map.clone()));
        Ok(())
    }

    /// The map of a generation; empty if none is stored.
    pub(crate) fn get(&self, number: u32) -> Arc<AddressMap> {
        let read = || Arc::new(read_map(&self.directory, number));
        self.known().entry(number).or_insert_with(read).clone()
    }

    pub(crate) fn remove(&self, number: u32) {
        self.known().remove(&number);
        // If it fails, the file stays until the process exits.
        let _ = fs::remove_file(path(&self.directory, number));
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<AddressMap>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The map of a generation in the directory of any process; empty if none is stored.
pub(crate) fn read_map(directory: &Path, number: u32) -> AddressMap {
    let bytes = fs::read(path(directory, number)).unwrap_or_default();
    postcard::from_bytes(&bytes).unwrap_or_default()
}

fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("map-{number}"))
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
            entries: vec![BytePatch { address: 1, original: vec![0x55; 5], patch: vec![0xe9; 5] }]
                .into(),
            mappings: Vec::new(),
            exits: PatchList::default(),
            frames: vec![5000],
            digest: None,
            counts: false,
            max_pause_ms: None,
        }
    }

    #[test]
    fn record_is_found_only_by_its_process() {
        let state = tempfile::tempdir().unwrap();
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        let mut journal = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        let busy = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap_err();
        assert!(matches!(busy, LiveError::Locked { .. }), "{busy}");
        drop(journal);
        let found = find_record(state.path(), &me).unwrap().unwrap();
        assert_eq!(found.generations, [generation()]);
        assert_eq!(live_records(state.path()), [found]);
        let other = ProcessIdentity { image: (1, 2), ..me.clone() };
        assert_eq!(find_record(state.path(), &other).unwrap(), None);
        let mode = fs::metadata(directory(state.path(), &me)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn journals_of_exited_processes_are_removed() {
        let state = tempfile::tempdir().unwrap();
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        let dead = ProcessIdentity { start_ticks: me.start_ticks + 7, ..me.clone() };
        let mut journal = Journal::open(state.path(), &dead, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        drop(journal);
        let elsewhere = ProcessIdentity { start_ticks: me.start_ticks + 8, ..me.clone() };
        let mut journal = Journal::open(state.path(), &elsewhere, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        journal.change(|record| record.namespace = Some("another".to_owned())).unwrap();
        drop(journal);
        Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        assert!(!directory(state.path(), &dead).exists());
        assert!(directory(state.path(), &elsewhere).exists(), "it may run in a container");
    }

    #[test]
    fn default_state_depends_on_environment() {
        let of = |root, variables: &[(&str, &str)]| {
            let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
            default_state(root, |name| find(name).map(|(_, value)| OsString::from(value)))
        };
        let path = |path: &str| Some(PathBuf::from(path));
        let home = ("HOME", "/home/a");
        assert_eq!(of(true, &[home]), path("/run/dbdyno"));
        assert_eq!(of(false, &[home]), path("/home/a/.local/state/dbdyno/live"));
        assert_eq!(of(false, &[home, ("XDG_STATE_HOME", "/s")]), path("/s/dbdyno/live"));
        let relative = [home, ("XDG_STATE_HOME", "s")];
        assert_eq!(of(false, &relative), path("/home/a/.local/state/dbdyno/live"));
        // A directory in /tmp could be that of another user.
        assert_eq!(of(false, &[]), None);
    }

    #[test]
    fn state_that_others_can_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        state_dir(Some(&state)).unwrap();
        let mode = |mode| fs::set_permissions(&state, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);
        mode(0o777);
        let error = state_dir(Some(&state)).unwrap_err().to_string();
        assert!(error.contains("has mode 0777"), "{error}");
        mode(0o700);
        state_dir(Some(&state)).unwrap();
    }

    #[test]
    fn damaged_journal_is_read_or_refused() {
        let state = tempfile::tempdir().unwrap();
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        let mut journal = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.generations.push(generation())).unwrap();
        let own = AddressMap::new(vec![(1, 2), (3, 4)], vec![(2, 1)]);
        journal.maps().store(1, &own).unwrap();
        let directory = journal.directory().to_owned();
        let files = ["journal.json", "map-1"].map(|name| directory.join(name));
        let samples = files.iter().map(|file| fs::read(file).unwrap()).collect();
        dbdyno_fuzz::Fuzz::new(samples).words(&["-1", "1e400", "[[[["]).run(|content| {
            fs::write(&files[0], content).unwrap();
            fs::write(&files[1], content).unwrap();
            let _ = find_record(state.path(), &me);
            let _ = read_map(&directory, 1).to_copy(1);
        });
    }

    #[test]
    fn unknown_format_is_rejected() {
        let state = tempfile::tempdir().unwrap();
        let me = ProcessIdentity::of(std::process::id()).unwrap();
        let mut journal = Journal::open(state.path(), &me, Path::new("/bin/me")).unwrap();
        journal.change(|record| record.format = 99).unwrap();
        let refused = find_record(state.path(), &me).unwrap_err().to_string();
        assert!(refused.contains("format 99"), "{refused}");
    }

    #[test]
    fn replaced_mapping_is_detected() {
        let maps = |line: &str| Maps::parse(line).unwrap();
        let library = maps("7f0000001000-7f0000003000 r-xp 00001000 fe:00 7 /lib/one.so");
        let entry = |address| BytePatch { address, original: vec![0; 5], patch: vec![1; 5] };
        let entries = [entry(0x7f00_0000_1010), entry(0x7f00_0000_2010)];
        let [mapping] = &PatchedMapping::of(&entries, &library)[..] else { panic!("one mapping") };
        let was_replaced = |line: &str| {
            let maps = maps(line);
            entries.each_ref().map(|entry| mapping.was_replaced_at(entry.address, &maps))
        };
        assert_eq!(was_replaced(""), [true, true]);
        // Renamed, and with other permissions for a part.
        let split = "7f0000001000-7f0000002000 r-xp 00001000 fe:00 7 /lib/two.so\n\
                     7f0000002000-7f0000003000 rwxp 00002000 fe:00 7 /lib/two.so (deleted)";
        assert_eq!(was_replaced(split), [false, false]);
        // Another file; the same inode on another device; the same file at another offset.
        for other in ["00001000 fe:00 8", "00001000 fe:01 7", "00000000 fe:00 7"] {
            let line = format!("7f0000002000-7f0000003000 r-xp {other} /lib/one.so");
            assert_eq!(was_replaced(&line), [true, true], "{line}");
        }
        assert_eq!(PatchedMapping::of(&entries, &Maps::default()), []);
    }

    #[test]
    fn map_is_found_by_this_and_other_readers_until_it_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let map = AddressMap::new(vec![(1, 2)], vec![(2, 1)]);
        let maps = AddressMaps::new(directory.path());
        assert_eq!(*maps.get(1), AddressMap::default());
        maps.store(1, &map).unwrap();
        assert_eq!(*maps.get(1), map);
        assert_eq!(*AddressMaps::new(directory.path()).get(1), map);
        maps.remove(1);
        assert_eq!(*maps.get(1), AddressMap::default());
        assert_eq!(read_map(directory.path(), 1), AddressMap::default());
    }
}
