//! Bringing a database to a settled state, into the cache, and into words.

use std::time::{Duration, Instant};

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error, ErrorKind};
use dbdyno_record::StateSnapshot;
use dbdyno_units::Bytes;

use super::{column, holds, numbers, quoted_text};
use crate::Table;

/// How long automatic vacuums may take to end.
const PATIENCE: Duration = Duration::from_secs(600);

/// How often they are looked at.
const GLANCE: Duration = Duration::from_millis(50);

/// Whether this user may order a checkpoint: superusers, and from version 15 on a role.
const MAY_CHECKPOINT: &str = "SELECT own.rolsuper OR EXISTS (SELECT FROM pg_roles role \
    WHERE role.rolname = 'pg_checkpoint' AND pg_has_role(role.oid, 'USAGE')) \
    FROM pg_roles own WHERE own.rolname = current_user";

pub(super) fn settle(connection: &mut PostgresConnection, private: bool) -> Result<(), Error> {
    report_pending(connection)?;
    if private {
        // The catalogues, too: nothing else would be left for the automatic vacuum to do.
        connection.run("VACUUM (ANALYZE)")?;
    } else {
        let tables = column(
            connection,
            "SELECT quote_ident(c.relname) FROM pg_class c \
             JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = current_schema() AND c.relkind = 'r'",
        )?;
        for table in tables {
            connection.run(&format!("VACUUM (ANALYZE) {table}"))?;
        }
    }
    wait_for_automatic_vacuums(connection)?;
    if holds(connection, MAY_CHECKPOINT)? {
        connection.run("CHECKPOINT")?;
    }
    Ok(())
}

/// Has this connection report the changes that it made before they are vacuumed. Reported
/// afterwards, as happens up to ten seconds later, they would look like new ones and wake the
/// automatic vacuum.
fn report_pending(connection: &mut PostgresConnection) -> Result<(), Error> {
    let can = "SELECT EXISTS (SELECT FROM pg_proc WHERE proname = 'pg_stat_force_next_flush' \
               AND pronamespace = 'pg_catalog'::regnamespace)";
    if holds(connection, can)? {
        connection.run("SELECT pg_stat_force_next_flush()")?;
    }
    Ok(())
}

fn wait_for_automatic_vacuums(connection: &mut PostgresConnection) -> Result<(), Error> {
    let running = "SELECT count(*) FROM pg_stat_activity \
                   WHERE backend_type = 'autovacuum worker' AND datname = current_database()";
    let started = Instant::now();
    loop {
        let [workers] = numbers(connection, running)?;
        if workers == 0 {
            return Ok(());
        }
        if started.elapsed() > PATIENCE {
            return Err(Error {
                doing: "waiting for automatic vacuums".to_owned(),
                message: format!("{workers} still run after {} s", PATIENCE.as_secs()),
                code: 0,
                kind: ErrorKind::Busy,
            });
        }
        std::thread::sleep(GLANCE);
    }
}

/// Reads by index scans. A sequential scan of a large table goes through a few buffers only, and
/// would leave the rest of the cache as it was.
pub(super) fn warm(connection: &mut PostgresConnection, tables: &[Table]) -> Result<(), Error> {
    connection.run(
        "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
         SET LOCAL max_parallel_workers_per_gather = 0",
    )?;
    let read = tables.iter().try_for_each(|table| {
        let name = &table.name;
        // Each row by the primary key, in the order they lie in; then the other index.
        connection.run(&format!("SELECT sum(length(c)) FROM {name} WHERE id > 0"))?;
        connection.run(&format!("SELECT count(*) FROM {name} WHERE k >= 0"))
    });
    let ended = connection.run("COMMIT");
    read.and(ended)
}

pub(super) fn state_snapshot(
    connection: &mut PostgresConnection,
    tables: &[Table],
) -> Result<StateSnapshot, Error> {
    let mut sum = [0; 6];
    for table in tables {
        let [rows] = numbers(connection, &format!("SELECT count(*) FROM {}", table.name))?;
        let relation = quoted_text(&table.name);
        let sizes: [u64; 5] = numbers(
            connection,
            &format!(
                "SELECT pg_total_relation_size(oid), \
                 pg_relation_size(oid) / current_setting('block_size')::bigint, \
                 pg_indexes_size(oid) / current_setting('block_size')::bigint, \
                 relallvisible, pg_stat_get_dead_tuples(oid) \
                 FROM pg_class WHERE oid = {relation}::regclass"
            ),
        )?;
        sum[0] += rows;
        for (sum, size) in sum[1..].iter_mut().zip(sizes) {
            *sum += size;
        }
    }
    let [rows, bytes, pages, index_pages, visible, dead] = sum;
    let mut state = vec![
        ("pages".to_owned(), pages),
        ("index_pages".to_owned(), index_pages),
        ("visible_pages".to_owned(), visible),
        ("dead_rows".to_owned(), dead),
    ];
    if holds(connection, "SELECT has_function_privilege('pg_control_checkpoint()', 'EXECUTE')")? {
        let since = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint \
                     FROM pg_control_checkpoint()";
        let [wal] = numbers(connection, since)?;
        state.push(("wal_bytes_since_checkpoint".to_owned(), wal));
    }
    Ok(StateSnapshot { rows, data_size: Bytes::from_bytes(bytes), state })
}
