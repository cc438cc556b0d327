//! Steps of the insert benchmark.

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

use super::{QueryKind, ROW_BYTES};

/// The steps for one candidate, executed once per repeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Number of concurrent clients.
    pub clients: u32,
    /// Number of tables, at most one per client. Clients are assigned to tables in turn.
    pub tables: u32,
    /// Length of the column `data`, in bytes.
    pub data_length: u32,
    /// Whether an old row is deleted for each inserted row, once the indexes exist.
    pub delete_per_insert: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Number of rows at the end if every rate is sustained and nothing is deleted.
    #[must_use]
    pub fn rows(&self) -> u64 {
        let of_client: u64 = self.steps.iter().map(|step| step.task.rows_per_client()).sum();
        of_client.saturating_mul(u64::from(self.clients))
    }

    /// Size of their data and indexes, without the overhead of databases.
    #[must_use]
    pub fn data_bytes(&self) -> u64 {
        self.rows().saturating_mul(ROW_BYTES + u64::from(self.data_length))
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// The published name: `l.i0`, `l.x`, `l.i1`, `settle`, `q100`.
    pub name: String,
    pub task: Task,
}

/// The task of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Every client inserts rows as fast as it can.
    Insert(Inserts),
    /// The secondary indexes are created.
    Index,
    /// The database settles.
    Settle,
    /// Every client sends queries as fast as it can, while a second thread of the client inserts at
    /// a fixed rate.
    Mix(Mix),
}

impl Task {
    /// Rows that a client inserts if the rate is sustained.
    #[must_use]
    pub fn rows_per_client(&self) -> u64 {
        match self {
            Self::Insert(inserts) => inserts.rows_per_client,
            Self::Mix(mix) => (f64::from(mix.rate) * mix.time.as_secs_f64()) as u64,
            Self::Index | Self::Settle => 0,
        }
    }

    /// The requested rate of inserts, in rows per second and client.
    #[must_use]
    pub const fn rate(&self) -> Option<u32> {
        match self {
            Self::Mix(mix) => Some(mix.rate),
            Self::Insert(_) | Self::Index | Self::Settle => None,
        }
    }

    /// A description for reports.
    #[must_use]
    pub fn describe(&self, deletes: bool) -> String {
        let and_deletes = if deletes { ", and deletes as many old rows" } else { "" };
        match self {
            Self::Insert(Inserts { rows_per_client, rows_per_commit, .. }) => format!(
                "each client inserts {rows_per_client} rows, {rows_per_commit} per \
                 commit{and_deletes}"
            ),
            Self::Index => "the three secondary indexes are made".to_owned(),
            Self::Settle => "the database comes to rest".to_owned(),
            Self::Mix(Mix { rate, rows_per_commit, time, queries }) => {
                let asks = match queries {
                    QueryKind::Range => "range queries",
                    QueryKind::PrimaryKey => "queries by primary key",
                };
                format!(
                    "for {time}, each client asks {asks} as fast as it can and inserts {rate} \
                     rows/s, {rows_per_commit} per commit{and_deletes}"
                )
            }
        }
    }
}

/// Inserts at full speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inserts {
    pub rows_per_client: u64,
    pub rows_per_commit: u32,
    /// Whether the secondary indexes exist, and old rows may be deleted.
    pub indexed: bool,
}

/// Queries during inserts at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mix {
    /// Rows that each client inserts per second.
    pub rate: u32,
    pub rows_per_commit: u32,
    /// Duration.
    pub time: Nanos,
    pub queries: QueryKind,
}
