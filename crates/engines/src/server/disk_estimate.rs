//! How much disk space a private server takes: an estimate from what its settings allow.

use dbdyno_record::server::{ServerSystem, StorageEngine};
use dbdyno_units::{Bytes, Nanos};

use super::program::program;
use super::{DataShape, mysql_config, postgres_config};

const MIB: u64 = 1 << 20;

/// The disk space that one private server takes, roughly, once it has worked for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskEstimate {
    /// Tables and their indexes.
    pub tables: Bytes,
    /// What comes with them: logs of what was written, and the server's own tables.
    pub rest: Bytes,
}

impl DiskEstimate {
    /// The space for data of this shape, with the candidate's own settings; `writing` is how long
    /// it is written to before it is settled again, nothing for data that is only read.
    #[must_use]
    pub fn of(
        system: ServerSystem,
        engine: Option<StorageEngine>,
        shape: DataShape,
        configuration: &[(String, String)],
        writing: Nanos,
    ) -> Self {
        let kind = program(system);
        let own = |name: &str| {
            let mut settings = configuration.iter().rev();
            let (_, value) = settings.find(|(known, _)| kind.normal_name(known) == name)?;
            size(value)
        };
        let rows = shape.rows * u64::from(shape.tables);
        let logged = (writing.as_nanos() / 1_000_000_000).saturating_mul(LOGGED_A_SECOND);
        let (tables, rest) = match (system, engine) {
            (ServerSystem::PostgreSql, _) => {
                let loaded = rows * postgres_config::ROW_BYTES;
                // Updates leave old versions of rows behind until they are vacuumed.
                let tables = if writing > Nanos::ZERO { 2 * loaded } else { loaded };
                let most = own("max_wal_size").unwrap_or_else(|| postgres_config::wal_size(shape));
                // After each checkpoint every page is logged whole when it is first changed; a load
                // is logged, too. Log files are used again or removed at checkpoints.
                let log = (tables + logged).min(most);
                (tables, log.max(POSTGRES_LEAST_LOG) + POSTGRES_OWN)
            }
            (ServerSystem::MariaDb | ServerSystem::MySql, engine) => {
                let tables = rows * mysql_config::ROW_BYTES;
                let (its_own, files) = match system {
                    ServerSystem::MySql => (MYSQL_OWN, 2),
                    _ => (MARIADB_OWN, 1),
                };
                let files = own("innodb_log_files_in_group").unwrap_or(files);
                let log = own("innodb_redo_log_capacity")
                    .or_else(|| Some(own("innodb_log_file_size")?.saturating_mul(files)));
                let logs = match engine {
                    Some(StorageEngine::MyRocks) => {
                        let more = (tables + logged).min(ROCKSDB_MOST_LOG);
                        log.unwrap_or(DEFAULT_REDO_LOG) + more
                    }
                    _ => log.unwrap_or_else(|| mysql_config::redo_log_bytes(shape)),
                };
                (tables, logs + its_own)
            }
        };
        Self { tables: Bytes::from_bytes(tables), rest: Bytes::from_bytes(rest) }
    }

    /// All of it.
    #[must_use]
    pub fn total(self) -> Bytes {
        self.tables + self.rest
    }
}

/// What a new data directory holds: seen with 10.11, without its redo log.
const MARIADB_OWN: u64 = 32 * MIB;

/// Its dictionary, undo and temporary tables, and the buffer for pages that are written twice.
const MYSQL_OWN: u64 = 200 * MIB;

/// What a new data directory holds: seen with 15, without its write-ahead log.
const POSTGRES_OWN: u64 = 40 * MIB;

/// What a busy server logs in a second, whole pages aside: tens of thousands of changes.
const LOGGED_A_SECOND: u64 = 10 * MIB;

/// The server's default of `min_wal_size`: so much is kept for reuse.
const POSTGRES_LEAST_LOG: u64 = 80 * MIB;

/// InnoDB's default, where only the server's own tables are in it.
const DEFAULT_REDO_LOG: u64 = 96 * MIB;

/// Logs of memtables that are not written out yet, and files that compaction makes beside those
/// that it replaces, at most.
const ROCKSDB_MOST_LOG: u64 = 256 * MIB;

/// A size as configuration files have it, such as `4096M`, `1GB` or `65536`; `None` for anything
/// else.
fn size(value: &str) -> Option<u64> {
    let value = value.trim();
    let digits = value.len() - value.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = value.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().trim_end_matches('B') {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
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
        let space = DiskEstimate::of(system, engine, shape, &own, Nanos::from_secs(seconds));
        (space.tables.as_bytes() / MIB, space.rest.as_bytes() / MIB)
    }

    #[test]
    fn redo_logs_are_larger_than_little_data() {
        let innodb = |shape, own: &[_]| {
            mib(ServerSystem::MariaDb, Some(StorageEngine::InnoDb), shape, own, 60)
        };
        assert_eq!(innodb(SMALL, &[]), (23, 256 + 32));
        assert_eq!(innodb(LARGE, &[]), (19_073, 4_096 + 32));
        assert_eq!(innodb(SMALL, &[("innodb-log-file-size", "1G")]), (23, 1_024 + 32));
        let own = [("innodb_log_file_size", "67108864")];
        let mysql = mib(ServerSystem::MySql, Some(StorageEngine::InnoDb), SMALL, &own, 60);
        assert_eq!(mysql, (23, 2 * 64 + 200));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 60);
        assert_eq!(myrocks, (23, 96 + 256 + 32));
        let myrocks = mib(ServerSystem::MariaDb, Some(StorageEngine::MyRocks), SMALL, &[], 3);
        assert_eq!(myrocks, (23, 96 + 53 + 32));
    }

    #[test]
    fn the_write_ahead_log_grows_with_writes() {
        let of =
            |shape, own: &[_], seconds| mib(ServerSystem::PostgreSql, None, shape, own, seconds);
        assert_eq!(of(SMALL, &[], 0), (25, 80 + 40));
        assert_eq!(of(SMALL, &[], 3), (51, 81 + 40));
        assert_eq!(of(SMALL, &[], 600), (51, 1_024 + 40));
        assert_eq!(of(LARGE, &[], 600), (41_198, 8_192 + 40));
        assert_eq!(of(SMALL, &[("max_wal_size", "128MB")], 600), (51, 128 + 40));
    }

    #[test]
    fn sizes_of_configuration_files() {
        let sizes = ["64", "4k", " 16MB", "1G", "2 GB", "-1", "many", "8Q", "99999999999T"];
        let expected =
            [Some(64), Some(4 << 10), Some(16 << 20), Some(1 << 30), Some(2 << 30), None, None];
        assert_eq!(sizes.map(size)[..7], expected);
        assert_eq!(sizes.map(size)[7..], [None, None]);
    }
}
