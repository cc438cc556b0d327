//! Prints a `run.sqlite` for publication, reduced to the data that figures of a report depend on, as
//! SQL column by column, which `xz` compresses to half of what it makes of the file:
//!
//! - warm-up slices, start times, digests of the answers and decoded response times are left out;
//! - the response times of a candidate on a microbenchmark are added up in its first slice;
//! - wall times are rounded to 0.1 ms, and QPS to twelve digits;
//! - the times of kernel counters that were active all the time are stored as 1 ns: figures use only
//!   the ratio of the two times, which stays 1;
//! - checksums and the paths of the machine are left out.
//!
//! Usage: `cargo run -p dbdyno-results --example compact-run -- run.sqlite | xz > run.sql.xz`, and
//! `xz -dc run.sql.xz | sqlite3 -safe run.sqlite`

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::io::{BufWriter, Write, stdout};

use dbdyno_types::{Counter, Latencies};
use rusqlite::{Connection, params};

/// Values per statement.
const CHUNK: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let Some(file) = std::env::args_os().nth(1) else {
        return Err("usage: compact-run FILE".into());
    };
    let mut database = Connection::open(file)?;
    // It is never committed.
    let transaction = database.transaction()?;
    reduce(&transaction)?;
    let mut out = BufWriter::new(stdout().lock());
    print(&transaction, &mut out)?;
    Ok(out.flush()?)
}

fn reduce(database: &Connection) -> Result<(), Box<dyn Error>> {
    database.execute_batch(
        "DELETE FROM latency_bucket;
         DELETE FROM counter WHERE slice IN (SELECT id FROM slice WHERE warmup);
         DELETE FROM slice WHERE warmup;
         UPDATE slice SET started_ns = 0, digest = 0, qps = cast(printf('%.11e', qps) AS REAL),
             wall_ns = (wall_ns + 50000) / 100000 * 100000;
         UPDATE session SET json = json_replace(json, '$.facts.disk.path', '');
         UPDATE meta SET value = json_replace(value, '$.directory', '') WHERE key = 'identity';",
    )?;
    for counter in Counter::ALL.into_iter().filter(|counter| !counter.is_hardware()) {
        let sql = "UPDATE counter SET enabled_ns = 1, running_ns = 1 \
                   WHERE counter = ?1 AND enabled_ns = running_ns AND running_ns > 0";
        database.execute(sql, [counter.name()])?;
    }
    let response_times = merged_response_times(database)?;
    database.execute("UPDATE slice SET latencies = ?1", [Latencies::default().to_bytes()])?;
    for (slice, latencies) in response_times.into_values() {
        let sql = "UPDATE slice SET latencies = ?2 WHERE id = ?1";
        database.execute(sql, params![slice, latencies.to_bytes()])?;
    }
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

fn print(database: &Connection, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    for pragma in ["application_id", "user_version"] {
        let value: i64 = database.pragma_query_value(None, pragma, |row| row.get(0))?;
        writeln!(out, "PRAGMA {pragma} = {value};")?;
    }
    writeln!(out, "BEGIN;")?;
    let mut query = database.prepare("SELECT name, sql FROM sqlite_schema WHERE type = 'table'")?;
    let mut tables = query.query([])?;
    while let Some(table) = tables.next()? {
        writeln!(out, "{};", table.get::<_, String>(1)?)?;
        print_rows(database, &table.get::<_, String>(0)?, out)?;
    }
    Ok(writeln!(out, "COMMIT;")?)
}

/// Prints temporary tables with the values of a column each, in the order of the primary key, and a
/// statement that joins them.
fn print_rows(
    database: &Connection,
    table: &str,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let strings = |sql: &str| -> rusqlite::Result<Vec<String>> {
        database.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
    };
    let columns = strings(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
    let (mut values, mut sources) = (Vec::new(), Vec::new());
    for column in columns {
        // Checksums are of the rows before they were reduced.
        let name = if column == "checksum" { "NULL".to_owned() } else { format!("\"{column}\"") };
        let all = strings(&format!("SELECT quote({name}) FROM {table} NOT INDEXED"))?;
        if all.is_empty() {
            return Ok(());
        }
        if all.iter().collect::<BTreeSet<_>>().len() == 1 {
            values.push(all[0].clone());
            continue;
        }
        let source = format!("{table}_{column}");
        writeln!(out, "CREATE TEMP TABLE {source} (value);")?;
        for chunk in all.chunks(CHUNK) {
            writeln!(out, "INSERT INTO {source} VALUES\n({});", chunk.join("),\n("))?;
        }
        values.push(format!("{source}.value"));
        sources.push(source);
    }
    write!(out, "INSERT INTO {table} SELECT {}", values.join(", "))?;
    for (index, source) in sources.iter().enumerate() {
        match index {
            0 => write!(out, "\nFROM {source}")?,
            _ => write!(out, "\nCROSS JOIN {source} ON {source}.rowid = {}.rowid", sources[0])?,
        }
    }
    Ok(writeln!(out, ";")?)
}
