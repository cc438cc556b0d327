//! Common to MariaDB and MySQL: setting names, configuration file, default settings, and the
//! server's address.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use dbdyno_drivers::Connection;
use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_machine::Signal;
use dbdyno_types::server::{Address, Durability, StatementMode, StorageEngine, Target, Tls};
use dbdyno_types::settings::mysql_canonical_name;

use super::super::access::{ACCOUNT, ServerCertificate};
use super::super::installation::ProgramFiles;
use super::super::plan::{
    CHARACTERS, CHECKSUMS, DiskRequest, ISOLATION, Property, SettingsRequest, TORN_PAGES,
    durability_of,
};
use super::super::systems::{Cache, ProgramFacts, ReleaseFolders};
use super::super::{DataShape, Installation, Network, ServerDir, ServerError, ServerPlan};
use super::write_config;
use crate::mysql::session;
use crate::server_engine::Purpose;

const SOCKET: &str = "s";

const MIB: u64 = 1 << 20;

/// Bytes per row in InnoDB with its index entry and half-empty pages: 250 measured after loading
/// 200,000 rows with one byte per character. A row in MyRocks is smaller.
const ROW_BYTES: u64 = 250;

/// Connections in addition to the clients': for settling and snapshots, for the control, for users.
const SPARE_CONNECTIONS: u32 = 64;

/// The number of tables that the cache of open tables has room for, if scripts may create more than dbdyno.
const MOST_TABLES: u32 = 200;

/// The plugin file of MyRocks; in some of MySQL's forks, MyRocks is built in.
pub(crate) const MYROCKS_PLUGIN: &str = "ha_rocksdb.so";

const fn cache(name: &'static str, engines: &'static [Option<StorageEngine>]) -> Cache {
    Cache { name, unit: 1.0, engines, is_allocated: true }
}

/// The constants of both systems, without names and package.
pub(crate) const FACTS: ProgramFacts = ProgramFacts {
    names: &[],
    package: "",
    user: "mysql",
    format_settings: FORMAT_SETTINGS,
    // The servers' defaults.
    needed: &[("max_connections", 151.0), ("max_prepared_stmt_count", 16_382.0)],
    notable: &[
        "innodb_flush_log_at_trx_commit",
        "rocksdb_flush_log_at_trx_commit",
        "innodb_buffer_pool_size",
        "rocksdb_block_cache_size",
        "innodb_log_file_size",
        "innodb_redo_log_capacity",
        "innodb_io_capacity",
        "performance_schema",
        "skip_log_bin",
    ],
    caches: &[
        cache("innodb_buffer_pool_size", &[Some(StorageEngine::InnoDb)]),
        cache("rocksdb_block_cache_size", &[Some(StorageEngine::MyRocks)]),
        cache("key_buffer_size", &[]),
    ],
    groups: &[
        &["character_set_server", "collation_server"],
        &["innodb_io_capacity", "innodb_io_capacity_max"],
        &["innodb_log_file_size", "innodb_log_files_in_group", "innodb_redo_log_capacity"],
        &["query_cache_size", "query_cache_type"],
    ],
    releases: ReleaseFolders {
        names: &["mysql"],
        prefixes: &["mysql-"],
        packages: &[],
        sandboxes: true,
    },
    not_beside: None,
    processes: &["mariadbd", "mysqld"],
    database: None,
    stop_signal: Signal::TERM,
    death_signal: Signal::KILL,
    public_key: None,
    search_dirs,
    canonical_name: mysql_canonical_name,
    properties: |plan| {
        let is_old = version_numbers(&plan.installation.version) < (10, 5, 0);
        properties(plan, if is_old { "crc32" } else { "full_crc32" })
    },
    target,
    is_ready,
};

/// Settings that affect the format of data on disk, the shape of indexes when they are created, or statistics, which are
/// made when the data is loaded.
const FORMAT_SETTINGS: &[&str] = &[
    "character_set_server",
    "collation_server",
    "default_table_encryption",
    "histogram_size",
    "histogram_type",
    "innodb_checksum_algorithm",
    "innodb_compression_algorithm",
    "innodb_compression_default",
    "innodb_compression_level",
    "innodb_data_file_path",
    "innodb_default_row_format",
    "innodb_encrypt_tables",
    "innodb_file_per_table",
    "innodb_fill_factor",
    "innodb_page_size",
    "innodb_stats_method",
    "innodb_stats_persistent",
    "innodb_stats_persistent_sample_pages",
    "innodb_undo_tablespaces",
    "lower_case_table_names",
    "rocksdb_block_restart_interval",
    "rocksdb_block_size",
    "rocksdb_block_size_deviation",
    "rocksdb_default_cf_options",
    "rocksdb_index_type",
    "sql_generate_invisible_primary_key",
    "rocksdb_override_cf_options",
    "rocksdb_table_stats_sampling_pct",
    "use_stat_tables",
];

