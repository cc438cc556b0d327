//! Build options and settings that a server reports.

use dbdyno_drivers::mysql::MySqlConnection;
use dbdyno_drivers::{Connection, Error};

/// Settings that can affect speed. A version without one of them omits it.
const SETTINGS: [&str; 38] = [
    "character_set_server",
    "collation_server",
    "default_storage_engine",
    "have_ssl",
    "innodb_adaptive_hash_index",
    "innodb_buffer_pool_instances",
    "innodb_buffer_pool_size",
    "innodb_change_buffering",
    "innodb_checksum_algorithm",
    "innodb_doublewrite",
    "innodb_flush_log_at_trx_commit",
    "innodb_flush_method",
    "innodb_io_capacity",
    "innodb_log_file_size",
    "innodb_page_size",
    "innodb_purge_threads",
    "innodb_redo_log_capacity",
    "innodb_use_native_aio",
    "innodb_version",
    "log_bin",
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
    "transaction_isolation",
    "tx_isolation",
    "version_comment",
    "version_compile_machine",
    "version_compile_os",
    "version_malloc_library",
];

pub(super) fn options(connection: &mut MySqlConnection) -> Result<Vec<String>, Error> {
    let names: Vec<String> = SETTINGS.iter().map(|name| format!("'{name}'")).collect();
    let sql = format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({})", names.join(", "));
    let mut options: Vec<String> = connection
        .query(&sql)?
        .into_iter()
        .filter_map(|row| match <[Option<String>; 2]>::try_from(row) {
            Ok([Some(name), Some(value)]) => Some(format!("{name} = {value}")),
            _ => None,
        })
        .collect();
    options.sort();
    Ok(options)
}
