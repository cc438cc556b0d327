//! The client side of MySQL's and MariaDB's protocol
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html>,
//! <https://mariadb.com/kb/en/clientserver-protocol/>).
//!
//! Requests are built in one reused buffer and sent with one call. Replies are parsed in the receive buffer;
//! only what the digest needs is decoded, and nothing is allocated.

mod auth;
mod connection;
mod greeting;
mod login;
mod reply;
mod request;
mod rows;
mod wire;

pub use connection::MySqlConnection;
