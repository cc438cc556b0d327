//! SQLite through its C API, from a shared library that is loaded at run time.
//!
//! All builds of SQLite are shared libraries with the same symbols; a process loads one.

mod api;
mod busy;
mod column_type;
mod connection;

pub use api::Library;
pub use connection::SqliteConnection;
