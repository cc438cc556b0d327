//! Optimizations of servers by the live optimizer.

use dbdyno_units::{Bytes, Nanos, Share};
use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::writer::{RunWriter, json};

/// An optimization of a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationRecord {
    /// The candidate's number.
    pub candidate: u32,
    /// The microbenchmark during which it was sampled.
    pub trained_with: u32,
    /// The next measured microbenchmark.
    #[serde(alias = "before")]
    pub measured_next: u32,
    /// Whether it reuses the samples of an earlier optimization, for a restarted server.
    #[serde(alias = "again")]
    pub after_restart: bool,
    /// Why the server was not optimized; then its code is the original one and there is no new layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// The new layout.
    #[serde(flatten)]
    pub layout: NewLayout,
}

/// A new layout of a server's code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NewLayout {
    /// The kind of samples: `branches`, `cycles` or `clock`; or the origin of reused samples.
    pub source: String,
    /// Number of samples in user mode.
    pub samples: u64,
    /// Share of these samples in functions that were moved.
    pub covered: Option<Share>,
    /// How often blocks of code are executed; `None` if this optimization did not try to count it, as with reused
    /// samples, or with `counts = "sampled"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counts: Option<BlockCounts>,
    /// Number of functions that were moved.
    pub functions: u64,
    /// Hot functions that were not moved, by reason.
    #[serde(alias = "left_alone")]
    pub skipped: Vec<(String, u64)>,
    /// Files whose code has a new layout.
    pub files: Vec<String>,
    /// Size of code that is expected to run.
    pub hot: Bytes,
    /// Size of the same functions' code that is not expected to run.
    pub cold: Bytes,
    /// Memory added to each process.
    pub added: Bytes,
    /// Processes that were changed or inherited the layout: several if sessions have their own.
    pub processes: u32,
    /// Number of processes that were not changed, with the reason of one of them.
    pub unchanged: Option<(u32, String)>,
    /// Longest time for which threads were stopped.
    #[serde(alias = "longest_stop")]
    pub longest_pause: Nanos,
    /// Highest number of threads stopped at the same time.
    pub threads: u32,
    /// Total time, without the sampling.
    pub took: Nanos,
}

/// The outcome of counting how often blocks of code are executed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockCounts {
    /// They were counted.
    Counted {
        /// Executions of blocks.
        executions: u64,
        /// The server's time that was lost.
        lost: Nanos,
    },
    /// They were estimated from the samples, because they could not be counted.
    Estimated {
        /// Why not.
        reason: String,
    },
}

impl RunWriter {
    /// Store an optimization.
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
