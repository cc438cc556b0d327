use std::collections::BTreeMap;
use std::path::Path;

use dbdyno_types::RunIdentity;
use dbdyno_units::Nanos;
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params, Row};
use serde::de::DeserializeOwned;

use crate::directory::RunDirectory;
use crate::error::{ResultsError, database_error};
use crate::records::{
    CandidateRecord, ExtensionRecord, FailureKind, FailureRecord, MicrobenchmarkRecord,
    OptimizationRecord, SessionRecord, StateSnapshotRecord, StoredExperiment, StoredProfiling,
    setting,
};
use crate::schema::{EXTENSION, MAY_HAVE_SCHEMAS};
use crate::{checksum, directory, identity, untrusted};

/// Reads a run, even while another process writes it.
#[derive(Debug)]
pub struct RunReader {
    pub(crate) directory: RunDirectory,
    pub(crate) database: Connection,
}

impl RunReader {
    /// Open the run in a directory.
    ///
    /// # Errors
    /// There is no run, its format is unsupported, or it contains what no run does.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        let database = untrusted::open_to_read(&directory)?;
        untrusted::check_references(&database, path)?;
        let reader = Self { directory, database };
        // All of them, because a row with another key would be missing.
        reader.rows("SELECT * FROM meta", |row| checksum::check(row, "meta", &["key"]))?;
        Ok(reader)
    }

    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// The process that writes to the run; `None` if there is none, or if it is unknown.
    pub fn writer_pid(&self) -> Option<u32> {
        directory::lock_holder(&self.directory)
    }

    /// Whether anything is measured, even if only in part.
    pub fn has_measured(&self) -> Result<bool, ResultsError> {
        let sql = "SELECT EXISTS (SELECT 1 FROM slice) OR EXISTS (SELECT 1 FROM insert_step)";
        Ok(self.rows(sql, |row| row.get::<_, bool>(0))? == [true])
    }

    /// Number of stored slices and of steps of an insert benchmark.
    pub fn measurements(&self) -> Result<u64, ResultsError> {
        let sql = "SELECT (SELECT count(*) FROM slice) + (SELECT count(*) FROM insert_step)";
        let counts = self.rows(sql, |row| row.get::<_, i64>(0))?;
        Ok(counts.into_iter().map(i64::unsigned_abs).sum())
    }

    /// Whether schemas of the run may be on existing servers.
    pub fn may_have_schemas(&self) -> Result<bool, ResultsError> {
        Ok(self.find_meta(MAY_HAVE_SCHEMAS)?.as_deref() != Some("false"))
    }

    pub fn name(&self) -> Result<String, ResultsError> {
        self.meta("name")
    }

    /// The identity of the run; `None` for a published run.
    pub fn identity(&self) -> Result<Option<RunIdentity>, ResultsError> {
        identity::read(&self.database).map_err(|source| self.failed(source))
    }

    pub fn baseline(&self) -> Result<String, ResultsError> {
        self.meta("baseline")
    }

    pub fn experiment_text(&self) -> Result<String, ResultsError> {
        self.meta("experiment_text")
    }

    /// The experiment with all defaults filled in.
    pub fn experiment<T: DeserializeOwned>(&self) -> Result<T, ResultsError> {
        self.parse("the experiment", &self.meta("experiment")?)
    }

    /// The number of starts of each microbenchmark that the schedule requires; `None` if it is
    /// unknown, as for imported results.
    pub fn planned_restarts(&self) -> Option<u32> {
        self.experiment().ok().map(|stored: StoredExperiment| stored.schedule.restarts)
    }

    /// How stacks were to be sampled; `None` if they were not.
    pub fn profiling(&self) -> Option<StoredProfiling> {
        self.experiment().ok().and_then(|stored: StoredExperiment| stored.profile)
    }

    pub fn settings(&self) -> Result<Vec<(String, String)>, ResultsError> {
        self.parse("the settings", &self.meta("settings")?)
    }

    /// The microbenchmarks in running order, and whether each is complete.
    pub fn microbenchmarks(&self) -> Result<Vec<(MicrobenchmarkRecord, bool)>, ResultsError> {
        let rows = self.rows("SELECT * FROM microbenchmark ORDER BY id", |row| {
            Ok((checksum::checked_json(row, "microbenchmark")?, row.get("done")?))
        })?;
        rows.into_iter()
            .map(|(json, done)| Ok((self.parse("a microbenchmark", &json)?, done)))
            .collect()
    }

    /// The microbenchmark of the slice that was stored last; `None` if there are no slices.
    pub fn last_measured(&self) -> Result<Option<u32>, ResultsError> {
        let sql = "SELECT microbenchmark FROM slice ORDER BY id DESC LIMIT 1";
        Ok(self.rows(sql, |row| row.get(0))?.into_iter().next())
    }

    /// The counted blocks of one microbenchmark, by restart and number, each with the number of its
    /// baseline's slice in the run's order of execution.
    pub fn block_order(
        &self,
        microbenchmark: u32,
    ) -> Result<BTreeMap<(u32, u32), i64>, ResultsError> {
        let sql = "SELECT restart, block, id FROM slice \
             WHERE microbenchmark = ?1 AND candidate = 0 AND warmup = 0";
        let rows = self.rows_with(sql, [microbenchmark], |row| {
            Ok(((row.get(0)?, row.get(1)?), row.get(2)?))
        })?;
        Ok(rows.into_iter().collect())
    }

    /// The candidates in the order of their numbers; empty until all builds are ready.
    pub fn candidates(&self) -> Result<Vec<CandidateRecord>, ResultsError> {
        let rows = self.rows("SELECT * FROM candidate ORDER BY id", |row| {
            checksum::checked_json(row, "candidate")
        })?;
        rows.iter().map(|json| self.parse("a candidate", json)).collect()
    }

    /// All optimizations of servers, in order.
    pub fn optimizations(&self) -> Result<Vec<OptimizationRecord>, ResultsError> {
        let sql = "SELECT json FROM optimization ORDER BY id";
        let rows = self.rows(sql, |row| row.get::<_, String>(0))?;
        rows.iter().map(|json| self.parse("an optimization", json)).collect()
    }

    /// How often the run was extended.
    pub fn extensions(&self) -> Result<usize, ResultsError> {
        let settings = self.settings()?;
        Ok(settings.iter().filter(|(label, _)| label == setting::EXTENDED).count())
    }

    /// The last extension; `None` if the run was never extended.
    pub fn extension(&self) -> Result<Option<ExtensionRecord>, ResultsError> {
        let stored = self.find_meta(EXTENSION)?;
        stored.map(|json| self.parse("the extension", &json)).transpose()
    }

    pub fn sessions(&self) -> Result<Vec<SessionRecord>, ResultsError> {
        let rows = self.rows("SELECT * FROM session ORDER BY id", |row| {
            checksum::check(row, "session", &["id"])?;
            Ok((row.get::<_, String>("json")?, row.get::<_, i64>("elapsed_ns")?))
        })?;
        rows.into_iter()
            .map(|(json, elapsed)| {
                let session: SessionRecord = self.parse("a session", &json)?;
                Ok(SessionRecord { elapsed: Nanos::from_nanos(elapsed.cast_unsigned()), ..session })
            })
            .collect()
    }

    /// All failures, in order.
    pub fn failures(&self) -> Result<Vec<FailureRecord>, ResultsError> {
        // A failure outside of any microbenchmark, such as while a server starts, is over once the
        // candidate was measured again, also by a step of an insert benchmark.
        let sql = "SELECT candidate, microbenchmark, kind, at, reason, EXISTS (SELECT 1 FROM slice \
                   WHERE slice.microbenchmark = \
                   coalesce(failure.microbenchmark, slice.microbenchmark) \
                   AND slice.candidate = failure.candidate \
                   AND slice.session > failure.session AND NOT slice.warmup) \
                   OR failure.microbenchmark IS NULL AND EXISTS (SELECT 1 FROM insert_step \
                   WHERE insert_step.candidate = failure.candidate \
                   AND insert_step.session > failure.session AND insert_step.done) \
                   FROM failure ORDER BY id";
        self.rows(sql, |row| {
            let kind: String = row.get(2)?;
            let kind = FailureKind::by_name(&kind).ok_or_else(|| {
                let error = format!("unknown kind of failure `{kind}`");
                rusqlite::Error::FromSqlConversionFailure(2, Type::Text, error.into())
            })?;
            Ok(FailureRecord {
                candidate: row.get(0)?,
                microbenchmark: row.get(1)?,
                kind,
                at: row.get(3)?,
                reason: row.get(4)?,
                recovered: row.get(5)?,
            })
        })
    }

    /// All state snapshots, in order.
    pub fn state_snapshots(&self) -> Result<Vec<StateSnapshotRecord>, ResultsError> {
        let rows = self.rows("SELECT * FROM state_snapshot ORDER BY id", |row| {
            checksum::check(row, "state_snapshot", &["id"])?;
            Ok((row.get("candidate")?, row.get("at")?, row.get::<_, String>("json")?))
        })?;
        rows.into_iter()
            .map(|(candidate, at, json)| {
                let state_snapshot = self.parse("a state snapshot", &json)?;
                Ok(StateSnapshotRecord { candidate, at, state_snapshot })
            })
            .collect()
    }

    fn meta(&self, key: &str) -> Result<String, ResultsError> {
        let missing = || self.failed(rusqlite::Error::QueryReturnedNoRows);
        self.find_meta(key)?.ok_or_else(missing)
    }

    pub(crate) fn find_meta(&self, key: &str) -> Result<Option<String>, ResultsError> {
        meta(&self.database, key).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> ResultsError {
        database_error(self.directory.path(), "reading the run", source)
    }

    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ResultsError> {
        self.rows_with(sql, [], read)
    }

    pub(crate) fn rows_with<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ResultsError> {
        let failed = |source| self.failed(source);
        let mut query = self.database.prepare_cached(sql).map_err(failed)?;
        let rows = query.query_map(params, read).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }

    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        what: &'static str,
        json: &str,
    ) -> Result<T, ResultsError> {
        serde_json::from_str(json).map_err(|error| ResultsError::Damaged {
            path: self.directory.path().to_owned(),
            what,
            why: error.to_string(),
        })
    }
}

/// A value in `meta`; `None` if there is none.
pub(crate) fn meta(database: &Connection, key: &str) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT value FROM meta WHERE key = ?1";
    database.query_row(sql, [key], |row| row.get(0)).optional()
}
