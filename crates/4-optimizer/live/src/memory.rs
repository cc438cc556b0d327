//! The memory of another process, through `/proc/PID/mem`.
//!
//! This also allows writing to read-only and executable pages: the kernel gives the process a private
//! copy of the page and does not change its permissions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::LiveError;
use crate::patch::PAGE;

/// The memory of a process. Bound to the address space that it was opened on.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    file: File,
}

impl ProcessMemory {
    /// Opens the memory for reading and writing.
    ///
    /// # Errors
    /// The process exited, or this user may not access its memory.
    pub fn open(pid: u32) -> Result<Self, LiveError> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(LiveError::proc_file("opening the memory of", pid))?;
        Ok(Self { pid, file })
    }

    /// Reads all of `bytes`.
    ///
    /// # Errors
    /// A part is not mapped, or the process exited.
    pub fn read_into(&self, address: u64, bytes: &mut [u8]) -> Result<(), LiveError> {
        self.file.read_exact_at(bytes, address).map_err(|error| match error.kind() {
            // The address space no longer exists.
            std::io::ErrorKind::UnexpectedEof => LiveError::Exited { pid: self.pid },
            _ => LiveError::system(format!("reading at {address:#x} in"), self.pid)(error),
        })
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// As [`ProcessMemory::read_into`].
    pub fn read(&self, address: u64, count: usize) -> Result<Vec<u8>, LiveError> {
        let mut bytes = vec![0; count];
        self.read_into(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes all of `bytes`. Bytes on one page are written completely or not at all, even if this
    /// process is killed.
    ///
    /// # Errors
    /// A part is not mapped, the process exited, or the kernel does not permit writing to the code of
    /// other processes.
    pub fn write(&self, address: u64, bytes: &[u8]) -> Result<(), LiveError> {
        self.file.write_all_at(bytes, address).map_err(|error| match error.kind() {
            // The address space no longer exists.
            std::io::ErrorKind::WriteZero => LiveError::Exited { pid: self.pid },
            _ => LiveError::system(format!("writing at {address:#x} in"), self.pid)(error),
        })
    }

    /// Reads up to `count` 64-bit words, fewer if unmapped memory follows.
    pub(crate) fn words(&self, address: u64, count: usize) -> Vec<u64> {
        let mut bytes = vec![0; count * WORD];
        words_of(self.read_up_to(address, &mut bytes)).collect()
    }

    /// Reads as much of `bytes` as is mapped, and returns it.
    pub(crate) fn read_up_to<'b>(&self, address: u64, bytes: &'b mut [u8]) -> &'b [u8] {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read_at(&mut bytes[filled..], address + filled as u64) {
                Ok(0) | Err(_) => break,
                Ok(got) => filled += got,
            }
        }
        &bytes[..filled]
    }
}

/// Size of a word in bytes.
pub(crate) const WORD: usize = 8;

/// The 64-bit words in bytes of an x86-64 process.
pub(crate) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<WORD>().0.iter().map(|word| u64::from_le_bytes(*word))
}

/// Reads many small pieces of memory that does not change meanwhile, each page once.
#[derive(Debug)]
pub(crate) struct PagedReader<'a> {
    memory: &'a ProcessMemory,
    pages: RefCell<HashMap<u64, Vec<u8>>>,
}

impl<'a> PagedReader<'a> {
    pub(crate) fn new(memory: &'a ProcessMemory) -> Self {
        Self { memory, pages: RefCell::default() }
    }

    /// Reads `count` bytes on one page.
    ///
    /// # Errors
    /// As [`ProcessMemory::read_into`].
    pub(crate) fn read(&self, address: u64, count: usize) -> Result<Vec<u8>, LiveError> {
        self.inspect(address, count, <[u8]>::to_vec)
    }

    /// What `of` returns for `count` bytes on one page.
    ///
    /// # Errors
    /// As [`ProcessMemory::read_into`].
    pub(crate) fn inspect<T>(
        &self,
        address: u64,
        count: usize,
        of: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, LiveError> {
        let start = address / PAGE * PAGE;
        let offset = (address - start) as usize;
        let mut pages = self.pages.borrow_mut();
        if let Some(bytes) = pages.get(&start).and_then(|page| page.get(offset..offset + count)) {
            return Ok(of(bytes));
        }
        let page = self.memory.read(start, PAGE as usize)?;
        let Some(bytes) = page.get(offset..offset + count) else {
            return self.memory.read(address, count).map(|bytes| of(&bytes));
        };
        let found = of(bytes);
        pages.insert(start, page);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_this_process_is_readable_and_writable() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let words = [0x1122_3344_5566_7788_u64, 42];
        let address = words.as_ptr() as u64;
        assert_eq!(memory.words(address, 2), words);
        let target = Box::new([0_u8; 4]);
        memory.write(target.as_ptr() as u64, &[1, 2, 3, 4]).unwrap();
        assert_eq!(memory.read(target.as_ptr() as u64, 4).unwrap(), [1, 2, 3, 4]);
        assert!(memory.read(8, 8).is_err());
        assert!(memory.words(8, 8).is_empty());
    }

    #[test]
    fn ended_process_is_reported_as_exited() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let memory = ProcessMemory::open(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        let memory = memory.unwrap();
        let exited = |error| matches!(error, LiveError::Exited { .. });
        assert!(exited(memory.read(0x1_0000, 1).unwrap_err()));
        assert!(exited(memory.write(0x1_0000, &[1]).unwrap_err()));
    }

    #[test]
    fn pieces_are_read_as_they_are_in_memory() {
        let memory = ProcessMemory::open(std::process::id()).unwrap();
        let bytes: Vec<u8> = (0..3 * PAGE).map(|index| (index % 251) as u8).collect();
        let reader = PagedReader::new(&memory);
        // On one page, twice; over the end of a page.
        for at in [0, 8, 8, PAGE - 3, 2 * PAGE - 1] {
            let found = reader.read(bytes.as_ptr() as u64 + at, 8).unwrap();
            assert_eq!(found, bytes[at as usize..at as usize + 8]);
        }
        assert!(reader.read(8, 8).is_err());
    }
}
