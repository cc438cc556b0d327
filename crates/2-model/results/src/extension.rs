//! More measuring time for a run that was complete.

use std::collections::BTreeMap;

use dbdyno_units::Nanos;
use rusqlite::params;
use serde::{Deserialize, Serialize};

use crate::error::{ResultsError, json};
use crate::reader::RunReader;
use crate::slices::remove_latency_buckets;
use crate::writer::RunWriter;

/// The key in `meta`.
const KEY: &str = "extension";

/// The label of an extension in the settings of a run.
const SETTING: &str = "extended";

/// Extended microbenchmarks. It is stored before they are measured, so that an interrupted extension
/// is resumed like any other run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtensionRecord {
    /// The measuring time of all candidates, with that of earlier sessions, after which a
    /// microbenchmark is done again; by its number.
    pub goals: BTreeMap<u32, Nanos>,
}

impl RunWriter {
    /// Store an extension: its microbenchmarks are not done any more. `summary` is added to the
    /// run's settings.
    ///
    /// # Errors
    /// The database cannot be read or written.
    pub fn extend(
        &mut self,
        extension: &ExtensionRecord,
        summary: &str,
    ) -> Result<(), ResultsError> {
        let mut settings = self.reader()?.settings()?;
        settings.push((SETTING.to_owned(), summary.to_owned()));
        self.write("storing the extension", |database| {
            let sql = "INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)";
            database.execute(sql, [KEY, &json(extension)])?;
            database.execute(sql, ["settings", &json(&settings)])?;
            for id in extension.goals.keys() {
                let sql = "UPDATE microbenchmark SET done = 0 WHERE id = ?1";
                database.execute(sql, params![id])?;
                remove_latency_buckets(database, *id)?;
            }
            Ok(())
        })
    }
}

impl RunReader {
    /// How often the run was extended.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn extensions(&self) -> Result<usize, ResultsError> {
        Ok(self.settings()?.iter().filter(|(label, _)| label == SETTING).count())
    }

    /// The last extension; `None` if the run was never extended.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn extension(&self) -> Result<Option<ExtensionRecord>, ResultsError> {
        let sql = format!("SELECT value FROM meta WHERE key = '{KEY}'");
        let stored: Vec<String> = self.rows(&sql, |row| row.get(0))?;
        stored.first().map(|json| self.parse("the extension", json)).transpose()
    }
}
