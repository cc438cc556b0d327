//! Settling a database, reading it into the cache, and state snapshots.

use std::time::Duration;

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};
use dbdyno_types::StateSnapshot;
use dbdyno_units::Bytes;

use super::{PostgresDialect, boolean, numbers, quoted_text};
use crate::server::ServerAccess;
use crate::server_engine::State;
use crate::{Table, column, numbers_by_name, quoted_name, wait_until_settled};

/// Limit for waiting for autovacuum.
const TIMEOUT: Duration = Duration::from_secs(600);

/// Whether this user may run a checkpoint: superusers, and since version 15 members of a role.
const MAY_CHECKPOINT: &str = "SELECT own.rolsuper OR EXISTS (SELECT FROM pg_roles role \
    WHERE role.rolname = 'pg_checkpoint' AND pg_has_role(role.oid, 'USAGE')) \
    FROM pg_roles own WHERE own.rolname = current_user";

/// Whether figures of a connection can be counted at once.
const CAN_FLUSH: &str = "SELECT EXISTS (SELECT FROM pg_proc \
    WHERE proname = 'pg_stat_force_next_flush' AND pronamespace = 'pg_catalog'::regnamespace)";

/// The views with counters, and which of their rows; other versions have others.
const VIEWS: [(&str, &str); 8] = [
    ("pg_stat_database", "datname = current_database()"),
    ("pg_stat_user_tables", "schemaname = current_schema()"),
    ("pg_statio_user_tables", "schemaname = current_schema()"),
    ("pg_stat_wal", "true"),
    ("pg_stat_bgwriter", "true"),
    ("pg_stat_checkpointer", "true"),
    ("pg_stat_io", "true"),
    ("pg_stat_slru", "true"),
];

impl State for PostgresDialect {
    const FIGURES_OF_TABLES: &[&str] = &["pages", "index_pages", "visible_pages", "dead_rows"];

    /// Partitions are included.
    fn tables(connection: &mut PostgresConnection) -> Result<Vec<String>, Error> {
        column(
            connection,
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE n.nspname = current_schema() AND c.relkind = 'r' ORDER BY c.relname",
        )
    }

    fn count_work(connection: &mut PostgresConnection) -> Result<(), Error> {
        flush_statistics(connection)
    }

    /// None before version 15, whose figures are up to half a second old.
    fn counters(connection: &mut PostgresConnection) -> Result<Vec<(String, u64)>, Error> {
        if !boolean(connection, CAN_FLUSH)? {
            return Ok(Vec::new());
        }
        let names: Vec<String> = VIEWS.iter().map(|(name, _)| quoted_text(name)).collect();
        let known = column(
            connection,
            &format!(
                "SELECT relname FROM pg_class WHERE relnamespace = 'pg_catalog'::regnamespace \
                 AND relname IN ({})",
                names.join(", ")
            ),
        )?;
        let view = |(name, rows): &(&str, &str)| {
            format!(
                "SELECT '{name}.' || key, sum(value::numeric) \
                 FROM (SELECT * FROM pg_catalog.{name} WHERE {rows}) AS one, \
                 jsonb_each_text(to_jsonb(one)) \
                 WHERE value ~ '^[0-9]+$' AND key !~ 'id$' GROUP BY key"
            )
        };
        let views = VIEWS.iter().filter(|(name, _)| known.iter().any(|known| known == name));
        let views: Vec<String> = views.map(view).collect();
        Ok(numbers_by_name(connection.query(&views.join(" UNION ALL "))?))
    }

    fn plan(connection: &mut PostgresConnection, sql: &str) -> Result<Vec<String>, Error> {
        column(connection, &format!("EXPLAIN (COSTS OFF) {sql}"))
    }

