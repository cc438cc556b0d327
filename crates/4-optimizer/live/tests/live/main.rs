//! Programs optimized while they run.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

mod blocked;
mod copies;
mod counting;
mod debugger;
mod devices;
mod filters;
mod forked;
mod hangs;
mod huge_pages;
mod job;
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
