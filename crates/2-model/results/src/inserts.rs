//! Steps and seconds of the insert benchmark: written as they end, read for reports and to resume.

use dbdyno_types::insert::{Second, StepMeasured};
use rusqlite::types::{Type, Value};
use rusqlite::{Row, params};

use crate::checksum::{self, Layout};
use crate::error::{ResultsError, database_error, json};
use crate::reader::RunReader;
use crate::records::{InsertPlanRecord, InsertStepRecord, StartedFrom};
use crate::schema::{Columns, Record, Stored};
use crate::writer::RunWriter;

impl Record for InsertStepRecord {
    fn list(&mut self, columns: &mut Columns<'_>) -> rusqlite::Result<()> {
        columns.add("repeat", &mut self.repeat)?;
        columns.add("position", &mut self.position)?;
        columns.add("candidate", &mut self.candidate)?;
        columns.add("step", &mut self.step)?;
        columns.add("name", &mut self.name)?;
        columns.add("started_from", &mut self.started_from)
    }
}

impl Stored for StartedFrom {
    fn to_value(&self) -> Value {
        self.name().to_owned().into()
    }

    fn from_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Self> {
        let name: String = row.get(column)?;
        Self::by_name(&name).ok_or_else(|| {
            let error = format!("unknown value `{name}` of started_from");
            rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into())
        })
    }
}

impl Record for Second {
    fn list(&mut self, columns: &mut Columns<'_>) -> rusqlite::Result<()> {
        columns.add("second", &mut self.number)?;
        columns.add("elapsed_ns", &mut self.elapsed)?;
        columns.add("inserts", &mut self.inserts)?;
        columns.add("queries", &mut self.queries)?;
        columns.add("deletes", &mut self.deletes)?;
        columns.add("insert_max_ns", &mut self.insert_worst)?;
        columns.add("query_max_ns", &mut self.query_worst)?;
        columns.add("delete_max_ns", &mut self.delete_worst)?;
        columns.add("client_cpu_ns", &mut self.client_cpu)?;
        columns.add("database_bytes", &mut self.database)?;
        columns.add("resident_bytes", &mut self.resident)?;
        columns.add_group("cpu_ns", &mut self.system, |columns, used| {
            columns.add("cpu_ns", &mut used.cpu)?;
            columns.add("user_ns", &mut used.user)?;
            columns.add("system_ns", &mut used.system)?;
            columns.add("context_switches", &mut used.context_switches)?;
            columns.add("page_faults", &mut used.page_faults)?;
            columns.add("read_bytes", &mut used.read_from_storage)?;
            columns.add("written_bytes", &mut used.written_to_storage)
        })?;
        columns.add_group("device_reads", &mut self.device, |columns, device| {
            columns.add("device_reads", &mut device.reads)?;
            columns.add("device_read_bytes", &mut device.read)?;
            columns.add("device_writes", &mut device.writes)?;
            columns.add("device_written_bytes", &mut device.written)
        })
    }
}

impl RunWriter {
    /// Store the start of a step and return its ID. Data of an earlier attempt is removed.
    pub fn begin_insert_step(&mut self, row: &InsertStepRecord) -> Result<i64, ResultsError> {
        self.write("storing a step", |database, session| {
            database.execute(
                "DELETE FROM insert_step WHERE repeat = ?1 AND candidate = ?2 AND step = ?3",
                params![row.repeat, row.candidate, row.step],
            )?;
            row.insert(database, "insert_step", ("session", session))?;
            let id = database.last_insert_rowid();
            checksum::store(database, "insert_step", id).map(|()| id)
        })
    }

    /// Store a second of a step.
    pub fn add_insert_second(&mut self, step: i64, second: &Second) -> Result<(), ResultsError> {
        self.write("storing a second", |database, _| {
            second.insert(database, "insert_second", ("step", step))
        })
    }

    /// Store the results of a step and mark it as complete.
    pub fn finish_insert_step(
        &mut self,
        step: i64,
        measured: &StepMeasured,
    ) -> Result<(), ResultsError> {
        self.write("storing a step", |database, _| {
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
            database.execute(sql, parameters)?;
            checksum::store(database, "insert_step", step)
        })
    }

    /// Delete the steps of a candidate in a repeat, and its state snapshots with these times, because its data is
    /// lost and it starts again.
    pub fn forget_insert_steps(
        &mut self,
        repeat: u32,
        candidate: u32,
        snapshots: &[String],
    ) -> Result<(), ResultsError> {
        self.write("storing progress", |database, _| {
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
    pub fn insert_plan(&self) -> Result<Option<InsertPlanRecord>, ResultsError> {
        let found = self.find_meta("insert_benchmark")?;
        found.map(|json| self.parse("the insert benchmark", &json)).transpose()
    }

    /// The started steps, in order of execution.
    pub fn insert_steps(&self) -> Result<Vec<InsertStepRecord>, ResultsError> {
        let rows = self.rows("SELECT * FROM insert_step ORDER BY id", |row| {
            checksum::check(row, "insert_step", &["id"])?;
            let step = InsertStepRecord::from_row(row, &Layout::of(row.as_ref()))?;
            let step = InsertStepRecord { id: row.get("id")?, ..step };
            let json: Option<String> = if row.get("done")? { row.get("json")? } else { None };
            Ok((step, json))
        })?;
        rows.into_iter()
            .map(|(step, json)| {
                let measured = json.map(|json| self.parse("a step", &json)).transpose()?;
                Ok(InsertStepRecord { measured, ..step })
            })
            .collect()
    }

    /// The seconds of a step, in order.
    pub fn insert_seconds(&self, step: i64) -> Result<Vec<Second>, ResultsError> {
        let sql = "SELECT * FROM insert_second WHERE step = ?1 ORDER BY second";
        let failed = |source| database_error(self.directory.path(), "reading seconds", source);
        let mut query = self.database.prepare_cached(sql).map_err(failed)?;
        let layout = Layout::of(&query);
        let checked = |row: &Row<'_>| {
            layout.check(row, "insert_second", &["step", "second"], 0)?;
            Second::from_row(row, &layout)
        };
        let rows = query.query_map([step], checked).map_err(failed)?;
        rows.collect::<Result<_, _>>().map_err(failed)
    }
}
