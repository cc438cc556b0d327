//! What MariaDB and MySQL have in common: names of settings, their configuration file, sizes of
//! caches, and how to reach a server.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_record::server::{Address, Durability, StatementMode, StorageEngine, Target, Tls};

use super::program::SettingsRequest;
use super::{DataShape, ServerDir, ServerPlan};

/// What the socket is called in its directory.
const SOCKET: &str = "s";

const MIB: u64 = 1 << 20;

/// What a row needs in InnoDB, its index entry and half-empty pages included: 250 bytes seen
/// after loading 200,000 rows with one byte per character; a row of MyRocks is smaller.
pub(crate) const ROW_BYTES: u64 = 250;

/// Connections beside the clients': settling and state snapshots, a control, a person who looks.
const SPARE_CONNECTIONS: u32 = 64;

/// Statements that a connection may have prepared per table at the same time; the longest
/// transaction has fewer.
const STATEMENTS_PER_TABLE: u64 = 64;

/// Settings that dbdyno itself makes, and others that lead a server to other files or to the
/// network.
pub(crate) const RESERVED: &[&str] = &[
    "basedir",
    "bind_address",
    "bootstrap",
    "chroot",
    "daemonize",
    "datadir",
    "default_storage_engine",
    "defaults_extra_file",
    "defaults_file",
    "defaults_group_suffix",
    "extra_port",
    "general_log_file",
    "init_file",
    "initialize",
    "initialize_insecure",
    "innodb_data_home_dir",
    "innodb_log_group_home_dir",
    "innodb_undo_directory",
    "log_error",
    "mysqlx",
    "mysqlx_bind_address",
    "mysqlx_port",
    "mysqlx_socket",
    "networking",
    "no_defaults",
    "pid_file",
    "plugin_dir",
    "plugin_load",
    "port",
    "rocksdb_datadir",
    "rocksdb_wal_dir",
    "secure_file_priv",
    "slow_query_log_file",
    "socket",
    "storage_engine",
    "tmpdir",
    "user",
];

/// Settings that shape the data on disk.
pub(crate) const SHAPES_DATA: &[&str] = &[
    "character_set_server",
    "collation_server",
    "innodb_checksum_algorithm",
    "innodb_compression_default",
    "innodb_data_file_path",
    "innodb_default_row_format",
    "innodb_encrypt_tables",
    "innodb_file_per_table",
    "innodb_page_size",
    "innodb_undo_tablespaces",
    "lower_case_table_names",
    "rocksdb_default_cf_options",
    "rocksdb_override_cf_options",
];

/// Settings of parts that a server can be compiled without: those that do not know them start, too.
const OF_SOME_BUILDS: [&str; 1] = ["performance_schema"];

/// A setting's name as the server understands it: `-` is `_`, capitals do not count, and a
/// beginning that fits one name stands for it. A name that the server would take for a reserved
/// one becomes that one.
pub(crate) fn normal_name(name: &str) -> String {
    let normal = name.to_ascii_lowercase().replace('-', "_");
    let mut stem = normal.as_str();
    for prefix in ["loose_", "skip_", "enable_", "disable_", "maximum_"] {
        stem = stem.strip_prefix(prefix).unwrap_or(stem);
    }
    match RESERVED.iter().find(|reserved| !stem.is_empty() && reserved.starts_with(stem)) {
        Some(reserved) => (*reserved).to_owned(),
        None => normal,
    }
}

