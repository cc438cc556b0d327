use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

/// The state of an instance after settling. Stored with the run, to show that all candidates were
/// measured in a comparable state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateSnapshot {
    /// Number of rows in all tables.
    pub rows: u64,
    /// Size of the data on disk.
    pub data_size: Bytes,
    /// The engine's own figures, by name, such as `wal_frames` and `free_pages`.
    pub state: Vec<(String, u64)>,
}
