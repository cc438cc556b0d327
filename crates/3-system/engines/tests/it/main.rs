//! Tests of the engines with real databases. Run those of one system with `cargo test -- sqlite::`; the
//! SQLite tests need no server.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

#[path = "../../../../3-system/drivers/tests/it/at_exit.rs"]
mod at_exit;
#[path = "../../../../3-system/drivers/tests/it/certificates.rs"]
mod certificates;
mod helpers;
mod mariadb;
mod mariadb_schemas;
mod mysql;
mod mysql_release;
mod postgres;
mod postgres_schemas;
mod sqlite;
