//! The room for dbdyno's tables: a schema with a mark in it.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};

use super::{column, quoted_name, quoted_text};

/// The table that tells dbdyno's schemas from others of the same name.
pub(super) const MARKER: &str = "dbdyno_marker";

/// What is in it.
const NOTE: &str = "Made by dbdyno for its measurements, which remove and overwrite what is in it.";

/// "Unknown storage engine".
const UNKNOWN_ENGINE: i32 = 1286;

pub(super) fn create(connection: &mut MySqlConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Found::Ours => Ok(()),
        Found::Foreign => Err(foreign("making", name)),
        Found::Nothing => {
            let schema = quoted_name(name);
            connection.run(&format!("CREATE DATABASE {schema}"))?;
            let marked = mark(connection, &schema);
            if marked.is_err() {
                // It is empty, and a schema without its mark would be nobody's. The error that
                // led here is the one to tell.
                let _ = connection.run(&format!("DROP DATABASE {schema}"));
            }
            marked
        }
    }
}

fn mark(connection: &mut MySqlConnection, schema: &str) -> Result<(), Error> {
    let table =
        format!("CREATE TABLE {schema}.{MARKER} (id INT NOT NULL PRIMARY KEY, note TEXT NOT NULL)");
    // In MyRocks its one row would be a file of its own, which every range that is read has to
    // look into.
    match connection.run(&format!("{table} ENGINE=InnoDB")) {
        Err(error) if error.code == UNKNOWN_ENGINE => connection.run(&table)?,
        made => made?,
    }
    connection.run(&format!("INSERT INTO {schema}.{MARKER} VALUES (1, {})", quoted_text(NOTE)))
}

pub(super) fn remove(connection: &mut MySqlConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Found::Nothing => Ok(()),
        Found::Foreign => Err(foreign("removing", name)),
        Found::Ours => connection.run(&format!("DROP DATABASE {}", quoted_name(name))),
    }
}

enum Found {
    Nothing,
    Ours,
    Foreign,
}

fn find(connection: &mut MySqlConnection, name: &str) -> Result<Found, Error> {
    let text = quoted_text(name);
    let schema =
        format!("SELECT schema_name FROM information_schema.schemata WHERE schema_name = {text}");
    if column(connection, &schema)?.is_empty() {
        return Ok(Found::Nothing);
    }
    let marker = format!(
        "SELECT table_name FROM information_schema.tables \
         WHERE table_schema = {text} AND table_name = '{MARKER}' AND table_type = 'BASE TABLE'"
    );
    if column(connection, &marker)?.is_empty() {
        return Ok(Found::Foreign);
    }
    let note = format!("SELECT note FROM {}.{MARKER} WHERE id = 1", quoted_name(name));
    let ours = column(connection, &note)?.first().is_some_and(|note| note == NOTE);
    Ok(if ours { Found::Ours } else { Found::Foreign })
}

fn foreign(doing: &str, name: &str) -> Error {
    Error {
        doing: format!("{doing} the schema {name}"),
        message: format!(
            "there is one already that dbdyno did not make (its table {MARKER} is missing or \
             says something else); choose another `schema`"
        ),
        code: 0,
        kind: ErrorKind::Statement,
    }
}
