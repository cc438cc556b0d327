//! MySQL and MariaDB: a schema on a private or an existing server.

mod facts;
mod innodb;
mod load;
mod rocksdb;
mod schema;
mod state;

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};
use dbdyno_types::StateSnapshot;
use dbdyno_types::server::{StatementMode, StorageEngine, Target};

use crate::server::ServerAccess;
use crate::{Engine, NextRow, SchemaRemoval, Table, TableCreation};

/// A MySQL or MariaDB server and the schema with dbdyno's tables.
///
/// Global settings are changed on a private server only. On an existing server, settling updates
/// statistics and does nothing else.
#[derive(Clone, Debug)]
pub struct MySql {
    settings: ServerAccess,
}

impl MySql {
    /// Does not connect yet.
    #[must_use]
    pub const fn new(settings: ServerAccess) -> Self {
        Self { settings }
    }

    /// The end of `CREATE TABLE`.
    pub(crate) fn engine_clause(&self) -> String {
        let engine = self.settings.engine.map(engine_name);
        engine.map_or_else(String::new, |engine| format!(" ENGINE={engine}"))
    }

    /// The same with statements that are prepared at the server.
    fn preparing(&self) -> Self {
        let statements = StatementMode::Prepared;
        Self { settings: ServerAccess { statements, ..self.settings.clone() } }
    }

    /// A connection without a schema: dbdyno's may not exist.
    fn connect_to_server(&self) -> Result<MySqlConnection, Error> {
        let target = Target { database: None, ..self.settings.target.clone() };
        MySqlConnection::connect(&target, self.settings.statements)
    }
}

impl Engine for MySql {
    type Connection = MySqlConnection;

    const SHARES_CACHE: bool = true;

    fn version(&self) -> String {
        match self.connect_to_server() {
            Ok(connection) => connection.server_version().to_owned(),
            Err(error) => format!("unknown ({error})"),
        }
    }

    fn options(&self) -> Vec<(String, String)> {
        // Informational only: other connections report the same error.
        self.connect_to_server()
            .and_then(|mut connection| facts::options(&mut connection))
            .unwrap_or_default()
    }

    fn create_schema(&self) -> Result<(), Error> {
        let (mut connection, ServerAccess { schema, owner, .. }) =
            (self.connect_to_server()?, &self.settings);
        match owner {
            None => schema::create_private(&mut connection, schema),
            Some(run) => schema::create(&mut connection, schema, run),
        }
    }

    fn check_access(&self) -> Result<(), Error> {
        let ServerAccess { schema, owner, .. } = &self.settings;
        let Some(run) = owner else { return Ok(()) };
        // Privileges are checked when a statement is prepared.
        let mut connection = self.preparing().connect_to_server()?;
        schema::check_access(&mut connection, schema, run)
    }

    fn connect_to_check(&self) -> Result<Self::Connection, Error> {
        self.preparing().connect()
    }

    fn drop_schema(&self) -> Result<SchemaRemoval, Error> {
        let (mut connection, ServerAccess { schema, owner, .. }) =
            (self.connect_to_server()?, &self.settings);
        match owner {
            None => schema::drop_private(&mut connection, schema).map(|()| SchemaRemoval::Dropped),
            Some(run) => schema::drop(&mut connection, schema, run),
        }
    }

    fn create_table(
        &self,
        connection: &mut Self::Connection,
        table: &str,
        sql: &str,
    ) -> Result<(), Error> {
        match self.settings.is_private() {
            true => connection.run(sql),
            false => schema::create_table(connection, &self.settings.schema, table, sql),
        }
    }

    fn connect(&self) -> Result<Self::Connection, Error> {
        let target =
            Target { database: Some(self.settings.schema.clone()), ..self.settings.target.clone() };
        let mut connection = MySqlConnection::connect(&target, self.settings.statements)?;
        set_table_charset(&mut connection)?;
        Ok(connection)
    }

    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error> {
        let sql = load::table_sql(&table.name, &self.engine_clause());
        self.create_table(connection, &table.name, &sql).map_err(load::explained)?;
        // A separate connection, because loading changes session settings.
        load::fill(connection, &mut self.connect()?, self.settings.engine, table, next)
    }

    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error> {
        let private = self.settings.is_private();
        match self.settings.engine {
            // MyRocks computes statistics from its files.
            Some(StorageEngine::MyRocks) if private => {
                rocksdb::settle(connection)?;
                state::analyze(connection)
            }
            _ => {
                state::analyze(connection)?;
                if private { innodb::settle(connection) } else { Ok(()) }
            }
        }
    }

    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error> {
        state::warm(connection, tables)
    }

