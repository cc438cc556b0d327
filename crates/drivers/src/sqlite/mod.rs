//! SQLite through its C API, from a shared library that is named at run time.
//!
//! Every build of SQLite is a shared library with the same symbols; a process opens one.

mod api;
mod busy;
mod connection;
mod reading;

pub use api::Library;
pub use connection::SqliteConnection;
