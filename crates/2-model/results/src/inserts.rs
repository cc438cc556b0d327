//! Steps and seconds of the insert benchmark: written as they end, read for reports and to resume.

use dbdyno_types::ServerUsage;
use dbdyno_types::insert::{DeviceUsage, Second, StepMeasured};
use dbdyno_units::{Bytes, Nanos};
use rusqlite::types::Type;
use rusqlite::{Row, named_params, params};

use crate::error::{ResultsError, database_error, json};
use crate::reader::RunReader;
use crate::records::{InsertPlanRecord, InsertStepRecord, StartedFrom};
use crate::writer::{RunWriter, insert};

impl RunWriter {
    /// Store the start of a step and return its ID. Data of an earlier attempt is removed.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn begin_insert_step(&mut self, row: &InsertStepRecord) -> Result<i64, ResultsError> {
        let session = self.session;
        self.write("storing a step", |database| {
            database.execute(
                "DELETE FROM insert_step WHERE repeat = ?1 AND candidate = ?2 AND step = ?3",
                params![row.repeat, row.candidate, row.step],
            )?;
            database.execute(
                "INSERT INTO insert_step (session, repeat, position, candidate, step, name, \
                 started_from) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
                params![
                    session,
                    row.repeat,
                    row.position,
                    row.candidate,
                    row.step,
                    row.name,
                    row.started_from.name()
                ],
            )?;
            Ok(database.last_insert_rowid())
        })
    }

    /// Store a second of a step.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn add_insert_second(&mut self, step: i64, second: &Second) -> Result<(), ResultsError> {
        self.write("storing a second", |database| {
            let system = |of: fn(&ServerUsage) -> Option<u64>| {
                second.system.as_ref().and_then(of).map(u64::cast_signed)
            };
            let device = |of: fn(&DeviceUsage) -> u64| {
                second.device.as_ref().map(|device| of(device).cast_signed())
            };
            let time = |time: Option<Nanos>| time.map(|time| time.as_nanos().cast_signed());
            let size = |size: Option<Bytes>| size.map(|size| size.as_bytes().cast_signed());
            insert(
                database,
                "insert_second",
                named_params! {
                    ":step": step,
                    ":second": second.number,
                    ":elapsed_ns": second.elapsed.as_nanos().cast_signed(),
                    ":inserts": second.inserts.cast_signed(),
                    ":queries": second.queries.cast_signed(),
                    ":deletes": second.deletes.cast_signed(),
                    ":insert_max_ns": time(second.insert_worst),
                    ":query_max_ns": time(second.query_worst),
                    ":delete_max_ns": time(second.delete_worst),
                    ":cpu_ns": system(|used| Some(used.cpu.as_nanos())),
                    ":user_ns": system(|used| Some(used.user.as_nanos())),
                    ":system_ns": system(|used| Some(used.system.as_nanos())),
                    ":context_switches": system(|used| used.context_switches),
                    ":page_faults": system(|used| Some(used.page_faults)),
                    ":read_bytes": system(|used| used.read_from_storage.map(Bytes::as_bytes)),
                    ":written_bytes": system(|used| used.written_to_storage.map(Bytes::as_bytes)),
                    ":client_cpu_ns": time(second.client_cpu),
                    ":device_reads": device(|device| device.reads),
                    ":device_read_bytes": device(|device| device.read.as_bytes()),
                    ":device_writes": device(|device| device.writes),
                    ":device_written_bytes": device(|device| device.written.as_bytes()),
                    ":database_bytes": size(second.database),
                    ":resident_bytes": size(second.resident),
                },
            )
        })
    }

    /// Store the results of a step and mark it as complete.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn finish_insert_step(
        &mut self,
        step: i64,
        measured: &StepMeasured,
    ) -> Result<(), ResultsError> {
        self.write("storing a step", |database| {
            let sql = "UPDATE insert_step SET done = 1, wall_ns = ?2, inserts = ?3, queries = ?4, \
                       deletes = ?5, json = ?6 WHERE id = ?1";
            let parameters = params![
                step,
                measured.wall.as_nanos().cast_signed(),
                measured.inserts.rows.cast_signed(),
                measured.queries.count.cast_signed(),
                measured.deletes.rows.cast_signed(),
                json(measured),
            ];
            database.execute(sql, parameters).map(drop)
        })
    }

    /// Delete the steps of a candidate in a repeat, and its state snapshots with these times, because its data is
    /// lost and it starts again.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn forget_insert_steps(
        &mut self,
        repeat: u32,
        candidate: u32,
        snapshots: &[String],
    ) -> Result<(), ResultsError> {
        self.write("storing progress", |database| {
            let sql = "DELETE FROM insert_step WHERE repeat = ?1 AND candidate = ?2";
            database.execute(sql, params![repeat, candidate])?;
            for at in snapshots {
                let sql = "DELETE FROM state_snapshot WHERE candidate = ?1 AND at = ?2";
                database.execute(sql, params![candidate, at])?;
            }
            Ok(())
        })
    }
}

