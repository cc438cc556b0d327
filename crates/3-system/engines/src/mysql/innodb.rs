//! Settling InnoDB: no dirty pages in memory, no old row versions.

use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

use super::{number, state};
use crate::{column, wait_until_settled};

/// Limit for writing back and purging.
const TIMEOUT: Duration = Duration::from_secs(1_200);

/// How long the state must persist.
const SETTLED_FOR: Duration = Duration::from_millis(300);

/// Dirty pages, and transactions in the history, that are tolerated: the system tables always have a
/// few, and writing a few pages takes no time.
const TOLERATED: u64 = 32;

/// Settings that make InnoDB write back all pages at full speed.
const WRITE_BACK: [(&str, &str); 4] = [
    ("innodb_io_capacity_max", "200000"),
    ("innodb_io_capacity", "100000"),
    ("innodb_max_dirty_pages_pct_lwm", "0"),
    ("innodb_max_dirty_pages_pct", "0"),
];

/// Makes MySQL shorten the history after every batch of purging. By default it does so after 128
/// batches, and an idle server takes a minute for them. MariaDB has [`WAKE_PURGE`].
const SHORTEN_HISTORY: (&str, &str) = ("innodb_purge_rseg_truncate_frequency", "1");

/// The setting by which MariaDB purges at once, and returns when fewer transactions than its value are
/// left. An idle MariaDB 10.5 purges nothing by itself.
const WAKE_PURGE: &str = "innodb_max_purge_lag_wait";

/// The length of the history list: transactions whose old row versions are kept.
const HISTORY: &str =
    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";

pub(super) fn settle(connection: &mut MySqlConnection) -> Result<(), Error> {
    let mut before = Vec::new();
    let is_mariadb =
        column(connection, "SELECT VERSION()")?.iter().any(|version| version.contains("MariaDB"));
    let can_purge = is_mariadb && knows(connection, WAKE_PURGE)?;
    let shorten = (!is_mariadb).then_some(SHORTEN_HISTORY);
    let mut result = (|| {
        for (name, value) in WRITE_BACK.into_iter().chain(shorten) {
            let was = column(connection, &format!("SELECT @@GLOBAL.{name}"))?;
            before.extend(was.into_iter().next().map(|was| (name, was)));
            connection.run(&format!("SET GLOBAL {name} = {value}"))?;
        }
        wait(connection, can_purge)
    })();
    // All of them, even after an error. In reverse order, because the two of each pair limit each other.
    for (name, was) in before.iter().rev() {
        let restored = connection.run(&format!("SET GLOBAL {name} = {was}"));
        result = result.and(restored);
    }
    result
}

/// Whether the server has this setting.
fn knows(connection: &mut MySqlConnection, name: &str) -> Result<bool, Error> {
    Ok(!column(connection, &format!("SHOW GLOBAL VARIABLES LIKE '{name}'"))?.is_empty())
}

/// Purges for at most a second: a transaction that reads old row versions would block it.
fn purge(connection: &mut MySqlConnection) -> Result<(), Error> {
    connection.run("SET SESSION max_statement_time = 1")?;
    // Interrupted after a second, which is no error here.
    let _ = connection.run(&format!("SET GLOBAL {WAKE_PURGE} = {TOLERATED}"));
    connection.run("SET SESSION max_statement_time = DEFAULT")
}

fn wait(connection: &mut MySqlConnection, can_purge: bool) -> Result<(), Error> {
    let mut settled_since = None;
    wait_until_settled("settling InnoDB", TIMEOUT, || {
        let dirty = dirty_pages(connection)?;
        let history = number(connection, HISTORY)?;
        if dirty > TOLERATED || history > TOLERATED {
            settled_since = None;
        } else if settled_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED_FOR {
            // Purging the last transactions may dirty pages again.
            return Ok(None);
        }
        if can_purge && history > TOLERATED {
            purge(connection)?;
        }
        Ok(Some(format!(
            "{dirty} pages are still dirty and {history} transactions not purged; check for open \
             transactions and slow storage"
        )))
    })
}

fn dirty_pages(connection: &mut MySqlConnection) -> Result<u64, Error> {
    let figures = state::status(connection, &[("dirty", "Innodb_buffer_pool_pages_dirty")])?;
    Ok(figures.first().map_or(0, |(_, pages)| *pages))
}

/// InnoDB's figures for a state snapshot.
pub(super) fn figures(connection: &mut MySqlConnection) -> Result<Vec<(String, u64)>, Error> {
    let mut figures = state::status(
        connection,
        &[
            ("dirty_pages", "Innodb_buffer_pool_pages_dirty"),
            ("pool_pages", "Innodb_buffer_pool_pages_total"),
            ("pool_pages_data", "Innodb_buffer_pool_pages_data"),
            ("pool_pages_free", "Innodb_buffer_pool_pages_free"),
        ],
    )?;
    figures.push(("history_length".to_owned(), number(connection, HISTORY)?));
    Ok(figures)
}
