//! Opening of `run.sqlite`, which may be from somebody else and made to cause harm.
//!
//! A database is more than data: views, triggers and generated columns are programs that its reader
//! executes, and so is a rollback journal beside it. Nothing of this is in our files, so it is refused
//! before the first query.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::directory::RunDirectory;
use crate::error::{ResultsError, database_error};
use crate::schema::{ADDED_TABLES, APPLICATION_ID, FIGURES_VIEW, FORMAT, TABLES};

/// Size limit of one value in bytes: the largest are audits, of a few megabytes.
const MAX_VALUE: i32 = 64 << 20;

/// Limits that our own statements stay far below.
const LIMITS: [(Limit, i32); 9] = [
    (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE),
    (Limit::SQLITE_LIMIT_SQL_LENGTH, 100_000),
    (Limit::SQLITE_LIMIT_COLUMN, 100),
    (Limit::SQLITE_LIMIT_EXPR_DEPTH, 50),
    (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 4),
    (Limit::SQLITE_LIMIT_VDBE_OP, 25_000),
    (Limit::SQLITE_LIMIT_FUNCTION_ARG, 8),
    (Limit::SQLITE_LIMIT_ATTACHED, 0),
    (Limit::SQLITE_LIMIT_TRIGGER_DEPTH, 1),
];

/// Steps of SQLite's virtual machine between two calls of the progress handler.
const STEPS_PER_CALL: i32 = 100_000;

/// Limit of all steps to read one run, about half a minute. A run of a million slices needs a tenth.
const MAX_CALLS: u32 = 10_000;

/// Maximum number of tables and indexes; a run has about 20.
const MAX_OBJECTS: i64 = 100;

/// Opens the database of a run to read it, even while another process writes it. The file is not
/// changed.
pub(crate) fn open_to_read(directory: &RunDirectory) -> Result<Connection, ResultsError> {
    check_files(directory)?;
    let file = directory.database();
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // Without a write-ahead log nobody writes, and no files are needed beside the database: the
    // directory may be read-only. With one, SQLite needs its shared index.
    let opened = if beside(&file, "-wal").symlink_metadata().is_ok() {
        Connection::open_with_flags(&file, flags)
    } else {
        let flags = flags | OpenFlags::SQLITE_OPEN_URI;
        Connection::open_with_flags(immutable(&file), flags)
    };
    checked(directory, opened)
}

/// Opens the database of an existing run to continue it.
pub(crate) fn open_to_write(directory: &RunDirectory) -> Result<Connection, ResultsError> {
    check_files(directory)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = Connection::open_with_flags(directory.database(), flags);
    let mut database = checked(directory, opened)?;
    // A run writes for hours.
    let unlimited: Option<fn() -> bool> = None;
    database
        .progress_handler(STEPS_PER_CALL, unlimited)
        .map_err(|source| database_error(directory.path(), "opening the run's database", source))?;
    Ok(database)
}

/// Interrupts the statements of a connection after this many calls of the progress handler.
fn limit_steps(database: &mut Connection, max_calls: u32) -> rusqlite::Result<()> {
    let mut calls: u32 = 0;
    let is_over = move || {
        calls = calls.saturating_add(1);
        calls > max_calls
    };
    database.progress_handler(STEPS_PER_CALL, Some(is_over))
}

fn not_a_run(directory: &RunDirectory, why: &str) -> ResultsError {
    ResultsError::NotARun { path: directory.path().to_owned(), why: why.to_owned() }
}

/// The error for a file or directory that cannot be examined: it does not exist, or the system's reason,
/// such as missing permission for the directory `path`.
fn not_found(directory: &RunDirectory, path: &Path, error: io::Error, why: &str) -> ResultsError {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => not_a_run(directory, why),
        _ => ResultsError::Io { path: path.to_owned(), source: error },
    }
}

