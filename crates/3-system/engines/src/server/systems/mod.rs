//! The database systems that dbdyno can run private servers of.

mod config_file;
mod mariadb;
mod mysql;
pub(super) mod mysql_config;
mod postgres;
pub(super) mod postgres_config;

use dbdyno_types::server::ServerSystem;

use super::program::ServerProgram;

/// The implementation for a system.
pub(super) fn server_program(system: ServerSystem) -> &'static dyn ServerProgram {
    match system {
        ServerSystem::MariaDb => &mariadb::MariaDb,
        ServerSystem::MySql => &mysql::MySql,
        ServerSystem::PostgreSql => &postgres::Postgres,
    }
}
