//! The mappings of a process, from `/proc/PID/maps`.

use std::fs;
use std::ops::Range;

use dbdyno_relayout::{LOWEST_ADDRESS, REACH};

use crate::LiveError;

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Address range.
    pub range: Range<u64>,
    /// Whether it is readable.
    pub readable: bool,
    /// Whether it is writable.
    pub writable: bool,
    /// Whether it is executable.
    pub executable: bool,
    /// Offset in its file in bytes.
    pub offset: u64,
    /// Major and minor number of its file's device.
    pub device: (u32, u32),
    /// Inode of its file; 0 without a file.
    pub inode: u64,
    /// Path of its file, a name in brackets, or empty.
    pub name: String,
}

/// The mappings of a process, by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps(Vec<Mapping>);

/// End of user space with four-level page tables.
const HIGHEST: u64 = 0x7fff_ffff_f000;
/// Distance to keep from other mappings, because stacks and heaps grow.
const MARGIN: u64 = 1 << 20;

impl Maps {
    /// The current mappings of a process.
    ///
    /// # Errors
    /// The process exited, or this user may not read its mappings.
    pub fn of(pid: u32) -> Result<Self, LiveError> {
        let text = fs::read(format!("/proc/{pid}/maps"))
            .map_err(LiveError::proc_file("reading the mappings of", pid))?;
        Self::parse(&String::from_utf8_lossy(&text))
            .ok_or_else(|| LiveError::refused(pid, "its /proc/PID/maps has an unknown format"))
    }

    /// Parses the text of `/proc/PID/maps`; `None` if a line has an unknown format.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        text.lines().map(parse_line).collect::<Option<Vec<_>>>().map(Self)
    }

    /// The mappings, by address.
    #[must_use]
    pub fn all(&self) -> &[Mapping] {
        &self.0
    }

    /// Whether a tracing tool has attached a uprobe to the process since its start.
    #[must_use]
    pub(crate) fn has_uprobes(&self) -> bool {
        self.0.iter().any(|mapping| mapping.name == "[uprobes]")
    }

    /// Adds the mappings of another process, to find addresses that are free in both.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self.0.sort_by_key(|mapping| mapping.range.start);
        self
    }

    /// Mappings without access at these addresses.
    #[must_use]
    pub(crate) fn reserved(ranges: impl Iterator<Item = Range<u64>>) -> Self {
        let mapping = |range| Mapping {
            range,
            readable: false,
            writable: false,
            executable: false,
            offset: 0,
            device: (0, 0),
            inode: 0,
            name: String::new(),
        };
        Self(ranges.map(mapping).collect())
    }

    /// The mapping that contains an address.
    #[must_use]
    pub fn at(&self, address: u64) -> Option<&Mapping> {
        let next = self.0.partition_point(|mapping| mapping.range.end <= address);
        self.0.get(next).filter(|mapping| mapping.range.contains(&address))
    }

    /// The start of `size` free, aligned bytes from which every address in `near` can be reached with
    /// a signed 32-bit displacement, and vice versa.
    ///
    /// Prefers the closest range below `near`, because a program's heap grows above it.
    #[must_use]
    pub fn free_range(&self, near: &Range<u64>, size: u64, alignment: u64) -> Option<u64> {
        let lowest = near.end.saturating_sub(REACH).max(LOWEST_ADDRESS);
        let highest = near.start.saturating_add(REACH).min(HIGHEST);
        let mut free = Vec::new();
        let mut start = LOWEST_ADDRESS;
        for mapping in &self.0 {
            free.push(start..mapping.range.start.saturating_sub(MARGIN));
            start = start.max(mapping.range.end.saturating_add(MARGIN));
        }
        free.push(start..HIGHEST);
        let fit = |gap: &Range<u64>, from_top: bool| {
            let (start, end) = (gap.start.max(lowest), gap.end.min(highest));
            let bottom = start.checked_next_multiple_of(alignment)?;
            let top = end.checked_sub(size)? / alignment * alignment;
            (bottom <= top).then_some(if from_top { top } else { bottom })
        };
        let below = free.iter().rev().filter(|gap| gap.end <= near.start);
        // Above, the farthest range: the heap starts right after the program.
        let above = free.iter().rev().filter(|gap| gap.start >= near.end);
        below.chain(above).find_map(|gap| fit(gap, true))
    }
}

fn parse_line(text: &str) -> Option<Mapping> {
    let mut fields = text.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let range = number(start)?..number(end)?;
    let mut permissions = fields.next()?.bytes();
    let mut is = |letter| permissions.next().map(|found| found == letter);
    let (readable, writable, executable) = (is(b'r')?, is(b'w')?, is(b'x')?);
    let offset = number(fields.next()?)?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let half = |text: &str| u32::from_str_radix(text, 16).ok();
    let device = (half(major)?, half(minor)?);
    let inode = fields.next()?.parse().ok()?;
    let name = fields.next().unwrap_or_default().trim_start().to_owned();
    Some(Mapping { range, readable, writable, executable, offset, device, inode, name })
}

#[cfg(test)]
mod tests {
    use super::*;

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
