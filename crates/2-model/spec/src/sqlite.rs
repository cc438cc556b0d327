//! `[sqlite]` and `sqlite = { … }` of a candidate: SQLite's settings.

use dbdyno_document::{Problem, Table};
use dbdyno_units::Bytes;

use crate::experiment::{JournalMode, SqliteConfig, Synchronous};

/// The defaults: the data stays in memory, so that storage does not affect the measurement.
pub const DEFAULT: SqliteConfig = SqliteConfig {
    page_size: Bytes::from_kib(4),
    cache_size: Bytes::from_mib(256),
    journal_mode: JournalMode::Wal,
    synchronous: Synchronous::Off,
};

/// Reads a table on top of the given values.
pub fn read(table: Option<Table<'_>>, mut config: SqliteConfig) -> SqliteConfig {
    let Some(mut table) = table else { return config };
    let pages = Bytes::from_bytes(512)..=Bytes::from_kib(64);
    if let Some(size) = table.size("page_size", pages) {
        if size.value.as_bytes().is_power_of_two() {
            config.page_size = size.value;
        } else {
            let problem = Problem::new(size.span, "`page_size` must be a power of two");
            table.report(problem.help("valid values: 512 B, 1 KiB, 2 KiB, 4 KiB … 64 KiB"));
        }
    }
    let caches = Bytes::from_kib(64)..=Bytes::from_mib(1 << 20);
    if let Some(size) = table.size("cache_size", caches) {
        config.cache_size = size.value;
    }
    let journal_mode = table.choice(
        "journal_mode",
        &[
            ("wal", JournalMode::Wal),
            ("delete", JournalMode::Delete),
            ("truncate", JournalMode::Truncate),
            ("persist", JournalMode::Persist),
        ],
    );
    if let Some(mode) = journal_mode {
        config.journal_mode = mode.value;
    }
    let synchronous = table.choice(
        "synchronous",
        &[("off", Synchronous::Off), ("normal", Synchronous::Normal), ("full", Synchronous::Full)],
    );
    if let Some(synchronous) = synchronous {
        config.synchronous = synchronous.value;
    }
    table.finish();
    config
}
