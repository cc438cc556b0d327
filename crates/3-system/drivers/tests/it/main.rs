//! Tests of the drivers with real databases. Run those of one system with `cargo test -- sqlite::`;
//! the SQLite tests need no server.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod hostile;
mod mariadb;
mod outside;
mod postgres;
mod shared;
mod sqlite;
mod support;
