//! Optimizations of servers by the live optimizer.

use dbdyno_types::NewLayout;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::{ResultsError, json};
use crate::reader::RunReader;
use crate::writer::RunWriter;

/// An optimization of a running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizationRecord {
    /// The candidate's number.
    pub candidate: u32,
    /// The microbenchmark during which it was sampled.
    pub trained_with: u32,
    /// The next measured microbenchmark.
    pub measured_next: u32,
    /// Whether it reuses the samples of an earlier optimization, for a restarted server.
    pub after_restart: bool,
    /// Why the server was not optimized; then its code is the original one and there is no new layout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    #[serde(flatten)]
    pub layout: NewLayout,
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
