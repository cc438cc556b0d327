//! Tests of audits on objects compiled with wrong, missing and leaked flags.
#![allow(clippy::unwrap_used, clippy::panic, reason = "as in tests, for their helpers")]

mod database;
mod lab;
mod linked;
mod lto;
mod malformed;
mod recorded;
mod shown;
