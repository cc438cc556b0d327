//! Slices: written as they end, read for reports and to resume.

use std::collections::{BTreeMap, HashMap};

use dbdyno_types::{Count, Counter, Counts, Latencies, ServerUsage, SliceMeasured};
use dbdyno_units::{Bytes, Energy, Nanos, Qps};
use rusqlite::types::Type;
use rusqlite::{Connection, Row, named_params, params};

use crate::error::{ResultsError, database_error};
use crate::reader::RunReader;
use crate::records::SliceRecord;
use crate::writer::{RunWriter, insert};

impl RunWriter {
    /// Store one slice. After this returns, the slice survives a crash of this process.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn add_slice(&mut self, row: &SliceRecord) -> Result<(), ResultsError> {
        let session = self.session;
        self.write("storing a slice", |database| {
            let m = &row.measured;
            let server = |of: fn(&ServerUsage) -> Option<u64>| {
                m.server.as_ref().and_then(of).map(u64::cast_signed)
            };
            insert(database, "slice", named_params! {
                ":session": session,
                ":microbenchmark": row.microbenchmark,
                ":restart": row.restart,
                ":block": row.block,
                ":position": row.position,
                ":candidate": row.candidate,
                ":warmup": row.warmup,
                ":started_ns": m.started.as_nanos().cast_signed(),
                ":wall_ns": m.wall.as_nanos().cast_signed(),
                ":cpu_ns": m.cpu.as_nanos().cast_signed(),
                ":polling_ns": m.polling.map(|time| time.as_nanos().cast_signed()),
                ":qps": m.throughput.map(Qps::per_second),
                ":events": m.events.cast_signed(),
                ":statements": m.statements.cast_signed(),
                ":rows": m.rows.cast_signed(),
                ":changed_rows": m.affected.cast_signed(),
                ":digest": m.digest.cast_signed(),
                ":errors": m.errors.cast_signed(),
                ":wrong_results": m.wrong.cast_signed(),
                ":first_error": m.first_complaint,
                ":busy_retries": m.busy_retries.cast_signed(),
                ":context_switches": m.context_switches.cast_signed(),
                ":page_faults": m.page_faults.cast_signed(),
                ":server_cpu_ns": server(|used| Some(used.cpu.as_nanos())),
                ":server_user_ns": server(|used| Some(used.user.as_nanos())),
                ":server_system_ns": server(|used| Some(used.system.as_nanos())),
                ":server_context_switches": server(|used| used.context_switches),
                ":server_page_faults": server(|used| Some(used.page_faults)),
                ":server_read_bytes": server(|used| used.read_from_storage.map(Bytes::as_bytes)),
                ":server_written_bytes":
                    server(|used| used.written_to_storage.map(Bytes::as_bytes)),
                ":server_background_ns": server(|used| used.background_cpu.map(Nanos::as_nanos)),
                ":energy_uj": m.energy.map(|energy| energy.as_microjoules().cast_signed()),
                ":latencies": m.latencies.to_bytes(),
            })?;
            let slice = database.last_insert_rowid();
            for one in m.counts.iter() {
                insert(database, "counter", named_params! {
                    ":slice": slice,
                    ":counter": one.counter.name(),
                    ":count": one.count.cast_signed(),
                    ":enabled_ns": one.enabled.as_nanos().cast_signed(),
                    ":running_ns": one.running.as_nanos().cast_signed(),
                })?;
            }
            Ok(())
        })
    }
}

