//! The schema for dbdyno's tables. On an existing server it has a marker.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};
use dbdyno_types::RunIdentity;

use super::{MySqlDialect, quoted_name, quoted_text};
use crate::marker::{COMMENT, MARKER, SchemaOwner, TABLE, in_the_way, rows_of};
use crate::server_engine::{Schemas, State as _};
use crate::{TableCreation, column};

/// "Unknown storage engine".
const UNKNOWN_ENGINE: i32 = 1286;

/// A foreign key refers to the table: "Cannot delete or update a parent row" in two variants, and
/// "Cannot drop table referenced by a foreign key constraint".
const REFERENCED: [i32; 3] = [1217, 1451, 3730];

/// "Access denied" for a user to a database, "command denied" for a table, "access denied; you need at
/// least one of these privileges".
const DENIED: [i32; 3] = [1044, 1142, 1227];

/// The prefix of all schemas whose name is not given.
const OWN_PREFIX: &str = "dbdyno_";

impl Schemas for MySqlDialect {
    fn create_private(connection: &mut MySqlConnection, schema: &str) -> Result<(), Error> {
        connection.run(&format!("CREATE DATABASE IF NOT EXISTS {}", quoted_name(schema)))
    }

    fn drop_private(connection: &mut MySqlConnection, schema: &str) -> Result<(), Error> {
        connection.run(&format!("DROP DATABASE IF EXISTS {}", quoted_name(schema)))
    }

    fn owner(
        connection: &mut MySqlConnection,
        name: &str,
        run: &RunIdentity,
    ) -> Result<SchemaOwner, Error> {
        let text = quoted_text(name);
        let schema = format!(
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name = {text}"
        );
        if column(connection, &schema)?.is_empty() {
            return Ok(SchemaOwner::None);
        }
        // A view of this name could execute the code of its creator.
        let marker = format!(
            "SELECT table_name FROM information_schema.tables \
             WHERE table_schema = {text} AND table_name = '{MARKER}' AND table_type = 'BASE TABLE'"
        );
        if column(connection, &marker)?.is_empty() {
            return Ok(SchemaOwner::unmarked());
        }
        match connection.query(&format!("SELECT kind, value FROM {}.{MARKER}", quoted_name(name))) {
            Ok(rows) => Ok(SchemaOwner::of_rows(rows, run)),
            // A table with other columns.
            Err(error) if error.kind == ErrorKind::Statement => Ok(SchemaOwner::unmarked()),
            Err(error) => Err(error),
        }
    }

    fn create_marked(
        connection: &mut MySqlConnection,
        name: &str,
        run: &RunIdentity,
    ) -> Result<(), Error> {
        match connection.run(&format!("CREATE DATABASE {}", quoted_name(name))) {
            Err(error) if is_denied(&error) => return Err(with_grant(connection, name, error)),
            created => created?,
        }
        let marked = mark(connection, name, run);
        if marked.is_err() {
            // Without a marker no run would own it. Report the first error.
            let _ = Self::drop_if_empty(connection, name);
        }
        marked
    }

    fn check_privilege(
        connection: &mut MySqlConnection,
        name: &str,
        _: &SchemaOwner,
    ) -> Result<(), Error> {
        // The privilege is checked first, then whether the schema exists. Nothing is executed.
        let table = format!("CREATE TABLE {}.{MARKER} (id INT)", quoted_name(name));
        match connection.prepare(&table) {
            Err(error) if is_denied(&error) => Err(with_grant(connection, name, error)),
            _ => Ok(()),
        }
    }

    fn end_statements(connection: &mut MySqlConnection, schema: &str) -> Result<(), Error> {
        // A proxy executes `KILL` itself, with its own ids.
        let is_direct = format!("CONNECTION_ID() & {} = {}", u32::MAX, connection.connection_id());
        let sql = format!(
            "SELECT id, db FROM information_schema.processlist WHERE command <> 'Sleep' \
             AND user = SUBSTRING_INDEX(USER(), '@', 1) AND id <> CONNECTION_ID() AND {is_direct}"
        );
        for row in connection.query(&sql)? {
            if let [Some(id), Some(db)] = &row[..]
                && db == schema
            {
                // It may have ended meanwhile.
                let _ = connection.run(&format!("KILL {id}"));
            }
        }
        Ok(())
    }

