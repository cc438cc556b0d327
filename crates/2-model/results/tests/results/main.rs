//! Run directories: what is written is read, resumed and converted.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod formats;
mod hostile;
mod identity;
mod inserts;
mod own_directory;
mod run_directory;
