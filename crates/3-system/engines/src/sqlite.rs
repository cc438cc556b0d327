//! SQLite: a database file, opened in the worker's process.

use std::path::{Path, PathBuf};

use dbdyno_drivers::sqlite::{Library, SqliteConnection};
use dbdyno_drivers::{Connection, Error, Params};
use dbdyno_types::StateSnapshot;
use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::{Engine, NextRow, Table, busy, column, failed, not_a_number, quoted_name};

/// SQLite's settings; the texts are values of pragmas.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    pub page_size: Bytes,
    /// Page cache, per connection.
    pub cache_size: Bytes,
    pub journal_mode: String,
    pub synchronous: String,
}

/// A database file, and the library and settings to open it with.
#[derive(Clone)]
pub struct Sqlite {
    library: Library,
    settings: Settings,
    file: PathBuf,
}

/// The values of `synchronous`, by their numbers.
const SYNCHRONOUS: [&str; 4] = ["off", "normal", "full", "extra"];

/// Rows per transaction while loading.
const ROWS_PER_COMMIT: u64 = 10_000;

impl Sqlite {
    /// Loads the library. The file is not opened yet.
    pub fn new(library: &Path, settings: Settings, file: &Path) -> Result<Self, Error> {
        Ok(Self { library: Library::load(library)?, settings, file: file.to_owned() })
    }

    /// The database file in a data directory.
    pub fn file_in(directory: &Path) -> PathBuf {
        directory.join("data.sqlite")
    }

    /// The write-ahead log of a database file.
    pub fn log_of(file: &Path) -> PathBuf {
        let mut name = file.as_os_str().to_owned();
        name.push("-wal");
        PathBuf::from(name)
    }
}

impl Engine for Sqlite {
    type Connection = SqliteConnection;

    const SHARES_CACHE: bool = false;

    fn version(&self) -> Result<String, Error> {
        Ok(self.library.version())
    }

    fn options(&self) -> Vec<(String, String)> {
        let split = |option: &String| match option.split_once('=') {
            Some((name, value)) => (name.to_owned(), value.to_owned()),
            None => (option.clone(), "set".to_owned()),
        };
        self.library.compile_options().iter().map(split).collect()
    }

    fn connect(&self) -> Result<Self::Connection, Error> {
        let mut connection = SqliteConnection::open(&self.library, &self.file)?;
        let Settings { page_size, cache_size, journal_mode, synchronous } = &self.settings;
        for (pragma, asked) in [
            // The page size only applies to an empty file, and must precede WAL mode.
            ("page_size", page_size.as_bytes().to_string()),
            ("journal_mode", journal_mode.clone()),
            ("synchronous", synchronous.clone()),
            ("cache_size", format!("-{}", cache_size.as_kib())),
        ] {
            connection.run(&format!("PRAGMA {pragma} = {asked}"))?;
            // SQLite ignores a value that it cannot use.
            let in_force = connection.query_text(&format!("PRAGMA {pragma}"))?;
            let word = in_force.parse().ok().and_then(|number: usize| SYNCHRONOUS.get(number));
            let in_force = match word {
                Some(word) if pragma == "synchronous" => (*word).to_owned(),
                _ => in_force,
            };
            if in_force != asked {
                return Err(failed(
                    format!("setting {pragma} = {asked}"),
                    format!("SQLite keeps {in_force} for {}", self.file.display()),
                ));
            }
        }
        Ok(connection)
    }