/// Settings of optional components: written with the prefix `loose_`, so that a server compiled
/// without the component starts.
const OPTIONAL_SETTINGS: [&str; 2] = ["performance_schema", MANUAL_WAL_FLUSH];

/// Whether RocksDB keeps its log in the process until it is told to write it. MariaDB does that once per second, so that with
/// the value 2 of `rocksdb_flush_log_at_trx_commit` commits of a second are lost if the server is killed. InnoDB's value 2 writes
/// the log at commit, as MyRocks without this setting.
const MANUAL_WAL_FLUSH: &str = "rocksdb_manual_wal_flush";

/// Settings that take no value, or for which `ON` would be the name of a file.
const WITHOUT_VALUE: [&str; 4] = ["core_file", "log_bin", "log_slow_query", "skip_host_cache"];

/// Default settings of both systems: a cache larger than the data, the same durability and isolation
/// for both engines, limits that suffice for the clients, and no unexpected background work.
///
/// `most_prepared` is the largest value of `max_prepared_stmt_count`.
pub(crate) fn settings(request: &SettingsRequest<'_>, most_prepared: u64) -> Vec<(String, String)> {
    let DataShape { tables, clients, .. } = request.shape;
    let connections = clients + SPARE_CONNECTIONS;
    let data = request.shape.data_bytes(ROW_BYTES);
    let mut settings = SettingsList::default();
    settings.add("max_connections", connections.max(151));
    // It only limits, and scripts may prepare any number for each client and table.
    settings.add("max_prepared_stmt_count", most_prepared);
    settings.add("table_open_cache", table_cache(tables.max(MOST_TABLES), connections));
    settings.add("performance_schema", "OFF");
    // The default of both systems, which MyRocks supports, too: a snapshot per transaction.
    settings.add("transaction_isolation", "REPEATABLE-READ");
    let sync = match request.durability {
        // Written at commit, synced once per second.
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
        // InnoDB has only the system tables.
        settings.add("innodb_buffer_pool_size", "64M");
        settings.add("rocksdb_block_cache_size", megabytes(data + data / 2 + 128 * MIB, 128));
        settings.add("rocksdb_flush_log_at_trx_commit", sync);
        settings.add(MANUAL_WAL_FLUSH, "OFF");
        settings.add("rocksdb_max_background_jobs", 4);
        settings.add("rocksdb_max_open_files", -1);
        settings.add("rocksdb_default_cf_options", COLUMN_FAMILY);
    }
    // Otherwise a start reads pages in the background for an unknown time.
    settings.add("innodb_buffer_pool_dump_at_shutdown", "OFF");
    settings.add("innodb_buffer_pool_load_at_startup", "OFF");
    settings.0
}

/// MyRocks' column family options, as recommended by its developers for reads by key. The server's
/// defaults have no Bloom filters, and level sizes that depend on how the data was loaded.
const COLUMN_FAMILY: &str = "write_buffer_size=64m;target_file_size_base=64m;\
    max_bytes_for_level_base=256m;level0_file_num_compaction_trigger=4;\
    level_compaction_dynamic_level_bytes=true;optimize_filters_for_hits=true;\
    compaction_pri=kMinOverlappingRatio;compression=kLZ4Compression;\
    block_based_table_factory={cache_index_and_filter_blocks=1;\
    filter_policy=bloomfilter:10:false;whole_key_filtering=1}";

/// Size of the redo log, large enough that writes do not wait for checkpoints.
fn redo_log_bytes(shape: DataShape) -> u64 {
    shape.data_bytes(ROW_BYTES).clamp(256 * MIB, 4096 * MIB)
}

/// The size of each file of a redo log of so many files.
pub(crate) fn redo_log_part(shape: DataShape, files: u64) -> String {
    megabytes(redo_log_bytes(shape) / files, 64)
}

/// The maximum of `table_open_cache` in MySQL; MariaDB's is larger. A server lowers it to the files that it may open.
const MOST_OPEN: u64 = 524_288;

fn table_cache(tables: u32, connections: u32) -> u64 {
    (u64::from(tables) * u64::from(connections) + 400).clamp(2_000, MOST_OPEN)
}

