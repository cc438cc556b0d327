//! The schema for dbdyno's tables, identified by a marker table.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};

use super::{column, quoted_name, quoted_text};

/// The table that identifies schemas created by dbdyno.
pub(super) const MARKER: &str = "dbdyno_marker";

/// The marker's text. Schemas of earlier versions have it, too: do not change it.
const NOTE: &str = "Made by dbdyno for its measurements, which remove and overwrite what is in it.";

/// "Unknown storage engine".
const UNKNOWN_ENGINE: i32 = 1286;

pub(super) fn create(connection: &mut MySqlConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Existing::Own => Ok(()),
        Existing::Foreign => Err(foreign("creating", name)),
        Existing::None => {
            let schema = quoted_name(name);
            connection.run(&format!("CREATE DATABASE {schema}"))?;
            let marked = mark(connection, &schema);
            if marked.is_err() {
                // A schema without the marker could never be dropped. Report the first error.
                let _ = connection.run(&format!("DROP DATABASE {schema}"));
            }
            marked
        }
    }
}

fn mark(connection: &mut MySqlConnection, schema: &str) -> Result<(), Error> {
    let table =
        format!("CREATE TABLE {schema}.{MARKER} (id INT NOT NULL PRIMARY KEY, note TEXT NOT NULL)");
    // In MyRocks its only row would be in a separate file, which every range scan reads.
    match connection.run(&format!("{table} ENGINE=InnoDB")) {
        Err(error) if error.code == UNKNOWN_ENGINE => connection.run(&table)?,
        made => made?,
    }
    connection.run(&format!("INSERT INTO {schema}.{MARKER} VALUES (1, {})", quoted_text(NOTE)))
}

pub(super) fn drop(connection: &mut MySqlConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Existing::None => Ok(()),
        Existing::Foreign => Err(foreign("dropping", name)),
        Existing::Own => connection.run(&format!("DROP DATABASE {}", quoted_name(name))),
    }
}

enum Existing {
    None,
    Own,
    Foreign,
}

fn find(connection: &mut MySqlConnection, name: &str) -> Result<Existing, Error> {
    let text = quoted_text(name);
    let schema =
        format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name = {text}");
    if column(connection, &schema)?.is_empty() {
        return Ok(Existing::None);
    }
    let marker = format!(
        "SELECT table_name FROM information_schema.tables \
         WHERE table_schema = {text} AND table_name = '{MARKER}' AND table_type = 'BASE TABLE'"
    );
    if column(connection, &marker)?.is_empty() {
        return Ok(Existing::Foreign);
    }
    let note = format!("SELECT note FROM {}.{MARKER} WHERE id = 1", quoted_name(name));
    let own = column(connection, &note)?.first().is_some_and(|note| note == NOTE);
    Ok(if own { Existing::Own } else { Existing::Foreign })
}

fn foreign(doing: &str, name: &str) -> Error {
    Error {
        doing: format!("{doing} the schema {name}"),
        message: format!(
            "it exists and dbdyno did not create it (the table {MARKER} is missing or has another \
             text); set another `schema`"
        ),
        code: 0,
        kind: ErrorKind::Statement,
    }
}
