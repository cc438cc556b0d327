//! Settling, reading and counting rows, for all storage engines.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};
use dbdyno_types::StateSnapshot;
use dbdyno_types::server::StorageEngine;
use dbdyno_units::Bytes;

use super::{MySqlDialect, innodb, number, quoted_name, quoted_text, rocksdb};
use crate::marker::MARKER;
use crate::server::ServerAccess;
use crate::server_engine::State;
use crate::{Table, column, failed, numbers_by_name};

/// "Key does not exist in table": the index is invisible (MySQL) or ignored (MariaDB), and is not read.
const NO_SUCH_INDEX: i32 = 1176;

/// Metrics that count. Those that are not enabled do not grow.
const INNODB_METRICS: &str = "SELECT CONCAT('innodb_metrics.', name), count \
                              FROM information_schema.innodb_metrics WHERE type <> 'value'";

impl State for MySqlDialect {
    fn has_size_of_server(settings: &ServerAccess) -> bool {
        settings.engine == Some(StorageEngine::MyRocks) && settings.is_private()
    }

    fn tables(connection: &mut MySqlConnection) -> Result<Vec<String>, Error> {
        column(
            connection,
            &format!(
                "SELECT table_name FROM information_schema.tables \
                 WHERE table_schema = DATABASE() \
                 AND table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') \
                 AND table_name <> '{MARKER}' ORDER BY table_name"
            ),
        )
    }

    /// The status, which includes that of MyRocks, and InnoDB's metrics if the user may read them.
    fn counters(connection: &mut MySqlConnection) -> Result<Vec<(String, u64)>, Error> {
        let mut rows = connection.query("SHOW GLOBAL STATUS")?;
        match connection.query(INNODB_METRICS) {
            Err(error) if error.kind.is_fatal() => return Err(error),
            metrics => rows.extend(metrics.unwrap_or_default()),
        }
        Ok(numbers_by_name(rows))
    }

    fn plan(connection: &mut MySqlConnection, sql: &str) -> Result<Vec<String>, Error> {
        // Since version 9, another format may be the default of MySQL.
        let format = if connection.is_mariadb() { "" } else { "FORMAT=TRADITIONAL " };
        let rows = connection.query(&format!("EXPLAIN {format}{sql}"))?;
        Ok(rows.iter().filter(|row| is_choice(sql, row)).map(|row| plan_line(row)).collect())
    }

    fn settle(connection: &mut MySqlConnection, settings: &ServerAccess) -> Result<(), Error> {
        match settings.engine {
            // MyRocks computes statistics from its files.
            Some(StorageEngine::MyRocks) if settings.is_private() => {
                rocksdb::settle(connection)?;
                analyze(connection)
            }
            _ => {
                analyze(connection)?;
                if settings.is_private() { innodb::settle(connection) } else { Ok(()) }
            }
        }
    }

    /// Reads each table by its primary key and then its other index.
    fn warm(connection: &mut MySqlConnection, tables: &[Table]) -> Result<(), Error> {
        for Table { name, index } in tables {
            let (name, index) = (quoted_name(name), quoted_name(index));
            connection
                .run(&format!("SELECT SUM(LENGTH(pad)) FROM {name} FORCE INDEX (PRIMARY)"))?;
            connection
                .run(&format!("SELECT COUNT(k) FROM {name} FORCE INDEX ({index}) WHERE k >= 0"))?;
        }
        Ok(())
    }

    /// Reads each index of these tables; the primary key is the table itself.
    fn warm_own(connection: &mut MySqlConnection, tables: &[String]) -> Result<(), Error> {
        for table in tables {
            let name = quoted_name(table);
            let indexes = format!(
                "SELECT DISTINCT index_name FROM information_schema.statistics \
                 WHERE table_schema = DATABASE() AND table_name = {} AND index_type = 'BTREE'",
                quoted_text(table)
            );
            let indexes = column(connection, &indexes)?;
            if !indexes.iter().any(|index| index == "PRIMARY") {
                connection.run(&format!("SELECT * FROM {name}"))?;
            }
            for index in indexes {
                let index = quoted_name(&index);
                match connection.run(&format!("SELECT COUNT(*) FROM {name} FORCE INDEX ({index})"))
                {
                    Err(error) if error.has_number(NO_SUCH_INDEX) => {}
                    read => read?,
                }
            }
        }
        Ok(())
    }

    fn state_snapshot(
        connection: &mut MySqlConnection,
        settings: &ServerAccess,
        tables: &[String],
    ) -> Result<StateSnapshot, Error> {
        let (engine, private) = (settings.engine, settings.is_private());
        let rows = rows(connection, tables)?;
        let figures = match engine {
            Some(StorageEngine::MyRocks) => rocksdb::figures(connection),
            _ => innodb::figures(connection),
        };
        let state = match figures {
            // On an existing server the user may lack the privilege.
            Err(error) if !private && !error.kind.is_fatal() => Vec::new(),
            figures => figures?,
        };
        let data_size = match Self::has_size_of_server(settings) {
            true => rocksdb::data_size(connection)?,
            false => data_size(connection)?,
        };
        Ok(StateSnapshot { rows, data_size, state })
    }
}

