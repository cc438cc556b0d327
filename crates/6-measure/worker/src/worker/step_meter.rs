//! Usage of a server and of its storage in a step of the insert benchmark.

use std::path::{Path, PathBuf};

use dbdyno_machine::{BlockDevice, ProcessTree, ProcessTreeUsage};
use dbdyno_types::insert::DeviceUsage;
use dbdyno_units::Bytes;

use super::server_monitor::server_usage;
use crate::protocol::{StepUsage, StepUsages};

/// Reads the usage of a server and of its storage since the start of a step.
pub struct StepMeter {
    data: Option<PathBuf>,
    device: Option<BlockDevice>,
    first: Reading,
    last: Reading,
}

#[derive(Clone)]
struct Reading {
    system: Option<ProcessTreeUsage>,
    device: Option<DeviceUsage>,
}

impl StepMeter {
    /// Starts a step. `family` are the server's processes, `data` is the directory of its files on this
    /// machine; `None` if unknown.
    #[must_use]
    pub fn start(family: Option<&mut ProcessTree>, data: Option<&Path>) -> Self {
        let device = data.and_then(BlockDevice::of);
        let first = Reading::take(family, device.as_ref());
        Self { data: data.map(Path::to_owned), device, last: first.clone(), first }
    }

    /// Ends a second.
    pub fn second(&mut self, mut family: Option<&mut ProcessTree>) -> StepUsages {
        let now = Reading::take(family.as_deref_mut(), self.device.as_ref());
        let database = self.data.as_deref().and_then(size_on_storage);
        let resident = family.and_then(|family| family.resident());
        let since = |then: &Reading| StepUsage {
            server: now.server_since(then),
            device: now.device.zip(then.device).map(|(now, then)| now.since(&then)),
            database,
            resident,
        };
        let usages = StepUsages { second: since(&self.last), total: since(&self.first) };
        self.last = now;
        usages
    }
}

impl Reading {
    /// If the server has exited, its usage is unknown; its clients report the exit.
    fn take(family: Option<&mut ProcessTree>, device: Option<&BlockDevice>) -> Self {
        Self {
            system: family.and_then(|family| family.read().ok()),
            device: device.and_then(|device| device.read().ok()),
        }
    }

    fn server_since(&self, then: &Self) -> Option<dbdyno_types::ServerUsage> {
        let (now, then) = (self.system.as_ref()?, then.system.as_ref()?);
        Some(server_usage(&now.since(then), None))
    }
}

/// Allocated size of all files in a directory, without holes; `None` if it cannot be read.
fn size_on_storage(directory: &Path) -> Option<Bytes> {
    use std::os::unix::fs::MetadataExt;
    /// The unit of `st_blocks`, independent of the file system's block size.
    const BLOCK: u64 = 512;
    let mut sum = 0;
    let mut directories = vec![directory.to_owned()];
    let mut top = true;
    while let Some(directory) = directories.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Ok(entries) => entries,
            Err(_) if top => return None,
            // The directory was removed after it was listed.
            Err(_) => continue,
        };
        top = false;
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                directories.push(entry.path());
            } else {
                sum += metadata.blocks() * BLOCK;
            }
        }
    }
    Some(Bytes::from_bytes(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_on_storage_is_that_of_the_files() {
        assert_eq!(size_on_storage(Path::new("/nonexistent")), None);
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let size = size_on_storage(&own).unwrap();
        assert!(size > Bytes::from_kib(64) && size < Bytes::from_mib(64), "{size}");
    }
}
