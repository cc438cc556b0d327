//! I/O of the block device that holds a path.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use dbdyno_types::insert::DeviceUsage;
use dbdyno_units::Bytes;

/// The sector size of the kernel's counters, independent of the device's.
const SECTOR: u64 = 512;

/// The block device under a file system.
#[derive(Debug)]
pub struct BlockDevice {
    stat: File,
}

impl BlockDevice {
    /// The device that holds `path`; `None` for file systems on no device or on several, such as
    /// tmpfs, overlayfs and btrfs.
    pub fn of(path: &Path) -> Option<Self> {
        let number = fs::metadata(path).ok()?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let stat = File::open(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        Some(Self { stat })
    }

    /// The counters since boot.
    pub fn read(&self) -> io::Result<DeviceUsage> {
        let mut buffer = [0; 512];
        let length = self.stat.read_at(&mut buffer, 0)?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        parse(&text).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidData,
                format!("unknown format of device counters: `{text}`"),
            )
        })
    }
}

/// The kernel's Documentation/block/stat.rst: reads, merged, sectors, time; the same of writes.
fn parse(text: &str) -> Option<DeviceUsage> {
    let mut numbers = text.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    let mut at = |skip: usize| numbers.nth(skip).flatten();
    let (reads, read) = (at(0)?, at(1)?);
    let (writes, written) = (at(1)?, at(1)?);
    let bytes = |sectors: u64| Bytes::from_bytes(sectors.saturating_mul(SECTOR));
    Some(DeviceUsage { reads, read: bytes(read), writes, written: bytes(written) })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn parses_the_kernels_columns() {
        let text = "  100   3   2048   77   50   9   4096   88   0   1   2\n";
        let usage = parse(text).unwrap();
        assert_eq!((usage.reads, usage.read), (100, Bytes::from_kib(1024)));
        assert_eq!((usage.writes, usage.written), (50, Bytes::from_kib(2048)));
        assert_eq!(parse("1 2"), None);
        assert_eq!(parse("a b c d e f g"), None);
    }

    #[test]
    fn synced_data_is_counted() {
        let directory = tempfile::tempdir().unwrap();
        let Some(device) = BlockDevice::of(directory.path()) else {
            dbdyno_fuzz::skip("the temporary directory is not on a block device");
            return;
        };
        let before = device.read().unwrap();
        let mut file = File::create(directory.path().join("f")).unwrap();
        file.write_all(&vec![7; 1 << 20]).unwrap();
        file.sync_all().unwrap();
        let written = device.read().unwrap().since(&before).written;
        assert!(written >= Bytes::from_mib(1), "{written}");
    }
}
