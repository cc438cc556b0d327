//! Cleanup after a killed PostgreSQL server: its lock file, a shared memory segment that otherwise
//! only the next start in the same data directory removes, and another one that nothing removes.
//!
//! The former is System V shared memory, which rustix does not cover; hence libc.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use dbdyno_machine::safe_files::SafeDir;
use dbdyno_units::Bytes;

use super::user::remove_file_if_exists;

/// The lock file in the data directory of a running server.
pub(crate) const LOCK_FILE: &str = "postmaster.pid";

/// The limit for its size; it has eight lines.
const MAX_LOCK_FILE: Bytes = Bytes::from_mib(1);

/// A System V shared memory segment, as recorded in the lock file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    key: libc::key_t,
    id: libc::c_int,
}

/// Removes the lock file and the shared memory of a server that has exited. If a process still uses
/// the memory, both stay and PostgreSQL itself refuses to start.
pub(crate) fn clear(data: &Path) -> io::Result<()> {
    let file = data.join(LOCK_FILE);
    if remove_shared_memory(data) { remove_file_if_exists(&file) } else { Ok(()) }
}

/// Removes the shared memory of a server that was killed in this data directory, if it left any.
/// False if a process still uses the memory.
pub(crate) fn remove_shared_memory(data: &Path) -> bool {
    let Ok(text) = read(data) else { return true };
    // A server that was killed right after its start has not written the line yet.
    let Some(segment) = Segment::parse(&text) else { return true };
    let Some(facts) = segment.stat() else { return true };
    // The id may belong to another program by now, and the owner of the data can write any id into
    // the file.
    let owner = std::fs::symlink_metadata(data).map(|metadata| metadata.uid());
    if facts.shm_perm.__key != segment.key || owner.ok() != Some(facts.shm_perm.cuid) {
        return true;
    }
    if facts.shm_nattch > 0 {
        return false;
    }
    segment.remove();
    true
}

/// Reads the lock file, which the server's user can replace by anything.
fn read(data: &Path) -> io::Result<String> {
    let text = SafeDir::open(data)?.read(Path::new(LOCK_FILE), MAX_LOCK_FILE)?;
    String::from_utf8(text).map_err(io::Error::other)
}

impl Segment {
    /// Parses the lock file: line 7 has the key and the id.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().nth(6)?.split_whitespace();
        // Written as unsigned numbers, whatever their sign.
        let mut number = || Some((words.next()?.parse::<i64>().ok()? & 0xffff_ffff) as u32);
        Some(Self { key: number()?.cast_signed(), id: number()?.cast_signed() })
    }

    /// The kernel's record of the segment; `None` if it does not exist or access is denied.
    fn stat(self) -> Option<libc::shmid_ds> {
        // SAFETY: an all-zero shmid_ds is a valid value of this plain C structure.
        let mut facts: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure, which this function owns.
        let status = unsafe { libc::shmctl(self.id, libc::IPC_STAT, &raw mut facts) };
        (status == 0).then_some(facts)
    }

    fn remove(self) {
        // Fails only without permission, which is harmless: the segment has 56 bytes.
        // SAFETY: the command takes no structure.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

/// A segment of POSIX shared memory of a PostgreSQL process. Servers have theirs in the data directory, but
/// the processes of initdb are not configured yet: if one is killed, or aborts on a full disk, its segment stays.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DynamicMemory {
    file: PathBuf,
    inode: u64,
}

