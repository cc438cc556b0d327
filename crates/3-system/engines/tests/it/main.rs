//! Tests of the engines with real databases. Run those of one system with `cargo test -- sqlite::`; the
//! SQLite tests need no server.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

mod helpers;
mod mariadb;
mod mariadb_schemas;
mod mysql;
#[path = "../../../drivers/tests/it/outside.rs"]
mod outside;
mod postgres;
mod postgres_pooler;
mod postgres_schemas;
mod server_release;
#[path = "../../../drivers/tests/it/shared.rs"]
mod shared;
mod sqlite;