/// Accepts a regular file without a rollback journal. SQLite would execute the journal, and old
/// versions delete a file that it names; ours are in WAL mode and have none.
fn check_files(directory: &RunDirectory) -> Result<(), ResultsError> {
    let path = directory.path();
    match path.metadata() {
        Ok(data) if data.is_dir() => {}
        Ok(_) => return Err(not_a_run(directory, "it is not a directory")),
        Err(error) => return Err(not_found(directory, path, error, "it does not exist")),
    }
    let file = directory.database();
    match fs::symlink_metadata(&file) {
        Ok(data) if data.is_file() => {}
        Ok(data) if data.is_symlink() => {
            return Err(not_a_run(directory, "its run.sqlite is a symbolic link"));
        }
        Ok(_) => return Err(not_a_run(directory, "its run.sqlite is not a regular file")),
        Err(error) => {
            let why = match path.join("run.sql.xz").exists() {
                true => {
                    "it has a published run: unpack it by `xz -dc run.sql.xz | sqlite3 -safe run.sqlite`"
                }
                false => "it has no run.sqlite",
            };
            return Err(not_found(directory, path, error, why));
        }
    }
    // SQLite reports only that it cannot open the file.
    let readable = rustix::fs::access(&file, rustix::fs::Access::READ_OK);
    readable.map_err(|error| ResultsError::Io { path: file.clone(), source: error.into() })?;
    if beside(&file, "-journal").symlink_metadata().is_ok() {
        return Err(ResultsError::Untrusted {
            path: path.to_owned(),
            found: "run.sqlite-journal beside it, which is not part of a run".to_owned(),
        });
    }
    Ok(())
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// The URI of a file that nobody changes meanwhile.
fn immutable(file: &Path) -> String {
    let absolute = std::path::absolute(file);
    let path = absolute.as_deref().unwrap_or(file).as_os_str().as_bytes();
    let mut uri = "file:".to_owned();
    for byte in path {
        match byte {
            b'/' | b'.' | b'-' | b'_' | b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => {
                uri.push(char::from(*byte));
            }
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri + "?immutable=1"
}

/// Restricts the connection, then checks kind, format and schema.
fn checked(
    directory: &RunDirectory,
    opened: rusqlite::Result<Connection>,
) -> Result<Connection, ResultsError> {
    let path = directory.path();
    let failed = |source| database_error(path, "opening the run's database", source);
    let mut database = opened.map_err(failed)?;
    restrict(&mut database).map_err(failed)?;
    let number = |pragma| database.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0));
    let format = match (number("application_id"), number("user_version")) {
        (Ok(APPLICATION_ID), Ok(format)) => format,
        (Ok(_), Ok(_)) => {
            return Err(not_a_run(directory, "its run.sqlite was not made by dbdyno"));
        }
        (Err(error), _) | (_, Err(error)) => {
            return Err(match error.sqlite_error_code() {
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
                    not_a_run(directory, "its run.sqlite is not a database")
                }
                _ => failed(error),
            });
        }
    };
    if format != FORMAT {
        return Err(ResultsError::OtherFormat { path: path.to_owned(), found: format });
    }
    match foreign_object(&database).map_err(failed)? {
        Some(found) => Err(ResultsError::Untrusted { path: path.to_owned(), found }),
        None => Ok(database),
    }
}

fn restrict(database: &mut Connection) -> rusqlite::Result<()> {
    for (limit, value) in LIMITS {
        database.set_limit(limit, value)?;
    }
    for (option, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
    ] {
        database.set_db_config(option, value)?;
    }
    limit_steps(database, MAX_CALLS)?;
    // Memory-mapped input would turn a truncated file into SIGBUS.
    database.execute_batch("PRAGMA mmap_size = 0; PRAGMA cell_size_check = ON")
}

/// The names of the tables of a run.
fn tables() -> rusqlite::Result<Vec<String>> {
    let empty = Connection::open_in_memory()?;
    empty.execute_batch(TABLES)?;
    empty.execute_batch(ADDED_TABLES)?;
    let mut query = empty.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")?;
    query.query_map([], |row| row.get(0))?.collect()
}