    fn settle(connection: &mut PostgresConnection, settings: &ServerAccess) -> Result<(), Error> {
        flush_statistics(connection)?;
        if settings.is_private() {
            // The catalogues, too, so that autovacuum has nothing left to do. ANALYZE leaves dead rows
            // in two of them, which later reads would remove and write to the WAL, page by page. Version 10 accepts
            // one table per statement.
            connection.run("VACUUM (ANALYZE)")?;
            for table in ["pg_statistic", "pg_class"] {
                connection.run(&format!("VACUUM pg_catalog.{table}"))?;
            }
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
        wait_for_autovacuum(connection)?;
        if boolean(connection, MAY_CHECKPOINT)? {
            connection.run("CHECKPOINT")?;
        }
        Ok(())
    }

    /// Reads by index scans: a sequential scan of a large table uses only a few buffers of the cache.
    fn warm(connection: &mut PostgresConnection, tables: &[Table]) -> Result<(), Error> {
        connection.run(
            "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
             SET LOCAL max_parallel_workers_per_gather = 0",
        )?;
        let read = tables.iter().try_for_each(|table| {
            let name = &table.name;
            // All rows by the primary key, which is their physical order; then the other index.
            connection.run(&format!("SELECT sum(length(c)) FROM {name} WHERE id > 0"))?;
            connection.run(&format!("SELECT count(*) FROM {name} WHERE k >= 0"))
        });
        let ended = connection.run("COMMIT");
        read.and(ended)
    }

    /// Reads these tables by a scan of each index that starts with a column, or sequentially.
    fn warm_own(connection: &mut PostgresConnection, tables: &[String]) -> Result<(), Error> {
        connection.run(
            "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
             SET LOCAL enable_indexonlyscan = off; SET LOCAL max_parallel_workers_per_gather = 0",
        )?;
        let read = tables.iter().try_for_each(|table| {
            let name = quoted_name(table);
            let columns = format!(
                "SELECT DISTINCT a.attname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid \
                 JOIN pg_am m ON m.oid = c.relam AND m.amname = 'btree' \
                 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] \
                 WHERE i.indrelid = {}::regclass AND i.indpred IS NULL",
                quoted_text(&name)
            );
            let columns = column(connection, &columns)?;
            if columns.is_empty() {
                return connection.run(&format!("SELECT count(*) FROM {name}"));
            }
            columns.iter().try_for_each(|first| {
                let first = quoted_name(first);
                connection.run(&format!("SELECT count(*) FROM {name} WHERE {first} IS NOT NULL"))
            })
        });
        let ended = connection.run("COMMIT");
        read.and(ended)
    }

    fn state_snapshot(
        connection: &mut PostgresConnection,
        _: &ServerAccess,
        tables: &[String],
    ) -> Result<StateSnapshot, Error> {
        let mut sum = [0; 6];
        for table in tables {
            let [rows] =
                numbers(connection, &format!("SELECT count(*) FROM {}", quoted_name(table)))?;
            let relation = quoted_text(&quoted_name(table));
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
        if boolean(
            connection,
            "SELECT has_function_privilege('pg_control_checkpoint()', 'EXECUTE')",
        )? {
            let since = "SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), redo_lsn)::bigint \
                         FROM pg_control_checkpoint()";
            let [wal] = numbers(connection, since)?;
            state.push(("wal_bytes_since_checkpoint".to_owned(), wal));
        }
        Ok(StateSnapshot { rows, data_size: Bytes::from_bytes(bytes), state })
    }
}

/// Flushes this connection's statistics before the vacuum. The server would flush them up to ten
/// seconds later, and they would look like new changes and trigger autovacuum.
fn flush_statistics(connection: &mut PostgresConnection) -> Result<(), Error> {
    if boolean(connection, CAN_FLUSH)? {
        connection.run("SELECT pg_stat_force_next_flush()")?;
    }
    Ok(())
}

fn wait_for_autovacuum(connection: &mut PostgresConnection) -> Result<(), Error> {
    // Roles that may not see what others do see no types of processes. Nobody is logged in to these in this database.
    let running = "SELECT count(*) FROM pg_stat_activity \
                   WHERE datname = current_database() AND usesysid IS NULL \
                   AND coalesce(backend_type, 'autovacuum worker') = 'autovacuum worker'";
    wait_until_settled("waiting for autovacuum", TIMEOUT, || {
        let [workers] = numbers(connection, running)?;
        Ok((workers > 0).then(|| format!("{workers} workers still run")))
    })
}
