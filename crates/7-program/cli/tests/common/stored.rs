//! The contents of a run directory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use dbdyno_results::remove_checksums;
use rusqlite::{Connection, OpenFlags};

/// The key of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SliceKey {
    pub microbenchmark: u32,
    pub restart: u32,
    pub block: u32,
}

/// The columns of a slice that tests use.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    pub id: i64,
    pub key: SliceKey,
    pub place: u32,
    pub candidate: u32,
    pub warmup: bool,
    pub events: i64,
    pub rows: i64,
    pub digest: i64,
    pub errors: i64,
    pub wrong: i64,
}

/// `run.sqlite`, opened while another process may write to it.
pub struct Stored {
    database: Connection,
}

impl Stored {
    pub fn open(run: &Path) -> Self {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let database = Connection::open_with_flags(run.join("run.sqlite"), flags).unwrap();
        database.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
        Self { database }
    }

    /// The text of the experiment.
    pub fn experiment_text(&self) -> String {
        let sql = "SELECT value FROM meta WHERE key = 'experiment_text'";
        self.database.query_row(sql, [], |row| row.get(0)).unwrap()
    }

    /// All slices, in the order of execution.
    pub fn slices(&self) -> Vec<Slice> {
        let mut query = self
            .database
            .prepare(
                "SELECT id, microbenchmark, restart, block, position, candidate, warmup, events, \
                 rows, digest, errors, wrong_results FROM slice ORDER BY id",
            )
            .unwrap();
        let rows = query.query_map([], |row| {
            Ok(Slice {
                id: row.get(0)?,
                key: SliceKey {
                    microbenchmark: row.get(1)?,
                    restart: row.get(2)?,
                    block: row.get(3)?,
                },
                place: row.get(4)?,
                candidate: row.get(5)?,
                warmup: row.get(6)?,
                events: row.get(7)?,
                rows: row.get(8)?,
                digest: row.get(9)?,
                errors: row.get(10)?,
                wrong: row.get(11)?,
            })
        });
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// The slices by block, without warm-up.
    pub fn counted_blocks(&self) -> BTreeMap<SliceKey, Vec<Slice>> {
        let mut blocks: BTreeMap<SliceKey, Vec<Slice>> = BTreeMap::new();
        for slice in self.slices().into_iter().filter(|slice| !slice.warmup) {
            blocks.entry(slice.key).or_default().push(slice);
        }
        blocks
    }

    /// The CPU time in nanoseconds and the context switches of a candidate's server in all slices, without
    /// those where they are unknown.
    pub fn server_usage(&self, candidate: u32) -> (i64, i64) {
        let sql = "SELECT TOTAL(server_cpu_ns), TOTAL(server_context_switches) FROM slice \
                   WHERE candidate = ?1";
        let totals = |row: &rusqlite::Row<'_>| Ok((row.get::<_, f64>(0)?, row.get::<_, f64>(1)?));
        let (cpu, switches) = self.database.query_row(sql, [candidate], totals).unwrap();
        (cpu as i64, switches as i64)
    }

    /// The names of the microbenchmarks and whether each is complete.
    pub fn microbenchmarks(&self) -> Vec<(String, bool)> {
        let sql = "SELECT name, done FROM microbenchmark ORDER BY id";
        let mut query = self.database.prepare(sql).unwrap();
        let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// The number of slices of a microbenchmark.
    pub fn count_of(&self, microbenchmark: &str) -> u64 {
        let sql = "SELECT COUNT(*) FROM slice JOIN microbenchmark AS m ON m.id = microbenchmark \
                   WHERE m.name = ?1";
        self.database
            .query_row(sql, [microbenchmark], |row| row.get::<_, i64>(0))
            .unwrap()
            .cast_unsigned()
    }

    /// Sets the format number, as a later version would.
    pub fn set_format(&self, format: i64) {
        self.database.pragma_update(None, "user_version", format).unwrap();
    }
}

/// The number of slices of a microbenchmark so far, while dbdyno is running.
pub fn slices_of_live_run(run: &Path, microbenchmark: &str) -> u64 {
    // The write-ahead log exists once the run is created and open. Reading before that would interfere.
    if !run.join("run.sqlite-wal").exists() {
        return 0;
    }
    Stored::open(run).count_of(microbenchmark)
}

/// A description of the first difference between candidates in a block; `None` if all are equal.
pub fn candidates_differ(slices: &[Slice]) -> Option<String> {
    let first = slices.first()?;
    let answers = |slice: &Slice| (slice.events, slice.rows, slice.digest);
    let other = slices.iter().find(|slice| answers(slice) != answers(first))?;
    Some(format!("{first:?}\n{other:?}"))
}

/// Checks every database that a run kept, and returns their number.
pub fn integrity(run: &Path) -> usize {
    let files = databases(run);
    for file in &files {
        let database = Connection::open(file).unwrap();
        let answer: String =
            database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(answer, "ok", "{}", file.display());
    }
    files.len()
}

/// The number of rows in the first table of every database that a run kept.
pub fn rows_kept(run: &Path) -> Vec<u32> {
    let rows = |file: PathBuf| {
        let database = Connection::open(file).unwrap();
        database.query_row("SELECT COUNT(*) FROM sbtest1", [], |row| row.get(0)).unwrap()
    };
    databases(run).into_iter().map(rows).collect()
}

/// Runs SQL on `run.sqlite`, to simulate a modified run.
pub fn modify_run(run: &Path, sql: &str) {
    let database = Connection::open(run.join("run.sqlite")).unwrap();
    database.execute_batch(sql).unwrap();
    database.execute_batch(&remove_checksums()).unwrap();
}

/// The database files of the instances, without the copies that instances are cloned from.
fn databases(run: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(run.join("data"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            !name.starts_with('.')
        })
        .map(|entry| entry.path().join("data.sqlite"))
        .filter(|file| file.is_file())
        .collect()
}

/// The fields of each line of a CSV file without quotes.
pub fn read_csv(file: &Path) -> Vec<Vec<String>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_path(file).unwrap();
    let fields = |line: csv::StringRecord| line.iter().map(str::to_owned).collect();
    reader.records().map(|line| fields(line.unwrap())).collect()
}

pub fn read_json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}
