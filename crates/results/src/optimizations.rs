//! What the live optimizer did to servers of a run.

use dbdyno_units::{Bytes, Nanos, Share};
use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::writer::{RunWriter, json};

/// A server's code was laid out anew while it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationRecord {
    /// The candidate's number.
    pub candidate: u32,
    /// The microbenchmark under whose load it was sampled.
    pub trained_with: u32,
    /// The microbenchmark that was measured next.
    #[serde(alias = "before")]
    pub measured_next: u32,
    /// Whether it reuses the samples of an earlier optimization, for a restarted server.
    #[serde(alias = "again")]
    pub after_restart: bool,
    /// What was done.
    #[serde(flatten)]
    pub layout: NewLayout,
}

/// A new layout of a server's code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NewLayout {
    /// How it was sampled: `branches`, `cycles` or `clock`; or whose samples were used.
    pub source: String,
    /// Samples in user mode.
    pub samples: u64,
    /// How many of them are in functions that were moved.
    pub covered: Option<Share>,
    /// Functions that were moved.
    pub functions: u64,
    /// Hot functions that were left alone, by reason.
    #[serde(alias = "left_alone")]
    pub skipped: Vec<(String, u64)>,
    /// Files whose code was laid out anew.
    pub files: Vec<String>,
    /// Code that is expected to run.
    pub hot: Bytes,
    /// Code of the same functions that is not.
    pub cold: Bytes,
    /// Memory added to each process.
    pub added: Bytes,
    /// Processes that were changed, or inherited it: more than one where sessions have their own.
    pub processes: u32,
    /// Processes that were left as they were, with the reason of one of them.
    pub unchanged: Option<(u32, String)>,
    /// The longest time for which threads stood still.
    #[serde(alias = "longest_stop")]
    pub longest_pause: Nanos,
    /// The most threads that stood still at once.
    pub threads: u32,
    /// Time of all of it, without the sampling.
    pub took: Nanos,
}

impl RunWriter {
    /// Stores an optimization.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn add_optimization(&mut self, record: &OptimizationRecord) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing an optimization", |database| {
            database.execute(
                "INSERT INTO optimization (session, candidate, trained_with, measured_next, json) VALUES \
                 (?1, ?2, ?3, ?4, ?5)",
                params![
                    session,
                    record.candidate,
                    record.trained_with,
                    record.measured_next,
                    json(record)
                ],
            )?;
            Ok(())
        })
    }
}

impl RunReader {
    /// All optimizations of servers, in order.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn optimizations(&self) -> Result<Vec<OptimizationRecord>, ResultsError> {
        let rows = self.rows("SELECT json FROM optimization ORDER BY id", |row| row.get(0))?;
        rows.iter().map(|json: &String| self.parse("an optimization", json)).collect()
    }
}