    fn connect_for_setup(&self) -> Result<Self::Connection, Error> {
        let mut connection = self.connect()?;
        if let Some(engine) = self.settings.engine {
            let engine = engine_name(engine);
            connection.run(&format!("SET SESSION default_storage_engine = {engine}"))?;
        }
        Ok(connection)
    }

    fn run_setup(
        &self,
        connection: &mut Self::Connection,
        sql: &str,
        creates: TableCreation<'_>,
    ) -> Result<(), Error> {
        match self.settings.is_private() {
            true => connection.run(sql),
            false => schema::run_setup(connection, &self.settings.schema, sql, creates),
        }
    }

    fn table_names(&self, connection: &mut Self::Connection) -> Result<Vec<String>, Error> {
        match self.settings.is_private() {
            true => state::tables(connection),
            false => schema::listed_tables(connection, &self.settings.schema),
        }
    }

    fn warm_own(&self, connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error> {
        state::warm_own(connection, tables)
    }

    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[String],
    ) -> Result<StateSnapshot, Error> {
        let (engine, private) = (self.settings.engine, self.settings.is_private());
        let rows = state::rows(connection, tables)?;
        let figures = match engine {
            Some(StorageEngine::MyRocks) => rocksdb::figures(connection),
            _ => innodb::figures(connection),
        };
        let state = match figures {
            // On an existing server the user may lack the privilege.
            Err(error) if !private && !error.kind.is_fatal() => Vec::new(),
            figures => figures?,
        };
        let data_size = match engine {
            Some(StorageEngine::MyRocks) if private => rocksdb::data_size(connection)?,
            _ => state::data_size(connection)?,
        };
        Ok(StateSnapshot { rows, data_size, state })
    }
}

/// Sets the connection's character set to that of the tables, so that no conversion is measured.
fn set_table_charset(connection: &mut MySqlConnection) -> Result<(), Error> {
    let sql = "SELECT @@character_set_database, @@collation_database";
    let rows = connection.query(sql)?;
    let [Some(charset), Some(collation)] = rows.first().map_or(&[][..], Vec::as_slice) else {
        return Err(failed(sql, format!("{rows:?} is not a character set and a collation")));
    };
    // Not allowed as a client character set.
    if ["ucs2", "utf16", "utf16le", "utf32"].contains(&charset.as_str()) {
        return Ok(());
    }
    connection.run(&format!(
        "SET NAMES {} COLLATE {}",
        quoted_text(charset),
        quoted_text(collation)
    ))
}

/// The name of a storage engine in SQL.
const fn engine_name(engine: StorageEngine) -> &'static str {
    match engine {
        StorageEngine::InnoDb => "InnoDB",
        StorageEngine::MyRocks => "ROCKSDB",
    }
}

/// A quoted identifier.
fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// A quoted string literal.
fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// The values of the first column, without NULLs.
fn column(connection: &mut MySqlConnection, sql: &str) -> Result<Vec<String>, Error> {
    let rows = connection.query(sql)?;
    Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
}

/// The result of a query that returns one number. Sums may have a fraction.
fn number(connection: &mut MySqlConnection, sql: &str) -> Result<u64, Error> {
    let values = column(connection, sql)?;
    let text = values.first().map_or("", String::as_str);
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    whole.parse().map_err(|_| failed(sql, format!("`{text}` is not a number")))
}

fn failed(sql: &str, message: String) -> Error {
    Error { doing: format!("executing {sql}"), message, code: None, kind: ErrorKind::Statement }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_strings_are_quoted() {
        assert_eq!(quoted_name("a`b"), "`a``b`");
        assert_eq!(quoted_text(r"it's a \"), r"'it''s a \\'");
    }
}
