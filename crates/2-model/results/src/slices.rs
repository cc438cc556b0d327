//! Slices: written as they end, read for reports and to resume.

use std::collections::{BTreeMap, HashMap};

use dbdyno_types::{Count, Counter, Counts, EngineCounts, Latencies};
use dbdyno_units::Nanos;
use rusqlite::{Connection, params};

use crate::checksum::{self, Layout};
use crate::error::{ResultsError, database_error};
use crate::reader::RunReader;
use crate::records::{EngineCountsRecord, SliceRecord, StatementRecord};
use crate::schema::{Columns, Record, Stored as _, insert};
use crate::writer::RunWriter;

impl Record for SliceRecord {
    fn list(&mut self, columns: &mut Columns<'_>) -> rusqlite::Result<()> {
        let Self { microbenchmark, restart, block, position, candidate, warmup, measured: m } =
            self;
        columns.add("microbenchmark", microbenchmark)?;
        columns.add("restart", restart)?;
        columns.add("block", block)?;
        columns.add("position", position)?;
        columns.add("candidate", candidate)?;
        columns.add("warmup", warmup)?;
        columns.add("started_ns", &mut m.started)?;
        columns.add("wall_ns", &mut m.wall)?;
        columns.add("cpu_ns", &mut m.cpu)?;
        columns.add("polling_ns", &mut m.polling)?;
        columns.add("qps", &mut m.throughput)?;
        columns.add("events", &mut m.events)?;
        columns.add("statements", &mut m.statements)?;
        columns.add("rows", &mut m.rows)?;
        columns.add("changed_rows", &mut m.affected)?;
        columns.add("digest", &mut m.digest)?;
        columns.add("errors", &mut m.errors)?;
        columns.add("wrong_results", &mut m.wrong)?;
        columns.add("first_error", &mut m.first_complaint)?;
        columns.add("busy_retries", &mut m.busy_retries)?;
        columns.add("context_switches", &mut m.context_switches)?;
        columns.add("page_faults", &mut m.page_faults)?;
        columns.add("energy_uj", &mut m.energy)?;
        columns.add("latencies", &mut m.latencies)?;
        columns.add_group("server_cpu_ns", &mut m.server, |columns, used| {
            columns.add("server_cpu_ns", &mut used.cpu)?;
            columns.add("server_user_ns", &mut used.user)?;
            columns.add("server_system_ns", &mut used.system)?;
            columns.add("server_context_switches", &mut used.context_switches)?;
            columns.add("server_page_faults", &mut used.page_faults)?;
            columns.add("server_read_bytes", &mut used.read_from_storage)?;
            columns.add("server_written_bytes", &mut used.written_to_storage)?;
            columns.add("server_background_ns", &mut used.background_cpu)
        })
    }

    fn checksum_of_parts(&self) -> u32 {
        let of_counter = |one: &Count| checksum::of_counter(one.counter.name(), numbers(one));
        self.measured.counts.iter().map(of_counter).fold(0, u32::wrapping_add)
    }
}

/// The stored numbers of a counter.
fn numbers(count: &Count) -> [i64; 3] {
    [count.count, count.enabled.as_nanos(), count.running.as_nanos()].map(u64::cast_signed)
}

impl RunWriter {
    /// Store one slice. After this returns, the slice survives a crash of this process.
    pub fn add_slice(&mut self, slice: &SliceRecord) -> Result<(), ResultsError> {
        self.write("storing a slice", |database, session| {
            slice.insert(database, "slice", ("session", session))?;
            let id = database.last_insert_rowid();
            for one in slice.measured.counts.iter() {
                let [count, enabled, running] = numbers(one);
                insert!(database, "counter" {
                    "slice": id,
                    "counter": one.counter.name(),
                    "count": count,
                    "enabled_ns": enabled,
                    "running_ns": running,
                })?;
            }
            for one in &slice.measured.statement_times {
                let text = "INSERT OR IGNORE INTO statement (text) VALUES (?1)";
                database.prepare_cached(text)?.execute([&one.text])?;
                let (count, total) =
                    (one.executions.cast_signed(), one.total.as_nanos().cast_signed());
                let time = "INSERT INTO statement_time (slice, statement, executions, response_ns) \
                            SELECT ?1, id, ?2, ?3 FROM statement WHERE text = ?4";
                database.prepare_cached(time)?.execute(params![id, count, total, one.text])?;
            }
            if let Some(counts) = &slice.measured.engine_counts {
                add_engine_counts(database, id, counts)?;
            }
            Ok(())
        })
    }
}

