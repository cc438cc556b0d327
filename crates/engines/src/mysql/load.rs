//! Filling a table.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind, Param, Params, StatementId};
use dbdyno_record::server::StorageEngine;

use super::{number, quoted_name};
use crate::{NextRow, Table};

/// Rows per statement, which is a transaction of its own: what the commit costs does not show,
/// and the statement stays far below the largest packet.
const ROWS_PER_INSERT: usize = 1_000;

/// "Table already exists".
const EXISTS: i32 = 1050;

/// Makes the table on one connection and fills it on another.
pub(super) fn load(
    connection: &mut MySqlConnection,
    loader: &mut MySqlConnection,
    (engine, clause): (Option<StorageEngine>, &str),
    table: &Table,
    next: NextRow<'_>,
) -> Result<(), Error> {
    let (name, index) = (quoted_name(&table.name), quoted_name(&table.index));
    let made = connection.run(&format!(
        "CREATE TABLE {name} (id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         k INTEGER NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL){clause}"
    ));
    made.map_err(|error| match error.code {
        EXISTS => Error { message: format!("{}: it is not of this load", error.message), ..error },
        _ => error,
    })?;
    // A server may be set to leave gaps, and may not let us change that; what comes of it is
    // checked below.
    let _ = loader.run("SET SESSION auto_increment_increment = 1");
    let _ = loader.run("SET SESSION auto_increment_offset = 1");
    // Writes whole files in the order of the key, in place of single rows into the memtable.
    // Where it is not allowed, loading takes longer.
    let bulk = engine == Some(StorageEngine::MyRocks)
        && loader.run("SET SESSION rocksdb_bulk_load = 1").is_ok();
    let rows = insert_all(loader, &name, next)?;
    if bulk {
        // The last file is put in place here.
        loader.run("SET SESSION rocksdb_bulk_load = 0")?;
    }
    connection.run(&format!("CREATE INDEX {index} ON {name} (k)"))?;
    if bulk && rows > 0 {
        // MyRocks keeps the next id with a transaction's writes, and files are none. Later each
        // update keeps the id after its own row's, and the next start would believe that.
        connection.run(&format!("ALTER TABLE {name} AUTO_INCREMENT = {}", rows + 1))?;
    }
    check_ids(connection, &name, rows)
}

fn insert_all(
    connection: &mut MySqlConnection,
    name: &str,
    next: NextRow<'_>,
) -> Result<u64, Error> {
    let whole = prepare(connection, name, ROWS_PER_INSERT)?;
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
            connection.execute(whole, &batch)?;
            continue;
        }
        if count > 0 {
            let part = prepare(connection, name, count)?;
            connection.execute(part, &batch)?;
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
            Param::Int(value) => batch.push_int(value),
            Param::Text { start, len } => batch.push_text(row.text(start, len)),
        }
    }
}

/// Keys are drawn from 1 to the number of rows, so these must be the ids.
fn check_ids(connection: &mut MySqlConnection, name: &str, rows: u64) -> Result<(), Error> {
    if rows == 0 {
        return Ok(());
    }
    let mut ask = |what: &str| number(connection, &format!("SELECT {what} FROM {name}"));
    let (found, first, last) = (ask("COUNT(*)")?, ask("MIN(id)")?, ask("MAX(id)")?);
    if (found, first, last) == (rows, 1, rows) {
        return Ok(());
    }
    Err(Error {
        doing: format!("loading {rows} rows into {name}"),
        message: format!(
            "it has {found} rows with ids from {first} to {last}; the server must assign them \
             one by one (auto_increment_increment = 1, auto_increment_offset = 1) and nobody \
             else may write to the table"
        ),
        code: 0,
        kind: ErrorKind::Statement,
    })
}
