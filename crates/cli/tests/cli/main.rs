//! The binary as its users meet it: every test starts `dbdyno` itself, with real builds of SQLite
//! and real databases, and looks at what it prints, leaves behind and ends with.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod audit;
mod audits;
mod builds;
mod counters;
mod disk;
mod existing;
mod inserts;
mod interruptions;
mod live;
mod run;
mod servers;
mod usage;
