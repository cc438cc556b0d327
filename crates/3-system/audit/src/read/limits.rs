//! Limits for files that may be made to exhaust memory or time: a few bytes of a file can refer to
//! the same large string many times, or stand for gigabytes of zeros.

use std::borrow::Cow;
use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use object::{CompressedData, ObjectSection};
use rustix::fs::OFlags;

use crate::error::ReadError;

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
        return Err(ReadError::Compression { section, stored, size });
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
            false => Err(ReadError::TooMuchText),
        }
    }
}
