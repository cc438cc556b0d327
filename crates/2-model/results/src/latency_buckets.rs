//! The response times of complete microbenchmarks, decoded for queries by others: table
//! `latency_bucket`.

use std::collections::BTreeMap;

use dbdyno_types::Latencies;
use rusqlite::types::Type;
use rusqlite::{Connection, params};

/// Store the response times of a complete microbenchmark, added up over its counted slices. Those
/// stored before are replaced.
pub(crate) fn store(database: &Connection, microbenchmark: u32) -> rusqlite::Result<()> {
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
    remove(database, microbenchmark)?;
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
pub(crate) fn remove(database: &Connection, microbenchmark: u32) -> rusqlite::Result<()> {
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
