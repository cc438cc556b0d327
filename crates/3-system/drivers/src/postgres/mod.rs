//! The client side of PostgreSQL's protocol, version 3
//! (<https://www.postgresql.org/docs/current/protocol.html>).
//!
//! A statement is prepared once. Each execution is one send of Bind, Execute and Sync, and one receive if
//! the reply fits into the buffer. Rows are added to the digest in the receive buffer; nothing is allocated.

mod auth;
mod channel;
mod connection;
mod login;
mod reply;
mod sql;
mod statement;

pub use connection::PostgresConnection;
