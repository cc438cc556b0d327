use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dbdyno_record::ServerUsed;
use dbdyno_units::{Bytes, Nanos};
use rusqlite::{Connection, ErrorCode, params};
use serde::Serialize;

use crate::directory::RunDirectory;
use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::records::{
    CandidateRecord, FailureRecord, NewRun, SessionRecord, SliceRow, StateSnapshotRecord,
};
use crate::schema::{APPLICATION_ID, COUNTERS, FORMAT, TABLES, complete};

/// Writes a run. As long as it lives, nobody else can write to the same directory.
#[derive(Debug)]
pub struct RunWriter {
    directory: RunDirectory,
    database: Connection,
    pub(crate) session: i64,
    // Closing the file gives the lock back.
    _lock: File,
}

impl RunWriter {
    /// Makes the directory, and a new run in it.
    ///
    /// # Errors
    /// A run is there already, somebody else is writing, or the disk refuses.
    pub fn create(path: &Path, run: &NewRun) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        let io = |path: PathBuf| {
            move |source: std::io::Error| match source.kind() {
                std::io::ErrorKind::StorageFull => ResultsError::StorageFull(path),
                _ => ResultsError::Io { path, source },
            }
        };
        if directory.database().exists() {
            return Err(ResultsError::Exists(path.display().to_string()));
        }
        for path in [path.to_owned(), directory.data(), directory.logs()] {
            // Data under test and its sockets are nobody else's business.
            let mut builder = DirBuilder::new();
            builder.recursive(true).mode(0o700).create(&path).map_err(io(path))?;
        }
        let lock = lock(&directory)?;
        // Under another name until it is whole: a run that was killed here is no run yet.
        let unfinished = path.join("run.sqlite.new");
        for stale in [unfinished.clone(), path.join("run.sqlite.new-journal")] {
            if stale.exists() {
                std::fs::remove_file(&stale).map_err(io(stale))?;
            }
        }
        let failed = |source| database_error(path, "making the run's database", source);
        let database = Connection::open(&unfinished).map_err(failed)?;
        fill(&database, path, run)?;
        database.close().map_err(|(_, source)| failed(source))?;
        std::fs::rename(&unfinished, directory.database()).map_err(io(directory.database()))?;
        let database = Connection::open(directory.database()).map_err(failed)?;
        Self::with_database(directory, database, lock)
    }

    /// Opens the run in an existing directory to continue it.
    ///
    /// # Errors
    /// There is no run, it has another format, somebody else is writing, or the disk refuses.
    pub fn resume(path: &Path) -> Result<Self, ResultsError> {
        let directory = RunDirectory::at(path);
        // Says what is wrong with the directory before anything is written there.
        RunReader::open(path)?;
        let lock = lock(&directory)?;
        let failed = |source| database_error(path, "opening the run's database", source);
        let database = Connection::open(directory.database()).map_err(failed)?;
        let writer = Self::with_database(directory, database, lock)?;
        complete(&writer.database).map_err(failed)?;
        Ok(writer)
    }

    fn with_database(
        directory: RunDirectory,
        database: Connection,
        lock: File,
    ) -> Result<Self, ResultsError> {
        // In WAL mode with NORMAL, a commit survives the death of any process, kill -9 included;
        // a power cut may cost the last few, never the file.
        let set_up = || {
            database.busy_timeout(Duration::from_secs(10))?;
            database.pragma_update(None, "journal_mode", "wal")?;
            database.pragma_update(None, "synchronous", "normal")?;
            database.pragma_update(None, "foreign_keys", true)
        };
        set_up().map_err(|e| database_error(directory.path(), "opening the run's database", e))?;
        Ok(Self { directory, database, session: 0, _lock: lock })
    }

    /// Where the run is.
    #[must_use]
    pub fn directory(&self) -> &RunDirectory {
        &self.directory
    }

    /// What is stored so far.
    ///
    /// # Errors
    /// The run cannot be read.
    pub fn reader(&self) -> Result<RunReader, ResultsError> {
        RunReader::open(self.directory.path())
    }

    /// Starts a session: everything stored from now on belongs to it.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn start_session(&mut self, session: &SessionRecord) -> Result<(), ResultsError> {
        let json = json(session);
        self.write("storing the session", |database| {
            database.execute("INSERT INTO session (json) VALUES (?1)", [&json])?;
            Ok(database.last_insert_rowid())
        })
        .map(|id| self.session = id)
    }

    /// Stores anew what is known of the session: more than when it was started.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn update_session(&mut self, record: &SessionRecord) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing the session", |database| {
            let sql = "UPDATE session SET json = ?2 WHERE id = ?1";
            database.execute(sql, params![session, json(record)]).map(drop)
        })
    }

    /// Notes how long the session has lasted.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn session_elapsed(&mut self, elapsed: Nanos) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing the session", |database| {
            let sql = "UPDATE session SET elapsed_ns = ?2 WHERE id = ?1";
            database.execute(sql, params![session, elapsed.as_nanos() as i64]).map(drop)
        })
    }

    /// Stores the candidates, in the order of their numbers.
    ///
    /// # Errors
    /// The disk refuses, or there are candidates already.
    pub fn add_candidates(&mut self, candidates: &[CandidateRecord]) -> Result<(), ResultsError> {
        self.write("storing the candidates", |database| {
            for (id, candidate) in (0_u32..).zip(candidates) {
                let role = json(&candidate.role);
                database.execute(
                    "INSERT INTO candidate (id, name, role, json) VALUES (?1, ?2, ?3, ?4)",
                    params![id, candidate.name, role.trim_matches('"'), json(candidate)],
                )?;
            }
            Ok(())
        })
    }

    /// Stores anew what is known of a candidate: more than when it was added.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn update_candidate(
        &mut self,
        number: u32,
        candidate: &CandidateRecord,
    ) -> Result<(), ResultsError> {
        self.write("storing the candidates", |database| {
            let sql = "UPDATE candidate SET json = ?2 WHERE id = ?1";
            database.execute(sql, params![number, json(candidate)]).map(drop)
        })
    }

    /// Stores one slice. When this returns, the slice survives the death of this process.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add_slice(&mut self, row: &SliceRow) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing a slice", |database| {
            let m = &row.measured;
            let server = |of: fn(&ServerUsed) -> Option<u64>| {
                m.server.as_ref().and_then(of).map(u64::cast_signed)
            };
            let mut insert = database.prepare_cached(
                "INSERT INTO slice (session, microbenchmark, restart, block, place, candidate, \
                 warmup, started_ns, wall_ns, cpu_ns, qps, events, statements, rows, affected, \
                 digest, errors, wrong, complaint, busy_retries, context_switches, page_faults, \
                 latencies, server_cpu_ns, server_user_ns, server_system_ns, \
                 server_context_switches, server_page_faults, server_read_bytes, \
                 server_written_bytes, server_background_ns, energy_uj) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, \
                 ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, \
                 ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32)",
            )?;
            insert.execute(params![
                session,
                row.microbenchmark,
                row.restart,
                row.block,
                row.place,
                row.candidate,
                row.warmup,
                m.started.as_nanos() as i64,
                m.wall.as_nanos() as i64,
                m.cpu.as_nanos() as i64,
                m.throughput.map(dbdyno_units::Qps::per_second),
                m.events as i64,
                m.statements as i64,
                m.rows as i64,
                m.affected as i64,
                m.digest.cast_signed(),
                m.errors as i64,
                m.wrong as i64,
                m.first_complaint,
                m.busy_retries as i64,
                m.context_switches as i64,
                m.page_faults as i64,
                m.latencies.to_bytes(),
                server(|used| Some(used.cpu.as_nanos())),
                server(|used| Some(used.user.as_nanos())),
                server(|used| Some(used.system.as_nanos())),
                server(|used| used.context_switches),
                server(|used| Some(used.page_faults)),
                server(|used| used.read_from_storage.map(Bytes::as_bytes)),
                server(|used| used.written_to_storage.map(Bytes::as_bytes)),
                server(|used| used.background_cpu.map(Nanos::as_nanos)),
                m.energy.map(|energy| energy.as_microjoules().cast_signed()),
            ])?;
            let slice = database.last_insert_rowid();
            let mut insert = database.prepare_cached(
                "INSERT INTO counter (slice, counter, count, enabled_ns, running_ns) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
            )?;
            for one in m.counts.iter() {
                insert.execute(params![
                    slice,
                    one.counter.name(),
                    one.count.cast_signed(),
                    one.enabled.as_nanos().cast_signed(),
                    one.running.as_nanos().cast_signed(),
                ])?;
            }
            Ok(())
        })
    }

    /// Stores a failure, or a loss.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add_failure(&mut self, failure: &FailureRecord) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing a failure", |database| {
            database.execute(
                "INSERT INTO failure (session, candidate, microbenchmark, kind, at, reason) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    session,
                    failure.candidate,
                    failure.microbenchmark,
                    failure.kind.name(),
                    failure.at,
                    failure.reason
                ],
            )?;
            Ok(())
        })
    }

    /// Stores where an instance stands.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn add_state_snapshot(&mut self, record: &StateSnapshotRecord) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing a state snapshot", |database| {
            database.execute(
                "INSERT INTO certificate (session, candidate, at, json) VALUES (?1, ?2, ?3, ?4)",
                params![session, record.candidate, record.at, json(&record.state_snapshot)],
            )?;
            Ok(())
        })
    }

    /// Notes that a microbenchmark's schedule was fulfilled.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn set_done(&mut self, microbenchmark: u32) -> Result<(), ResultsError> {
        self.write("storing progress", |database| {
            let sql = "UPDATE microbenchmark SET done = 1 WHERE id = ?1";
            database.execute(sql, [microbenchmark]).map(drop)
        })
    }

    /// One transaction.
    pub(crate) fn write<T>(
        &mut self,
        doing: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, ResultsError> {
        let transaction = self.database.transaction();
        transaction
            .and_then(|transaction| {
                let value = work(&transaction)?;
                transaction.commit()?;
                Ok(value)
            })
            .map_err(|source| database_error(self.directory.path(), doing, source))
    }
}

