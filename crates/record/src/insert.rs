//! What a step of the insert benchmark measures, and what happens in each of its seconds.

use dbdyno_units::{Bytes, Nanos};
use serde::{Deserialize, Serialize};

use crate::{Latencies, ServerUsed};

/// One second of a step. The last one of a step may be shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Second {
    /// Its number in the step, from 0.
    pub number: u32,
    /// Its true length.
    pub elapsed: Nanos,
    /// Rows inserted by commits that ended in it.
    pub inserts: u64,
    /// Queries that ended in it.
    pub queries: u64,
    /// Rows deleted.
    pub deletes: u64,
    /// The longest response time of a commit that ended in it; `None` where none did.
    pub insert_worst: Option<Nanos>,
    /// The same of the queries.
    pub query_worst: Option<Nanos>,
    /// The same of the deletes.
    pub delete_worst: Option<Nanos>,
    /// What the system under test spent; for an embedded engine that is the worker's process.
    /// `None` where it cannot be seen from here.
    pub system: Option<ServerUsed>,
    /// CPU time of the load generator; `None` where the database is inside.
    pub client_cpu: Option<Nanos>,
    /// What went to and from the device that the data lies on, whoever caused it; `None` where
    /// there is no such device.
    pub device: Option<DeviceUsed>,
    /// What the database's files take up on storage; `None` where they cannot be seen.
    pub database: Option<Bytes>,
    /// Memory in use by the system under test, shared memory counted once.
    pub resident: Option<Bytes>,
}

/// Reads and writes of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceUsed {
    /// Reads that were completed.
    pub reads: u64,
    /// Bytes read.
    pub read: Bytes,
    /// Writes that were completed.
    pub writes: u64,
    /// Bytes written.
    pub written: Bytes,
}

/// What one step measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StepMeasured {
    /// From the start of all clients to the end of the last one.
    pub wall: Nanos,
    /// Commits of inserts; their response time counts from when they were due.
    pub inserts: Operations,
    /// Queries.
    pub queries: Operations,
    /// Deletes of old rows.
    pub deletes: Operations,
    /// Rows that were due before the step ended and had not been inserted by then: a rate that
    /// was not sustained.
    pub overdue: u64,
    /// Commits, queries and deletes that were tried again: a lock that was held too long, or a
    /// transaction that was given up for another one's sake.
    pub retries: u64,
    /// Tries for a lock inside the driver, as SQLite's clients make them while another one writes.
    pub lock_waits: u64,
    /// Statements that answered with a wrong count.
    pub wrong: u64,
    /// The first wrong count, in words.
    pub first_complaint: Option<String>,
    /// What the system under test spent; see [`Second::system`].
    pub system: Option<ServerUsed>,
    /// CPU time of the load generator; `None` where the database is inside.
    pub client_cpu: Option<Nanos>,
    /// What went to and from the device.
    pub device: Option<DeviceUsed>,
    /// What the database's files take up at the end.
    pub database: Option<Bytes>,
    /// Memory in use at the end.
    pub resident: Option<Bytes>,
}

/// Operations of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// How many succeeded.
    pub count: u64,
    /// Rows that they inserted, returned or deleted.
    pub rows: u64,
    /// Response times.
    pub response: Latencies,
    /// The longest response time, exactly; `None` where there was none.
    pub longest: Option<Nanos>,
    /// Service times, from when it was sent, where an operation can be due before that.
    pub service: Option<Latencies>,
    /// The longest service time, exactly, where it differs from the response time.
    pub longest_service: Option<Nanos>,
}

impl Operations {
    /// Adds what another client did.
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

impl DeviceUsed {
    /// Adds what came after.
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
    fn clients_add_up_and_the_longest_stays() {
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
        assert_eq!(both.response.counts(), [(7, 3), (9, 2)]);
        assert_eq!(both.service.unwrap().counts(), [(1, 5)]);
    }
}
