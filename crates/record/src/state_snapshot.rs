use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

/// Where an instance stands once it has settled: stored with the run, so that a reader can see
/// that every candidate was measured from a comparable state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSnapshot {
    /// Rows in all tables together.
    pub rows: u64,
    /// Size of the data on disk.
    pub data_size: Bytes,
    /// The engine's own figures, by name, such as `wal_frames` and `free_pages`.
    pub state: Vec<(String, u64)>,
}
