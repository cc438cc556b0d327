//! PostgreSQL's settings and the file that they are written into.

use std::path::Path;

use dbdyno_record::server::Durability;

use super::DataShape;
use super::program::SettingsRequest;

const MIB: u64 = 1 << 20;

/// What a row needs, its two index entries included: 264 bytes seen after loading 200,000 rows.
pub(crate) const ROW_BYTES: u64 = 270;

/// Connections beside the clients': settling and state snapshots, a control, a person who looks, and
/// those that PostgreSQL keeps for superusers.
const SPARE_CONNECTIONS: u32 = 64;

/// Not a setting of the running server but of its data directory.
pub(crate) const CHECKSUMS: &str = "data_checksums";

/// Settings that dbdyno itself makes, and others that lead a server to other files, its messages
/// to another log, or to the network.
pub(crate) const RESERVED: &[&str] = &[
    "bonjour",
    "config_file",
    "data_directory",
    "dynamic_shared_memory_type",
    "event_source",
    "external_pid_file",
    "hba_file",
    "ident_file",
    "include",
    "include_dir",
    "include_if_exists",
    "listen_addresses",
    "log_destination",
    "log_directory",
    "log_filename",
    "logging_collector",
    "port",
    "stats_temp_directory",
    "temp_tablespaces",
    "unix_socket_directories",
    "unix_socket_group",
    "unix_socket_permissions",
];

/// Settings for data in memory whose cost is the CPU's, comparable with another server's.
pub(crate) fn settings(request: &SettingsRequest<'_>) -> Vec<(String, String)> {
    let DataShape { tables, rows, clients } = request.shape;
    let data = ROW_BYTES * rows * u64::from(tables);
    // Updates leave the old versions of rows behind until they are vacuumed.
    let buffers = 2 * data + 128 * MIB;
    let mut settings = Vec::new();
    let mut add = |name: &str, value: String| settings.push((name.to_owned(), value));
    add("max_connections", (clients + SPARE_CONNECTIONS).max(100).to_string());
    add("shared_buffers", megabytes(buffers));
    // The same for all instances: with `try` the first one would get the huge pages that are
    // there, and the others none.
    add("huge_pages", "off".to_owned());
    add("effective_cache_size", megabytes(buffers + buffers / 2));
    // A commit that survives the server's death and not a power cut has been handed to the kernel
    // and is not waited for: that is fsync = off with synchronous_commit = on. The obvious
    // synchronous_commit = off would promise less, as commits of the last moments die with the
    // server, and would leave work to another process. What it costs: after a power cut the data
    // may be broken, where InnoDB and MyRocks only lose the last commits.
    let fsync = match request.durability {
        Durability::Relaxed => "off",
        Durability::Strict => "on",
    };
    add("fsync", fsync.to_owned());
    add("synchronous_commit", "on".to_owned());
    add("full_page_writes", "on".to_owned());
    add(CHECKSUMS, "off".to_owned());
    // Checkpoints by time, not because a log is full, and rarely: before each microbenchmark that
    // needs it, dbdyno orders one.
    add("max_wal_size", megabytes(wal_size(request.shape)));
    add("checkpoint_timeout", "30min".to_owned());
    add("default_transaction_isolation", "read committed".to_owned());
    // One CPU per query, as in the other systems.
    add("max_parallel_workers_per_gather", "0".to_owned());
    // Compiling a query takes longer than most of these queries.
    add("jit", "off".to_owned());
    add("autovacuum", "on".to_owned());
    // A server that lost a process has died: it must not come back behind dbdyno's back.
    add("restart_after_crash", "off".to_owned());
    add("log_checkpoints", "on".to_owned());
    add("log_timezone", "UTC".to_owned());
    add("timezone", "UTC".to_owned());
    settings
}

/// What the write-ahead log may grow to between checkpoints, in bytes.
pub(crate) fn wal_size(shape: DataShape) -> u64 {
    let data = ROW_BYTES * shape.rows * u64::from(shape.tables);
    (2 * data).clamp(1024 * MIB, 8192 * MIB)
}

/// The configuration file.
pub(crate) fn text(settings: &[(&str, String)]) -> String {
    let mut text = "# Written by dbdyno at each start of the server.\n".to_owned();
    for (name, value) in settings {
        text.push_str(&format!("{name} = '{}'\n", quoted(value)));
    }
    text
}

/// A directory as one entry of a list of them.
pub(crate) fn directory(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', "\"\""))
}

/// What stands between the quotes.
fn quoted(value: &str) -> String {
    value.replace('\\', "\\\\").replace('\'', "''")
}

fn megabytes(bytes: u64) -> String {
    format!("{}MB", bytes.div_ceil(64 * MIB) * 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted() {
        let settings = [("search_path", "\"a'b\"".to_owned()), ("x.y", "c\\d".to_owned())];
        let expected = "# Written by dbdyno at each start of the server.\n\
                        search_path = '\"a''b\"'\nx.y = 'c\\\\d'\n";
        assert_eq!(text(&settings), expected);
        assert_eq!(directory(Path::new("/a, \"b\"")), "\"/a, \"\"b\"\"\"");
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(1), "64MB");
        assert_eq!(megabytes(64 * MIB), "64MB");
        assert_eq!(megabytes(64 * MIB + 1), "128MB");
    }
}
