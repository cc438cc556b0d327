//! Programs changed while they run.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod copies;
mod hangs;
mod killed;
mod mariadb;
mod victim;
mod whole;
