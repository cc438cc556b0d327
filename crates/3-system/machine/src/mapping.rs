use std::ops::Range;

/// A mapping of a process's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mapping {
    pub range: Range<u64>,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub offset: u64,
    /// Major and minor number of its file's device.
    pub device: (u32, u32),
    /// Inode of its file; 0 without a file.
    pub inode: u64,
    /// Path of its file, a name in brackets, or empty.
    pub name: String,
}

impl Mapping {
    /// Parses a line of `/proc/PID/maps`; `None` if it has an unknown format.
    pub fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(6, ' ');
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
        Some(Self { range, readable, writable, executable, offset, device, inode, name })
    }
}
