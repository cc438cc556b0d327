//! The location of dbdyno's tables: a database on a private server, a schema with a marker on an
//! existing one.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};
use dbdyno_types::RunIdentity;

use super::{PostgresDialect, application_name, boolean, quoted_text};
use crate::marker::{COMMENT, MARKER, SchemaOwner, TABLE, in_the_way, rows_of};
use crate::server_engine::Schemas;
use crate::{TableCreation, column, failed, quoted_name};

/// The SQLSTATE of "dependent objects still exist".
const DEPENDENT_OBJECTS: &str = "2BP01";

/// The SQLSTATE of a missing privilege.
const INSUFFICIENT_PRIVILEGE: &str = "42501";

impl Schemas for PostgresDialect {
    fn create_private(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
        let exists = format!(
            "SELECT EXISTS (SELECT FROM pg_database WHERE datname = {})",
            quoted_text(name)
        );
        if boolean(connection, &exists)? {
            return Ok(());
        }
        connection.run(&format!("CREATE DATABASE {}", quoted_name(name)))
    }

    fn drop_private(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
        connection.run(&format!("DROP DATABASE IF EXISTS {}", quoted_name(name)))
    }

    /// Rows are read only of a marker that belongs to this role, in a schema that does: reading a table or view of others
    /// can execute their code.
    fn owner(
        connection: &mut PostgresConnection,
        name: &str,
        run: &RunIdentity,
    ) -> Result<SchemaOwner, Error> {
        let text = quoted_text(name);
        let role = column(
            connection,
            &format!("SELECT pg_get_userbyid(nspowner) FROM pg_namespace WHERE nspname = {text}"),
        )?;
        let Some(role) = role.into_iter().next() else { return Ok(SchemaOwner::None) };
        let current = column(connection, "SELECT current_user")?;
        if current != [role.as_str()] {
            let current = current.join("");
            return Ok(SchemaOwner::Unknown(format!(
                "it belongs to the role {role}, and dbdyno is connected as {current}"
            )));
        }
        if !boolean(connection, &format!("SELECT EXISTS ({})", own_table(name, MARKER)))? {
            return Ok(SchemaOwner::unmarked());
        }
        // The version before had one column.
        let columns = column(
            connection,
            &format!(
                "SELECT attname FROM pg_attribute WHERE attrelid = ({}) AND attnum > 0 ORDER BY attnum",
                own_table(name, MARKER)
            ),
        )?;
        if columns != ["kind", "value"] {
            return Ok(SchemaOwner::unmarked());
        }
        let rows =
            connection.query(&format!("SELECT kind, value FROM {}.{MARKER}", quoted_name(name)))?;
        Ok(SchemaOwner::of_rows(rows, run))
    }

    fn create_marked(
        connection: &mut PostgresConnection,
        name: &str,
        run: &RunIdentity,
    ) -> Result<(), Error> {
        let schema = quoted_name(name);
        let rows = rows_of(run).map(|(kind, value)| format!("('{kind}', {})", quoted_text(&value)));
        let created = transaction(
            connection,
            &format!(
                "CREATE SCHEMA {schema}; COMMENT ON SCHEMA {schema} IS {}; \
                 CREATE TABLE {schema}.{MARKER} (kind text NOT NULL, value text NOT NULL); \
                 INSERT INTO {schema}.{MARKER} VALUES {}",
                quoted_text(COMMENT),
                rows.join(", ")
            ),
        );
        match created {
            Err(error) if error.has_sqlstate(INSUFFICIENT_PRIVILEGE) => {
                Err(with_grant(connection, error))
            }
            created => created,
        }
    }

    fn check_privilege(
        connection: &mut PostgresConnection,
        name: &str,
        owner: &SchemaOwner,
    ) -> Result<(), Error> {
        let may_create = "SELECT has_database_privilege(current_database(), 'CREATE')";
        if *owner != SchemaOwner::None || boolean(connection, may_create)? {
            return Ok(());
        }
        let denied = failed(
            format!("creating the schema {name}"),
            "the role has no privilege to create schemas in this database",
        );
        Err(with_grant(connection, denied))
    }

