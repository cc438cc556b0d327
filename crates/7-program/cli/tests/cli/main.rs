//! End-to-end tests: each starts `dbdyno` with real builds of SQLite or real servers, and checks
//! its output, its files and its exit code.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "as in tests, for their helpers")]

#[path = "../common/mod.rs"]
mod common;

mod answers;
mod audit;
mod audits;
mod bisect;
mod builds;
mod compare;
mod counters;
mod disk;
mod existing;
mod existing_runs;
mod extensions;
mod fleet;
mod floors;
mod foreign;
mod gate;
mod history;
mod host_live;
mod host_losses;
mod host_programs;
mod hosts;
mod inserts;
mod interruptions;
mod live;
mod live_counting;
mod live_programs;
mod live_runs;
#[path = "../../../../3-system/drivers/tests/it/outside.rs"]
mod outside;
mod own_data;
mod profiles;
mod releases;
mod run;
mod script_runs;
mod scripts;
#[path = "../../../../3-system/engines/tests/it/server_release.rs"]
mod server_release;
mod servers;
mod trust;
mod usage;
