//! Reduces a `run.sqlite` for publication to the data that figures of a report depend on:
//!
//! - warm-up slices are left out;
//! - the response times of a candidate on a microbenchmark are added up in its first slice;
//! - start times are rounded to milliseconds;
//! - the times of kernel counters that were active all the time are stored as 1 ns: figures use only
//!   the ratio of the two times, which stays 1, and constants compress better.
//!
//! Usage: `cargo run -p dbdyno-results --example compact-run -- run.sqlite copy.sqlite`

use std::collections::BTreeMap;
use std::error::Error;

use dbdyno_types::{Counter, Latencies};
use rusqlite::{Connection, params};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("usage: compact-run FROM TO".into());
    };
    std::fs::copy(from, &to)?;
    let mut database = Connection::open(to)?;
    let transaction = database.transaction()?;
    transaction.execute_batch(
        "DELETE FROM counter WHERE slice IN (SELECT id FROM slice WHERE warmup);
         DELETE FROM slice WHERE warmup;
         UPDATE slice SET started_ns = started_ns / 1000000 * 1000000;",
    )?;
    for counter in Counter::ALL.into_iter().filter(|counter| !counter.is_hardware()) {
        let sql = "UPDATE counter SET enabled_ns = 1, running_ns = 1 \
                   WHERE counter = ?1 AND enabled_ns = running_ns AND running_ns > 0";
        transaction.execute(sql, [counter.name()])?;
    }
    let response_times = merged_response_times(&transaction)?;
    transaction.execute("UPDATE slice SET latencies = ?1", [Latencies::default().to_bytes()])?;
    for (slice, latencies) in response_times.into_values() {
        let sql = "UPDATE slice SET latencies = ?2 WHERE id = ?1";
        transaction.execute(sql, params![slice, latencies.to_bytes()])?;
    }
    transaction.commit()?;
    // Large pages compress better.
    database.execute_batch("PRAGMA journal_mode = DELETE; PRAGMA page_size = 65536; VACUUM;")?;
    Ok(())
}

/// The id of the first slice and the response times of all slices, by microbenchmark and candidate.
type MergedResponseTimes = BTreeMap<(u32, u32), (i64, Latencies)>;

fn merged_response_times(database: &Connection) -> Result<MergedResponseTimes, Box<dyn Error>> {
    let mut merged = MergedResponseTimes::new();
    let sql = "SELECT id, microbenchmark, candidate, latencies FROM slice ORDER BY id";
    let mut query = database.prepare(sql)?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let slice: i64 = row.get(0)?;
        let latencies = Latencies::from_bytes(&row.get::<_, Vec<u8>>(3)?)?;
        let (_, all) = merged
            .entry((row.get(1)?, row.get(2)?))
            .or_insert_with(|| (slice, Latencies::default()));
        all.merge(&latencies);
    }
    Ok(merged)
}
