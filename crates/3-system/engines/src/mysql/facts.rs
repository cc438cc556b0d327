//! Build options and settings that a server reports.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

use crate::pairs;

/// Settings that are known to affect speed. Their values may be any text; a version without one of them
/// omits it.
const SETTINGS: [&str; 51] = [
    "binlog_checksum",
    "binlog_format",
    "binlog_row_image",
    "character_set_server",
    "collation_server",
    "completion_type",
    "concurrent_insert",
    "default_storage_engine",
    "have_ssl",
    "innodb_adaptive_hash_index",
    "innodb_buffer_pool_instances",
    "innodb_buffer_pool_size",
    "innodb_change_buffering",
    "innodb_checksum_algorithm",
    "innodb_compression_algorithm",
    "innodb_default_row_format",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_io_capacity",
    "innodb_linux_aio",
    "innodb_log_file_size",
    "innodb_page_size",
    "innodb_purge_threads",
    "innodb_redo_log_capacity",
    "innodb_stats_method",
    "innodb_use_native_aio",
    "innodb_version",
    "log_bin",
    "optimizer_switch",
    "performance_schema",
    "query_cache_type",
    "rocksdb_block_cache_size",
    "rocksdb_default_cf_options",
    "rocksdb_flush_log_at_trx_commit",
    "rocksdb_git_hash",
    "rocksdb_max_background_jobs",
    "rocksdb_use_direct_reads",
    "sort_buffer_size",
    "sql_mode",
    "sync_binlog",
    "thread_handling",
    "thread_pool_priority",
    "tls_version",
    "transaction_isolation",
    "tx_isolation",
    "use_stat_tables",
    "version_comment",
    "version_compile_machine",
    "version_compile_os",
    "version_malloc_library",
];

/// Numbers and switches that distinguish equal servers, or that are part of a login.
const OF_ONE_SERVER: [&str; 8] = [
    "admin_port",
    "extra_port",
    "mysqlx_port",
    "port",
    "report_port",
    "server_id",
    "wsrep_",
    "gtid_",
];

/// Parts of names of settings that may contain a password.
const SECRET: [&str; 4] = ["password", "_pwd", "secret", "_auth"];

/// The settings of [`SETTINGS`], then all others that are a number or a switch, by name. Other texts
/// are names of files and servers, and may contain passwords.
pub(super) fn options(connection: &mut MySqlConnection) -> Result<Vec<(String, String)>, Error> {
    let rows = connection.query("SHOW GLOBAL VARIABLES")?;
    Ok(chosen(pairs(rows)))
}

fn chosen(all: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut chosen: Vec<(bool, String, String)> = all
        .filter_map(|(name, value)| {
            let name = name.to_lowercase();
            let is_other = !SETTINGS.contains(&name.as_str());
            (!is_other || is_number_or_switch(&value) && !is_private(&name))
                .then_some((is_other, name, value))
        })
        .collect();
    chosen.sort();
    chosen.into_iter().map(|(_, name, value)| (name, value)).collect()
}

fn is_number_or_switch(value: &str) -> bool {
    matches!(value, "ON" | "OFF" | "YES" | "NO") || value.parse::<f64>().is_ok_and(f64::is_finite)
}

fn is_private(name: &str) -> bool {
    let is_family = |one: &&str| one.ends_with('_') && name.starts_with(*one);
    OF_ONE_SERVER.iter().any(|one| *one == name || is_family(one))
        || SECRET.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_without_names_and_passwords_are_chosen_by_importance() {
        let reported = [
            ("innodb_flush_neighbors", "1"),
            ("innodb_flush_method", "O_DIRECT"),
            ("Rocksdb_Force_Flush", "OFF"),
            ("long_query_time", "10.000000"),
            ("innodb_max_dirty_pages", "nan"),
            ("init_connect", "SET PASSWORD = 'x'"),
            ("authentication_ldap_simple_bind_root_pwd", "1234"),
            ("wsrep_sst_auth", "1234"),
            ("report_password", "1234"),
            ("server_id", "7"),
            ("port", "3306"),
            ("wsrep_on", "OFF"),
            ("datadir", "/var/lib/mysql/"),
            ("tx_isolation", "REPEATABLE-READ"),
        ];
        let chosen =
            chosen(reported.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
        let names: Vec<&str> = chosen.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(
            names,
            [
                "innodb_flush_method",
                "tx_isolation",
                "innodb_flush_neighbors",
                "long_query_time",
                "rocksdb_force_flush",
            ]
        );
        assert_eq!(chosen[0].1, "O_DIRECT");
    }
}
