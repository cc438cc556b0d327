//! Loading a table.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, Param, Params, StatementId};
use dbdyno_types::server::StorageEngine;

use super::{number, quoted_name};
use crate::{NextRow, Table, failed};

/// Rows per statement, which is a transaction: enough to make the cost of the commit negligible, and
/// far below the maximum packet size.
const ROWS_PER_INSERT: usize = 1_000;

/// "Table already exists".
const TABLE_EXISTS: i32 = 1050;

/// The statement that creates a table.
pub(super) fn table_sql(table: &str, clause: &str) -> String {
    let name = quoted_name(table);
    format!(
        "CREATE TABLE {name} (id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         k INTEGER NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL){clause}"
    )
}

/// The error of creating a table, with the cause if it exists.
pub(super) fn explained(error: Error) -> Error {
    if !error.has_number(TABLE_EXISTS) {
        return error;
    }
    let message = format!("{}: it is not from this load", error.message);
    Error { message, ..error }
}

/// Fills the empty table on another connection, and creates its index.
pub(super) fn fill(
    connection: &mut MySqlConnection,
    loader: &mut MySqlConnection,
    engine: Option<StorageEngine>,
    table: &Table,
    next: NextRow<'_>,
) -> Result<(), Error> {
    let (name, index) = (quoted_name(&table.name), quoted_name(&table.index));
    // The server may be configured to leave gaps and may not allow a change; the ids are checked
    // below.
    let _ = loader.run("SET SESSION auto_increment_increment = 1");
    let _ = loader.run("SET SESSION auto_increment_offset = 1");
    // Writes sorted files instead of rows to the memtable. Without the privilege loading is slower.
    let bulk = engine == Some(StorageEngine::MyRocks)
        && loader.run("SET SESSION rocksdb_bulk_load = 1").is_ok();
    let rows = insert_all(loader, &name, next)?;
    if bulk {
        // Installs the last file.
        loader.run("SET SESSION rocksdb_bulk_load = 0")?;
    }
    connection.run(&format!("CREATE INDEX {index} ON {name} (k)"))?;
    if bulk && rows > 0 {
        // MyRocks stores the next id with the writes of a transaction, but not in a bulk load. An
        // update would store the id later than its own row, and the next start would use that one.
        connection.run(&format!("ALTER TABLE {name} AUTO_INCREMENT = {}", rows + 1))?;
    }
    check_ids(connection, &name, rows)
}

fn insert_all(
    connection: &mut MySqlConnection,
    name: &str,
    next: NextRow<'_>,
) -> Result<u64, Error> {
    let full_batch = prepare(connection, name, ROWS_PER_INSERT)?;
    let (mut row, mut batch) = (Params::default(), Params::default());
    let mut total = 0;
    loop {
        batch.clear();
        let mut count = 0;
        while count < ROWS_PER_INSERT {
            row.clear();
            if !next(&mut row) {
                break;
            }
            append(&mut batch, &row);
            count += 1;
        }
        total += count as u64;
        if count == ROWS_PER_INSERT {
            connection.execute(full_batch, &batch)?;
            continue;
        }
        if count > 0 {
            let last_batch = prepare(connection, name, count)?;
            connection.execute(last_batch, &batch)?;
        }
        return Ok(total);
    }
}

fn prepare(
    connection: &mut MySqlConnection,
    name: &str,
    rows: usize,
) -> Result<StatementId, Error> {
    let rows = vec!["(?, ?, ?)"; rows].join(", ");
    connection.prepare(&format!("INSERT INTO {name} (k, c, pad) VALUES {rows}"))
}

fn append(batch: &mut Params, row: &Params) {
    for value in row.values() {
        match *value {
            Param::Null => batch.push_null(),
            Param::Int(value) => batch.push_int(value),
            Param::Text { start, len } => batch.push_text(row.text(start, len)),
        }
    }
}

/// Checks that the ids are 1 to the number of rows, as the microbenchmarks assume.
fn check_ids(connection: &mut MySqlConnection, name: &str, rows: u64) -> Result<(), Error> {
    if rows == 0 {
        return Ok(());
    }
    let mut query = |what: &str| number(connection, &format!("SELECT {what} FROM {name}"));
    let (found, first, last) = (query("COUNT(*)")?, query("MIN(id)")?, query("MAX(id)")?);
    if (found, first, last) == (rows, 1, rows) {
        return Ok(());
    }
    Err(failed(
        format!("loading {rows} rows into {name}"),
        format!(
            "it has {found} rows with ids from {first} to {last}; the server must assign \
             consecutive ids (auto_increment_increment = 1, auto_increment_offset = 1), and no \
             other client may write to the table"
        ),
    ))
}
