//! MySQL and MariaDB: a schema on a private or an existing server.

mod facts;
mod in_force;
mod innodb;
mod rocksdb;
mod schema;
pub(crate) mod session;
mod state;

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, Param, Params, StatementId};
use dbdyno_types::server::{StorageEngine, Target};

use crate::in_force::ReportedSetting;
use crate::server::ServerAccess;
use crate::server_engine::{Dialect, Purpose};
use crate::{Engine as _, NextRow, ServerEngine, Table, column, failed, not_a_number};

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
        let mut connection = log_in(settings, &target)?;
        session::set_up(&mut connection, Purpose::Administer)?;
        Ok(connection)
    }

    fn connect(settings: &ServerAccess, purpose: Purpose) -> Result<MySqlConnection, Error> {
        let target = Target { database: Some(settings.schema.clone()), ..settings.target.clone() };
        let mut connection = log_in(settings, &target)?;
        session::set_up(&mut connection, purpose)?;
        if purpose != Purpose::Administer {
            set_table_charset(&mut connection)?;
        }
        if let (Purpose::SetUp, Some(engine)) = (purpose, settings.engine.map(engine_name)) {
            connection.run(&format!("SET SESSION default_storage_engine = {engine}"))?;
        }
        Ok(connection)
    }

    fn options(settings: &ServerAccess) -> Result<Vec<(String, String)>, Error> {
        facts::options(&mut Self::connect_to_server(settings)?)
    }

    fn settings_in_force(
        settings: &ServerAccess,
        names: &[String],
    ) -> Result<Vec<ReportedSetting>, Error> {
        in_force::settings(&mut Self::connect_to_server(settings)?, names)
    }

    fn load_table(
        engine: &MySql,
        connection: &mut MySqlConnection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error> {
        let sql = table_sql(&table.name, &engine.engine_clause());
        engine.create_table(connection, &table.name, &sql).map_err(explained)?;
        // A separate connection, because loading changes session settings.
        fill(connection, &mut engine.connect_to_administer()?, engine.settings.engine, table, next)
    }
}

/// Logs in, and waits for a session of an existing server: behind a proxy there may be none.
fn log_in(settings: &ServerAccess, target: &Target) -> Result<MySqlConnection, Error> {
    let mut connection = MySqlConnection::connect(target, settings.statements)?;
    if !settings.is_private() {
        connection.await_session()?;
    }
    Ok(connection)
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
    whole.parse().map_err(|_| not_a_number(sql, text))
}

/// Rows per statement, which is a transaction: enough to make the cost of the commit negligible, and
/// far below the maximum packet size.
const ROWS_PER_INSERT: usize = 1_000;

/// "Table already exists".
const TABLE_EXISTS: i32 = 1050;

fn table_sql(table: &str, clause: &str) -> String {
    let name = quoted_name(table);
    format!(
        "CREATE TABLE {name} (id INTEGER NOT NULL AUTO_INCREMENT PRIMARY KEY, \
         k INTEGER NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL){clause}"
    )
}

/// The error of creating a table, with the cause if it exists.
fn explained(error: Error) -> Error {
    if !error.has_number(TABLE_EXISTS) {
        return error;
    }
    let message = format!("{}: it is not from this load", error.message);
    Error { message, ..error }
}

/// Fills the empty table on another connection, and creates its index.
fn fill(
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
    connection.prepare(format!("INSERT INTO {name} (k, c, pad) VALUES {rows}"))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_and_strings_are_quoted() {
        assert_eq!(quoted_name("a`b"), "`a``b`");
        assert_eq!(quoted_text(r"it's a \"), r"'it''s a \\'");
    }
}