/// Whether a line of a plan is one of several ways. That of the table into which rows are inserted is not: MySQL 5.6 has
/// another line for it.
fn is_choice(sql: &str, row: &[Option<String>]) -> bool {
    let inserts = |word: &str| ["INSERT", "REPLACE"].iter().any(|it| word.eq_ignore_ascii_case(it));
    if !sql.split_whitespace().next().is_some_and(inserts) {
        return true;
    }
    let kind = row.get(1).and_then(|kind| kind.as_deref());
    let remarks = row.last().and_then(|extra| extra.as_deref());
    !kind.is_some_and(inserts) && remarks != Some("No tables used")
}

/// The line of a table in a plan, equal for MariaDB and MySQL: table, type, key, its used length, what it is compared
/// with, and the remarks.
fn plan_line(row: &[Option<String>]) -> String {
    // MySQL has columns for partitions, after the table, and for the filtered rows.
    let more = usize::from(row.len() >= 12);
    let column = |number: usize| row.get(number)?.as_deref();
    let mut line = column(2).unwrap_or("no table").to_owned();
    let mut add = |before: &str, text: Option<&str>| {
        line.extend(text.into_iter().flat_map(|text| [before, text]));
    };
    add(": ", column(3 + more));
    add(" by ", column(5 + more));
    add(", key length ", column(6 + more));
    add(", ", column(7 + more));
    add("; ", row.last().and_then(|extra| extra.as_deref()).filter(|extra| !extra.is_empty()));
    line
}

/// Updates the statistics of all tables in the schema.
fn analyze(connection: &mut MySqlConnection) -> Result<(), Error> {
    for table in MySqlDialect::tables(connection)? {
        let sql = format!("ANALYZE TABLE {}", quoted_name(&table));
        // Failures are rows: table, operation, message type, message.
        for row in connection.query(&sql)? {
            if row.get(2).is_some_and(|kind| kind.as_deref() == Some("Error")) {
                let message = row.into_iter().nth(3).flatten();
                return Err(failed(format!("executing {sql}"), message.unwrap_or_default()));
            }
        }
    }
    Ok(())
}

fn rows(connection: &mut MySqlConnection, tables: &[String]) -> Result<u64, Error> {
    tables.iter().try_fold(0, |sum, table| {
        let sql = format!("SELECT COUNT(*) FROM {}", quoted_name(table));
        Ok(sum + number(connection, &sql)?)
    })
}

/// Size of the schema's tables, including their free space.
fn data_size(connection: &mut MySqlConnection) -> Result<Bytes, Error> {
    if !connection.is_mariadb() {
        // Otherwise the figures are up to a day old. Versions before 8.0 do not have the setting
        // and do not cache.
        let _ = connection.run("SET SESSION information_schema_stats_expiry = 0");
    }
    let sql = "SELECT COALESCE(SUM(data_length + index_length + data_free), 0) \
               FROM information_schema.tables WHERE table_schema = DATABASE()";
    Ok(Bytes::from_bytes(number(connection, sql)?))
}

/// Figures from the server's status, as pairs of our name and variable; missing ones are omitted.
pub(super) fn status(
    connection: &mut MySqlConnection,
    names: &[(&str, &str)],
) -> Result<Vec<(String, u64)>, Error> {
    let mut figures = Vec::new();
    for (name, variable) in names {
        let rows = connection.query(&format!("SHOW GLOBAL STATUS LIKE '{variable}'"))?;
        let value = rows.into_iter().next().and_then(|row| row.into_iter().nth(1)).flatten();
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            figures.push(((*name).to_owned(), value));
        }
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_of_mariadb_and_mysql_are_equal() {
        let row = |columns: &str| -> Vec<Option<String>> {
            let columns = columns.split('|');
            columns.map(|text| (text != "NULL").then(|| text.to_owned())).collect()
        };
        let mariadb = "1|SIMPLE|sbtest1|range|k_1|k_1|4|NULL|100|Using where; Using index";
        let mysql = "1|SIMPLE|sbtest1|NULL|range|k_1|k_1|4|NULL|99|100.00|Using where; Using index";
        let expected = "sbtest1: range by k_1, key length 4; Using where; Using index";
        assert_eq!(
            (plan_line(&row(mariadb)), plan_line(&row(mysql))),
            (expected.into(), expected.into())
        );
        let point = "1|SIMPLE|sbtest1|const|PRIMARY|PRIMARY|4|const|1|";
        assert_eq!(plan_line(&row(point)), "sbtest1: const by PRIMARY, key length 4, const");
        assert!([mariadb, mysql, point].iter().all(|plan| is_choice("SELECT 1", &row(plan))));
        let inserts = "1|INSERT|sbtest1|NULL|ALL|NULL|NULL|NULL|NULL|NULL|NULL|NULL";
        let of_5_6 = "1|SIMPLE|NULL|NULL|NULL|NULL|NULL|NULL|NULL|No tables used";
        assert!(
            [inserts, of_5_6].iter().all(|plan| !is_choice("INSERT INTO t VALUES (1)", &row(plan)))
        );
        assert!(
            is_choice("SELECT 1", &row(of_5_6)) && is_choice("insert INTO t SELECT 1", &row(point))
        );
    }
}
