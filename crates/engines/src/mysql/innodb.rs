//! InnoDB's settled state: no dirty pages in memory, no old versions of rows.

use std::time::{Duration, Instant};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};

use super::{column, number, state};

/// How long writing back and purging may take.
const PATIENCE: Duration = Duration::from_secs(1_200);

/// How long it must stay settled to count as that.
const CALM: Duration = Duration::from_millis(300);

/// How often it is looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Dirty pages, and transactions whose old versions are not purged, that count as none: the
/// server's own tables always have a few, and a few pages take no time to write.
const AS_GOOD_AS_NONE: u64 = 32;

/// What makes InnoDB write back all pages as fast as it can: how many may be dirty, and how many
/// it writes per second.
const WRITE_BACK: [(&str, &str); 4] = [
    ("innodb_io_capacity_max", "200000"),
    ("innodb_io_capacity", "100000"),
    ("innodb_max_dirty_pages_pct_lwm", "0"),
    ("innodb_max_dirty_pages_pct", "0"),
];

/// The length of the list of transactions whose old versions are kept.
const HISTORY: &str =
    "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'";

pub(super) fn settle(connection: &mut MySqlConnection) -> Result<(), Error> {
    let mut before = Vec::new();
    for (name, value) in WRITE_BACK {
        let was = column(connection, &format!("SELECT @@GLOBAL.{name}"))?;
        before.extend(was.into_iter().next().map(|was| (name, was)));
        connection.run(&format!("SET GLOBAL {name} = {value}"))?;
    }
    let settled = wait(connection);
    // The other way round: each of a pair bounds the other.
    for (name, was) in before.iter().rev() {
        connection.run(&format!("SET GLOBAL {name} = {was}"))?;
    }
    settled
}

fn wait(connection: &mut MySqlConnection) -> Result<(), Error> {
    let started = Instant::now();
    let mut calm_since = None;
    loop {
        let dirty = dirty_pages(connection)?;
        let history = number(connection, HISTORY)?;
        if dirty <= AS_GOOD_AS_NONE && history <= AS_GOOD_AS_NONE {
            // The last transactions to purge may be large, and dirty pages anew.
            if calm_since.get_or_insert_with(Instant::now).elapsed() >= CALM {
                return Ok(());
            }
        } else {
            calm_since = None;
        }
        if started.elapsed() > PATIENCE {
            return Err(Error {
                doing: "settling InnoDB".to_owned(),
                message: format!(
                    "after {} s there are still {dirty} dirty pages and {history} transactions \
                     to purge; an open transaction keeps them, or storage is slow",
                    PATIENCE.as_secs()
                ),
                code: 0,
                kind: ErrorKind::Busy,
            });
        }
        std::thread::sleep(GLANCE);
    }
}

fn dirty_pages(connection: &mut MySqlConnection) -> Result<u64, Error> {
    let figures = state::status(connection, &[("dirty", "Innodb_buffer_pool_pages_dirty")])?;
    Ok(figures.first().map_or(0, |(_, pages)| *pages))
}

/// Where InnoDB stands.
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
