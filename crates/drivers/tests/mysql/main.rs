//! The driver with a real MariaDB server.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod login;
mod server;
mod split;
mod statements;
