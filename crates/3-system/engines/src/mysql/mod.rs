//! MySQL and MariaDB: a schema on a private or an existing server.

mod facts;
mod innodb;
mod load;
mod rocksdb;
mod schema;
mod state;

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};
use dbdyno_types::server::{StorageEngine, Target};

use crate::server::ServerAccess;
use crate::server_engine::Dialect;
use crate::{Engine as _, NextRow, ServerEngine, Table, column, failed};

/// A MySQL or MariaDB server and the schema with dbdyno's tables.
pub type MySql = ServerEngine<MySqlDialect>;

#[derive(Clone, Debug)]
pub struct MySqlDialect;

impl Dialect for MySqlDialect {
    type Connection = MySqlConnection;

    fn server_version(connection: &MySqlConnection) -> &str {
        connection.server_version()
    }

    fn connect_to_server(settings: &ServerAccess) -> Result<MySqlConnection, Error> {
        // Without a schema: dbdyno's may not exist.
        let target = Target { database: None, ..settings.target.clone() };
        MySqlConnection::connect(&target, settings.statements)
    }

    fn connect(settings: &ServerAccess) -> Result<MySqlConnection, Error> {
        let target = Target { database: Some(settings.schema.clone()), ..settings.target.clone() };
        let mut connection = MySqlConnection::connect(&target, settings.statements)?;
        set_table_charset(&mut connection)?;
        Ok(connection)
    }

    fn options(settings: &ServerAccess) -> Result<Vec<(String, String)>, Error> {
        facts::options(&mut Self::connect_to_server(settings)?)
    }

    fn prepare_for_setup(
        connection: &mut MySqlConnection,
        settings: &ServerAccess,
    ) -> Result<(), Error> {
        let Some(engine) = settings.engine.map(engine_name) else { return Ok(()) };
        connection.run(&format!("SET SESSION default_storage_engine = {engine}"))
    }

    fn load_table(
        engine: &MySql,
        connection: &mut MySqlConnection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error> {
        let sql = load::table_sql(&table.name, &engine.engine_clause());
        engine.create_table(connection, &table.name, &sql).map_err(load::explained)?;
        // A separate connection, because loading changes session settings.
        load::fill(connection, &mut engine.connect()?, engine.settings.engine, table, next)
    }
}

impl MySql {
    /// The end of `CREATE TABLE`.
    pub(crate) fn engine_clause(&self) -> String {
        let engine = self.settings.engine.map(engine_name);
        engine.map_or_else(String::new, |engine| format!(" ENGINE={engine}"))
    }
}

/// Sets the connection's character set to that of the tables, so that no conversion is measured.
fn set_table_charset(connection: &mut MySqlConnection) -> Result<(), Error> {
    let sql = "SELECT @@character_set_database, @@collation_database";
    let rows = connection.query(sql)?;
    let [Some(charset), Some(collation)] = rows.first().map_or(&[][..], Vec::as_slice) else {
        return Err(failed(
            format!("executing {sql}"),
            format!("{rows:?} is not a character set and a collation"),
        ));
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

/// The result of a query that returns one number. Sums may have a fraction.
fn number(connection: &mut MySqlConnection, sql: &str) -> Result<u64, Error> {
    let values = column(connection, sql)?;
    let text = values.first().map_or("", String::as_str);
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    whole
        .parse()
        .map_err(|_| failed(format!("executing {sql}"), format!("`{text}` is not a number")))
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
