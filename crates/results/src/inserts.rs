//! Steps and seconds of the insert benchmark: written as they end, read for reports and to resume.

use dbdyno_record::ServerUsage;
use dbdyno_record::insert::{DeviceUsage, Second, StepMeasured};
use dbdyno_units::{Bytes, Nanos};
use rusqlite::types::Type;
use rusqlite::{Row, params};

use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::records::{InsertPlanRecord, InsertStepRecord, StartedFrom};
use crate::writer::{RunWriter, database_error, json};

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
            let mut insert = database.prepare_cached(
                "INSERT INTO insert_second (step, second, elapsed_ns, inserts, queries, deletes, \
                 insert_max_ns, query_max_ns, delete_max_ns, cpu_ns, user_ns, system_ns, \
                 context_switches, page_faults, read_bytes, written_bytes, client_cpu_ns, \
                 device_reads, device_read_bytes, device_writes, device_written_bytes, \
                 database_bytes, resident_bytes) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, \
                 ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23)",
            )?;
            insert.execute(params![
                step,
                second.number,
                second.elapsed.as_nanos().cast_signed(),
                second.inserts.cast_signed(),
                second.queries.cast_signed(),
                second.deletes.cast_signed(),
                time(second.insert_worst),
                time(second.query_worst),
                time(second.delete_worst),
                system(|used| Some(used.cpu.as_nanos())),
                system(|used| Some(used.user.as_nanos())),
                system(|used| Some(used.system.as_nanos())),
                system(|used| used.context_switches),
                system(|used| Some(used.page_faults)),
                system(|used| used.read_from_storage.map(Bytes::as_bytes)),
                system(|used| used.written_to_storage.map(Bytes::as_bytes)),
                time(second.client_cpu),
                device(|device| device.reads),
                device(|device| device.read.as_bytes()),
                device(|device| device.writes),
                device(|device| device.written.as_bytes()),
                size(second.database),
                size(second.resident),
            ])?;
            Ok(())
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

    /// Delete the steps of a candidate in a repeat, because its data is lost and it starts again.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn forget_insert_steps(&mut self, repeat: u32, candidate: u32) -> Result<(), ResultsError> {
        self.write("storing progress", |database| {
            let sql = "DELETE FROM insert_step WHERE repeat = ?1 AND candidate = ?2";
            database.execute(sql, params![repeat, candidate]).map(drop)
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
        let failed = |source| database_error(self.directory.path(), "reading seconds", source);
        let mut query = self
            .database
            .prepare_cached(
                "SELECT second, elapsed_ns, inserts, queries, deletes, insert_max_ns, \
                 query_max_ns, delete_max_ns, cpu_ns, user_ns, system_ns, context_switches, \
                 page_faults, read_bytes, written_bytes, client_cpu_ns, device_reads, \
                 device_read_bytes, device_writes, device_written_bytes, database_bytes, \
                 resident_bytes FROM insert_second WHERE step = ?1 ORDER BY second",
            )
            .map_err(failed)?;
        let rows = query.query_map([step], second).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}

fn second(row: &Row<'_>) -> rusqlite::Result<Second> {
    let count = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
    let maybe = |index| row.get(index).map(|n: Option<i64>| n.map(i64::cast_unsigned));
    let time = |index| maybe(index).map(|n| n.map(Nanos::from_nanos));
    let size = |index| maybe(index).map(|n| n.map(Bytes::from_bytes));
    let system = match time(8)? {
        None => None,
        Some(cpu) => Some(ServerUsage {
            cpu,
            background_cpu: None,
            user: time(9)?.unwrap_or_default(),
            system: time(10)?.unwrap_or_default(),
            context_switches: maybe(11)?,
            page_faults: maybe(12)?.unwrap_or_default(),
            read_from_storage: size(13)?,
            written_to_storage: size(14)?,
        }),
    };
    let device = match maybe(16)? {
        None => None,
        Some(reads) => Some(DeviceUsage {
            reads,
            read: size(17)?.unwrap_or_default(),
            writes: maybe(18)?.unwrap_or_default(),
            written: size(19)?.unwrap_or_default(),
        }),
    };
    Ok(Second {
        number: row.get(0)?,
        elapsed: Nanos::from_nanos(count(1)?),
        inserts: count(2)?,
        queries: count(3)?,
        deletes: count(4)?,
        insert_worst: time(5)?,
        query_worst: time(6)?,
        delete_worst: time(7)?,
        system,
        client_cpu: time(15)?,
        device,
        database: size(20)?,
        resident: size(21)?,
    })
}
