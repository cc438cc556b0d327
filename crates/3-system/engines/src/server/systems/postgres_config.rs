//! PostgreSQL's default settings and its configuration file.

use std::path::Path;

use dbdyno_types::server::Durability;

use super::super::plan::SettingsRequest;
use super::super::{DataShape, Network};

const MIB: u64 = 1 << 20;

/// Bytes per row with its two index entries: 264 measured after loading 200,000 rows.
pub(crate) const ROW_BYTES: u64 = 270;

/// Connections in addition to the clients': for settling and snapshots, for the control, for users, and
/// those that PostgreSQL reserves for superusers.
const SPARE_CONNECTIONS: u32 = 64;

/// A property of the data directory, not a setting of the server.
pub(crate) const CHECKSUMS: &str = "data_checksums";

/// Settings that dbdyno sets itself, and others that change paths, the log or network access.
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

/// Default settings: the data fits in memory, and costs are comparable with other systems'.
pub(crate) fn settings(request: &SettingsRequest<'_>) -> Vec<(String, String)> {
    // Updates leave old row versions until they are vacuumed.
    let buffers = 2 * request.shape.data_bytes(ROW_BYTES) + 128 * MIB;
    let mut settings = Vec::new();
    let mut add = |name: &str, value: String| settings.push((name.to_owned(), value));
    add("max_connections", (request.shape.clients + SPARE_CONNECTIONS).max(100).to_string());
    add("shared_buffers", megabytes(buffers));
    // With `try` the first instance would get all available huge pages and the others none.
    add("huge_pages", "off".to_owned());
    add("effective_cache_size", megabytes(buffers + buffers / 2));
    // Relaxed durability means that a commit survives a crash of the server but not a power cut: it
    // is written to the kernel without waiting for storage. That is fsync = off with
    // synchronous_commit = on. synchronous_commit = off would promise less (a crash of the server
    // loses the last commits) and would move work to another process. The price: a power cut may
    // corrupt the data, while InnoDB and MyRocks lose only the last commits.
    let fsync = match request.durability {
        Durability::Relaxed => "off",
        Durability::Strict => "on",
    };
    add("fsync", fsync.to_owned());
    add("synchronous_commit", "on".to_owned());
    add("full_page_writes", "on".to_owned());
    add(CHECKSUMS, "off".to_owned());
    // Checkpoints by time only, and rarely: dbdyno runs one before each microbenchmark that needs it.
    add("max_wal_size", megabytes(wal_size(request.shape)));
    add("checkpoint_timeout", "30min".to_owned());
    add("default_transaction_isolation", "read committed".to_owned());
    // One CPU per query, like the other systems.
    add("max_parallel_workers_per_gather", "0".to_owned());
    // Compilation takes longer than most of these queries.
    add("jit", "off".to_owned());
    add("autovacuum", "on".to_owned());
    // A crash must be noticed as such: the server must not restart by itself.
    add("restart_after_crash", "off".to_owned());
    add("log_checkpoints", "on".to_owned());
    add("log_timezone", "UTC".to_owned());
    add("timezone", "UTC".to_owned());
    settings
}

/// Maximum size of the write-ahead log between checkpoints, in bytes.
pub(crate) fn wal_size(shape: DataShape) -> u64 {
    (2 * shape.data_bytes(ROW_BYTES)).clamp(1024 * MIB, 8192 * MIB)
}

/// The text of the configuration file.
pub(crate) fn text(settings: &[(&str, String)]) -> String {
    let mut text = "# Written by dbdyno at each start of the server.\n".to_owned();
    for (name, value) in settings {
        text.push_str(&format!("{name} = '{}'\n", escape(value)));
    }
    text
}

/// The access rules of a server on the network: through the socket, whose directory is private, as any
/// role; from the client as `role`, with a password, and with TLS if the network has it.
pub(crate) fn network_access(role: &str, network: &Network) -> String {
    let Network { client, tls, .. } = network;
    let host = if *tls { "hostssl" } else { "host" };
    let bits = if client.is_ipv4() { 32 } else { 128 };
    format!(
        "# Written by dbdyno at each start of the server.\n\
         local all all trust\n\
         {host} all {role} {client}/{bits} scram-sha-256\n"
    )
}

/// A directory as an entry of a list.
pub(crate) fn directory(path: &Path) -> String {
    format!("\"{}\"", path.display().to_string().replace('"', "\"\""))
}

/// Escapes a value for single quotes.
fn escape(value: &str) -> String {
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
    fn network_access_is_for_one_address_with_a_password() {
        let rules = |client: &str, tls: bool| {
            let client = client.parse().unwrap();
            let verifier = String::new();
            network_access("dbdyno", &Network { address: client, port: 1, client, verifier, tls })
        };
        let expected = "# Written by dbdyno at each start of the server.\nlocal all all trust\n\
                        host all dbdyno 10.0.0.1/32 scram-sha-256\n";
        assert_eq!(rules("10.0.0.1", false), expected);
        let encrypted = rules("fd00::1", true);
        assert!(encrypted.ends_with("\nhostssl all dbdyno fd00::1/128 scram-sha-256\n"));
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(1), "64MB");
        assert_eq!(megabytes(64 * MIB), "64MB");
        assert_eq!(megabytes(64 * MIB + 1), "128MB");
    }
}
