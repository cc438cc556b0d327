//! Checksums of the rows with figures and of what they depend on. SQLite checks the structure of its file, but not the
//! values: a bit that flips in one of them would change a figure, and nothing would say so.

use std::cell::Cell;

use crc32fast::Hasher;
use rusqlite::types::{Type, ValueRef};
use rusqlite::{Connection, Error, Result, Row, Statement, params};

/// SQL that removes all checksums of a run, for those who change its rows.
pub fn remove_checksums() -> String {
    TABLES.map(|table| format!("UPDATE {table} SET checksum = NULL")).join("; ")
}

/// A row that differs from what was stored.
#[derive(Debug, thiserror::Error)]
#[error(
    "the row with {key} of its table {table} is not what was stored; restore the file from a copy, or measure again \
     into another directory"
)]
pub(crate) struct ChangedRow {
    table: &'static str,
    key: String,
}

/// The error for a row of `SELECT *` with these columns as its key.
pub(crate) fn changed(row: &Row<'_>, table: &'static str, key: &[&str]) -> Error {
    let name = |column: &&str| match row.get_ref(*column) {
        Ok(ValueRef::Integer(number)) => format!("{column} {number}"),
        Ok(ValueRef::Text(text)) => format!("{column} {}", String::from_utf8_lossy(text)),
        _ => format!("unreadable {column}"),
    };
    let key = key.iter().map(name).collect::<Vec<_>>().join(" and ");
    Error::FromSqlConversionFailure(0, Type::Null, Box::new(ChangedRow { table, key }))
}

/// A column of a query.
struct Column {
    name: String,
    /// The same name in the code, once it was compared: then its address suffices.
    in_code: Cell<Option<&'static str>>,
    /// The beginning of the checksum of its values; `None` if it is no part of it.
    start: Option<Hasher>,
}

impl Column {
    fn is(&self, name: &'static str) -> bool {
        let is_known = self.in_code.get().is_some_and(|known| std::ptr::eq(known, name));
        let is_it = is_known || self.name == name;
        if is_it && !is_known {
            self.in_code.set(Some(name));
        }
        is_it
    }
}

/// The columns of a query, which are the same for all of its rows.
pub(crate) struct Layout {
    columns: Vec<Column>,
    /// The position of the checksum, which runs of earlier versions lack.
    checksum: Option<usize>,
}

/// Compares a row of `SELECT *` of a query that is executed once with its checksum, if it has one.
pub(crate) fn check(row: &Row<'_>, table: &'static str, key: &[&str]) -> Result<()> {
    Layout::of(row.as_ref()).check(row, table, key, 0)
}

impl Layout {
    pub fn of(query: &Statement<'_>) -> Self {
        let names = query.column_names();
        // The ID is unknown before the row is stored.
        let start = |name: &str| (!["id", "checksum"].contains(&name)).then(|| after(name));
        let column = |name: &str| Column {
            name: name.to_owned(),
            in_code: Cell::new(None),
            start: start(name),
        };
        let columns: Vec<Column> = names.map(column).collect();
        let checksum = columns.iter().position(|column| column.name == "checksum");
        Self { columns, checksum }
    }

    /// The position of a column. Records list their columns nearly in the table's order, so that it is mostly the one
    /// at `next`.
    pub fn position(&self, next: &mut usize, column: &'static str) -> Result<usize> {
        let is_it = |one: &Column| one.is(column);
        let found = match self.columns.get(*next).is_some_and(is_it) {
            true => *next,
            false => {
                let found = self.columns.iter().position(is_it);
                found.ok_or_else(|| Error::InvalidColumnName(column.to_owned()))?
            }
        };
        *next = found + 1;
        Ok(found)
    }

    /// Compares a row of `SELECT *` with its checksum, if it has one. `parts` is the sum of the checksums of rows in
    /// other tables that belong to it.
    pub fn check(
        &self,
        row: &Row<'_>,
        table: &'static str,
        key: &[&str],
        parts: u32,
    ) -> Result<()> {
        let stored = self.checksum.map(|at| row.get_ref(at)).transpose()?;
        compare(row, stored, table, key, || Ok(self.of_row(row)?.wrapping_add(parts)))
    }

    /// The checksum of a row of `SELECT *`.
    fn of_row(&self, row: &Row<'_>) -> Result<u32> {
        let mut sum: u32 = 0;
        for (index, column) in self.columns.iter().enumerate() {
            if let Some(start) = &column.start {
                sum = sum.wrapping_add(of_value_after(start, row.get_ref(index)?));
            }
        }
        Ok(sum)
    }
}

