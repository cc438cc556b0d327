//! Programs optimized while they run.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

mod copies;
mod counting;
mod forked;
mod job;
mod killed;
mod mariadb;
mod memory;
mod threads;
mod tools;
mod victim;
mod virtual_tables;
