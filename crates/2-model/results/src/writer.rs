use std::fs::{DirBuilder, File};
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_types::RunIdentity;
use dbdyno_units::Nanos;
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::directory::RunDirectory;
use crate::error::{ResultsError, database_error, json};
use crate::reader::RunReader;
use crate::records::{
    CandidateRecord, ExtensionRecord, FailureRecord, NewRun, OptimizationRecord, SessionRecord,
    StateSnapshotRecord, setting,
};
use crate::schema::{
    ADDED_TABLES, APPLICATION_ID, EXTENSION, FIGURES_VIEW, FORMAT, MAY_HAVE_SCHEMAS, TABLES,
    insert, replace,
};
use crate::slices::{remove_latency_buckets, store_latency_buckets};
use crate::{checksum, directory, identity, untrusted};

/// The name of a database that is still being created.
const UNFINISHED: &str = "run.sqlite.new";

/// Writes a run. Holds an exclusive lock on the directory.
#[derive(Debug)]
pub struct RunWriter {
    directory: RunDirectory,
    identity: RunIdentity,
    database: Connection,
    pub(crate) session: i64,
    // The lock is released when the file is closed.
    _lock: File,
}

impl RunWriter {
    /// Create the directory and a new run in it.
    ///
    /// # Errors
    /// The directory already has a run, another process writes to it, or it cannot be written.
    pub fn create(path: &Path, run: &NewRun) -> Result<Self, ResultsError> {
        Self::create_in(path, run).map_err(|error| match error {
            ResultsError::StorageFull(at) if !RunDirectory::at(path).database().exists() => {
                ResultsError::NoSpaceToStart(at)
            }
            other => other,
        })
    }