    fn end_statements(connection: &mut PostgresConnection, schema: &str) -> Result<(), Error> {
        let Some(name) = application_name(schema) else { return Ok(()) };
        connection.run(&format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
             WHERE application_name = {} AND state = 'active' AND usename = current_user \
             AND datname = current_database() AND pid <> pg_backend_pid()",
            quoted_text(&name)
        ))
    }

    fn drop_tables(
        connection: &mut PostgresConnection,
        schema: &str,
        tables: &[String],
    ) -> Result<(), Error> {
        let mut existing = Vec::new();
        for table in tables {
            let sql = format!(
                "SELECT EXISTS (SELECT FROM ({}) own WHERE relname = {})",
                own_tables(schema),
                quoted_text(table)
            );
            if boolean(connection, &sql)? {
                existing.push(format!("{}.{}", quoted_name(schema), quoted_name(table)));
            }
        }
        if !existing.is_empty() {
            let sql = format!("DROP TABLE {} RESTRICT", existing.join(", "));
            connection.run(&sql).map_err(with_advice)?;
        }
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        connection.run(&format!("DELETE FROM {marker} WHERE kind = '{TABLE}'"))
    }

    fn drop_if_empty(connection: &mut PostgresConnection, name: &str) -> Result<(), Error> {
        let schema = quoted_name(name);
        let sql = format!("DROP TABLE {schema}.{MARKER} RESTRICT; DROP SCHEMA {schema} RESTRICT");
        transaction(connection, &sql).map_err(with_advice)
    }

    fn create_table(
        connection: &mut PostgresConnection,
        schema: &str,
        table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        let row = format!("('{TABLE}', {})", quoted_text(table));
        transaction(connection, &format!("{sql}\n; INSERT INTO {marker} VALUES {row}"))
    }

    /// Lists the tables of this role that appear in the schema.
    fn run_setup(
        connection: &mut PostgresConnection,
        schema: &str,
        sql: &str,
        _: TableCreation<'_>,
    ) -> Result<(), Error> {
        let tables = own_tables(schema);
        let before = column(connection, &format!("SELECT relname FROM ({tables}) own"))?;
        let before: Vec<String> = before.iter().map(|table| quoted_text(table)).collect();
        let is_new = match before.is_empty() {
            true => String::new(),
            false => format!(" WHERE relname NOT IN ({})", before.join(", ")),
        };
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        let list =
            format!("INSERT INTO {marker} SELECT '{TABLE}', relname FROM ({tables}) own{is_new}");
        // On a line of its own: the statement may end with a comment.
        transaction(connection, &format!("{sql}\n; {list}"))
    }

    /// A partitioned table is represented by its partitions, which have its rows.
    fn listed_tables(
        connection: &mut PostgresConnection,
        schema: &str,
    ) -> Result<Vec<String>, Error> {
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        let sql = format!(
            "SELECT DISTINCT relname FROM ({}) own JOIN {marker} ON value = relname \
             WHERE kind = '{TABLE}' AND relkind = 'r' ORDER BY relname",
            own_tables(schema)
        );
        column(connection, &sql)
    }
}

/// Adds the statement that grants what dbdyno needs.
fn with_grant(connection: &mut PostgresConnection, error: Error) -> Error {
    let rows = connection.query("SELECT current_database(), current_user").unwrap_or_default();
    let Some([Some(database), Some(role)]) = rows.first().map(Vec::as_slice) else { return error };
    let grant =
        format!("GRANT CREATE ON DATABASE {} TO {}", quoted_name(database), quoted_name(role));
    Error { message: format!("{}; as an administrator: {grant}", error.message), ..error }
}

/// A query for the names and kinds of the tables of this role in a schema, partitioned ones included.
fn own_tables(schema: &str) -> String {
    format!(
        "SELECT c.relname::text AS relname, c.relkind FROM pg_class c \
         JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relkind IN ('r', 'p') \
         AND pg_get_userbyid(c.relowner) = current_user",
        quoted_text(schema)
    )
}

/// A query for a table of this role, which is neither a view nor a foreign table.
fn own_table(schema: &str, table: &str) -> String {
    format!(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
         WHERE n.nspname = {} AND c.relname = {} AND c.relkind = 'r' \
         AND pg_get_userbyid(c.relowner) = current_user",
        quoted_text(schema),
        quoted_text(table)
    )
}

/// Adds advice if objects of others depend on this run's; the server's message names them.
fn with_advice(error: Error) -> Error {
    match error.has_sqlstate(DEPENDENT_OBJECTS) {
        true => in_the_way(error.doing, &error.message.replace('\n', ", ")),
        false => error,
    }
}

fn transaction(connection: &mut PostgresConnection, sql: &str) -> Result<(), Error> {
    let done = connection.run(&format!("BEGIN; {sql}; COMMIT"));
    if done.is_err() {
        // Report the first error.
        let _ = connection.run("ROLLBACK");
    }
    done
}