impl RunReader {
    /// The insert benchmark; `None` for a run of microbenchmarks.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn insert_plan(&self) -> Result<Option<InsertPlanRecord>, ResultsError> {
        let sql = "SELECT value FROM meta WHERE key = 'insert_benchmark'";
        let found: Vec<String> = self.rows(sql, |row| row.get(0))?;
        found.first().map(|json| self.parse("the insert benchmark", json)).transpose()
    }

    /// The started steps, in order of execution.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn insert_steps(&self) -> Result<Vec<InsertStepRecord>, ResultsError> {
        let sql = "SELECT id, repeat, position, candidate, step, name, started_from, \
                   CASE WHEN done THEN json END FROM insert_step ORDER BY id";
        let rows = self.rows(sql, |row| {
            let from: String = row.get(6)?;
            let started_from = match from.as_str() {
                "step" => StartedFrom::Step,
                "copy" => StartedFrom::Copy,
                other => {
                    let error = format!("unknown value `{other}` of started_from");
                    return Err(rusqlite::Error::FromSqlConversionFailure(
                        6,
                        Type::Text,
                        error.into(),
                    ));
                }
            };
            let step = InsertStepRecord {
                id: row.get(0)?,
                repeat: row.get(1)?,
                position: row.get(2)?,
                candidate: row.get(3)?,
                step: row.get(4)?,
                name: row.get(5)?,
                started_from,
                measured: None,
            };
            Ok((step, row.get::<_, Option<String>>(7)?))
        })?;
        rows.into_iter()
            .map(|(step, json)| {
                let measured = json.map(|json| self.parse("a step", &json)).transpose()?;
                Ok(InsertStepRecord { measured, ..step })
            })
            .collect()
    }

    /// The seconds of a step, in order.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn insert_seconds(&self, step: i64) -> Result<Vec<Second>, ResultsError> {
        let sql = "SELECT * FROM insert_second WHERE step = ?1 ORDER BY second";
        let failed = |source| database_error(self.directory.path(), "reading seconds", source);
        let mut query = self.database.prepare_cached(sql).map_err(failed)?;
        let rows = query.query_map([step], second).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

fn second(row: &Row<'_>) -> rusqlite::Result<Second> {
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let maybe = |column| row.get(column).map(|n: Option<i64>| n.map(i64::cast_unsigned));
    let time = |column| maybe(column).map(|n| n.map(Nanos::from_nanos));
    let size = |column| maybe(column).map(|n| n.map(Bytes::from_bytes));
    let system = match time("cpu_ns")? {
        None => None,
        Some(cpu) => Some(ServerUsage {
            cpu,
            background_cpu: None,
            user: time("user_ns")?.unwrap_or_default(),
            system: time("system_ns")?.unwrap_or_default(),
            context_switches: maybe("context_switches")?,
            page_faults: maybe("page_faults")?.unwrap_or_default(),
            read_from_storage: size("read_bytes")?,
            written_to_storage: size("written_bytes")?,
        }),
    };
    let device = match maybe("device_reads")? {
        None => None,
        Some(reads) => Some(DeviceUsage {
            reads,
            read: size("device_read_bytes")?.unwrap_or_default(),
            writes: maybe("device_writes")?.unwrap_or_default(),
            written: size("device_written_bytes")?.unwrap_or_default(),
        }),
    };
    Ok(Second {
        number: row.get("second")?,
        elapsed: Nanos::from_nanos(count("elapsed_ns")?),
        inserts: count("inserts")?,
        queries: count("queries")?,
        deletes: count("deletes")?,
        insert_worst: time("insert_max_ns")?,
        query_worst: time("query_max_ns")?,
        delete_worst: time("delete_max_ns")?,
        system,
        client_cpu: time("client_cpu_ns")?,
        device,
        database: size("database_bytes")?,
        resident: size("resident_bytes")?,
    })
}