    fn create_in(path: &Path, run: &NewRun) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        let io = |path: PathBuf| move |source| ResultsError::writing(path, source);
        if std::fs::symlink_metadata(directory.database()).is_ok() {
            return Err(ResultsError::Exists(path.display().to_string()));
        }
        for path in [path.to_owned(), directory.data(), directory.logs()] {
            // Data under test and sockets must be private.
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&path).map_err(io(path))?;
        }
        directory.check_own()?;
        let lock = directory::lock(&directory)?;
        // Renamed when complete, so that a process killed earlier leaves no run.
        let unfinished =
            ["", "-journal", "-wal", "-shm"].map(|suffix| format!("{UNFINISHED}{suffix}"));
        // The log of a run whose database was removed would be applied to the new one.
        let logs = ["-journal", "-wal", "-shm"].map(|suffix| format!("run.sqlite{suffix}"));
        for name in unfinished.into_iter().chain(logs) {
            let stale = path.join(name);
            match std::fs::remove_file(&stale) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(io(stale)(error)),
                _ => {}
            }
        }
        let failed = |source| database_error(path, "creating the run's database", source);
        let database = Connection::open(path.join(UNFINISHED)).map_err(failed)?;
        fill(&database, path, run, &identity::create(path)?)?;
        database.close().map_err(|(_, source)| failed(source))?;
        std::fs::rename(path.join(UNFINISHED), directory.database())
            .map_err(io(directory.database()))?;
        let opened = Connection::open(directory.database()).map_err(failed);
        let made = opened.and_then(|database| Self::with_database(directory, database, lock));
        if made.is_err() {
            // It would not be registered, so that it could be neither resumed nor replaced.
            for suffix in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(path.join(format!("run.sqlite{suffix}")));
            }
        }
        made
    }

    /// Open the run in an existing directory to resume it.
    ///
    /// # Errors
    /// There is no run, its format is unknown, it is not this user's own
    /// ([`RunDirectory::check_own`]), another process writes to it, or it cannot be written.
    pub fn resume(path: &Path) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        // Report a wrong directory before writing to it.
        RunReader::open(path)?;
        directory.check_own()?;
        let lock = directory::lock(&directory)?;
        let database = untrusted::open_to_write(&directory)?;
        Self::with_database(directory, database, lock)
    }

    fn with_database(
        directory: RunDirectory,
        database: Connection,
        lock: File,
    ) -> Result<Self, ResultsError> {
        // In WAL mode with synchronous = NORMAL, a commit survives a crash of any process,
        // including kill -9; a power failure may lose the last commits, but does not damage the
        // file.
        let set_up = || {
            database.busy_timeout(Duration::from_secs(10))?;
            database.pragma_update(None, "journal_mode", "wal")?;
            database.pragma_update(None, "synchronous", "normal")?;
            database.pragma_update(None, "foreign_keys", true)?;
            database.execute_batch(ADDED_TABLES)?;
            checksum::add_columns(&database)
        };
        set_up().map_err(|e| database_error(directory.path(), "opening the run's database", e))?;
        let identity = identity::of_run(&database, &directory)?;
        Ok(Self { directory, identity, database, session: 0, _lock: lock })
    }

    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    pub fn identity(&self) -> &RunIdentity {
        &self.identity
    }

    /// Open a reader of the stored data.
    pub fn reader(&self) -> Result<RunReader, ResultsError> {
        RunReader::open(self.directory.path())
    }

    /// Start a session: all records stored from now on belong to it.
    pub fn start_session(&mut self, session: &SessionRecord) -> Result<(), ResultsError> {
        let json = json(session);
        self.write("storing the session", |database, _| {
            database.execute("INSERT INTO session (json) VALUES (?1)", [&json])?;
            let id = database.last_insert_rowid();
            checksum::store(database, "session", id).map(|()| id)
        })
        .map(|id| self.session = id)
    }

    pub fn update_session(&mut self, record: &SessionRecord) -> Result<(), ResultsError> {
        self.set_in_session("json", json(record).into())
    }

    /// Store the duration of the session so far.
    pub fn session_elapsed(&mut self, elapsed: Nanos) -> Result<(), ResultsError> {
        self.set_in_session("elapsed_ns", elapsed.as_nanos().cast_signed().into())
    }

    fn set_in_session(&mut self, column: &str, value: Value) -> Result<(), ResultsError> {
        self.write("storing the session", |database, session| {
            let sql = format!("UPDATE session SET {column} = ?2 WHERE id = ?1");
            database.execute(&sql, params![session, value])?;
            checksum::store(database, "session", session)
        })
    }

    /// Store whether the run may have schemas on existing servers: before the first is created, and
    /// after all are dropped.
    pub fn set_may_have_schemas(&mut self, may_have: bool) -> Result<(), ResultsError> {
        self.write("storing progress", |database, _| {
            set_meta(database, MAY_HAVE_SCHEMAS, &may_have.to_string())
        })
    }

    /// Delete the run, so that a new one can be created in its directory. Its data must be removed
    /// before.
    pub fn delete(self) -> Result<(), ResultsError> {
        let Self { directory, database, _lock: lock, .. } = self;
        let path = directory.path();
        database
            .close()
            .map_err(|(_, source)| database_error(path, "closing the run's database", source))?;
        let removed = |path: PathBuf, removed: std::io::Result<()>| match removed {
            Err(source) if source.kind() != ErrorKind::NotFound => {
                Err(ResultsError::Io { path, source })
            }
            _ => Ok(()),
        };
        let logs = directory.logs();
        removed(logs.clone(), std::fs::remove_dir_all(logs))?;
        // A write-ahead log that is left would be applied to the next database of this name.
        for suffix in ["-wal", "-shm", ""] {
            let file = path.join(format!("run.sqlite{suffix}"));
            removed(file.clone(), std::fs::remove_file(file))?;
        }
        drop(lock);
        Ok(())
    }

    /// Store the candidates, in the order of their numbers.
    ///
    /// # Errors
    /// The database cannot be written, or already contains candidates.
    pub fn add_candidates(&mut self, candidates: &[CandidateRecord]) -> Result<(), ResultsError> {
        self.write("storing the candidates", |database, _| {
            for (id, candidate) in (0_u32..).zip(candidates) {
                let (role, record) = (json(&candidate.role), json(candidate));
                insert!(database, "candidate" {
                    "id": id,
                    "name": candidate.name,
                    "role": role.trim_matches('"'),
                    "json": record,
                    "checksum": checksum::of_json(&record),
                })?;
            }
            Ok(())
        })
    }

    pub fn update_candidate(
        &mut self,
        number: u32,
        candidate: &CandidateRecord,
    ) -> Result<(), ResultsError> {
        self.write("storing the candidates", |database, _| {
            let sql = "UPDATE candidate SET json = ?2, checksum = ?3 WHERE id = ?1";
            let record = json(candidate);
            database.execute(sql, params![number, record, checksum::of_json(&record)]).map(drop)
        })
    }

    pub fn add_failure(&mut self, failure: &FailureRecord) -> Result<(), ResultsError> {
        self.write("storing a failure", |database, session| {
            insert!(database, "failure" {
                "session": session,
                "candidate": failure.candidate,
                "microbenchmark": failure.microbenchmark,
                "kind": failure.kind.name(),
                "at": failure.at,
                "reason": failure.reason,
            })
        })
    }

    /// Store a state snapshot of an instance.
    pub fn add_state_snapshot(&mut self, record: &StateSnapshotRecord) -> Result<(), ResultsError> {
        self.write("storing a state snapshot", |database, session| {
            insert!(database, "state_snapshot" {
                "session": session,
                "candidate": record.candidate,
                "at": record.at,
                "json": json(&record.state_snapshot),
            })?;
            checksum::store(database, "state_snapshot", database.last_insert_rowid())
        })
    }

    /// Store an optimization.
    pub fn add_optimization(&mut self, record: &OptimizationRecord) -> Result<(), ResultsError> {
        self.write("storing an optimization", |database, session| {
            insert!(database, "optimization" {
                "session": session,
                "candidate": record.candidate,
                "trained_with": record.trained_with,
                "measured_next": record.measured_next,
                "json": json(record),
            })
        })
    }

    /// Store an extension: its microbenchmarks are not done any more. `summary` is added to the
    /// run's settings.
    pub fn extend(
        &mut self,
        extension: &ExtensionRecord,
        summary: &str,
    ) -> Result<(), ResultsError> {
        let mut settings = self.reader()?.settings()?;
        settings.push((setting::EXTENDED.to_owned(), summary.to_owned()));
        self.write("storing the extension", |database, _| {
            set_meta(database, EXTENSION, &json(extension))?;
            set_meta(database, "settings", &json(&settings))?;
            for id in extension.goals.keys() {
                database.execute("UPDATE microbenchmark SET done = 0 WHERE id = ?1", [id])?;
                remove_latency_buckets(database, *id)?;
            }
            Ok(())
        })
    }

    /// Mark a microbenchmark as complete, and store its response times for queries.
    pub fn set_done(&mut self, microbenchmark: u32) -> Result<(), ResultsError> {
        self.write("storing progress", |database, _| {
            let sql = "UPDATE microbenchmark SET done = 1 WHERE id = ?1";
            database.execute(sql, [microbenchmark])?;
            store_latency_buckets(database, microbenchmark)
        })
    }

    /// Run `work` in one transaction, with the number of the session.
    pub(crate) fn write<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Connection, i64) -> rusqlite::Result<T>,
    ) -> Result<T, ResultsError> {
        let transaction = self.database.transaction();
        let value = transaction
            .and_then(|transaction| {
                let value = work(&transaction, self.session)?;
                transaction.commit()?;
                Ok(value)
            })
            .map_err(|source| database_error(self.directory.path(), doing, source))?;
        // SQLite can still write to a file that was removed.
        match self.directory.database().try_exists() {
            Ok(false) => Err(ResultsError::Gone(self.directory.path().to_owned())),
            _ => Ok(value),
        }
    }
}

