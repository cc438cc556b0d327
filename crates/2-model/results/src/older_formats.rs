//! Older formats: readers see them in the current format through temporary views; a resumed run is
//! converted.

use rusqlite::{Connection, Transaction};

use crate::latency_buckets;
use crate::schema::{FORMAT, TABLES};

/// Current names of tables, and their names before format 6.
const RENAMED_TABLES: [(&str, &str); 1] = [("state_snapshot", "certificate")];

/// Tables and columns, and the columns' names before format 6.
const RENAMED_COLUMNS: [(&str, &str, &str); 9] = [
    ("slice", "position", "place"),
    ("slice", "changed_rows", "affected"),
    ("slice", "wrong_results", "wrong"),
    ("slice", "first_error", "complaint"),
    ("optimization", "measured_next", "before"),
    ("insert_step", "position", "place"),
    ("insert_second", "insert_max_ns", "insert_worst_ns"),
    ("insert_second", "query_max_ns", "query_worst_ns"),
    ("insert_second", "delete_max_ns", "delete_worst_ns"),
];

/// Add temporary views with the current names on top of the tables of an older format. What the
/// format does not contain is `NULL`, or an empty table. The file is not changed.
pub(crate) fn add_views(database: &Connection) -> rusqlite::Result<()> {
    for table in current_tables()? {
        let Some(stored) = stored_table(database, &table.name)? else {
            database.execute_batch(&table.sql.replacen("TABLE", "TEMP TABLE", 1))?;
            continue;
        };
        let found = columns(database, stored)?;
        let source = |(name, _): &(String, String)| match stored_column(&table.name, name, &found) {
            Some(stored) => format!("\"{stored}\" AS \"{name}\""),
            None => format!("NULL AS \"{name}\""),
        };
        let list: Vec<String> = table.columns.iter().map(source).collect();
        database.execute_batch(&format!(
            "CREATE TEMP VIEW {} AS SELECT {} FROM main.{stored}",
            table.name,
            list.join(", ")
        ))?;
    }
    Ok(())
}

/// Convert a file of an older format to the current one.
pub(crate) fn convert(database: &mut Connection) -> rusqlite::Result<()> {
    if database.pragma_query_value(None, "user_version", |row| row.get(0)) == Ok(FORMAT) {
        return Ok(());
    }
    let transaction = database.transaction()?;
    for table in current_tables()? {
        convert_table(&transaction, &table)?;
    }
    latency_buckets::store_all(&transaction)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.commit()
}

fn convert_table(database: &Transaction<'_>, table: &Table) -> rusqlite::Result<()> {
    let Table { name, sql, columns: current } = table;
    let Some(stored) = stored_table(database, name)? else {
        return database.execute_batch(sql);
    };
    if stored != *name {
        database.execute_batch(&format!("ALTER TABLE {stored} RENAME TO {name}"))?;
    }
    let found = columns(database, name)?;
    for (column, kind) in current {
        let change = match stored_column(name, column, &found) {
            Some(stored) if stored == column => continue,
            Some(stored) => format!("RENAME COLUMN \"{stored}\" TO \"{column}\""),
            None => format!("ADD COLUMN \"{column}\" {kind}"),
        };
        database.execute_batch(&format!("ALTER TABLE {name} {change}"))?;
    }
    Ok(())
}

/// A table of the current format.
struct Table {
    name: String,
    sql: String,
    /// Column names and types.
    columns: Vec<(String, String)>,
}

/// The names of all tables of all formats.
pub(crate) fn known_tables() -> rusqlite::Result<Vec<String>> {
    let current = current_tables()?.into_iter().map(|table| table.name);
    let former = RENAMED_TABLES.iter().map(|(_, old)| (*old).to_owned());
    Ok(current.chain(former).collect())
}

fn current_tables() -> rusqlite::Result<Vec<Table>> {
    let current = Connection::open_in_memory()?;
    current.execute_batch(TABLES)?;
    let mut query = current.prepare("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL")?;
    let tables = query.query_map([], |row| {
        let name: String = row.get(0)?;
        Ok(Table { columns: columns(&current, &name)?, name, sql: row.get(1)? })
    })?;
    tables.collect()
}

/// The stored name of a table; `None` if the format does not have the table.
fn stored_table<'a>(database: &Connection, name: &'a str) -> rusqlite::Result<Option<&'a str>> {
    let former = RENAMED_TABLES.iter().filter(|(new, _)| *new == name).map(|(_, old)| *old);
    for name in std::iter::once(name).chain(former) {
        if database.table_exists(Some("main"), name)? {
            return Ok(Some(name));
        }
    }
    Ok(None)
}

fn stored_column<'a>(table: &str, name: &'a str, found: &[(String, String)]) -> Option<&'a str> {
    let is_former = |(of, new, _): &&(&str, &str, &str)| *of == table && *new == name;
    let former = RENAMED_COLUMNS.iter().filter(is_former).map(|(_, _, old)| *old);
    std::iter::once(name).chain(former).find(|name| found.iter().any(|(found, _)| found == name))
}

fn columns(database: &Connection, table: &str) -> rusqlite::Result<Vec<(String, String)>> {
    let mut query = database.prepare("SELECT name, type FROM pragma_table_info(?1, 'main')")?;
    query.query_map([table], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
}