/// The settings of both systems: a cache that holds the data, the same promises at commit and
/// the same view of data for both engines, limits that the clients fit in, and nothing that
/// works behind a measurement's back.
pub(crate) fn settings(request: &SettingsRequest<'_>) -> Vec<(String, String)> {
    let DataShape { tables, rows, clients } = request.shape;
    let connections = clients + SPARE_CONNECTIONS;
    let data = ROW_BYTES * rows * u64::from(tables);
    let mut settings = Settings::default();
    settings.add("max_connections", connections.max(151));
    settings.add("max_prepared_stmt_count", prepared_limit(tables, connections));
    settings.add("table_open_cache", table_cache(tables, connections));
    settings.add("performance_schema", "OFF");
    // The default of both systems, and MyRocks has it too: a snapshot per transaction.
    settings.add("transaction_isolation", "REPEATABLE-READ");
    let sync = match request.durability {
        // Written at commit, brought to storage once a second.
        Durability::Relaxed => 2,
        Durability::Strict => 1,
    };
    let innodb_is_used = request.engine != Some(StorageEngine::MyRocks);
    settings.add("innodb_flush_log_at_trx_commit", sync);
    if innodb_is_used {
        settings.add("innodb_buffer_pool_size", megabytes(data + data / 2 + 128 * MIB, 128));
        settings.add("innodb_io_capacity", 2000);
        settings.add("innodb_io_capacity_max", 4000);
    } else {
        // Only the server's own tables are in InnoDB.
        settings.add("innodb_buffer_pool_size", "64M");
        settings.add("rocksdb_block_cache_size", megabytes(data + data / 2 + 128 * MIB, 128));
        settings.add("rocksdb_flush_log_at_trx_commit", sync);
        // Writes beyond this stop until it is written out.
        settings.add("rocksdb_max_background_jobs", 4);
        settings.add("rocksdb_max_open_files", -1);
        settings.add("rocksdb_default_cf_options", COLUMN_FAMILY);
    }
    // Else a start reads pages in the background for as long as it takes.
    settings.add("innodb_buffer_pool_dump_at_shutdown", "OFF");
    settings.add("innodb_buffer_pool_load_at_startup", "OFF");
    settings.0
}

/// How MyRocks keeps its rows: as its makers recommend for data that is read by key. The server's
/// defaults have no Bloom filters, and levels whose size depends on the load's history.
const COLUMN_FAMILY: &str = "write_buffer_size=64m;target_file_size_base=64m;\
    max_bytes_for_level_base=256m;level0_file_num_compaction_trigger=4;\
    level_compaction_dynamic_level_bytes=true;optimize_filters_for_hits=true;\
    compaction_pri=kMinOverlappingRatio;compression=kLZ4Compression;\
    block_based_table_factory={cache_index_and_filter_blocks=1;\
    filter_policy=bloomfilter:10:false;whole_key_filtering=1}";

/// The size of all redo log together: so large that writing does not wait for it.
pub(crate) fn redo_log_size(shape: DataShape) -> String {
    redo_log_part(shape, 1)
}

/// The same in bytes.
pub(crate) fn redo_log_bytes(shape: DataShape) -> u64 {
    let data = ROW_BYTES * shape.rows * u64::from(shape.tables);
    data.clamp(256 * MIB, 4096 * MIB)
}

/// The size of each of so many files that the redo log consists of.
pub(crate) fn redo_log_part(shape: DataShape, files: u64) -> String {
    megabytes(redo_log_bytes(shape) / files, 64)
}

fn prepared_limit(tables: u32, connections: u32) -> u64 {
    let wanted = STATEMENTS_PER_TABLE * u64::from(tables) * u64::from(connections);
    // The server's own default and upper limit.
    wanted.clamp(16_382, 1_048_576)
}

fn table_cache(tables: u32, connections: u32) -> u64 {
    (u64::from(tables) * u64::from(connections) + 400).clamp(2_000, 100_000)
}

/// In megabytes, rounded up to a multiple of `step` of them, as configuration files have it.
fn megabytes(bytes: u64, step: u64) -> String {
    format!("{}M", bytes.div_ceil(step * MIB) * step)
}

/// A list of settings being made.
#[derive(Default)]
pub(crate) struct Settings(pub(crate) Vec<(String, String)>);

impl Settings {
    pub(crate) fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }
}