impl DynamicMemory {
    /// The segments that a process and its descendants have mapped, if they work in `data`.
    pub(crate) fn of_descendants(pid: u32, data: &Path) -> Vec<Self> {
        let read =
            |file: &str| std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let mut found = Vec::new();
        if std::fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(data)) {
            found.extend(read("maps").lines().filter_map(Self::parse));
        }
        let children = read(&format!("task/{pid}/children"));
        let children = children.split_whitespace().filter_map(|child| child.parse().ok());
        found.extend(children.flat_map(|child| Self::of_descendants(child, data)));
        found
    }

    /// Parses a line of `/proc/PID/maps`.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace().skip(4);
        let inode = fields.next()?.parse().ok()?;
        let file = fields.next()?;
        let number = file.strip_prefix("/dev/shm/PostgreSQL.")?;
        // The kernel marks one that is removed with another word.
        let is_there = number.bytes().all(|byte| byte.is_ascii_digit()) && fields.next().is_none();
        is_there.then(|| Self { file: PathBuf::from(file), inode })
    }

    /// Removes it if it is still there, once its processes have exited.
    pub(crate) fn remove(&self) {
        let found = std::fs::symlink_metadata(&self.file);
        if found.is_ok_and(|found| found.is_file() && found.ino() == self.inode) {
            // Fails only without permission.
            let _ = std::fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dynamic_memory_is_known_by_name_and_inode() {
        let maps = "\
55d0a0000000-55d0a0001000 r--p 00000000 08:01 99                         /usr/lib/postgresql/15/bin/postgres
7f0000000000-7f0000007000 rw-s 00000000 00:1c 17                         /dev/shm/PostgreSQL.4294967295
7f0000010000-7f0000017000 rw-s 00000000 00:1c 18                         /dev/shm/PostgreSQL.12 (deleted)
7f0000020000-7f0000027000 rw-s 00000000 00:1c 19                         /dev/shm/PostgreSQL.1/../x
7f0000030000-7f0000037000 rw-p 00000000 00:00 0
";
        let found: Vec<_> = maps.lines().filter_map(DynamicMemory::parse).collect();
        let file = PathBuf::from("/dev/shm/PostgreSQL.4294967295");
        assert_eq!(found, [DynamicMemory { file, inode: 17 }]);
    }

    #[test]
    fn only_the_same_dynamic_memory_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("segment");
        std::fs::write(&file, "").unwrap();
        let inode = file.metadata().unwrap().ino();
        let segment = DynamicMemory { file: file.clone(), inode };
        DynamicMemory { inode: inode + 1, ..segment.clone() }.remove();
        assert!(file.exists());
        segment.remove();
        assert!(!file.exists());
        segment.remove();
    }

    const KEY: libc::key_t = 0x6462_6479;

    /// A new segment and a directory whose lock file names it.
    fn locked_directory() -> (tempfile::TempDir, Segment) {
        // SAFETY: takes numbers only.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 56, libc::IPC_CREAT | 0o600) };
        assert!(id >= 0);
        let segment = Segment { key: libc::IPC_PRIVATE, id };
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), segment);
        (directory, segment)
    }

    fn write(data: &Path, Segment { key, id }: Segment) {
        let text =
            format!("1\n{}\n1700000000\n5432\n/tmp\n\n{key:9} {id:9}\nready   \n", data.display());
        std::fs::write(data.join(LOCK_FILE), text).unwrap();
    }

    #[test]
    fn unused_memory_is_removed_with_the_lock_file() {
        let (directory, segment) = locked_directory();
        clear(directory.path()).unwrap();
        assert!(segment.stat().is_none());
        assert!(!directory.path().join(LOCK_FILE).exists());
        clear(directory.path()).unwrap();
    }

    #[test]
    fn memory_in_use_keeps_the_lock_file() {
        let (directory, segment) = locked_directory();
        // SAFETY: attaches the test's own segment at an address of the kernel's choice.
        let address = unsafe { libc::shmat(segment.id, std::ptr::null(), 0) };
        clear(directory.path()).unwrap();
        let found = (segment.stat().is_some(), directory.path().join(LOCK_FILE).exists());
        // SAFETY: the address is the one that was attached.
        unsafe { libc::shmdt(address) };
        clear(directory.path()).unwrap();
        assert_eq!(found, (true, true));
        assert!(segment.stat().is_none());
    }

    #[test]
    fn memory_with_another_key_is_kept() {
        let (directory, segment) = locked_directory();
        write(directory.path(), Segment { key: KEY, ..segment });
        clear(directory.path()).unwrap();
        let found = segment.stat().is_some();
        segment.remove();
        assert!(found);
    }

    #[test]
    fn truncated_lock_file_names_no_memory() {
        assert_eq!(Segment::parse("4711\n/data\n"), None);
        assert_eq!(
            Segment::parse("1\n\n\n\n\n\n  4294967295 12\n").map(|s| (s.key, s.id)),
            Some((-1, 12))
        );
    }
}