    fn drop_tables(
        connection: &mut MySqlConnection,
        schema: &str,
        tables: &[String],
    ) -> Result<(), Error> {
        // First, so that either all tables are dropped or none.
        for table in tables {
            let keys = foreign_keys(connection, schema, table, tables)?;
            if !keys.is_empty() {
                let doing = format!("dropping the table {schema}.{table}");
                return Err(in_the_way(doing, &keys.join(", ")));
            }
        }
        // Later tables first: their foreign keys refer to earlier ones. Tables that another of these refers
        // to are tried again after it.
        let mut left: Vec<&String> = tables.iter().rev().collect();
        loop {
            let before = left.len();
            let mut referenced = Vec::new();
            for table in left {
                let name = quoted_name(table);
                let dropped =
                    connection.run(&format!("DROP TABLE IF EXISTS {}.{name}", quoted_name(schema)));
                match dropped {
                    Err(error) if REFERENCED.iter().any(|number| error.has_number(*number)) => {
                        referenced.push((table, error));
                        continue;
                    }
                    dropped => dropped?,
                }
                connection.run(&format!(
                    "DELETE FROM {}.{MARKER} WHERE kind = '{TABLE}' AND value = {}",
                    quoted_name(schema),
                    quoted_text(table)
                ))?;
            }
            if referenced.len() == before
                && let Some((table, error)) = referenced.pop()
            {
                let unseen = format!(
                    "a foreign key that refers to {schema}.{table}, which this user may not see"
                );
                return Err(in_the_way(error.doing, &unseen));
            }
            if referenced.is_empty() {
                return Ok(());
            }
            left = referenced.into_iter().map(|(table, _)| table).collect();
        }
    }

    /// `DROP DATABASE` has no such condition; objects that are created between the check and the statement are lost.
    fn drop_if_empty(connection: &mut MySqlConnection, name: &str) -> Result<(), Error> {
        let schema = quoted_text(name);
        let others = column(
            connection,
            &format!(
                "SELECT CONCAT(LOWER(table_type), ' ', table_name) FROM information_schema.tables \
                 WHERE table_schema = {schema} AND table_name <> '{MARKER}' \
                 UNION ALL SELECT CONCAT(LOWER(routine_type), ' ', routine_name) \
                 FROM information_schema.routines WHERE routine_schema = {schema} \
                 UNION ALL SELECT CONCAT('event ', event_name) \
                 FROM information_schema.events WHERE event_schema = {schema}"
            ),
        )?;
        if !others.is_empty() {
            return Err(in_the_way(format!("dropping the schema {name}"), &others.join(", ")));
        }
        connection.run(&format!("DROP DATABASE {}", quoted_name(name)))
    }

    fn create_table(
        connection: &mut MySqlConnection,
        schema: &str,
        table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        let row = format!("kind = '{TABLE}' AND value = {}", quoted_text(table));
        let listed = format!("SELECT value FROM {marker} WHERE {row}");
        if !column(connection, &listed)?.is_empty() {
            return connection.run(sql);
        }
        // Before the table is created, which ends a transaction: a table that is not listed would stay
        // if dbdyno is killed.
        let values = format!("('{TABLE}', {})", quoted_text(table));
        connection.run(&format!("INSERT INTO {marker} (kind, value) VALUES {values}"))?;
        let created = connection.run(sql);
        if created.is_err() {
            // The existing table is not this run's. Report the first error.
            let _ = connection.run(&format!("DELETE FROM {marker} WHERE {row}"));
        }
        created
    }

    fn run_setup(
        connection: &mut MySqlConnection,
        schema: &str,
        sql: &str,
        creates: TableCreation<'_>,
    ) -> Result<(), Error> {
        let before = Self::tables(connection)?;
        match creates {
            // Listed before it is created, so that it is not left behind if dbdyno is killed. A table that
            // exists may be somebody else's.
            TableCreation::Named(table)
                if !before.iter().any(|one| one.eq_ignore_ascii_case(table)) =>
            {
                Self::create_table(connection, schema, table, sql)?;
            }
            _ => connection.run(sql)?,
        }
        let listed = Self::listed_tables(connection, schema)?;
        for table in Self::tables(connection)? {
            if !before.contains(&table) && !listed.contains(&table) {
                let row = format!("('{TABLE}', {})", quoted_text(&table));
                let marker = format!("{}.{MARKER}", quoted_name(schema));
                connection.run(&format!("INSERT INTO {marker} (kind, value) VALUES {row}"))?;
            }
        }
        Ok(())
    }

