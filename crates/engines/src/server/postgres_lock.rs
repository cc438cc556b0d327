//! What a PostgreSQL server that was killed leaves behind: its lock file, and a segment of shared
//! memory that only another start of the same data directory would remove.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The file that names a running server, in its data directory.
pub(crate) const LOCK_FILE: &str = "postmaster.pid";

/// A segment of System V shared memory, as the lock file names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    key: libc::key_t,
    id: libc::c_int,
}

/// Removes the lock file of a server that has ended, and its shared memory. Where a process still
/// uses the memory both stay, and PostgreSQL itself refuses to start.
///
/// # Errors
/// The file cannot be removed.
pub(crate) fn clear(data: &Path) -> io::Result<()> {
    let file = data.join(LOCK_FILE);
    if remove_shared_memory(data) {
        match std::fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Gives back the shared memory of a server that was killed in this data directory. Whether none
/// is in use there now; that there was none to give back is fine.
pub(crate) fn remove_shared_memory(data: &Path) -> bool {
    let Ok(text) = std::fs::read_to_string(data.join(LOCK_FILE)) else { return true };
    // A server that was killed right after its start had not got that far.
    let Some(segment) = Segment::parse(&text) else { return true };
    let Some(facts) = segment.facts() else { return true };
    // The number may be another program's by now. Whoever owns the data could write any number
    // into the file.
    let owner = std::fs::metadata(data).map(|metadata| metadata.uid());
    if facts.shm_perm.__key != segment.key || owner.ok() != Some(facts.shm_perm.cuid) {
        return true;
    }
    if facts.shm_nattch > 0 {
        return false;
    }
    segment.remove();
    true
}

impl Segment {
    /// Reads the lock file: the seventh line has the key and the number.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.lines().nth(6)?.split_whitespace();
        // Written as unsigned numbers, whatever they are.
        let mut number = || Some((words.next()?.parse::<i64>().ok()? & 0xffff_ffff) as u32);
        Some(Self { key: number()?.cast_signed(), id: number()?.cast_signed() })
    }

    /// What the kernel says of it; none where it is gone or not ours to see.
    fn facts(self) -> Option<libc::shmid_ds> {
        // SAFETY: an all-zero shmid_ds is a valid value of this plain C structure.
        let mut facts: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills the structure, which is ours.
        let status = unsafe { libc::shmctl(self.id, libc::IPC_STAT, &raw mut facts) };
        (status == 0).then_some(facts)
    }

    fn remove(self) {
        // SAFETY: the command takes no structure. What fails here, fails for want of permission:
        // the segment has 56 bytes and harms nobody.
        unsafe { libc::shmctl(self.id, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: libc::key_t = 0x6462_6479;

    /// A segment of the test's own, and a directory whose lock file names it.
    fn lab() -> (tempfile::TempDir, Segment) {
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
    fn memory_that_nobody_uses_is_given_back_with_the_file() {
        let (directory, segment) = lab();
        clear(directory.path()).unwrap();
        assert!(segment.facts().is_none());
        assert!(!directory.path().join(LOCK_FILE).exists());
        clear(directory.path()).unwrap();
    }

    #[test]
    fn memory_in_use_stays_and_so_does_the_file() {
        let (directory, segment) = lab();
        // SAFETY: attaches the test's own segment at an address of the kernel's choice.
        let address = unsafe { libc::shmat(segment.id, std::ptr::null(), 0) };
        clear(directory.path()).unwrap();
        let found = (segment.facts().is_some(), directory.path().join(LOCK_FILE).exists());
        // SAFETY: the address is the one that was attached.
        unsafe { libc::shmdt(address) };
        clear(directory.path()).unwrap();
        assert_eq!(found, (true, true));
        assert!(segment.facts().is_none());
    }

    #[test]
    fn memory_of_another_key_is_not_touched() {
        let (directory, segment) = lab();
        write(directory.path(), Segment { key: KEY, ..segment });
        clear(directory.path()).unwrap();
        let found = segment.facts().is_some();
        segment.remove();
        assert!(found);
    }

    #[test]
    fn a_lock_file_that_is_cut_short_names_no_memory() {
        assert_eq!(Segment::parse("4711\n/data\n"), None);
        assert_eq!(
            Segment::parse("1\n\n\n\n\n\n  4294967295 12\n").map(|s| (s.key, s.id)),
            Some((-1, 12))
        );
    }
}