    fn load_table(
        &self,
        connection: &mut Self::Connection,
        table: &Table,
        next: NextRow<'_>,
    ) -> Result<(), Error> {
        let Table { name, index } = table;
        connection.run(&format!(
            "CREATE TABLE {name} (id INTEGER PRIMARY KEY, k INTEGER NOT NULL, \
             c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL)"
        ))?;
        let sql = format!("INSERT INTO {name} (k, c, pad) VALUES (?, ?, ?)");
        let insert = connection.prepare(&sql)?;
        let mut params = Params::default();
        let mut more = true;
        while more {
            connection.run("BEGIN")?;
            for _ in 0..ROWS_PER_COMMIT {
                params.clear();
                more = next(&mut params);
                if !more {
                    break;
                }
                connection.execute(insert, &params)?;
            }
            connection.run("COMMIT")?;
        }
        connection.run(&format!("CREATE INDEX {index} ON {name} (k)"))
    }

    fn counters(&self, connection: &mut Self::Connection) -> Result<Vec<(String, u64)>, Error> {
        Ok(connection.counters())
    }

    fn plan(&self, connection: &mut Self::Connection, sql: &str) -> Result<Vec<String>, Error> {
        let rows = connection.query(&format!("EXPLAIN QUERY PLAN {sql}"))?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().nth(3).flatten()).collect())
    }

    fn settle(&self, connection: &mut Self::Connection) -> Result<(), Error> {
        connection.run("ANALYZE")?;
        if self.settings.journal_mode == "wal" {
            // The first column is 1 if it could not finish.
            let unfinished = connection.query_text("PRAGMA wal_checkpoint(TRUNCATE)")?;
            if unfinished != "0" {
                let message = "another connection is still reading or writing".to_owned();
                return Err(busy("writing back the write-ahead log", message));
            }
        }
        Ok(())
    }

    fn warm(&self, connection: &mut Self::Connection, tables: &[Table]) -> Result<(), Error> {
        for Table { name, index } in tables {
            connection.run(&format!("SELECT SUM(LENGTH(c)) FROM {name} NOT INDEXED"))?;
            connection
                .run(&format!("SELECT COUNT(*) FROM {name} INDEXED BY {index} WHERE k > 0"))?;
        }
        Ok(())
    }

    fn table_names(&self, connection: &mut Self::Connection) -> Result<Vec<String>, Error> {
        let sql = "SELECT name FROM sqlite_schema WHERE type = 'table' \
                   AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name";
        column(connection, sql)
    }

    fn warm_own(&self, connection: &mut Self::Connection, tables: &[String]) -> Result<(), Error> {
        for table in tables {
            let name = quoted_name(table);
            connection.run(&format!("SELECT * FROM {name} NOT INDEXED"))?;
            let indexes = format!(
                "SELECT name FROM pragma_index_list({}) WHERE origin = 'c' AND partial = 0",
                quoted_text(table)
            );
            for index in column(connection, &indexes)? {
                let index = quoted_name(&index);
                connection.run(&format!("SELECT COUNT(*) FROM {name} INDEXED BY {index}"))?;
            }
        }
        Ok(())
    }

    fn state_snapshot(
        &self,
        connection: &mut Self::Connection,
        tables: &[String],
    ) -> Result<StateSnapshot, Error> {
        let mut rows = 0;
        for table in tables {
            rows += number(connection, &format!("SELECT COUNT(*) FROM {}", quoted_name(table)))?;
        }
        let page_size = number(connection, "PRAGMA page_size")?;
        let pages = number(connection, "PRAGMA page_count")?;
        let free = number(connection, "PRAGMA freelist_count")?;
        let wal = std::fs::metadata(Self::log_of(&self.file)).map_or(0, |metadata| metadata.len());
        Ok(StateSnapshot {
            rows,
            data_size: Bytes::from_bytes(pages * page_size),
            state: vec![
                ("page_size".to_owned(), page_size),
                ("pages".to_owned(), pages),
                ("free_pages".to_owned(), free),
                ("wal_bytes".to_owned(), wal),
            ],
        })
    }
}

/// A quoted string literal.
fn quoted_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn number(connection: &mut SqliteConnection, sql: &str) -> Result<u64, Error> {
    let text = connection.query_text(sql)?;
    text.parse().map_err(|_| not_a_number(sql, &text))
}