/// The numbers at the start of a version, such as 10 and 11 of `10.11.19-MariaDB`.
pub(crate) fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The version in what `--version` prints: the word after `Ver`.
pub(crate) fn version_word(printed: &str) -> Option<&str> {
    let mut words = printed.split_whitespace();
    words.find(|word| *word == "Ver")?;
    words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

/// The configuration file for a server in this server_dir. `fixed` are settings that are not shown,
/// the system's own beside those for files, socket and network.
pub(crate) fn config(
    plan: &ServerPlan,
    server_dir: &ServerDir,
    fixed: &[(&str, String)],
) -> String {
    let mut lines = vec!["# Written by dbdyno at each start of the server.".to_owned()];
    lines.push("[mysqld]".to_owned());
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut line = |name: &str, value: &str| lines.push(format!("{name} = {}", quoted(value)));
    line("datadir", &path(&server_dir.data()));
    line("tmpdir", &path(&server_dir.temporary()));
    line("socket", &path(&socket(server_dir)));
    line("pid_file", &path(&server_dir.data().join("server.pid")));
    line("skip_networking", "ON");
    line("skip_name_resolve", "ON");
    for (name, value) in fixed {
        line(name, value);
    }
    for (name, value) in plan.settings() {
        let loose = if OF_SOME_BUILDS.contains(&name.as_str()) { "loose_" } else { "" };
        line(&format!("{loose}{name}"), value);
    }
    lines.push(String::new());
    lines.join("\n")
}

/// The same for a server that only makes its data directory: the system's tables are not MyRocks',
/// and nobody knows its settings then.
pub(crate) fn bare_config(
    plan: &ServerPlan,
    server_dir: &ServerDir,
    fixed: &[(&str, String)],
) -> String {
    let config = config(plan, server_dir, fixed);
    let lines = config.lines().filter(|line| !line.starts_with("rocksdb_"));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Where the program's package or build was installed: `/usr` of `/usr/sbin/mariadbd`.
pub(crate) fn base_directory(program: &Path) -> PathBuf {
    program.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}

/// An option with a path as its value, which need not be UTF-8.
pub(crate) fn option(name: &str, value: impl AsRef<Path>) -> OsString {
    let mut option = OsString::from(name);
    option.push(value.as_ref());
    option
}

/// A value in quotes, so that nothing in it ends it or starts a comment.
fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn socket(server_dir: &ServerDir) -> PathBuf {
    server_dir.sockets().join(SOCKET)
}

/// How to reach the server in this server_dir.
pub(crate) fn target(server_dir: &ServerDir) -> Target {
    Target {
        address: Address::Socket(socket(server_dir)),
        user: "root".to_owned(),
        database: None,
        tls: Tls::Off,
        password: false,
    }
}

/// Whether the server lets us in. It listens before it can do anything, and answers only when it
/// can: the driver waits for that, up to its own limit.
pub(crate) fn is_ready(target: &Target) -> bool {
    MySqlConnection::connect(target, StatementMode::Text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_the_server_takes_them() {
        assert_eq!(normal_name("Max-Connections"), "max_connections");
        for name in ["datadir", "DataDir", "datad", "loose-datadir", "skip-networking"] {
            assert!(RESERVED.contains(&normal_name(name).as_str()), "{name}");
        }
        for name in ["innodb_flush_method", "port_open_timeout", "skip_log_bin", "userstat"] {
            assert!(!RESERVED.contains(&normal_name(name).as_str()), "{name}");
        }
    }

    #[test]
    fn reads_versions() {
        let debian = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert_eq!(version_word(debian), Some("10.11.19-MariaDB-0+deb12u1"));
        assert_eq!(numbers("10.11.19-MariaDB-0+deb12u1"), (10, 11, 19));
        assert_eq!(numbers("8.4"), (8, 4, 0));
        assert_eq!(version_word("something else"), None);
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(1, 128), "128M");
        assert_eq!(megabytes(128 * MIB, 128), "128M");
        assert_eq!(megabytes(128 * MIB + 1, 128), "256M");
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        assert_eq!(redo_log_size(shape), "4096M");
        assert_eq!(redo_log_size(DataShape { rows: 2_000, ..shape }), "256M");
    }

    #[test]
    fn values_cannot_leave_their_line() {
        assert_eq!(quoted("a#b"), "\"a#b\"");
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
