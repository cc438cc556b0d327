//! Settling InnoDB: no dirty pages in memory, no old row versions.

use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

use super::{number, state};
use crate::{column, failed, wait_until_settled};

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

/// Shortens the history after every batch of purging. By default it is shortened after 128 batches, and an idle server
/// takes a minute for them.
const SHORTEN_HISTORY: (&str, &str) = ("innodb_purge_rseg_truncate_frequency", "1");

/// The setting by which MariaDB purges at once, and returns when fewer transactions than its value are
/// left. An idle MariaDB 10.5 purges nothing by itself.
const WAKE_PURGE: &str = "innodb_max_purge_lag_wait";

/// How a server purges, by the settings that it has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Purging {
    /// With [`WAKE_PURGE`]: MariaDB since 10.5.
    Woken,
    /// With [`SHORTEN_HISTORY`]: MySQL since 5.7.
    Shortened,
    /// MySQL 5.6 and MariaDB before 10.5, whose history also has purged transactions: an idle server keeps them.
    Unlisted,
}

impl Purging {
    fn of(connection: &mut MySqlConnection) -> Result<Self, Error> {
        if knows(connection, WAKE_PURGE)? {
            return Ok(Self::Woken);
        }
        let (name, _) = SHORTEN_HISTORY;
        let is_shortened = !connection.is_mariadb() && knows(connection, name)?;
        Ok(if is_shortened { Self::Shortened } else { Self::Unlisted })
    }
}

/// The length of the history list: transactions whose old row versions are kept.
const HISTORY: &str =
    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";

pub(super) fn settle(connection: &mut MySqlConnection) -> Result<(), Error> {
    let mut before = Vec::new();
    let purging = Purging::of(connection)?;
    let shorten = (purging == Purging::Shortened).then_some(SHORTEN_HISTORY);
    let mut result = (|| {
        for (name, value) in WRITE_BACK.into_iter().chain(shorten) {
            let was = column(connection, &format!("SELECT @@GLOBAL.{name}"))?;
            before.extend(was.into_iter().next().map(|was| (name, was)));
            connection.run(&format!("SET GLOBAL {name} = {value}"))?;
        }
        wait(connection, purging)
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

fn wait(connection: &mut MySqlConnection, purging: Purging) -> Result<(), Error> {
    let mut settled_since = None;
    wait_until_settled("settling InnoDB", TIMEOUT, || {
        let dirty = dirty_pages(connection)?;
        let history = match purging {
            Purging::Unlisted => unpurged(connection)?,
            Purging::Woken | Purging::Shortened => number(connection, HISTORY)?,
        };
        if dirty > TOLERATED || history > TOLERATED {
            settled_since = None;
        } else if settled_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED_FOR {
            // Purging the last transactions may dirty pages again.
            return Ok(None);
        }
        if purging == Purging::Woken && history > TOLERATED {
            purge(connection)?;
        }
        Ok(Some(format!(
            "{dirty} pages are still dirty and {history} transactions not purged; check for open \
             transactions and slow storage"
        )))
    })
}

/// The transactions that are not purged, by InnoDB's status.
fn unpurged(connection: &mut MySqlConnection) -> Result<u64, Error> {
    let sql = "SHOW ENGINE INNODB STATUS";
    // Columns: type, name, status.
    let rows = connection.query(sql)?;
    let status = rows.into_iter().next().and_then(|row| row.into_iter().nth(2)).flatten();
    status.as_deref().and_then(transactions_left).ok_or_else(|| {
        failed(format!("executing {sql}"), "it does not say which transactions are purged")
    })
}

/// The difference of the next transaction's number and of that up to which all are purged.
fn transactions_left(status: &str) -> Option<u64> {
    // Before it are deadlocks and broken foreign keys, with the text of users' statements.
    let (_, status) = status.split_once("\nTRANSACTIONS\n")?;
    let number_after = |label: &str| -> Option<u64> {
        let (_, rest) = status.split_once(label)?;
        rest.split(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
    };
    let next = number_after("Trx id counter ")?;
    Some(next.saturating_sub(number_after("Purge done for trx's n:o < ")?))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transactions_left_are_read_from_the_status() {
        let status = |next: u64, done: u64| {
            format!(
                "------------\nTRANSACTIONS\n------------\nTrx id counter {next}\nPurge done for \
                 trx's n:o < {done} undo n:o < 0 state: running but idle\nHistory list length 469\n"
            )
        };
        assert_eq!(transactions_left(&status(2556, 2053)), Some(503));
        assert_eq!(transactions_left(&status(2558, 2558)), Some(0));
        assert_eq!(transactions_left("Trx id counter 0 1234\n"), None);
    }
}
