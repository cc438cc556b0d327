use std::collections::HashMap;
use std::path::Path;

use dbdyno_record::{Count, Counter, Counts, Latencies, ServerUsed, SliceMeasured};
use dbdyno_units::{Bytes, Energy, Nanos, Qps};
use rusqlite::types::Type;
use rusqlite::{Connection, OpenFlags, Row};
use serde::de::DeserializeOwned;

use crate::directory::RunDirectory;
use crate::error::ResultsError;
use crate::records::{
    CandidateRecord, FailureKind, FailureRecord, MicrobenchmarkRecord, SessionRecord, SliceRow,
    StateSnapshotRecord,
};
use crate::schema::{APPLICATION_ID, BACKGROUND, ENERGY, FORMAT, OLDEST, has_column, has_counters};
use crate::writer::database_error;

/// Reads a run, also while somebody writes it.
#[derive(Debug)]
pub struct RunReader {
    pub(crate) directory: RunDirectory,
    pub(crate) database: Connection,
    /// The format of the run.
    pub(crate) format: i64,
}

impl RunReader {
    /// Opens the run in a directory.
    ///
    /// # Errors
    /// There is no run, or it has another format.
    pub fn open(path: &Path) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        let not_a_run =
            |why: &str| ResultsError::NotARun { path: path.to_owned(), why: why.to_owned() };
        if !path.is_dir() {
            return Err(not_a_run(if path.exists() {
                "it is no directory"
            } else {
                "it does not exist"
            }));
        }
        if !directory.database().is_file() {
            return Err(not_a_run("it has no run.sqlite"));
        }
        // A reader of a database in WAL mode needs to write its shared index, never the data.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(directory.database(), flags)
            .map_err(|source| database_error(path, "opening the run's database", source))?;
        let number = |pragma| database.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
        let id = number("application_id");
        let format = number("user_version");
        match (id, format) {
            (Ok(APPLICATION_ID), Ok(found)) if found > FORMAT => {
                Err(ResultsError::NewerFormat { path: path.to_owned(), found, known: FORMAT })
            }
            (Ok(APPLICATION_ID), Ok(found)) if found < OLDEST => {
                Err(ResultsError::OlderFormat { path: path.to_owned(), found, known: FORMAT })
            }
            (Ok(APPLICATION_ID), Ok(format)) => Ok(Self { directory, database, format }),
            (Ok(_), _) => Err(not_a_run("its run.sqlite was not made by dbdyno")),
            (Err(_), _) => Err(not_a_run("its run.sqlite is no database")),
        }
    }

    /// Where the run is.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// The experiment's name.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn name(&self) -> Result<String, ResultsError> {
        self.meta("name")
    }

    /// The name of the baseline.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn baseline(&self) -> Result<String, ResultsError> {
        self.meta("baseline")
    }

    /// The text of the experiment file.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn experiment_text(&self) -> Result<String, ResultsError> {
        self.meta("experiment_text")
    }

    /// The experiment with all defaults filled in.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn experiment<T: DeserializeOwned>(&self) -> Result<T, ResultsError> {
        self.parse("the experiment", &self.meta("experiment")?)
    }

    /// The experiment's settings for reports.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn settings(&self) -> Result<Vec<(String, String)>, ResultsError> {
        self.parse("the settings", &self.meta("settings")?)
    }

    /// The microbenchmarks in running order, and whether each is done.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn microbenchmarks(&self) -> Result<Vec<(MicrobenchmarkRecord, bool)>, ResultsError> {
        let rows = self.rows("SELECT json, done FROM microbenchmark ORDER BY id", |row| {
            Ok((row.get::<_, String>(0)?, row.get(1)?))
        })?;
        rows.into_iter()
            .map(|(json, done)| Ok((self.parse("a microbenchmark", &json)?, done)))
            .collect()
    }

    /// The candidates in the order of their numbers; none before all builds were ready.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn candidates(&self) -> Result<Vec<CandidateRecord>, ResultsError> {
        let rows = self.rows("SELECT json FROM candidate ORDER BY id", |row| row.get(0))?;
        rows.iter().map(|json: &String| self.parse("a candidate", json)).collect()
    }

    /// The sessions, in order.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn sessions(&self) -> Result<Vec<SessionRecord>, ResultsError> {
        let rows = self.rows("SELECT json, elapsed_ns FROM session ORDER BY id", |row| {
            Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
        })?;
        rows.into_iter()
            .map(|(json, elapsed)| {
                let session: SessionRecord = self.parse("a session", &json)?;
                Ok(SessionRecord { elapsed: Nanos::from_nanos(elapsed.cast_unsigned()), ..session })
            })
            .collect()
    }

    /// The slices of one microbenchmark, in the order of execution.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn slices(&self, microbenchmark: u32) -> Result<Vec<SliceRow>, ResultsError> {
        let failed = |source| database_error(self.directory.path(), "reading slices", source);
        // Unknown of every slice where there is no such column.
        let or_null = |column| {
            has_column(&self.database, column).map(|has| if has { column } else { "NULL" })
        };
        let background = or_null(BACKGROUND).map_err(failed)?;
        let energy = or_null(ENERGY).map_err(failed)?;
        let sql = format!(
            "SELECT microbenchmark, restart, block, place, candidate, warmup, started_ns, \
             wall_ns, cpu_ns, qps, events, statements, rows, affected, digest, errors, wrong, \
             complaint, busy_retries, context_switches, page_faults, latencies, server_cpu_ns, \
             server_user_ns, server_system_ns, server_context_switches, server_page_faults, \
             server_read_bytes, server_written_bytes, {background}, {energy}, id FROM slice WHERE \
             microbenchmark = ?1 ORDER BY id"
        );
        let mut counts = self.counts(microbenchmark).map_err(failed)?;
        let mut query = self.database.prepare_cached(&sql).map_err(failed)?;
        let rows = query.query_map([microbenchmark], |row| {
            let mut slice = slice_row(row)?;
            let counts = counts.remove(&row.get::<_, i64>(31)?);
            slice.measured.counts = counts.map(Counts::new).unwrap_or_default();
            Ok(slice)
        });
        rows.map_err(failed)?.collect::<Result<_, _>>().map_err(failed)
    }

    /// What was counted in the slices of one microbenchmark, by their ids.
    fn counts(&self, microbenchmark: u32) -> rusqlite::Result<HashMap<i64, Vec<Count>>> {
        let mut counts: HashMap<i64, Vec<Count>> = HashMap::new();
        if !has_counters(&self.database)? {
            return Ok(counts);
        }
        let mut query = self.database.prepare_cached(
            "SELECT slice, counter, count, enabled_ns, running_ns FROM slice \
             JOIN counter ON counter.slice = slice.id WHERE microbenchmark = ?1",
        )?;
        let mut rows = query.query([microbenchmark])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(1)?;
            // A later version may count more.
            let Some(counter) = Counter::from_name(&name) else { continue };
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            counts.entry(row.get(0)?).or_default().push(Count {
                counter,
                count: number(2)?,
                enabled: Nanos::from_nanos(number(3)?),
                running: Nanos::from_nanos(number(4)?),
            });
        }
        Ok(counts)
    }

    /// All failures, in order.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn failures(&self) -> Result<Vec<FailureRecord>, ResultsError> {
        let sql = "SELECT candidate, microbenchmark, kind, at, reason, EXISTS (SELECT 1 FROM slice \
                   WHERE slice.microbenchmark = failure.microbenchmark \
                   AND slice.candidate = failure.candidate \
                   AND slice.session > failure.session AND NOT slice.warmup) \
                   FROM failure ORDER BY id";
        self.rows(sql, |row| {
            let kind: String = row.get(2)?;
            let kind = FailureKind::from_name(&kind).ok_or_else(|| {
                let error = format!("no failure is of the kind `{kind}`");
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
    ///
    /// # Errors
    /// The run is damaged.
    pub fn state_snapshots(&self) -> Result<Vec<StateSnapshotRecord>, ResultsError> {
        let rows = self.rows("SELECT candidate, at, json FROM certificate ORDER BY id", |row| {
            Ok((row.get(0)?, row.get(1)?, row.get::<_, String>(2)?))
        })?;
        rows.into_iter()
            .map(|(candidate, at, json)| {
                let state_snapshot = self.parse("a state snapshot", &json)?;
                Ok(StateSnapshotRecord { candidate, at, state_snapshot })
            })
            .collect()
    }

    pub(crate) fn meta(&self, key: &'static str) -> Result<String, ResultsError> {
        self.database
            .query_row("SELECT value FROM meta WHERE key = ?1", [key], |row| row.get(0))
            .map_err(|source| database_error(self.directory.path(), "reading the run", source))
    }

    pub(crate) fn rows<T>(
        &self,
        sql: &str,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ResultsError> {
        let failed = |source| database_error(self.directory.path(), "reading the run", source);
        let mut query = self.database.prepare_cached(sql).map_err(failed)?;
        let rows = query.query_map([], read).map_err(failed)?;
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

fn slice_row(row: &Row<'_>) -> rusqlite::Result<SliceRow> {
    let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let time = |index| count(index).map(Nanos::from_nanos);
    let latencies = Latencies::from_bytes(&row.get::<_, Vec<u8>>(21)?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(21, Type::Blob, error.into()))?;
    let maybe = |index| row.get(index).map(|n: Option<i64>| n.map(i64::cast_unsigned));
    let server = match maybe(22)? {
        None => None,
        Some(cpu) => Some(ServerUsed {
            cpu: Nanos::from_nanos(cpu),
            background_cpu: maybe(29)?.map(Nanos::from_nanos),
            user: time(23)?,
            system: time(24)?,
            context_switches: maybe(25)?,
            page_faults: count(26)?,
            read_from_storage: maybe(27)?.map(Bytes::from_bytes),
            written_to_storage: maybe(28)?.map(Bytes::from_bytes),
        }),
    };
    Ok(SliceRow {
        microbenchmark: row.get(0)?,
        restart: row.get(1)?,
        block: row.get(2)?,
        place: row.get(3)?,
        candidate: row.get(4)?,
        warmup: row.get(5)?,
        measured: SliceMeasured {
            started: time(6)?,
            wall: time(7)?,
            cpu: time(8)?,
            server,
            throughput: row.get::<_, Option<f64>>(9)?.map(Qps::from_per_second),
            events: count(10)?,
            statements: count(11)?,
            rows: count(12)?,
            affected: count(13)?,
            digest: count(14)?,
            errors: count(15)?,
            wrong: count(16)?,
            first_complaint: row.get(17)?,
            busy_retries: count(18)?,
            context_switches: count(19)?,
            page_faults: count(20)?,
            counts: Counts::default(),
            energy: maybe(30)?.map(Energy::from_microjoules),
            latencies,
        },
    })
}
