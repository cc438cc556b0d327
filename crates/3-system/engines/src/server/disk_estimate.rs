//! Estimate of the disk space of a private server, from its settings.

use dbdyno_types::server::{ServerSystem, StorageEngine};
use dbdyno_units::{Bytes, Nanos};

use super::DataShape;
use super::systems::{mysql_config, postgres_config, server_program};

const MIB: u64 = 1 << 20;

/// Size of a new data directory of MariaDB 10.11 without its redo log.
const MARIADB_INITIAL: u64 = 32 * MIB;

/// The increment of MariaDB's system tablespace (`innodb_autoextend_increment`). Undo logs of
/// writes need at least one.
const MARIADB_UNDO: u64 = 64 * MIB;

/// MySQL's dictionary, undo and temporary tablespaces, and doublewrite buffer.
const MYSQL_INITIAL: u64 = 200 * MIB;

/// Size of a new data directory of PostgreSQL 15 without its write-ahead log.
const POSTGRES_INITIAL: u64 = 40 * MIB;

/// Log volume of a busy server per second, full-page images excluded: tens of thousands of changes.
const LOG_BYTES_PER_SECOND: u64 = 10 * MIB;

/// PostgreSQL's default `min_wal_size`, which is kept for reuse.
const POSTGRES_MIN_WAL: u64 = 80 * MIB;

/// InnoDB's default, for a server whose InnoDB has only system tables.
const DEFAULT_REDO_LOG: u64 = 96 * MIB;

/// Upper limit for logs of memtables that are not flushed yet, and for files that compaction writes
/// before it removes the replaced ones.
const ROCKSDB_MAX_LOG: u64 = 256 * MIB;

/// The approximate disk space of one private server after it has been used for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEstimate {
    /// Tables and their indexes.
    pub tables: Bytes,
    /// Write-ahead or redo logs and system tables.
    pub overhead: Bytes,
}

impl DiskEstimate {
    /// The estimate for data of this shape and the candidate's own settings. `writing` is the time
    /// that is written between two settled states; zero for read-only data.
    #[must_use]
    pub fn of(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        shape: DataShape,
        configuration: &[(String, String)],
        writing: Nanos,
    ) -> Self {
        let program = server_program(system);
        // PostgreSQL's `max_wal_size` without a unit is in megabytes, MySQL's sizes are in bytes.
        let default_shift = if system == ServerSystem::PostgreSql { 20 } else { 0 };
        let own = |name: &str| {
            let mut settings = configuration.iter().rev();
            let (_, value) = settings.find(|(known, _)| program.canonical_name(known) == name)?;
            parse_size(value, default_shift)
        };
        let logged = (writing.as_nanos() / 1_000_000_000).saturating_mul(LOG_BYTES_PER_SECOND);
        let (tables, overhead) = match system {
            ServerSystem::PostgreSql => {
                let loaded = shape.data_bytes(postgres_config::ROW_BYTES);
                // Updates leave old row versions until they are vacuumed.
                let tables = if writing > Nanos::ZERO { 2 * loaded } else { loaded };
                let limit = own("max_wal_size").unwrap_or_else(|| postgres_config::wal_size(shape));
                // After each checkpoint the first change of a page logs the whole page; a load is
                // logged, too. Log files are reused or removed at checkpoints.
                let log = (tables + logged).min(limit);
                (tables, log.max(POSTGRES_MIN_WAL) + POSTGRES_INITIAL)
            }
            ServerSystem::MariaDb | ServerSystem::MySql => {
                let tables = shape.data_bytes(mysql_config::ROW_BYTES);
                let (initial, files) = match system {
                    ServerSystem::MySql => (MYSQL_INITIAL, 2),
                    _ => (MARIADB_INITIAL, 1),
                };
                let files = own("innodb_log_files_in_group").unwrap_or(files);
                let log = own("innodb_redo_log_capacity")
                    .or_else(|| Some(own("innodb_log_file_size")?.saturating_mul(files)));
                let logs = match engine {
                    Some(StorageEngine::MyRocks) => {
                        let rocksdb = (tables + logged).min(ROCKSDB_MAX_LOG);
                        log.unwrap_or(DEFAULT_REDO_LOG) + rocksdb
                    }
                    _ => log.unwrap_or_else(|| mysql_config::redo_log_bytes(shape)),
                };
                let has_undo = system == ServerSystem::MariaDb
                    && engine != Some(StorageEngine::MyRocks)
                    && writing > Nanos::ZERO;
                (tables, logs + initial + if has_undo { MARIADB_UNDO } else { 0 })
            }
        };
        Self { tables: Bytes::from_bytes(tables), overhead: Bytes::from_bytes(overhead) }
    }

