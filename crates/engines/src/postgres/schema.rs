//! The room for dbdyno's tables: a database on a private server, a marked schema on others.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};

use super::{failed, holds, quoted_name, quoted_text};

/// The table that tells dbdyno's schemas from others of the same name.
const MARKER: &str = "dbdyno_marker";

const COMMENT: &str =
    "Made by dbdyno for its measurements, which remove and overwrite what is in it.";

pub(super) fn create_database(
    connection: &mut PostgresConnection,
    name: &str,
) -> Result<(), Error> {
    let there =
        format!("SELECT EXISTS (SELECT FROM pg_database WHERE datname = {})", quoted_text(name));
    if holds(connection, &there)? {
        return Ok(());
    }
    connection.run(&format!("CREATE DATABASE {}", quoted_name(name)))
}

pub(super) fn remove_database(
    connection: &mut PostgresConnection,
    name: &str,
) -> Result<(), Error> {
    connection.run(&format!("DROP DATABASE IF EXISTS {}", quoted_name(name)))
}

pub(super) fn create_schema(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Found::Ours => Ok(()),
        Found::Foreign => Err(foreign("making", name)),
        Found::Nothing => {
            let schema = quoted_name(name);
            // In one transaction: a schema without its marker would be nobody's.
            let made = connection.run(&format!(
                "BEGIN; CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS {}; \
                 CREATE TABLE {schema}.{MARKER} (made_at timestamptz NOT NULL); \
                 INSERT INTO {schema}.{MARKER} VALUES (now()); COMMIT",
                quoted_text(COMMENT)
            ));
            if made.is_err() {
                // The error that led here is the one to tell.
                let _ = connection.run("ROLLBACK");
            }
            made
        }
    }
}

pub(super) fn remove_schema(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Found::Nothing => Ok(()),
        Found::Foreign => Err(foreign("removing", name)),
        Found::Ours => connection.run(&format!("DROP SCHEMA {} CASCADE", quoted_name(name))),
    }
}

enum Found {
    Nothing,
    Ours,
    Foreign,
}

fn find(connection: &mut PostgresConnection, name: &str) -> Result<Found, Error> {
    let name = quoted_text(name);
    let schema = format!("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name})");
    if !holds(connection, &schema)? {
        return Ok(Found::Nothing);
    }
    let marker = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {name} AND c.relname = '{MARKER}' AND c.relkind = 'r')"
    );
    Ok(if holds(connection, &marker)? { Found::Ours } else { Found::Foreign })
}

fn foreign(doing: &str, name: &str) -> Error {
    failed(
        &format!("{doing} the schema {name}"),
        format!(
            "there is one already that dbdyno did not make (it has no table {MARKER}); choose \
             another `schema`, or another database in the `url`"
        ),
    )
}
