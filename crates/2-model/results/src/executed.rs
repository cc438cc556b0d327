//! Executed instructions: written as they are counted, read for reports.

use dbdyno_types::executed::Executed;

use crate::checksum;
use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::schema::replace;
use crate::writer::RunWriter;

impl RunWriter {
    /// Store what a candidate executed on a microbenchmark in one start.
    pub fn set_executed(
        &mut self,
        (microbenchmark, candidate, restart): (u32, u32, u32),
        executed: &Executed,
    ) -> Result<(), ResultsError> {
        let json = serde_json::to_string(executed).expect("it has only texts and numbers");
        self.write("storing executed instructions", |database| {
            let row = vec![
                ("microbenchmark", microbenchmark.into()),
                ("candidate", candidate.into()),
                ("restart", restart.into()),
                ("json", json.into()),
            ];
            replace(database, "executed", row)
        })
    }
}

impl RunReader {
    /// What was executed on one microbenchmark, with the candidate's number and that of the start.
    pub fn executed(&self, microbenchmark: u32) -> Result<Vec<(u32, u32, Executed)>, ResultsError> {
        if !self.has_table("executed")? {
            return Ok(Vec::new());
        }
        let sql = "SELECT * FROM executed WHERE microbenchmark = ?1 ORDER BY candidate, restart";
        let rows: Vec<(u32, u32, String)> = self.rows_with(sql, [microbenchmark], |row| {
            checksum::check(row, "executed", &["microbenchmark", "candidate", "restart"])?;
            Ok((row.get("candidate")?, row.get("restart")?, row.get("json")?))
        })?;
        let parsed = |(candidate, restart, json): (u32, u32, String)| {
            let executed: Executed = self.parse("executed instructions", &json)?;
            Ok((candidate, restart, executed))
        };
        rows.into_iter().map(parsed).collect()
    }
}
