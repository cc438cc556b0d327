//! MySQL's and MariaDB's client protocol
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>,
//! <https://mariadb.com/kb/en/clientserver-protocol/>).
//!
//! A request is built in one buffer that is used again and again, and goes out with one send. A
//! reply is taken from the receive buffer where it lies: of every value only what the digest needs
//! is looked at, and nothing is allocated.

mod auth;
mod capabilities;
mod columns;
mod connection;
mod failure;
mod greeting;
mod login;
mod reply;
mod request;
mod rows;
mod template;
mod wire;

pub use connection::MySqlConnection;