    /// The sum.
    #[must_use]
    pub fn total(self) -> Bytes {
        self.tables + self.overhead
    }
}

/// Parses a size from a configuration file, such as `4096M`, `1GB` or `65536`; `None` if it is not
/// one. A number without a unit is in units of 2 to the power of `default_shift` bytes.
fn parse_size(value: &str, default_shift: u32) -> Option<u64> {
    let value = value.trim();
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = value.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" => default_shift,
        "B" => 0,
        "K" | "KB" => 10,
        "M" | "MB" => 20,
        "G" | "GB" => 30,
        "T" | "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: DataShape = DataShape { tables: 1, rows: 100_000, clients: 1 };
    const LARGE: DataShape = DataShape { tables: 8, rows: 10_000_000, clients: 1 };

    fn mib(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        shape: DataShape,
        own: &[(&str, &str)],
        seconds: u64,
    ) -> (u64, u64) {
        let own: Vec<(String, String)> =
            own.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let estimate = DiskEstimate::of(system, engine, shape, &own, Nanos::from_secs(seconds));
        (estimate.tables.as_bytes() / MIB, estimate.overhead.as_bytes() / MIB)
    }

    #[test]
    fn redo_log_has_a_minimum_size() {
        let innodb = |shape, own: &[_]| {
            mib(ServerSystem::MariaDb, Some(StorageEngine::InnoDb), shape, own, 60)
        };
        assert_eq!(innodb(SMALL, &[]), (23, 256 + 32 + 64));
        assert_eq!(innodb(LARGE, &[]), (19_073, 4_096 + 32 + 64));
        assert_eq!(innodb(SMALL, &[("innodb-log-file-size", "1G")]), (23, 1_024 + 32 + 64));
        let own = [("innodb_log_file_size", "67108864")];
        let mysql = mib(ServerSystem::MySql, Some(StorageEngine::InnoDb), SMALL, &own, 60);
        assert_eq!(mysql, (23, 2 * 64 + 200));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 60);
        assert_eq!(myrocks, (23, 96 + 256 + 32));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 3);
        assert_eq!(myrocks, (23, 96 + 53 + 32));
    }

    #[test]
    fn write_ahead_log_grows_with_writes() {
        let of =
            |shape, own: &[_], seconds| mib(ServerSystem::PostgreSql, None, shape, own, seconds);
        assert_eq!(of(SMALL, &[], 0), (25, 80 + 40));
        assert_eq!(of(SMALL, &[], 3), (51, 81 + 40));
        assert_eq!(of(SMALL, &[], 600), (51, 1_024 + 40));
        assert_eq!(of(LARGE, &[], 600), (41_198, 8_192 + 40));
        for limit in ["128MB", "128", "131072 kB", "134217728B"] {
            assert_eq!(of(SMALL, &[("max_wal_size", limit)], 600), (51, 128 + 40), "{limit}");
        }
    }

    #[test]
    fn sizes_are_parsed() {
        let sizes = ["64", "4k", " 16MB", "1G", "2 GB", "-1", "many", "8Q", "99999999999T"];
        let expected =
            [Some(64), Some(4 << 10), Some(16 << 20), Some(1 << 30), Some(2 << 30), None, None];
        let parsed = sizes.map(|size| parse_size(size, 0));
        assert_eq!(parsed[..7], expected);
        assert_eq!(parsed[7..], [None, None]);
    }
}