/// A size for a configuration file, rounded up to a multiple of `step` megabytes.
fn megabytes(bytes: u64, step: u64) -> String {
    format!("{}M", bytes.div_ceil(step * MIB) * step)
}

#[derive(Default)]
pub(crate) struct SettingsList(pub(crate) Vec<(String, String)>);

impl SettingsList {
    pub(crate) fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    /// Adds the server's default, set explicitly because it depends on the version and affects the
    /// speed of comparing and sorting.
    pub(crate) fn add_charset(&mut self, charset: &str, collation: &str) {
        self.add("character_set_server", charset);
        self.add("collation_server", collation);
    }
}

/// The character set; `None` if it is the server's default.
fn characters(plan: &ServerPlan) -> Option<&str> {
    plan.setting("character_set_server").or_else(|| {
        // A collation starts with the name of its character set, except those of Unicode in MariaDB.
        let of_collation = plan.setting("collation_server")?.split('_').next()?;
        Some(if of_collation.starts_with("uca") { "utf8mb4" } else { of_collation })
    })
}

/// See [`ProgramFacts::properties`]. `checksum` is the default algorithm of checksums of pages.
pub(crate) fn properties(plan: &ServerPlan, checksum: &str) -> Vec<Property> {
    let (checksums, torn_pages) = match plan.engine() {
        Some(StorageEngine::MyRocks) => {
            ("CRC-32C of blocks".to_owned(), "none needed: files are never rewritten".to_owned())
        }
        _ => (
            plan.setting_or("innodb_checksum_algorithm", checksum),
            format!("innodb_doublewrite = {}", plan.setting_or("innodb_doublewrite", "ON")),
        ),
    };
    let at_commit = match plan.engine() {
        Some(StorageEngine::MyRocks) => "rocksdb_flush_log_at_trx_commit",
        _ => "innodb_flush_log_at_trx_commit",
    };
    vec![
        durability_of(&[(at_commit, plan.setting_or(at_commit, "1"), ["2", "1"])]),
        (CHARACTERS, characters(plan).unwrap_or("the server's default").to_owned()),
        (CHECKSUMS, checksums),
        (TORN_PAGES, torn_pages),
        (ISOLATION, plan.setting_or("transaction_isolation", "REPEATABLE-READ")),
    ]
}

/// InnoDB's default redo log, for a server whose InnoDB has only system tables.
const DEFAULT_REDO_LOG: u64 = 96 * MIB;

/// Upper limit for logs of memtables that are not flushed yet, and for files that compaction writes
/// before it removes the replaced ones.
const ROCKSDB_MAX_LOG: u64 = 256 * MIB;

/// The bytes of tables and of logs on disk. By default InnoDB's redo log has `files` files.
pub(crate) fn disk(request: &DiskRequest<'_>, files: u64) -> (u64, u64) {
    let tables = request.shape.data_bytes(ROW_BYTES);
    let own = |name| request.own_size(name, mysql_canonical_name, 1.0);
    let files = own("innodb_log_files_in_group").unwrap_or(files);
    let log = own("innodb_redo_log_capacity")
        .or_else(|| Some(own("innodb_log_file_size")?.saturating_mul(files)));
    let logs = match request.engine {
        Some(StorageEngine::MyRocks) => {
            let rocksdb = (tables + request.logged()).min(ROCKSDB_MAX_LOG);
            log.unwrap_or(DEFAULT_REDO_LOG) + rocksdb
        }
        _ => log.unwrap_or_else(|| redo_log_bytes(request.shape)),
    };
    (tables, logs)
}

/// Major, minor and patch number of a version such as `10.11.19-MariaDB`; 0 for missing ones.
pub(crate) fn version_numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// The version in the output of `--version`: the word after `Ver`.
pub(crate) fn version_word(printed: &str) -> Option<&str> {
    let mut words = printed.split_whitespace();
    words.find(|word| *word == "Ver")?;
    words.next().filter(|word| word.starts_with(|c: char| c.is_ascii_digit()))
}

fn search_dirs() -> Vec<PathBuf> {
    ["/usr/sbin", "/usr/local/sbin", "/usr/local/mysql/bin", "/usr/libexec"]
        .map(PathBuf::from)
        .to_vec()
}