    fn listed_tables(connection: &mut MySqlConnection, schema: &str) -> Result<Vec<String>, Error> {
        let marker = format!("{}.{MARKER}", quoted_name(schema));
        let listed =
            column(connection, &format!("SELECT value FROM {marker} WHERE kind = '{TABLE}'"))?;
        let mut tables = Self::tables(connection)?;
        tables.retain(|table| listed.contains(table));
        Ok(tables)
    }
}

/// Whether a privilege is missing.
fn is_denied(error: &Error) -> bool {
    DENIED.iter().any(|number| error.has_number(*number))
}

/// Adds the statement that grants what dbdyno needs.
fn with_grant(connection: &mut MySqlConnection, schema: &str, error: Error) -> Error {
    let user = column(connection, "SELECT CURRENT_USER()").unwrap_or_default().join("");
    let message = format!("{}; as an administrator: {}", error.message, grant(schema, &user));
    Error { message, ..error }
}

/// The statement that grants a user, as `CURRENT_USER()` returns it, all privileges on a schema. All
/// schemas that dbdyno names itself have the same prefix.
fn grant(schema: &str, user: &str) -> String {
    let pattern = match schema.starts_with(OWN_PREFIX) {
        true => format!("{OWN_PREFIX}%"),
        false => schema.to_owned(),
    };
    let pattern = quoted_name(&pattern.replace('_', "\\_"));
    let (user, host) = user.rsplit_once('@').unwrap_or((user, "localhost"));
    format!("GRANT ALL ON {pattern}.* TO {}@{}", quoted_text(user), quoted_text(host))
}

fn mark(connection: &mut MySqlConnection, name: &str, run: &RunIdentity) -> Result<(), Error> {
    let marker = format!("{}.{MARKER}", quoted_name(name));
    let table = format!(
        "CREATE TABLE {marker} (id INT NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         kind VARCHAR(20) NOT NULL, value TEXT NOT NULL) COMMENT={} CHARACTER SET utf8mb4",
        quoted_text(COMMENT)
    );
    // In MyRocks its only rows would be in a separate file, which every range scan reads.
    match connection.run(&format!("{table} ENGINE=InnoDB")) {
        Err(error) if error.has_number(UNKNOWN_ENGINE) => connection.run(&table)?,
        made => made?,
    }
    let rows = rows_of(run).map(|(kind, value)| format!("('{kind}', {})", quoted_text(&value)));
    connection.run(&format!("INSERT INTO {marker} (kind, value) VALUES {}", rows.join(", ")))
}

/// Describes the foreign keys of other tables than `ours` that refer to a table, as far as this user may
/// see them.
fn foreign_keys(
    connection: &mut MySqlConnection,
    schema: &str,
    table: &str,
    ours: &[String],
) -> Result<Vec<String>, Error> {
    let schema = quoted_text(schema);
    let ours: Vec<String> = ours.iter().map(|table| quoted_text(table)).collect();
    column(
        connection,
        &format!(
            "SELECT DISTINCT CONCAT('foreign key ', constraint_name, ' of table ', table_schema, \
             '.', table_name) FROM information_schema.key_column_usage \
             WHERE referenced_table_schema = {schema} AND referenced_table_name = {} \
             AND NOT (table_schema = {schema} AND table_name IN ({}))",
            quoted_text(table),
            ours.join(", ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_names_user_and_schemas() {
        let of = |schema| grant(schema, "bench@db.example");
        let expected = r"GRANT ALL ON `dbdyno\_%`.* TO 'bench'@'db.example'";
        assert_eq!(of("dbdyno_a_control"), expected);
        assert_eq!(of("a_`b"), r"GRANT ALL ON `a\_``b`.* TO 'bench'@'db.example'");
        assert!(grant("a", "it's@x@%").ends_with("TO 'it''s@x'@'%'"));
    }
}