/// Describes the first object of the schema that is not one of our tables, their indexes or our view. Reading
/// the schema does not execute it.
fn foreign_object(database: &Connection) -> rusqlite::Result<Option<String>> {
    let count = "SELECT count(*) FROM sqlite_schema";
    if database.query_row(count, [], |row| row.get::<_, i64>(0))? > MAX_OBJECTS {
        return Ok(Some(format!("more than {MAX_OBJECTS} tables")));
    }
    let known = tables()?;
    let mut tables = Vec::new();
    let mut query = database.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (kind, name, table): (String, String, String) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let sql: Option<String> = row.get(3)?;
        let starts = |with: &str| sql.as_deref().is_some_and(|sql| sql.starts_with(with));
        let is_ours = match kind.as_str() {
            "table" => known.contains(&name) && starts("CREATE TABLE"),
            "view" => sql.as_deref() == Some(FIGURES_VIEW),
            // Indexes of constraints have no SQL; we create no others.
            "index" => known.contains(&table) && sql.is_none(),
            _ => false,
        };
        if !is_ours {
            return Ok(Some(format!("the {kind} {name}, which is not part of a run")));
        }
        if kind == "table" {
            tables.push(name);
        }
    }
    let mut bytes = 0.0;
    for table in tables {
        if let Some(column) = computed_column(database, &table)? {
            return Ok(Some(format!("the computed column {table}.{column}")));
        }
        bytes += bytes_in(database, &table)?;
    }
    // After the sum, because the run may be growing.
    let size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size";
    let is_shared = bytes > database.query_row(size, [], |row| row.get::<_, f64>(0))?;
    Ok(is_shared.then(|| "rows that share their content".to_owned()))
}

/// The bytes of all texts and blobs of a table, which are not read. Damaged rows can refer to the same ones.
fn bytes_in(database: &Connection, table: &str) -> rusqlite::Result<f64> {
    let mut query = database.prepare(
        "SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE type IN ('TEXT', 'BLOB')",
    )?;
    let name = |row: &rusqlite::Row<'_>| {
        Ok(format!("ifnull(octet_length(\"{}\"), 0)", row.get::<_, String>(0)?))
    };
    let lengths: Vec<String> = query.query_map([table], name)?.collect::<rusqlite::Result<_>>()?;
    if lengths.is_empty() {
        return Ok(0.0);
    }
    let sum = format!("SELECT total({}) FROM \"{table}\"", lengths.join(" + "));
    database.query_row(&sum, [], |row| row.get(0))
}

/// The first column whose values are not all stored in rows: a generated one, or one with a default
/// other than a number.
fn computed_column(database: &Connection, table: &str) -> rusqlite::Result<Option<String>> {
    let mut query =
        database.prepare("SELECT name, hidden, dflt_value FROM pragma_table_xinfo(?1, 'main')")?;
    let mut rows = query.query([table])?;
    while let Some(row) = rows.next()? {
        let default: Option<String> = row.get(2)?;
        let is_plain = default.is_none_or(|value| value.parse::<i64>().is_ok());
        if row.get::<_, i64>(1)? != 0 || !is_plain {
            return row.get(0).map(Some);
        }
    }
    Ok(None)
}

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

pub(crate) fn check_references(database: &Connection, path: &Path) -> Result<(), ResultsError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreadable_directory_is_no_missing_run() {
        let path = Path::new("/run");
        let of = |kind: io::ErrorKind| {
            not_found(&RunDirectory::at(path), path, kind.into(), "it has no run.sqlite")
                .to_string()
        };
        assert_eq!(of(io::ErrorKind::PermissionDenied), "/run: permission denied");
        assert!(of(io::ErrorKind::NotFound).contains("it has no run.sqlite"));
    }

    #[test]
    fn endless_query_is_interrupted() {
        let mut database = Connection::open_in_memory().unwrap();
        restrict(&mut database).unwrap();
        limit_steps(&mut database, 10).unwrap();
        let sql = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) \
                   SELECT count(*) FROM n";
        let error = database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap_err();
        assert_eq!(error.sqlite_error_code(), Some(ErrorCode::OperationInterrupted));
    }
}
