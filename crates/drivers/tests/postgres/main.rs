//! The PostgreSQL driver with real servers of its own, and with false ones.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod answers;
mod copying;
mod encryption;
mod failures;
mod false_servers;
mod login;
mod server;
mod several;
