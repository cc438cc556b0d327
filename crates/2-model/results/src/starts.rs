//! What is stored of a candidate on a microbenchmark in one start: plans, a profile, waits, executed instructions.

use dbdyno_types::StatementPlan;
use dbdyno_types::executed::Executed;
use dbdyno_types::profile::{Profile, Waits};
use dbdyno_units::Nanos;
use rusqlite::Row;
use rusqlite::types::Value;

use crate::checksum;
use crate::error::{ResultsError, json};
use crate::reader::RunReader;
use crate::records::ProfileRecord;
use crate::schema::replace;
use crate::writer::RunWriter;

/// The numbers of a microbenchmark, a candidate and a start, which are the beginning of the tables' keys.
type Start = (u32, u32, u32);

/// Where a candidate waited on a microbenchmark in one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitsRecord {
    pub candidate: u32,
    pub restart: u32,
    pub waits: Waits,
}

impl RunWriter {
    /// Store how a candidate executes the statements of a microbenchmark since a start.
    pub fn set_plans(&mut self, of: Start, plans: &[StatementPlan]) -> Result<(), ResultsError> {
        for StatementPlan { number, sql, lines } in plans {
            let row = vec![
                ("statement", (*number).into()),
                ("sql", sql.clone().into()),
                ("lines", lines.join("\n").into()),
            ];
            self.set_of_start("plan", of, row)?;
        }
        Ok(())
    }

    /// Store what was sampled of a candidate on a microbenchmark in one start.
    pub fn set_profile(
        &mut self,
        microbenchmark: u32,
        ProfileRecord { candidate, restart, statements, cpu, profile }: &ProfileRecord,
    ) -> Result<(), ResultsError> {
        let row = vec![
            ("statements", statements.cast_signed().into()),
            ("cpu_ns", cpu.as_nanos().cast_signed().into()),
            ("json", json(profile).into()),
        ];
        self.set_of_start("profile", (microbenchmark, *candidate, *restart), row)
    }

    /// Store where a candidate waited on a microbenchmark in one start.
    pub fn set_waits(&mut self, of: Start, waits: &Waits) -> Result<(), ResultsError> {
        self.set_of_start("waits", of, vec![("json", json(waits).into())])
    }

    /// Store what a candidate executed on a microbenchmark in one start.
    pub fn set_executed(&mut self, of: Start, executed: &Executed) -> Result<(), ResultsError> {
        self.set_of_start("executed", of, vec![("json", json(executed).into())])
    }

    fn set_of_start(
        &mut self,
        table: &str,
        (microbenchmark, candidate, restart): Start,
        values: Vec<(&'static str, Value)>,
    ) -> Result<(), ResultsError> {
        let mut row = vec![
            ("microbenchmark", microbenchmark.into()),
            ("candidate", candidate.into()),
            ("restart", restart.into()),
        ];
        row.extend(values);
        self.write("storing what was found in a start", |database, _| replace(database, table, row))
    }
}

impl RunReader {
    /// How candidates executed the statements of one microbenchmark, with the candidate's number and that of the start.
    pub fn plans(
        &self,
        microbenchmark: u32,
    ) -> Result<Vec<(u32, u32, StatementPlan)>, ResultsError> {
        let mut plans = self.of_starts("plan", microbenchmark, |row, candidate, restart| {
            let lines: String = row.get("lines")?;
            let lines = lines.lines().map(str::to_owned).collect();
            let plan = StatementPlan { number: row.get("statement")?, sql: row.get("sql")?, lines };
            Ok((candidate, restart, plan))
        })?;
        plans.sort_by_key(|(candidate, restart, plan)| (*candidate, *restart, plan.number));
        Ok(plans)
    }

    /// What was sampled on one microbenchmark, by candidate and start.
    pub fn profiles(&self, microbenchmark: u32) -> Result<Vec<ProfileRecord>, ResultsError> {
        let rows = self.of_starts("profile", microbenchmark, |row, candidate, restart| {
            let number = |name| row.get::<_, i64>(name).map(i64::cast_unsigned);
            let (statements, cpu) = (number("statements")?, Nanos::from_nanos(number("cpu_ns")?));
            let profile = Profile::default();
            let record = ProfileRecord { candidate, restart, statements, cpu, profile };
            Ok((record, row.get::<_, String>("json")?))
        })?;
        let record = |(record, json): (ProfileRecord, String)| {
            let profile: Profile = self.parse("a profile", &json)?;
            if !profile.is_consistent() {
                return Err(ResultsError::Damaged {
                    path: self.directory().path().to_owned(),
                    what: "a profile",
                    why: "it has stacks with unknown functions, or too many samples".to_owned(),
                });
            }
            Ok(ProfileRecord { profile, ..record })
        };
        rows.into_iter().map(record).collect()
    }

    /// Where candidates waited on one microbenchmark, by candidate and start.
    pub fn waits(&self, microbenchmark: u32) -> Result<Vec<WaitsRecord>, ResultsError> {
        let rows = self.of_starts("waits", microbenchmark, |row, candidate, restart| {
            Ok((candidate, restart, row.get::<_, String>("json")?))
        })?;
        let record = |(candidate, restart, json): (u32, u32, String)| {
            Ok(WaitsRecord { candidate, restart, waits: self.parse("waits", &json)? })
        };
        rows.into_iter().map(record).collect()
    }

    /// What was executed on one microbenchmark, with the candidate's number and that of the start.
    pub fn executed(&self, microbenchmark: u32) -> Result<Vec<(u32, u32, Executed)>, ResultsError> {
        let rows = self.of_starts("executed", microbenchmark, |row, candidate, restart| {
            Ok((candidate, restart, row.get::<_, String>("json")?))
        })?;
        let parsed = |(candidate, restart, json): (u32, u32, String)| {
            Ok((candidate, restart, self.parse("executed instructions", &json)?))
        };
        rows.into_iter().map(parsed).collect()
    }

    /// The rows of a microbenchmark, with the numbers of the candidate and the start, in their order. None if the run is of
    /// a version without the table.
    fn of_starts<T>(
        &self,
        table: &'static str,
        microbenchmark: u32,
        read: impl Fn(&Row<'_>, u32, u32) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, ResultsError> {
        if !self.has_table(table)? {
            return Ok(Vec::new());
        }
        let sql =
            format!("SELECT * FROM {table} WHERE microbenchmark = ?1 ORDER BY candidate, restart");
        self.rows_with(&sql, [microbenchmark], |row| {
            checksum::check(row, table, &["microbenchmark", "candidate", "restart"])?;
            read(row, row.get("candidate")?, row.get("restart")?)
        })
    }
}
