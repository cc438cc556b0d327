//! Programs changed while they run.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod copies;
mod debugger;
mod forked;
mod hangs;
mod killed;
mod mariadb;
mod unloaded;
mod victim;
mod whole;
