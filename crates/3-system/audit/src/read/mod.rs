//! Readers for objects and binaries: recorded flags, and properties of files without them.

mod bitcode;
mod bitstream;
mod code;
mod dwarf;
mod functions;
mod limits;
mod linked;
mod producer_cache;
mod signs;
mod switches;
mod unit;

pub(crate) use limits::open;
pub(crate) use linked::{Linked, linked};
pub(crate) use unit::{Unit, full_source, objects};

use std::io::Read as _;
use std::path::Path;

use memmap2::Mmap;

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A compiled source file: an ELF object or bitcode.
    Object,
    /// A static archive of objects.
    Archive,
    /// A program or a shared library.
    Linked,
}

impl FileKind {
    /// The kind of a file; `None` for other files. The file name is not used.
    pub(crate) fn of(path: &Path) -> std::io::Result<Option<Self>> {
        let mut start = Vec::with_capacity(20);
        open(path)?.take(20).read_to_end(&mut start)?;
        Ok(Self::of_start(&start))
    }

    fn of_start(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"!<arch>\n") || start.starts_with(b"!<thin>\n") {
            return Some(Self::Archive);
        }
        if bitcode::is_bitcode(start) {
            return Some(Self::Object);
        }
        if !start.starts_with(b"\x7FELF") {
            return None;
        }
        let bytes = [*start.get(16)?, *start.get(17)?];
        let kind = match start.get(5)? {
            2 => u16::from_be_bytes(bytes),
            _ => u16::from_le_bytes(bytes),
        };
        match kind {
            1 => Some(Self::Object),
            2 | 3 => Some(Self::Linked),
            _ => None,
        }
    }
}

/// Maps a regular file into memory; `None` if it is empty, since empty files cannot be mapped.
pub(crate) fn map(path: &Path) -> std::io::Result<Option<Mmap>> {
    let file = open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the mapping is private and read-only, and its contents are treated as untrusted
    // bytes. If the file is rewritten meanwhile, other bytes are read; if it is truncated, the
    // process is killed by SIGBUS. Builds are therefore audited only when they are complete.
    unsafe { Mmap::map(&file) }.map(Some)
}