fn fill(database: &Connection, path: &Path, run: &NewRun) -> Result<(), ResultsError> {
    let meta = [
        ("name", run.name.clone()),
        ("baseline", run.baseline.clone()),
        ("experiment_text", run.experiment_text.clone()),
        ("experiment", run.experiment.to_string()),
        ("settings", json(&run.settings)),
    ];
    let insert = run.insert.as_ref().map(|insert| ("insert_benchmark", json(insert)));
    let fill = || {
        database.pragma_update(None, "application_id", APPLICATION_ID)?;
        database.pragma_update(None, "user_version", FORMAT)?;
        let transaction = database.unchecked_transaction()?;
        transaction.execute_batch(TABLES)?;
        transaction.execute_batch(COUNTERS)?;
        for (key, value) in meta.into_iter().chain(insert) {
            let sql = "INSERT INTO meta (key, value) VALUES (?1, ?2)";
            transaction.execute(sql, [key, &value])?;
        }
        for (id, microbenchmark) in (0_u32..).zip(&run.microbenchmarks) {
            transaction.execute(
                "INSERT INTO microbenchmark (id, name, clients, \"group\", json) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    id,
                    microbenchmark.name,
                    microbenchmark.clients,
                    microbenchmark.group,
                    json(microbenchmark)
                ],
            )?;
        }
        transaction.commit()
    };
    fill().map_err(|source| database_error(path, "making the run's database", source))
}

pub(crate) fn database_error(
    path: &Path,
    doing: &'static str,
    source: rusqlite::Error,
) -> ResultsError {
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => ResultsError::StorageFull(path.to_owned()),
        _ => ResultsError::Database { path: path.to_owned(), doing, source },
    }
}

/// Plain data of ours as JSON.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("records have no maps with odd keys and no odd floats")
}

fn lock(directory: &RunDirectory) -> Result<File, ResultsError> {
    let path = directory.lock();
    let io = |source| ResultsError::Io { path: path.clone(), source };
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(&path)
        .map_err(io)?;
    // SAFETY: the descriptor is open; the lock ends with it, also when the process is killed.
    if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } != 0 {
        let mut pid = String::new();
        // Who it is, is a courtesy; that it is taken, is the message.
        let _ = file.read_to_string(&mut pid);
        return Err(ResultsError::InUse {
            path: directory.path().to_owned(),
            pid: pid.trim().parse().ok(),
        });
    }
    file.set_len(0).and_then(|()| file.rewind()).map_err(io)?;
    writeln!(file, "{}", std::process::id()).map_err(io)?;
    Ok(file)
}