/// Settings for the directories of the installation, which are not shown to the user.
pub(crate) fn install_dirs(plan: &ServerPlan) -> Vec<(&'static str, String)> {
    let base = base_dir(&plan.installation.program);
    let mut dirs = vec![("basedir", base.to_string_lossy().into_owned())];
    if let Some(plugin_dir) = &plan.installation.files.plugin_dir {
        dirs.push(("plugin_dir", plugin_dir.to_string_lossy().into_owned()));
    }
    // The paths that are compiled in are those of another installation if this one was unpacked
    // elsewhere.
    let shares = ["share/mysql", "share/mariadb", "share"].map(|inner| base.join(inner));
    if let Some(share) = shares.iter().find(|share| share.join("charsets").is_dir()) {
        let charsets = share.join("charsets");
        dirs.push(("character_sets_dir", charsets.to_string_lossy().into_owned()));
        if share.join("english/errmsg.sys").is_file() {
            dirs.push(("lc_messages_dir", share.to_string_lossy().into_owned()));
        }
    }
    dirs
}

/// Refuses a version before the oldest one with `feature` for servers on hosts.
pub(crate) fn check_network(
    plan: &ServerPlan,
    oldest: (u32, u32, u32),
    feature: &str,
) -> Result<(), ServerError> {
    let Installation { system, version, .. } = &plan.installation;
    if version_numbers(version) >= oldest {
        return Ok(());
    }
    let (major, minor, patch) = oldest;
    let reason = format!(
        "{} {version} has no {feature}; one comes with {major}.{minor}.{patch}",
        system.title()
    );
    Err(ServerError::setting("host", reason))
}

/// Removes all accounts that can log in over a network, and creates the one for it: `login` are words between
/// `IDENTIFIED` and the verifier.
pub(crate) fn admit(
    target: &Target,
    network: &Network,
    login: &str,
) -> Result<(), dbdyno_drivers::Error> {
    let mut connection = MySqlConnection::connect(target, StatementMode::Text)?;
    session::set_up(&mut connection, Purpose::Administer)?;
    let others = "SELECT QUOTE(User), QUOTE(Host) FROM mysql.user WHERE Host <> 'localhost'";
    for account in connection.query(others)? {
        if let [Some(user), Some(host)] = &account[..] {
            connection.run(&format!("DROP USER {user}@{host}"))?;
        }
    }
    let Network { client, verifier, tls, .. } = network;
    let (account, tls) =
        (format!("'{ACCOUNT}'@'{client}'"), if *tls { " REQUIRE SSL" } else { "" });
    connection.run(&format!("CREATE USER {account} IDENTIFIED {login} '{verifier}'{tls}"))?;
    connection.run(&format!("GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION"))
}

/// Whether MyRocks is there as a plugin.
pub(crate) fn has_plugin(files: &ProgramFiles) -> bool {
    files.plugin_dir.as_ref().is_some_and(|directory| directory.join(MYROCKS_PLUGIN).is_file())
}

/// Writes the configuration file; returns the command that starts the server.
pub(crate) fn command(
    plan: &ServerPlan,
    server_dir: &ServerDir,
    fixed: &[(&str, String)],
    network: Option<&Network>,
    certificate: Option<&ServerCertificate>,
) -> Result<Command, ServerError> {
    let file = server_dir.path().join("my.cnf");
    let mut text = config(plan, server_dir, fixed, network);
    if let Some(ServerCertificate { certificate, key, .. }) = certificate {
        // Last, so that no setting of the user replaces it.
        for (name, path) in [("ssl_cert", certificate), ("ssl_key", key)] {
            text.push_str(&format!("{name} = {}\n", quote(&path.to_string_lossy())));
        }
    }
    write_config(&file, &text)?;
    let mut command = Command::new(&plan.installation.program);
    command.arg(option("--defaults-file=", &file));
    Ok(command)
}

