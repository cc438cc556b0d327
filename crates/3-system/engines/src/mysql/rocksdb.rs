//! Settling MyRocks: empty memtables, and no pending compaction.

use std::time::Duration;

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};
use dbdyno_units::Bytes;

use super::number;
use crate::{column, wait_until_settled};

/// Limit for compactions.
const TIMEOUT: Duration = Duration::from_secs(1_200);

/// Consecutive polls that must find nothing: a compaction may trigger another one.
const IDLE_POLLS: u32 = 5;

/// Condition for all column families except MyRocks' data dictionary.
const USER_COLUMN_FAMILIES: &str = "cf_name <> '__system__'";

pub(super) fn settle(connection: &mut MySqlConnection) -> Result<(), Error> {
    connection.run("SET GLOBAL rocksdb_force_flush_memtable_and_lzero_now = 1")?;
    let mut idle_polls = 0;
    wait_until_settled("settling MyRocks", TIMEOUT, || {
        let (pending, running) = (pending(connection)?, running(connection)?);
        idle_polls = if pending == 0 && running.is_empty() { idle_polls + 1 } else { 0 };
        Ok((idle_polls < IDLE_POLLS).then(|| {
            let running = running.join(", ");
            format!("{pending} flushes and compactions are pending and these run: {running}")
        }))
    })
}

/// Number of pending flushes and compactions.
fn pending(connection: &mut MySqlConnection) -> Result<u64, Error> {
    column_families(
        connection,
        "'COMPACTION_PENDING', 'MEM_TABLE_FLUSH_PENDING', 'NUM_IMMUTABLE_MEM_TABLE'",
    )
}

/// Running background operations, such as `Compaction`.
fn running(connection: &mut MySqlConnection) -> Result<Vec<String>, Error> {
    // Columns: type, name, status; one row per thread among others.
    let rows = connection.query("SHOW ENGINE ROCKSDB STATUS")?;
    let threads = rows.into_iter().filter_map(|row| match <[Option<String>; 3]>::try_from(row) {
        Ok([Some(kind), _, Some(status)]) if kind == "BG_THREADS" => Some(status),
        _ => None,
    });
    Ok(threads.filter_map(|status| operation(&status).map(str::to_owned)).collect())
}

fn operation(status: &str) -> Option<&str> {
    let line = status.lines().find_map(|line| line.trim().strip_prefix("operation_type:"))?;
    Some(line.trim()).filter(|operation| !operation.is_empty())
}

/// The sum of these figures over all column families.
fn column_families(connection: &mut MySqlConnection, figures: &str) -> Result<u64, Error> {
    number(
        connection,
        &format!(
            "SELECT COALESCE(SUM(value), 0) FROM information_schema.rocksdb_cfstats \
             WHERE {USER_COLUMN_FAMILIES} AND stat_type IN ({figures})"
        ),
    )
}

/// A figure of a level, or of `Sum` for all levels, summed over all column families.
fn level(connection: &mut MySqlConnection, level: &str, figure: &str) -> Result<u64, Error> {
    number(
        connection,
        &format!(
            "SELECT COALESCE(SUM(value), 0) FROM information_schema.rocksdb_compaction_stats \
             WHERE {USER_COLUMN_FAMILIES} AND level = '{level}' AND type = '{figure}'"
        ),
    )
}

pub(super) fn data_size(connection: &mut MySqlConnection) -> Result<Bytes, Error> {
    Ok(Bytes::from_bytes(level(connection, "Sum", "SizeBytes")?))
}

/// MyRocks' figures for a state snapshot.
pub(super) fn figures(connection: &mut MySqlConnection) -> Result<Vec<(String, u64)>, Error> {
    let mut figures = Vec::new();
    let mut add = |name: &str, value| figures.push((name.to_owned(), value));
    for number in 0..=6 {
        let files = level(connection, &format!("L{number}"), "NumFiles")?;
        add(&format!("l{number}_files"), files);
    }
    add("sst_bytes", level(connection, "Sum", "SizeBytes")?);
    add("memtable_bytes", column_families(connection, "'CUR_SIZE_ALL_MEM_TABLES'")?);
    add("compactions_pending", column_families(connection, "'COMPACTION_PENDING'")?);
    add("flushes_pending", column_families(connection, "'MEM_TABLE_FLUSH_PENDING'")?);
    add("compactions_running", running(connection)?.len() as u64);
    let cache = column(
        connection,
        "SELECT value FROM information_schema.rocksdb_dbstats \
         WHERE stat_type = 'DB_BLOCK_CACHE_USAGE'",
    )?;
    if let Some(bytes) = cache.first().and_then(|bytes| bytes.parse().ok()) {
        add("block_cache_bytes", bytes);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_thread_has_no_operation() {
        let idle = "\nthread_type: Low Pri\ncf_name: \noperation_type: \noperation_stage: ";
        assert_eq!(operation(idle), None);
        let busy = "\nthread_type: Low Pri\ncf_name: default\noperation_type: Compaction\n";
        assert_eq!(operation(busy), Some("Compaction"));
    }
}
