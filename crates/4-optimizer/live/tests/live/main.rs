//! Programs optimized while they run.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod blocked;
mod copies;
mod counting;
mod debugger;
mod devices;
mod filters;
mod forked;
mod hangs;
mod huge_pages;
mod killed;
mod mariadb;
mod memory_limit;
mod returns;
mod sampling;
mod sequences;
mod unloaded;
mod uprobes;
mod victim;
mod virtual_tables;
mod whole;
mod workers;

/// The number of repetitions: the larger one if the environment variable `DBDYNO_LONG_TESTS` is 1.
fn repetitions(short: u64, long: u64) -> u64 {
    if std::env::var("DBDYNO_LONG_TESTS").is_ok_and(|value| value == "1") { long } else { short }
}