/// The configuration file of a server. `fixed` are settings that are not shown to the user.
fn config(
    plan: &ServerPlan,
    server_dir: &ServerDir,
    fixed: &[(&str, String)],
    network: Option<&Network>,
) -> String {
    let mut lines = vec!["# Written by dbdyno at each start of the server.".to_owned()];
    lines.push("[mysqld]".to_owned());
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut line = |name: &str, value: &str| lines.push(format!("{name} = {}", quote(value)));
    line("datadir", &path(&server_dir.data()));
    line("tmpdir", &path(&server_dir.temporary()));
    line("socket", &path(&socket(server_dir)));
    line("pid_file", &path(&server_dir.data().join("server.pid")));
    match network {
        None => line("skip_networking", "ON"),
        Some(Network { address, port, .. }) => {
            line("bind_address", &address.to_string());
            line("port", &port.to_string());
        }
    }
    // Accounts are those of addresses, never of names.
    line("skip_name_resolve", "ON");
    for (name, value) in fixed {
        line(name, value);
    }
    if let (None, Some(charset)) = (plan.setting("character_set_server"), characters(plan)) {
        // Without it the server refuses a collation of another character set than its default.
        line("character_set_server", charset);
    }
    for (name, value) in plan.settings() {
        if WITHOUT_VALUE.contains(&name.as_str()) && value == "ON" {
            lines.push(name.clone());
            continue;
        }
        let mut line = |name: &str, value: &str| lines.push(format!("{name} = {}", quote(value)));
        let loose = if OPTIONAL_SETTINGS.contains(&name.as_str()) { "loose_" } else { "" };
        line(&format!("{loose}{name}"), value);
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Settings of sessions with which the statements that create a data directory may fail. Connections to a server have
/// their own, see [`session::set_up`].
const OF_SESSIONS: [&str; 6] = [
    "sql_mode",
    "sql_safe_updates",
    "max_join_size",
    "max_statement_time",
    "transaction_read_only",
    "tx_read_only",
];

/// Writes the configuration file for creating a data directory; returns its path. It has no settings
/// of MyRocks, because its plugin is not loaded then.
pub(crate) fn write_init_config(
    plan: &ServerPlan,
    server_dir: &ServerDir,
    fixed: &[(&str, String)],
) -> Result<PathBuf, ServerError> {
    let config = config(plan, server_dir, fixed, None);
    let is_used = |line: &&str| {
        let name = line.split(' ').next().unwrap_or_default();
        let name = name.strip_prefix("loose_").unwrap_or(name);
        !name.starts_with("rocksdb_") && !OF_SESSIONS.contains(&name)
    };
    let lines = config.lines().filter(is_used);
    let text: String = lines.flat_map(|line| [line, "\n"]).collect();
    let file = server_dir.path().join("initialise.cnf");
    write_config(&file, &text)?;
    Ok(file)
}

/// The prefix that the program was installed to: `/usr` for `/usr/sbin/mariadbd`.
pub(crate) fn base_dir(program: &Path) -> PathBuf {
    program.parent().and_then(Path::parent).unwrap_or(Path::new("/")).to_owned()
}

/// An option with a path, which need not be UTF-8.
pub(crate) fn option(name: &str, value: impl AsRef<Path>) -> OsString {
    let mut option = OsString::from(name);
    option.push(value.as_ref());
    option
}

/// A value in quotes, with quotes and backslashes escaped.
fn quote(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

fn socket(server_dir: &ServerDir) -> PathBuf {
    server_dir.sockets().join(SOCKET)
}

/// The address of the server in this directory.
fn target(server_dir: &ServerDir, _: Option<&Network>) -> Target {
    Target {
        address: Address::Socket(socket(server_dir)),
        user: "root".to_owned(),
        database: None,
        tls: Tls::Off,
        server_public_key: None,
        password: false,
    }
}

/// Whether the server accepts a login. It listens before it can answer; the driver waits for the
/// answer up to its own timeout.
fn is_ready(target: &Target) -> bool {
    MySqlConnection::connect(target, StatementMode::Text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed() {
        let debian = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        assert_eq!(version_word(debian), Some("10.11.19-MariaDB-0+deb12u1"));
        assert_eq!(version_numbers("10.11.19-MariaDB-0+deb12u1"), (10, 11, 19));
        assert_eq!(version_numbers("8.4"), (8, 4, 0));
        assert_eq!(version_word("something else"), None);
    }

    #[test]
    fn sizes_are_rounded_up() {
        assert_eq!(megabytes(1, 128), "128M");
        assert_eq!(megabytes(128 * MIB, 128), "128M");
        assert_eq!(megabytes(128 * MIB + 1, 128), "256M");
        let shape = DataShape { tables: 8, rows: 10_000_000, clients: 24 };
        assert_eq!(redo_log_part(shape, 1), "4096M");
        assert_eq!(redo_log_part(DataShape { rows: 2_000, ..shape }, 1), "256M");
    }

    #[test]
    fn cache_of_open_tables_has_room_for_each_table_of_each_client() {
        assert_eq!(table_cache(MOST_TABLES, 65), 13_400);
        assert_eq!(table_cache(1_000, 320), 320_400);
        assert_eq!(table_cache(u32::MAX, 1_000), MOST_OPEN);
    }

    #[test]
    fn values_are_quoted() {
        assert_eq!(quote("a#b"), "\"a#b\"");
        assert_eq!(quote(r#"a"b\c"#), r#""a\"b\\c""#);
    }
}
