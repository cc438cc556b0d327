//! The memory of another process: its mappings, from `/proc/PID/maps`, and their content, through `/proc/PID/mem`.
//!
//! This also allows writing to read-only and executable pages: the kernel gives the process a private
//! copy of the page and does not change its permissions.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::FileExt;

pub use dbdyno_machine::Mapping;
use dbdyno_relayout::{LOWEST_ADDRESS, REACH};

use crate::LiveError;
use crate::patch::PAGE;

/// The memory of a process. Bound to the address space that it was opened on.
#[derive(Debug)]
pub struct ProcessMemory {
    pid: u32,
    file: File,
}

impl ProcessMemory {
    pub fn open(pid: u32) -> Result<Self, LiveError> {
        let file = File::options()
            .read(true)
            .write(true)
            .open(format!("/proc/{pid}/mem"))
            .map_err(LiveError::proc_file("opening the memory of", pid))?;
        Ok(Self { pid, file })
    }

    pub fn read_into(&self, address: u64, bytes: &mut [u8]) -> Result<(), LiveError> {
        self.file.read_exact_at(bytes, address).map_err(|error| match error.kind() {
            // The address space no longer exists.
            std::io::ErrorKind::UnexpectedEof => LiveError::Exited { pid: self.pid },
            _ => LiveError::system(format!("reading at {address:#x} in"), self.pid)(error),
        })
    }

    pub fn read(&self, address: u64, count: usize) -> Result<Vec<u8>, LiveError> {
        let mut bytes = vec![0; count];
        self.read_into(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Writes all of `bytes`. Bytes on one page are written completely or not at all, even if this
    /// process is killed.
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
    pub(crate) fn read(&self, address: u64, count: usize) -> Result<Vec<u8>, LiveError> {
        self.inspect(address, count, <[u8]>::to_vec)
    }

    /// What `of` returns for `count` bytes on one page.
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

/// The mappings of a process, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(Vec<Mapping>);

/// End of user space with four-level page tables.
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// Distance to keep from other mappings, because heaps grow.
const MARGIN: u64 = 1 << 20;

/// Distance to keep below the stack of the first thread, which grows down to its limit and which the kernel keeps 1 MiB away
/// from other mappings.
const MARGIN_OF_STACK: u64 = 256 << 20;

impl Maps {
    pub fn of(pid: u32) -> Result<Self, LiveError> {
        let text = fs::read(format!("/proc/{pid}/maps"))
            .map_err(LiveError::proc_file("reading the mappings of", pid))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| LiveError::refused(pid, "its /proc/PID/maps has an unknown format"))
    }

    /// Parses the text of `/proc/PID/maps`; `None` if a line has an unknown format.
    pub fn parse(text: &str) -> Option<Self> {
        text.lines().map(Mapping::parse).collect::<Option<Vec<_>>>().map(Self)
    }

    pub fn all(&self) -> &[Mapping] {
        &self.0
    }

    /// Whether a tracing tool has attached a uprobe to the process since its start.
    pub(crate) fn has_uprobes(&self) -> bool {
        self.0.iter().any(|mapping| mapping.name == "[uprobes]")
    }

    /// Adds the mappings of another process, to find addresses that are free in both.
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.0.sort_by_key(|mapping| mapping.range.start);
        self
    }

    /// Mappings without access at these addresses.
    pub(crate) fn reserved(ranges: impl Iterator<Item = Range<u64>>) -> Self {
        Self(ranges.map(|range| Mapping { range, ..Mapping::default() }).collect())
    }

    /// The mapping that contains an address.
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let next = self.0.partition_point(|mapping| mapping.range.end <= address);
        self.0.get(next).filter(|mapping| mapping.range.contains(&address))
    }