impl RunReader {
    /// The slices of one microbenchmark, in order of execution.
    ///
    /// # Errors
    /// The run is damaged.
    pub fn slices(&self, microbenchmark: u32) -> Result<Vec<SliceRecord>, ResultsError> {
        let sql = "SELECT * FROM slice WHERE microbenchmark = ?1 ORDER BY id";
        let read = || {
            let mut counts = self.counts(microbenchmark)?;
            let mut query = self.database.prepare_cached(sql)?;
            let rows = query.query_map([microbenchmark], |row| {
                let mut slice = slice_record(row)?;
                slice.measured.counts =
                    counts.remove(&row.get("id")?).map(Counts::new).unwrap_or_default();
                Ok(slice)
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        read().map_err(|source| database_error(self.directory.path(), "reading slices", source))
    }

    /// Counter values of one microbenchmark, by slice ID.
    fn counts(&self, microbenchmark: u32) -> rusqlite::Result<HashMap<i64, Vec<Count>>> {
        let mut counts: HashMap<i64, Vec<Count>> = HashMap::new();
        let mut query = self.database.prepare_cached(
            "SELECT slice, counter, count, enabled_ns, running_ns FROM slice \
             JOIN counter ON counter.slice = slice.id WHERE microbenchmark = ?1",
        )?;
        let mut rows = query.query([microbenchmark])?;
        while let Some(row) = rows.next()? {
            let name: String = row.get(1)?;
            // Ignore counters added by later versions.
            let Some(counter) = Counter::from_name(&name) else { continue };
            let number = |index| row.get::<_, i64>(index).map(i64::cast_unsigned);
            counts.entry(row.get(0)?).or_default().push(Count {
                counter,
                count: number(2)?,
                enabled: Nanos::from_nanos(number(3)?),
                running: Nanos::from_nanos(number(4)?),
            });
        }
        Ok(counts)
    }
}

fn slice_record(row: &Row<'_>) -> rusqlite::Result<SliceRecord> {
    let count = |column| row.get::<_, i64>(column).map(i64::cast_unsigned);
    let optional = |column| row.get(column).map(|n: Option<i64>| n.map(i64::cast_unsigned));
    let time = |column| count(column).map(Nanos::from_nanos);
    let server = match optional("server_cpu_ns")? {
        None => None,
        Some(cpu) => Some(ServerUsage {
            cpu: Nanos::from_nanos(cpu),
            background_cpu: optional("server_background_ns")?.map(Nanos::from_nanos),
            user: time("server_user_ns")?,
            system: time("server_system_ns")?,
            context_switches: optional("server_context_switches")?,
            page_faults: count("server_page_faults")?,
            read_from_storage: optional("server_read_bytes")?.map(Bytes::from_bytes),
            written_to_storage: optional("server_written_bytes")?.map(Bytes::from_bytes),
        }),
    };
    let latencies = Latencies::from_bytes(&row.get::<_, Vec<u8>>("latencies")?)
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, Type::Blob, error.into()))?;
    Ok(SliceRecord {
        microbenchmark: row.get("microbenchmark")?,
        restart: row.get("restart")?,
        block: row.get("block")?,
        position: row.get("position")?,
        candidate: row.get("candidate")?,
        warmup: row.get("warmup")?,
        measured: SliceMeasured {
            started: time("started_ns")?,
            wall: time("wall_ns")?,
            cpu: time("cpu_ns")?,
            polling: optional("polling_ns")?.map(Nanos::from_nanos),
            server,
            throughput: row.get::<_, Option<f64>>("qps")?.map(Qps::from_per_second),
            events: count("events")?,
            statements: count("statements")?,
            lead_in_statements: None,
            rows: count("rows")?,
            affected: count("changed_rows")?,
            digest: count("digest")?,
            errors: count("errors")?,
            wrong: count("wrong_results")?,
            first_complaint: row.get("first_error")?,
            busy_retries: count("busy_retries")?,
            context_switches: count("context_switches")?,
            page_faults: count("page_faults")?,
            counts: Counts::default(),
            energy: optional("energy_uj")?.map(Energy::from_microjoules),
            latencies,
        },
    })
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
        let bytes: Vec<u8> = row.get(1)?;
        let latencies = Latencies::from_bytes(&bytes).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(1, Type::Blob, error.into())
        })?;
        let sums = by_candidate.entry(row.get(0)?).or_default();
        for (nanos, count) in latencies.counts() {
            let sum = sums.entry(rounded(*nanos)).or_default();
            *sum = sum.saturating_add(*count);
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
