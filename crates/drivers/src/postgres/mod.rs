//! PostgreSQL by its own protocol, version 3
//! (<https://www.postgresql.org/docs/current/protocol.html>).
//!
//! A statement is prepared once; each execution is one send of Bind, Execute and Sync and, where
//! the reply fits, one receive. Rows are added up where they arrived, and nothing is allocated.

mod bind;
mod channel;
mod connection;
mod copy;
mod literal;
mod login;
mod reading;
mod reply;
mod server_error;
mod sql;
mod statement;
mod tls;
mod wire;

pub use connection::PostgresConnection;
