//! Checks that rows refer to rows that exist, and that there are not absurdly many. Readers number
//! candidates and microbenchmarks by position, and make a table of every pair.

use std::path::Path;

use rusqlite::Connection;

use crate::error::ResultsError;
use crate::writer::database_error;

/// Limit of candidates × microbenchmarks. The largest runs have a few hundred, the largest imported
/// tables a thousand.
const MAX_PAIRS: i64 = 100_000;

/// Columns with numbers of candidates and microbenchmarks.
const REFERENCES: [(&str, &str, &str); 6] = [
    ("slice", "candidate", "candidate"),
    ("slice", "microbenchmark", "microbenchmark"),
    ("failure", "candidate", "candidate"),
    ("failure", "microbenchmark", "microbenchmark"),
    ("state_snapshot", "candidate", "candidate"),
    ("insert_step", "candidate", "candidate"),
];

pub(crate) fn check(database: &Connection, path: &Path) -> Result<(), ResultsError> {
    let failed = |source| database_error(path, "reading the run", source);
    let damaged = |what, why: String| ResultsError::Damaged { path: path.to_owned(), what, why };
    let mut pairs: i64 = 1;
    for table in ["candidate", "microbenchmark"] {
        let sql = format!("SELECT count(*), min(id), max(id) FROM {table}");
        let (count, first, last): (i64, Option<i64>, Option<i64>) = database
            .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .map_err(failed)?;
        if count > 0 && (first, last) != (Some(0), Some(count - 1)) {
            return Err(damaged(table, format!("the ids of its {count} rows have gaps")));
        }
        pairs = pairs.saturating_mul(count.max(1));
    }
    if pairs > MAX_PAIRS {
        let why = format!("more than {MAX_PAIRS} pairs of candidates and microbenchmarks");
        return Err(damaged("its size", why));
    }
    for (table, column, target) in REFERENCES {
        let sql = format!(
            "SELECT min({column}), max({column}), (SELECT count(*) FROM {target}) FROM {table}"
        );
        let (first, last, count): (Option<i64>, Option<i64>, i64) = database
            .query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .map_err(failed)?;
        if let Some(missing) =
            [first, last].into_iter().flatten().find(|at| !(0..count).contains(at))
        {
            let why = format!("it refers to {target} {missing}, and there are {count}");
            return Err(damaged(table, why));
        }
    }
    Ok(())
}