    /// The start of `size` free, aligned bytes from which every address in `near` can be reached with
    /// a signed 32-bit displacement, and vice versa.
    ///
    /// Prefers the closest range below `near`, because a program's heap grows above it.
    pub fn free_range(&self, near: &Range<u64>, size: u64, alignment: u64) -> Option<u64> {
        let lowest = near.end.saturating_sub(REACH).max(LOWEST_ADDRESS);
        let highest = near.start.saturating_add(REACH).min(HIGHEST);
        let mut free = Vec::new();
        let mut start = LOWEST_ADDRESS;
        for mapping in &self.0 {
            let margin = if mapping.name == "[stack]" { MARGIN_OF_STACK } else { MARGIN };
            free.push(start..mapping.range.start.saturating_sub(margin));
            start = start.max(mapping.range.end.saturating_add(MARGIN));
        }
        free.push(start..HIGHEST);
        // The highest place in a gap.
        let fit = |gap: &Range<u64>| {
            let (start, end) = (gap.start.max(lowest), gap.end.min(highest));
            let bottom = start.checked_next_multiple_of(alignment)?;
            let top = end.checked_sub(size)? / alignment * alignment;
            (bottom <= top).then_some(top)
        };
        let below = free.iter().rev().filter(|gap| gap.end <= near.start);
        // Above, the farthest range: the heap starts right after the program.
        let above = free.iter().rev().filter(|gap| gap.start >= near.end);
        below.chain(above).find_map(fit)
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

    const TEXT: &str = "\
555555554000-555555556000 r--p 00000000 fe:00 1234                       /usr/bin/a b
555555556000-55555555a000 r-xp 00002000 fe:00 1234                       /usr/bin/a b
555555560000-555555581000 rw-p 00000000 00:00 0                          [heap]
7ffff7fc9000-7ffff7fcb000 r-xp 00000000 00:00 0                          [vdso]
7ffffffde000-7ffffffff000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    #[test]
    fn all_fields_of_a_line_are_parsed() {
        let maps = Maps::parse(TEXT).unwrap();
        assert_eq!(maps.all().len(), 6);
        let code = maps.at(0x5555_5555_9fff).unwrap();
        assert_eq!(code.name, "/usr/bin/a b");
        assert!(code.executable && code.readable && !code.writable);
        assert_eq!((code.offset, code.inode), (0x2000, 1234));
        assert_eq!(code.device, (0xfe, 0));
        assert!(maps.at(0x5555_5555_a000).is_none());
        assert!(Maps::parse("1000 r-xp").is_none());
    }

    #[test]
    fn damaged_maps_are_read_or_refused() {
        let words = [" ", "-", "\n", "ffffffffffffffff", "0", " (deleted)", "r-xp"];
        dbdyno_fuzz::Fuzz::new(vec![TEXT.into()]).words(&words).run(|text| {
            let Some(maps) = Maps::parse(&String::from_utf8_lossy(text)) else { return };
            let near = 0x5555_5555_4000..0x5555_5555_a000;
            let _ = maps.free_range(&near, 4 << 20, 2 << 20);
            let _ = maps.at(near.start);
            for loaded in crate::Module::loaded(&maps) {
                assert!(!loaded.mappings.is_empty());
            }
        });
    }

    #[test]
    fn free_range_is_preferably_below_the_program() {
        let maps = Maps::parse(TEXT).unwrap();
        let near = 0x5555_5555_4000..0x5555_5555_a000;
        let gap = maps.free_range(&near, 4 << 20, 2 << 20).unwrap();
        assert!(gap < near.start && near.start - gap < 16 << 20, "{gap:#x}");
        assert_eq!(gap % (2 << 20), 0);
    }

    #[test]
    fn free_range_is_above_the_heap_of_a_program_at_a_low_address() {
        let maps = Maps::parse(
            "00400000-00480000 r-xp 00000000 fe:00 7 /a\n01000000-02000000 rw-p 00000000 00:00 0 [heap]\n",
        )
        .unwrap();
        let near = 0x40_0000..0x48_0000;
        let gap = maps.free_range(&near, 8 << 20, 2 << 20).unwrap();
        assert!(gap > 0x0200_0000 && gap + (8 << 20) < near.start + (1 << 31), "{gap:#x}");
    }

    #[test]
    fn free_range_is_free_in_both_processes() {
        let maps = Maps::parse(TEXT).unwrap();
        let near = 0x5555_5555_4000..0x5555_5555_a000;
        let first = maps.free_range(&near, 4 << 20, 2 << 20).unwrap();
        let taken = format!("{first:x}-{:x} rw-p 00000000 00:00 0 \n", first + 4096);
        let both = maps.clone().with(Maps::parse(&taken).unwrap());
        let second = both.free_range(&near, 4 << 20, 2 << 20).unwrap();
        assert!(second + (4 << 20) <= first, "{second:#x}");
    }

    #[test]
    fn full_address_space_has_no_free_range() {
        let full = "00010000-7ffffffff000 rw-p 00000000 00:00 0 \n";
        let maps = Maps::parse(full).unwrap();
        assert_eq!(maps.free_range(&(0x40_0000..0x48_0000), 4096, 4096), None);
    }
}