/// Store a value in `meta`, or replace it.
pub(crate) fn set_meta(database: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    let row = vec![("key", key.to_owned().into()), ("value", value.to_owned().into())];
    replace(database, "meta", row)
}

fn fill(
    database: &Connection,
    path: &Path,
    run: &NewRun,
    identity: &RunIdentity,
) -> Result<(), ResultsError> {
    let meta = [
        ("name", run.name.clone()),
        ("baseline", run.baseline.clone()),
        ("experiment_text", run.experiment_text.clone()),
        ("experiment", run.experiment.to_string()),
        ("settings", json(&run.settings)),
        (MAY_HAVE_SCHEMAS, false.to_string()),
        (identity::KEY, json(identity)),
    ];
    let insert = run.insert.as_ref().map(|insert| ("insert_benchmark", json(insert)));
    let fill = || {
        database.pragma_update(None, "application_id", APPLICATION_ID)?;
        database.pragma_update(None, "user_version", FORMAT)?;
        let transaction = database.unchecked_transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.execute_batch(FIGURES_VIEW)?;
        for (key, value) in meta.into_iter().chain(insert) {
            set_meta(&transaction, key, &value)?;
        }
        for (id, microbenchmark) in (0_u32..).zip(&run.microbenchmarks) {
            let record = json(microbenchmark);
            insert!(&transaction, "microbenchmark" {
                "id": id,
                "name": microbenchmark.name,
                "clients": microbenchmark.clients,
                "\"group\"": microbenchmark.group,
                "json": record,
                "checksum": checksum::of_json(&record),
            })?;
        }
        transaction.commit()?;
        // Before the file has its name: a rollback journal is never beside `run.sqlite`.
        database.pragma_update(None, "journal_mode", "wal")
    };
    fill().map_err(|source| database_error(path, "creating the run's database", source))
}
