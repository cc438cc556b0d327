//! Build options and settings that a server reports.

use dbdyno_drivers::postgres::PostgresConnection;
use dbdyno_drivers::{Connection, Error};

use super::boolean;
use crate::pairs;

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

/// How the server was built, the settings of [`SETTINGS`], then all others that are no text, by name.
/// Texts are names of files and servers, and may contain passwords. `shared_memory_size` follows from
/// other settings.
pub(super) fn options(connection: &mut PostgresConnection) -> Result<Vec<(String, String)>, Error> {
    let mut options = query_pairs(connection, "SELECT 'build', version()")?;
    if boolean(connection, "SELECT has_table_privilege('pg_config', 'SELECT')")? {
        options.extend(query_pairs(
            connection,
            &format!(
                "SELECT name, setting FROM pg_config WHERE name IN ({}) ORDER BY name",
                list(&BUILD)
            ),
        )?);
    }
    options.extend(query_pairs(
        connection,
        "SELECT 'collation', datcollate FROM pg_database WHERE datname = current_database()",
    )?);
    // A version without a setting omits it.
    let known = list(&SETTINGS);
    options.extend(query_pairs(
        connection,
        &format!(
            "SELECT name, current_setting(name) FROM pg_settings \
             WHERE name IN ({known}) OR (vartype <> 'string' AND name <> 'port' \
             AND name NOT LIKE 'shared_memory_size%') \
             ORDER BY name NOT IN ({known}), name"
        ),
    )?);
    Ok(options)
}

/// The rows of a query that returns names and values.
fn query_pairs(
    connection: &mut PostgresConnection,
    sql: &str,
) -> Result<Vec<(String, String)>, Error> {
    Ok(pairs(connection.query(sql)?).collect())
}

fn list(names: &[&str]) -> String {
    names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ")
}