/// The JSON of a row of `SELECT *`, compared with its checksum, if it has one. The other columns repeat the JSON, or are
/// updated.
pub(crate) fn checked_json(row: &Row<'_>, table: &'static str) -> Result<String> {
    let json: String = row.get("json")?;
    // Runs of earlier versions lack the column, and have NULL once they are resumed.
    let stored = row.get_ref("checksum").ok();
    compare(row, stored, table, &["id"], || Ok(of_json(&json)))?;
    Ok(json)
}

fn compare(
    row: &Row<'_>,
    stored: Option<ValueRef<'_>>,
    table: &'static str,
    key: &[&str],
    checksum: impl FnOnce() -> Result<u32>,
) -> Result<()> {
    let stored = stored.unwrap_or(ValueRef::Null);
    if stored == ValueRef::Null || stored == ValueRef::Integer(checksum()?.into()) {
        return Ok(());
    }
    Err(changed(row, table, key))
}

pub(crate) fn of_json(json: &str) -> u32 {
    of_bytes(&[json.as_bytes()])
}

/// The checksum of a value. That of a row is their sum, which depends neither on the order of the columns nor on columns
/// that later versions add, because these are NULL.
pub(crate) fn of_value(column: &str, value: ValueRef<'_>) -> u32 {
    of_value_after(&after(column), value)
}

/// The beginning of the checksum of a column's values.
fn after(column: &str) -> Hasher {
    let mut start = Hasher::new();
    start.update(column.as_bytes());
    start
}

fn of_value_after(start: &Hasher, value: ValueRef<'_>) -> u32 {
    let with = |bytes: &[u8]| {
        let mut hasher = start.clone();
        hasher.update(bytes);
        hasher.finalize()
    };
    match value {
        ValueRef::Null => 0,
        ValueRef::Integer(number) => with(&number.to_le_bytes()),
        // SQLite stores NULL for it.
        ValueRef::Real(number) if number.is_nan() => 0,
        // SQLite stores no sign of a zero.
        ValueRef::Real(number) => with(&(number + 0.0).to_le_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => with(bytes),
    }
}

/// The checksum of a counter of a slice, which is part of that of the slice.
pub(crate) fn of_counter(name: &str, [count, enabled, running]: [i64; 3]) -> u32 {
    of_bytes(&[
        name.as_bytes(),
        &count.to_le_bytes(),
        &enabled.to_le_bytes(),
        &running.to_le_bytes(),
    ])
}

fn of_bytes(parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// Stores the checksum of a row of a table with IDs as the row is stored now.
pub(crate) fn store(database: &Connection, table: &str, id: i64) -> Result<()> {
    let sql = format!("SELECT * FROM {table} WHERE id = ?1");
    let mut query = database.prepare_cached(&sql)?;
    let layout = Layout::of(&query);
    let checksum = query.query_row([id], |row| layout.of_row(row))?;
    let sql = format!("UPDATE {table} SET checksum = ?2 WHERE id = ?1");
    database.prepare_cached(&sql)?.execute(params![id, checksum]).map(drop)
}

/// Tables whose rows have one.
const TABLES: [&str; 12] = [
    "microbenchmark",
    "candidate",
    "meta",
    "session",
    "slice",
    "state_snapshot",
    "insert_step",
    "insert_second",
    "plan",
    "profile",
    "waits",
    "executed",
];

/// Adds the column to tables of earlier versions.
pub(crate) fn add_columns(database: &Connection) -> Result<()> {
    for table in TABLES {
        let sql = "SELECT EXISTS (SELECT 1 FROM pragma_table_info(?1) WHERE name = 'checksum')";
        if !database.query_row(sql, [table], |row| row.get::<_, bool>(0))? {
            database.execute_batch(&format!("ALTER TABLE {table} ADD COLUMN checksum INTEGER"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_of_the_values_that_are_read_back() {
        let database = Connection::open_in_memory().unwrap();
        database.execute_batch("CREATE TABLE t (id INTEGER PRIMARY KEY, x REAL, y TEXT)").unwrap();
        for (x, y) in [(1.5, "a"), (2.0, ""), (-0.0, "b"), (f64::NAN, "c"), (f64::INFINITY, "d")] {
            let expected = of_value("y", y.into()).wrapping_add(of_value("x", ValueRef::Real(x)));
            let sql = "INSERT INTO t (y, x) VALUES (?2, ?1) RETURNING id";
            let id: i64 = database.query_row(sql, params![x, y], |row| row.get(0)).unwrap();
            let mut query = database.prepare("SELECT * FROM t WHERE id = ?1").unwrap();
            let layout = Layout::of(&query);
            let of_stored = query.query_row([id], |row| layout.of_row(row));
            assert_eq!(of_stored.unwrap(), expected, "{x} and {y}");
        }
    }
}
