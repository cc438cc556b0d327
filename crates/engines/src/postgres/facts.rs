//! Build options and settings that a server reports.

use dbdyno_drivers::Error;
use dbdyno_drivers::postgres::PostgresConnection;

use super::{boolean, column};

/// Settings that can affect speed, without those that could contain a password, such as connection
/// strings.
const SETTINGS: [&str; 24] = [
    "autovacuum",
    "block_size",
    "checkpoint_timeout",
    "data_checksums",
    "debug_assertions",
    "default_transaction_isolation",
    "fsync",
    "full_page_writes",
    "huge_pages",
    "io_method",
    "jit",
    "max_connections",
    "max_parallel_workers_per_gather",
    "max_wal_size",
    "plan_cache_mode",
    "server_encoding",
    "shared_buffers",
    "shared_preload_libraries",
    "synchronous_commit",
    "track_io_timing",
    "wal_buffers",
    "wal_compression",
    "wal_level",
    "work_mem",
];

/// Build options, which superusers may read.
const BUILD: [&str; 4] = ["CC", "CFLAGS", "CONFIGURE", "LDFLAGS"];

pub(super) fn options(connection: &mut PostgresConnection) -> Result<Vec<String>, Error> {
    let mut options = column(connection, "SELECT version()")?;
    if boolean(connection, "SELECT has_table_privilege('pg_config', 'SELECT')")? {
        options.extend(column(
            connection,
            &format!(
                "SELECT name || ' = ' || setting FROM pg_config WHERE name IN ({}) ORDER BY name",
                list(&BUILD)
            ),
        )?);
    }
    // A version without a setting omits it.
    options.extend(column(
        connection,
        &format!(
            "SELECT name || ' = ' || current_setting(name) FROM pg_settings \
             WHERE name IN ({}) ORDER BY name",
            list(&SETTINGS)
        ),
    )?);
    options.extend(column(
        connection,
        "SELECT 'collation = ' || datcollate FROM pg_database WHERE datname = current_database()",
    )?);
    Ok(options)
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
