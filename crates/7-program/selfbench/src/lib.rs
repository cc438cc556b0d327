//! Shared code of the benchmarks of dbdyno itself.
//!
//! - `overhead` compares the worker's hot loop with a loop in C.
//! - `truth` has three subcommands: `delays` compares reported differences with injected delays, `coverage`
//!   counts how often intervals contain the true value, `control` compares two equal servers.
//! - `load-generator` has four subcommands: `client` compares the CPU cost with sysbench, `insert-client` that
//!   of the insert benchmark with a client in Python, `insert-load` checks what the insert
//!   benchmark loads, `sysbench-agreement` compares measured ratios with sysbench's.
//! - `live` has two subcommands: `cycles` optimizes a running server repeatedly and checks all query results,
//!   `gain` measures the gain within one process.
//!
//! All print a table, write their figures to `target/bench`, and fail if their goal is missed.

pub mod bare_loop;
pub mod figures;
pub mod harness;
pub mod insert_load;
pub mod intervals;
pub mod live_server;
pub mod meter;
pub mod mode_samples;
pub mod outcome;
pub mod private_server;
pub mod progress;
pub mod subject;
pub mod sysbench;
pub mod table;
