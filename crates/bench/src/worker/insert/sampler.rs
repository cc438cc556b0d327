//! Measurements of one second: the system under test, the load generator and the storage device.

use std::path::{Path, PathBuf};

use dbdyno_machine::{BlockDevice, ProcessTree, ProcessTreeUsage, clock};
use dbdyno_record::ServerUsage;
use dbdyno_record::insert::{DeviceUsage, Second, StepMeasured};
use dbdyno_units::{Bytes, Nanos};

use super::super::server_monitor::server_usage;
use super::progress::ClientProgress;

/// Takes the measurements of each second.
pub(super) struct Sampler<'a> {
    /// The processes of the system under test; this process for an embedded database.
    family: Option<&'a mut ProcessTree>,
    embedded: bool,
    data: Option<PathBuf>,
    device: Option<BlockDevice>,
    first: Reading,
    last: Reading,
    rows: [u64; 3],
    number: u32,
}

#[derive(Clone)]
struct Reading {
    at: Nanos,
    system: Option<ProcessTreeUsage>,
    client: Nanos,
    device: Option<DeviceUsage>,
}

impl<'a> Sampler<'a> {
    /// A sampler that starts now. `data` is the directory of the database's files, if it is on this
    /// machine.
    pub fn new(family: Option<&'a mut ProcessTree>, embedded: bool, data: Option<&Path>) -> Self {
        let device = data.and_then(BlockDevice::of);
        let nothing = Reading { at: Nanos::ZERO, system: None, client: Nanos::ZERO, device: None };
        let mut sampler = Self {
            family,
            embedded,
            data: data.map(Path::to_owned),
            device,
            first: nothing.clone(),
            last: nothing,
            rows: [0; 3],
            number: 0,
        };
        sampler.first = sampler.read();
        sampler.last = sampler.first.clone();
        sampler
    }

    fn read(&mut self) -> Reading {
        Reading {
            at: clock::monotonic(),
            // If the server has exited, its clients report that.
            system: self.family.as_mut().and_then(|family| family.read().ok()),
            client: clock::process_cpu(),
            device: self.device.as_ref().and_then(|device| device.read().ok()),
        }
    }

    /// The end of the next second.
    pub fn next_at(&self) -> Nanos {
        self.first.at + Nanos::from_secs(u64::from(self.number) + 1)
    }

    /// The time since the end of the last second.
    pub fn since_last(&self) -> Nanos {
        clock::monotonic().saturating_sub(self.last.at)
    }

    /// Whether a second was already reported.
    pub const fn has_reported(&self) -> bool {
        self.number > 0
    }

    /// Ends a second.
    pub fn second(&mut self, clients: &[ClientProgress]) -> Second {
        let now = self.read();
        let rows = [
            sum(clients, |client| client.inserts.rows()),
            sum(clients, |client| client.queries.rows()),
            sum(clients, |client| client.deletes.rows()),
        ];
        let grown = |kind: usize| rows[kind] - self.rows[kind];
        let second = Second {
            number: self.number,
            elapsed: now.at.saturating_sub(self.last.at),
            inserts: grown(0),
            queries: grown(1),
            deletes: grown(2),
            insert_worst: clients.iter().filter_map(|client| client.inserts.take_worst()).max(),
            query_worst: clients.iter().filter_map(|client| client.queries.take_worst()).max(),
            delete_worst: clients.iter().filter_map(|client| client.deletes.take_worst()).max(),
            system: used(&now, &self.last),
            client_cpu: self.client(&now, &self.last),
            device: device_used(&now, &self.last),
            database: self.data.as_deref().and_then(size_on_storage),
            resident: self.family.as_ref().and_then(|family| family.resident()),
        };
        self.rows = rows;
        self.last = now;
        // Seconds in which this thread did not run are part of this one; see its length.
        let whole = (self.last.at - self.first.at).as_nanos() / 1_000_000_000;
        self.number = u32::try_from(whole).unwrap_or(u32::MAX).max(self.number + 1);
        second
    }

    /// Writes the usage from the start to the end of the last second to `measured`.
    pub fn finish(&self, measured: &mut StepMeasured, last: &Second) {
        measured.system = used(&self.last, &self.first);
        measured.client_cpu = self.client(&self.last, &self.first);
        measured.device = device_used(&self.last, &self.first);
        measured.database = last.database;
        measured.resident = last.resident;
    }

    fn client(&self, now: &Reading, then: &Reading) -> Option<Nanos> {
        (!self.embedded).then(|| now.client.saturating_sub(then.client))
    }
}

fn sum(clients: &[ClientProgress], rows: impl Fn(&ClientProgress) -> u64) -> u64 {
    clients.iter().map(rows).sum()
}

fn used(now: &Reading, then: &Reading) -> Option<ServerUsage> {
    let (now, then) = (now.system.as_ref()?, then.system.as_ref()?);
    Some(server_usage(&now.since(then), None))
}

fn device_used(now: &Reading, then: &Reading) -> Option<DeviceUsage> {
    Some(now.device?.since(&then.device?))
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
