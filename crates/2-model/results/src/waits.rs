//! Where candidates wait.

use dbdyno_types::profile::Waits;

use crate::checksum;
use crate::error::ResultsError;
use crate::reader::RunReader;
use crate::schema::replace;
use crate::writer::RunWriter;

/// Where a candidate waited on a microbenchmark in one start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitsRecord {
    pub candidate: u32,
    pub restart: u32,
    pub waits: Waits,
}

impl RunWriter {
    /// Store where a candidate waited on a microbenchmark in one start.
    pub fn set_waits(
        &mut self,
        microbenchmark: u32,
        candidate: u32,
        restart: u32,
        waits: &Waits,
    ) -> Result<(), ResultsError> {
        let json = serde_json::to_string(waits).expect("waits have only texts and numbers");
        self.write("storing waits", |database| {
            let row = vec![
                ("microbenchmark", microbenchmark.into()),
                ("candidate", candidate.into()),
                ("restart", restart.into()),
                ("json", json.into()),
            ];
            replace(database, "waits", row)
        })
    }
}

impl RunReader {
    /// Where candidates waited on one microbenchmark, by candidate and start.
    pub fn waits(&self, microbenchmark: u32) -> Result<Vec<WaitsRecord>, ResultsError> {
        if !self.has_table("waits")? {
            return Ok(Vec::new());
        }
        let sql = "SELECT * FROM waits WHERE microbenchmark = ?1 ORDER BY candidate, restart";
        let rows = self.rows_with(sql, [microbenchmark], |row| {
            checksum::check(row, "waits", &["microbenchmark", "candidate", "restart"])?;
            Ok((row.get("candidate")?, row.get("restart")?, row.get::<_, String>("json")?))
        })?;
        let record = |(candidate, restart, json): (u32, u32, String)| {
            Ok(WaitsRecord { candidate, restart, waits: self.parse("waits", &json)? })
        };
        rows.into_iter().map(record).collect()
    }
}