/// Stores by how much the engine's counters grew in a slice.
fn add_engine_counts(
    database: &Connection,
    slice: i64,
    EngineCounts { statements, growth }: &EngineCounts,
) -> rusqlite::Result<()> {
    insert!(database, "engine_reading" {
        "slice": slice,
        "statements": statements.cast_signed(),
    })?;
    for (name, growth) in growth {
        let text = "INSERT OR IGNORE INTO engine_counter (name) VALUES (?1)";
        database.prepare_cached(text)?.execute([name])?;
        let count = "INSERT INTO engine_count (slice, counter, growth) \
                     SELECT ?1, id, ?2 FROM engine_counter WHERE name = ?3";
        database.prepare_cached(count)?.execute(params![slice, growth, name])?;
    }
    Ok(())
}

impl RunReader {
    /// By how much the engines' own counters grew in slices of one microbenchmark, in order of execution. Empty if they
    /// were not read.
    pub fn engine_counts(
        &self,
        microbenchmark: u32,
    ) -> Result<Vec<EngineCountsRecord>, ResultsError> {
        if !self.has_table("engine_reading")? {
            return Ok(Vec::new());
        }
        let sql = "SELECT slice.id, restart, block, candidate, engine_reading.statements, name, growth \
             FROM slice JOIN engine_reading ON engine_reading.slice = slice.id \
             LEFT JOIN engine_count ON engine_count.slice = slice.id \
             LEFT JOIN engine_counter ON engine_counter.id = engine_count.counter \
             WHERE slice.id IN (SELECT id FROM slice WHERE microbenchmark = ?1) AND warmup = 0 ORDER BY slice.id";
        let rows = self.rows_with(sql, [microbenchmark], |row| {
            let counter: Option<String> = row.get(5)?;
            let growth: Option<i64> = row.get(6)?;
            let record = EngineCountsRecord {
                restart: row.get(1)?,
                block: row.get(2)?,
                candidate: row.get(3)?,
                counts: EngineCounts {
                    statements: row.get::<_, i64>(4)?.cast_unsigned(),
                    growth: counter.zip(growth).into_iter().collect(),
                },
            };
            Ok((row.get::<_, i64>(0)?, record))
        })?;
        let mut all: Vec<(i64, EngineCountsRecord)> = Vec::new();
        for (slice, record) in rows {
            match all.last_mut() {
                Some((last, known)) if *last == slice => {
                    known.counts.growth.extend(record.counts.growth);
                }
                _ => all.push((slice, record)),
            }
        }
        Ok(all.into_iter().map(|(_, record)| record).collect())
    }

