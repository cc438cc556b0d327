//! Names of settings of private servers: those for one version, and those that a candidate cannot set.

use crate::server::{Protocol, ServerSystem};

/// The only version of the server that a setting is for, such as that of the group `[mariadb-10.11]` of an option
/// file, and the name: `10.11/NAME`.
pub fn of_version(name: &str) -> (Option<&str>, &str) {
    name.split_once('/').map_or((None, name), |(version, name)| (Some(version), name))
}

impl ServerSystem {
    /// The setting that dbdyno sets itself, if the server would read this name as one.
    pub fn reserved_setting(self, name: &str) -> Option<&'static str> {
        let (reserved, name) = match self.facts().protocol {
            Protocol::MySql => (MYSQL_RESERVED, mysql_canonical_name(name)),
            Protocol::PostgreSql => (POSTGRESQL_RESERVED, postgresql_canonical_name(name)),
        };
        reserved.iter().find(|one| **one == name).copied()
    }
}

/// Settings that dbdyno sets itself, and others that change paths or network access.
const MYSQL_RESERVED: &[&str] = &[
    "admin_address",
    "admin_port",
    "aria_log_dir_path",
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
    "innodb_doublewrite_dir",
    "innodb_log_group_home_dir",
    "innodb_temp_tablespaces_dir",
    "innodb_tmpdir",
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

/// Settings of their own that are prefixes of reserved ones.
const NOT_RESERVED: &[&str] =
    &["general_log", "innodb", "innodb_doublewrite", "rocksdb", "slow_query_log"];

/// A setting's name as the server reads it: `-` is `_`, case does not matter, and an unambiguous
/// prefix is accepted unless it is a name itself. A name that the server would read as a reserved one
/// becomes that one.
pub fn mysql_canonical_name(name: &str) -> String {
    let canonical = name.to_ascii_lowercase().replace('-', "_");
    let mut stem = canonical.as_str();
    for prefix in ["loose_", "skip_", "enable_", "disable_", "maximum_"] {
        stem = stem.strip_prefix(prefix).unwrap_or(stem);
    }
    if stem.is_empty() || NOT_RESERVED.contains(&stem) {
        return canonical;
    }
    // Of several reserved names, the whole one.
    let reserved = MYSQL_RESERVED.iter().find(|reserved| **reserved == stem);
    match reserved.or_else(|| MYSQL_RESERVED.iter().find(|reserved| reserved.starts_with(stem))) {
        Some(reserved) => (*reserved).to_owned(),
        None => canonical,
    }
}

/// Settings that dbdyno sets itself, and others that change paths, the log or network access.
const POSTGRESQL_RESERVED: &[&str] = &[
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

pub fn postgresql_canonical_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_names_are_canonical() {
        assert_eq!(mysql_canonical_name("Max-Connections"), "max_connections");
        for name in
            ["datadir", "DataDir", "datad", "loose-datadir", "skip-networking", "admin-port"]
        {
            assert!(MYSQL_RESERVED.contains(&mysql_canonical_name(name).as_str()), "{name}");
        }
        for (name, is) in [
            ("general_log_f", "general_log_file"),
            ("slow-query-log-file", "slow_query_log_file"),
            ("mysqlx", "mysqlx"),
            ("innodb-doublewrite-dir", "innodb_doublewrite_dir"),
            ("slow-query-log", "slow_query_log"),
            ("general_log", "general_log"),
            ("skip-innodb", "skip_innodb"),
        ] {
            assert_eq!(mysql_canonical_name(name), is);
        }
        for name in [
            "general_log",
            "innodb",
            "innodb_doublewrite",
            "innodb_flush_method",
            "loose-slow-query-log",
            "port_open_timeout",
            "rocksdb",
            "skip_log_bin",
            "userstat",
        ] {
            assert!(!MYSQL_RESERVED.contains(&mysql_canonical_name(name).as_str()), "{name}");
        }
    }
}
