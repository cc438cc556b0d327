//! The location of dbdyno's tables: a database on a private server, a schema with a marker table on
//! an existing one.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};

use super::{boolean, failed, quoted_name, quoted_text};

/// The table that identifies schemas created by dbdyno.
const MARKER: &str = "dbdyno_marker";

const COMMENT: &str =
    "Made by dbdyno for its measurements, which remove and overwrite what is in it.";

pub(super) fn create_database(
    connection: &mut PostgresConnection,
    name: &str,
) -> Result<(), Error> {
    let exists =
        format!("SELECT EXISTS (SELECT FROM pg_database WHERE datname = {})", quoted_text(name));
    if boolean(connection, &exists)? {
        return Ok(());
    }
    connection.run(&format!("CREATE DATABASE {}", quoted_name(name)))
}

pub(super) fn drop_database(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
    connection.run(&format!("DROP DATABASE IF EXISTS {}", quoted_name(name)))
}

pub(super) fn create_schema(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Existing::Own => Ok(()),
        Existing::Foreign => Err(foreign("creating", name)),
        Existing::None => {
            let schema = quoted_name(name);
            // In one transaction: a schema without the marker could never be dropped.
            let created = connection.run(&format!(
                "BEGIN; CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS {}; \
                 CREATE TABLE {schema}.{MARKER} (made_at timestamptz NOT NULL); \
                 INSERT INTO {schema}.{MARKER} VALUES (now()); COMMIT",
                quoted_text(COMMENT)
            ));
            if created.is_err() {
                // Report the first error.
                let _ = connection.run("ROLLBACK");
            }
            created
        }
    }
}

pub(super) fn drop_schema(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
    match find(connection, name)? {
        Existing::None => Ok(()),
        Existing::Foreign => Err(foreign("dropping", name)),
        Existing::Own => connection.run(&format!("DROP SCHEMA {} CASCADE", quoted_name(name))),
    }
}

enum Existing {
    None,
    Own,
    Foreign,
}

fn find(connection: &mut PostgresConnection, name: &str) -> Result<Existing, Error> {
    let name = quoted_text(name);
    let schema = format!("SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name})");
    if !boolean(connection, &schema)? {
        return Ok(Existing::None);
    }
    let marker = format!(
        "SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {name} AND c.relname = '{MARKER}' AND c.relkind = 'r')"
    );
    Ok(if boolean(connection, &marker)? { Existing::Own } else { Existing::Foreign })
}

fn foreign(doing: &str, name: &str) -> Error {
    failed(
        &format!("{doing} the schema {name}"),
        format!(
            "it exists and dbdyno did not create it (it has no table {MARKER}); set another \
             `schema`, or another database in the `url`"
        ),
    )
}