    /// Whether the run has a table that those of earlier versions lack.
    pub(crate) fn has_table(&self, name: &str) -> Result<bool, ResultsError> {
        let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = ?1)";
        Ok(self.rows_with(exists, [name], |row| row.get::<_, bool>(0))? == [true])
    }

    /// The times of a script's statements in the counted slices of one microbenchmark, in order of execution, by
    /// statement. Empty if it is not a script, or was measured by a version that timed none.
    pub fn statement_times(
        &self,
        microbenchmark: u32,
    ) -> Result<BTreeMap<String, Vec<StatementRecord>>, ResultsError> {
        let mut statements: BTreeMap<String, Vec<StatementRecord>> = BTreeMap::new();
        if !self.has_table("statement_time")? {
            return Ok(statements);
        }
        let sql = "SELECT text, restart, block, candidate, executions, response_ns FROM slice \
             JOIN statement_time ON statement_time.slice = slice.id \
             JOIN statement ON statement.id = statement_time.statement \
             WHERE slice.id IN (SELECT id FROM slice WHERE microbenchmark = ?1) AND warmup = 0 ORDER BY slice.id";
        let rows = self.rows_with(sql, [microbenchmark], |row| {
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            let record = StatementRecord {
                restart: row.get(1)?,
                block: row.get(2)?,
                candidate: row.get(3)?,
                executions: number(4)?,
                total: Nanos::from_nanos(number(5)?),
            };
            Ok((row.get(0)?, record))
        })?;
        for (text, record) in rows {
            statements.entry(text).or_default().push(record);
        }
        Ok(statements)
    }

    /// The slices of one microbenchmark, in order of execution.
    pub fn slices(&self, microbenchmark: u32) -> Result<Vec<SliceRecord>, ResultsError> {
        // Sorts numbers, instead of whole rows by `WHERE microbenchmark = ?1`.
        let sql = "SELECT * FROM slice WHERE id IN \
                   (SELECT id FROM slice WHERE microbenchmark = ?1) ORDER BY id";
        let read = || {
            // Both queries read the same state while another process adds slices.
            let _state = self.database.unchecked_transaction()?;
            let mut counts = self.counts(microbenchmark)?;
            let mut previous = None;
            let mut query = self.database.prepare_cached(sql)?;
            let layout = Layout::of(&query);
            let rows = query.query_map([microbenchmark], |row| {
                let id: i64 = row.get(layout.position(&mut 0, "id")?)?;
                let (parts, counts) = counts.remove(&id).unwrap_or_default();
                layout.check(row, "slice", &["id"], parts)?;
                let mut slice = SliceRecord::from_row(row, &layout)?;
                // A damaged index leads to rows of others, or twice to a row.
                if slice.microbenchmark != microbenchmark || previous.replace(id) == Some(id) {
                    return Err(checksum::changed(row, "slice", &["id"]));
                }
                slice.measured.counts = Counts::new(counts);
                Ok(slice)
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|source| database_error(self.directory.path(), "reading slices", source))
    }

    /// The sum of the checksums of counters, and their values, of one microbenchmark, by slice ID.
    fn counts(&self, microbenchmark: u32) -> rusqlite::Result<HashMap<i64, (u32, Vec<Count>)>> {
        let mut counts: HashMap<i64, (u32, Vec<Count>)> = HashMap::new();
        let mut query = self.database.prepare_cached(
            "SELECT slice, counter, count, enabled_ns, running_ns FROM slice \
             JOIN counter ON counter.slice = slice.id WHERE microbenchmark = ?1",
        )?;
        let mut rows = query.query([microbenchmark])?;
        while let Some(row) = rows.next()? {
            let name = row.get_ref(1)?.as_str()?;
            let numbers: [i64; 3] = [row.get(2)?, row.get(3)?, row.get(4)?];
            let (sum, of_slice) = counts.entry(row.get(0)?).or_default();
            *sum = sum.wrapping_add(checksum::of_counter(name, numbers));
            // Ignore counters added by later versions.
            let Some(counter) = Counter::by_name(name) else { continue };
            let [count, enabled, running] = numbers.map(i64::cast_unsigned);
            let (enabled, running) = (Nanos::from_nanos(enabled), Nanos::from_nanos(running));
            of_slice.push(Count { counter, count, enabled, running });
        }
        Ok(counts)
    }
}

/// Store the response times of a complete microbenchmark, added up over its counted slices. Those
/// stored before are replaced.
pub(crate) fn store_latency_buckets(
    database: &Connection,
    microbenchmark: u32,
) -> rusqlite::Result<()> {
    let mut by_candidate: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
    let sql = "SELECT candidate, latencies FROM slice WHERE microbenchmark = ?1 AND warmup = 0";
    let mut query = database.prepare_cached(sql)?;
    let mut rows = query.query([microbenchmark])?;
    while let Some(row) = rows.next()? {
        let latencies = Latencies::from_column(row, 1)?;
        let sums = by_candidate.entry(row.get(0)?).or_default();
        for (nanos, count) in latencies.counts() {
            let sum = sums.entry(rounded(nanos)).or_default();
            *sum = sum.saturating_add(count);
        }
    }
    remove_latency_buckets(database, microbenchmark)?;
    let mut insert = database.prepare_cached(
        "INSERT INTO latency_bucket (microbenchmark, candidate, response_ns, events, share) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    for (candidate, sums) in by_candidate {
        let total: f64 = sums.values().map(|count| *count as f64).sum();
        let mut seen = 0.0;
        for (nanos, count) in sums.into_iter().filter(|(_, count)| *count > 0) {
            seen += count as f64;
            let (nanos, count) = (nanos.cast_signed(), count.cast_signed());
            insert.execute(params![microbenchmark, candidate, nanos, count, seen / total])?;
        }
    }
    Ok(())
}

/// Remove the stored response times of a microbenchmark.
pub(crate) fn remove_latency_buckets(
    database: &Connection,
    microbenchmark: u32,
) -> rusqlite::Result<()> {
    let sql = "DELETE FROM latency_bucket WHERE microbenchmark = ?1";
    database.execute(sql, [microbenchmark]).map(drop)
}

/// The time rounded to one of 256 values per power of two, which changes it by 0.2% at most. Each start
/// measures the length of a tick again; otherwise, each would have slightly different times.
fn rounded(nanos: u64) -> u64 {
    let step = 1 << nanos.max(1).ilog2().saturating_sub(8);
    let rest = nanos % step;
    if 2 * rest < step { nanos - rest } else { nanos.saturating_add(step - rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounded_times_are_few_and_close() {
        let times: Vec<u64> = (0..=100_000).map(|n| n * n * 10).collect();
        for nanos in &times {
            assert!(rounded(*nanos).abs_diff(*nanos) as f64 <= *nanos as f64 / 511.0, "{nanos}");
        }
        let different: std::collections::BTreeSet<u64> =
            times.iter().map(|nanos| rounded(*nanos)).collect();
        assert!(different.len() < 256 * 30);
        assert_eq!((rounded(0), rounded(255), rounded(8_077_992)), (0, 255, 8_077_312));
        rounded(u64::MAX);
    }
}
