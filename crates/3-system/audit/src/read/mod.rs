//! Readers for objects and binaries: recorded flags, and properties of files without them.

mod bitcode;
mod code;
mod dwarf;
mod linked;
mod switches;
mod unit;

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use memmap2::Mmap;
use object::{CompressedData, ObjectSection};
use rustix::fs::OFlags;

use crate::error::ReadError;

pub(crate) use linked::{Linked, linked};
pub(crate) use unit::{Unit, full_source, objects, thin_members};

/// The kind of a file, by its first bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    /// A compiled source file: an ELF object or bitcode.
    Object,
    /// A static archive of objects.
    Archive,
    /// An archive of names of objects.
    ThinArchive,
    Linked,
}

impl FileKind {
    /// The kind of a file; `None` for other files. The file name is not used.
    pub(crate) fn of(path: &Path) -> io::Result<Option<Self>> {
        let mut start = Vec::with_capacity(20);
        open(path)?.take(20).read_to_end(&mut start)?;
        Ok(Self::of_start(&start))
    }

    fn of_start(start: &[u8]) -> Option<Self> {
        if start.starts_with(b"!<arch>\n") {
            return Some(Self::Archive);
        }
        if start.starts_with(b"!<thin>\n") {
            return Some(Self::ThinArchive);
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
pub(crate) fn map(path: &Path) -> io::Result<Option<Mmap>> {
    let file = open(path)?;
    if file.metadata()?.len() == 0 {
        return Ok(None);
    }
    // SAFETY: the mapping is private and read-only, and its contents are treated as untrusted
    // bytes. If the file is rewritten meanwhile, other bytes are read; if it is truncated, the
    // process is killed by SIGBUS. Builds are therefore audited only when they are complete.
    unsafe { Mmap::map(&file) }.map(Some)
}

/// Size up to which a section may be compressed by any factor.
const SMALL_SECTION: u64 = 16 << 20;

/// Compression factor of larger sections. Debug information is compressed by 2 to 10.
const MAX_COMPRESSION: u64 = 50;

/// Size limit of a section after decompression.
const MAX_SECTION: u64 = 1 << 30;

/// Size limit of a name: of a function, an archive member or a section. Longer ones are cut.
const MAX_NAME: usize = 4_096;

/// Total size of strings of a file's debug information, in addition to its size: many units have
/// the same command line.
const MORE_TEXT: usize = 64 << 20;

/// Time limit to read the debug information of one file. The largest servers take about a second.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Opens a regular file without waiting, as a pipe would.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

/// The content of a section, decompressed if that is plausible.
pub(super) fn content<'data>(
    section: &impl ObjectSection<'data>,
) -> Result<Cow<'data, [u8]>, ReadError> {
    let Ok(data) = section.compressed_data() else { return Ok(Cow::default()) };
    let CompressedData { data: stored, uncompressed_size: size, .. } = data;
    let is_plausible = size <= SMALL_SECTION
        || (size <= MAX_SECTION && size / MAX_COMPRESSION <= stored.len() as u64);
    if data.format != object::CompressionFormat::None && !is_plausible {
        let (section, stored) = (name(section.name_bytes().unwrap_or_default()), stored.len());
        return Err(ReadError(format!(
            "the section {section} has {stored} bytes, which stand for {size}: more than audits \
             accept; decompress it with `objcopy --decompress-debug-sections`"
        )));
    }
    // A damaged section is treated as missing.
    Ok(data.decompress().unwrap_or_default())
}

/// A name of limited length.
pub(super) fn name(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_NAME)]).into_owned()
}

/// What reading the debug information of a file may take.
pub(super) struct Budget {
    text: Cell<usize>,
    start: Instant,
}

impl Budget {
    /// The budget for debug information of this size.
    pub(super) fn of_sections(size: usize) -> Self {
        Self { text: Cell::new(size.saturating_add(MORE_TEXT)), start: Instant::now() }
    }

    /// Takes a string of this length.
    pub(super) fn take(&self, length: usize) {
        self.text.set(self.text.get().saturating_sub(length));
    }

    /// An error if the budget is exhausted.
    pub(super) fn check(&self) -> Result<(), ReadError> {
        match self.text.get() > 0 && self.start.elapsed() < MAX_TIME {
            true => Ok(()),
            false => {
                let text = "its debug information repeats text beyond the limits of an audit";
                Err(ReadError(text.to_owned()))
            }
        }
    }
}
