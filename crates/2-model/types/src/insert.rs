//! Measurements of a step of the insert benchmark, and of each of its seconds.

use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::{Latencies, ServerUsage};

/// One second of a step. The last one of a step may be shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Its number in the step, from 0.
    pub number: u32,
    /// Its actual length.
    pub elapsed: Nanos,
    /// Rows inserted by commits that ended in it.
    pub inserts: u64,
    /// Queries that ended in it.
    pub queries: u64,
    /// Rows deleted.
    pub deletes: u64,
    /// The longest response time of a commit that ended in it; `None` without commits.
    pub insert_worst: Option<Nanos>,
    /// The longest response time of a query.
    pub query_worst: Option<Nanos>,
    /// The longest response time of a delete.
    pub delete_worst: Option<Nanos>,
    /// Resource usage of the system under test; for an embedded engine, of the worker's process.
    /// `None` if unknown.
    pub system: Option<ServerUsage>,
    /// CPU time of the load generator; `None` where the database is inside.
    pub client_cpu: Option<Nanos>,
    /// Reads and writes of the storage device with the data, including those of other processes;
    /// `None` if there is no such device.
    pub device: Option<DeviceUsage>,
    /// Size of the database's files on storage; `None` if unknown.
    pub database: Option<Bytes>,
    /// Memory used by the system under test; shared memory is counted once.
    pub resident: Option<Bytes>,
}

/// Reads and writes of a block device, by all processes: since boot, or in a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsage {
    /// Completed reads.
    pub reads: u64,
    pub read: Bytes,
    /// Completed writes.
    pub writes: u64,
    pub written: Bytes,
}

/// The measurements of one step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMeasured {
    /// From the start of all clients to the end of the last one.
    pub wall: Nanos,
    /// Commits of inserts; response times start when a commit is due.
    pub inserts: Operations,
    pub queries: Operations,
    /// Deletes of old rows.
    pub deletes: Operations,
    /// Rows that were due before the end of the step but not inserted: the rate was not sustained.
    pub overdue: u64,
    /// Retries of commits, queries and deletes: lock timeouts, and transactions aborted because of
    /// a conflict with another one.
    pub retries: u64,
    /// Attempts to get a lock inside the driver, as by SQLite's clients while another one writes.
    pub lock_waits: u64,
    /// Statements with a wrong count of rows.
    pub wrong: u64,
    /// A description of the first wrong count.
    pub first_complaint: Option<String>,
    /// Resource usage of the system under test; see [`Second::system`].
    pub system: Option<ServerUsage>,
    /// CPU time of the load generator; `None` where the database is inside.
    pub client_cpu: Option<Nanos>,
    /// Reads and writes of the device; see [`Second::device`].
    pub device: Option<DeviceUsage>,
    /// Size of the database's files at the end.
    pub database: Option<Bytes>,
    /// Memory used at the end.
    pub resident: Option<Bytes>,
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Number of successful operations.
    pub count: u64,
    /// Rows inserted, returned or deleted.
    pub rows: u64,
    /// Response times.
    pub response: Latencies,
    /// The longest response time, exact; `None` without operations.
    pub longest: Option<Nanos>,
    /// Service times, measured from sending; only for operations that can be due earlier.
    pub service: Option<Latencies>,
    /// The longest service time, exact; only if `service` is present.
    pub longest_service: Option<Nanos>,
}

impl Operations {
    /// Adds the operations of another client.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.rows += other.rows;
        self.response.merge(&other.response);
        self.longest = self.longest.max(other.longest);
        self.longest_service = self.longest_service.max(other.longest_service);
        match (&mut self.service, &other.service) {
            (Some(service), Some(other)) => service.merge(other),
            (service @ None, Some(other)) => *service = Some(other.clone()),
            (_, None) => {}
        }
    }
}

impl DeviceUsage {
    /// The increase since an earlier reading.
    pub fn since(&self, earlier: &Self) -> Self {
        let bytes = |now: Bytes, then: Bytes| {
            Bytes::from_bytes(now.as_bytes().saturating_sub(then.as_bytes()))
        };
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read: bytes(self.read, earlier.read),
            writes: self.writes.saturating_sub(earlier.writes),
            written: bytes(self.written, earlier.written),
        }
    }

    /// Adds the usage of a later period.
    pub fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.writes += other.writes;
        self.read = Bytes::from_bytes(self.read.as_bytes() + other.read.as_bytes());
        self.written = Bytes::from_bytes(self.written.as_bytes() + other.written.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_adds_counts_and_keeps_the_longest_time() {
        let client = |count, longest| Operations {
            count,
            rows: count * 50,
            response: Latencies::new(vec![(longest, count)]),
            longest: Some(Nanos::from_nanos(longest)),
            service: Some(Latencies::new(vec![(1, count)])),
            longest_service: Some(Nanos::from_nanos(1)),
        };
        let mut both = Operations::default();
        both.merge(&client(2, 9));
        both.merge(&client(3, 7));
        assert_eq!((both.count, both.rows), (5, 250));
        assert_eq!(both.longest, Some(Nanos::from_nanos(9)));
        assert!(both.response.counts().eq([(7, 3), (9, 2)]));
        assert!(both.service.unwrap().counts().eq([(1, 5)]));
    }
}
