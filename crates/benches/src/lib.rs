//! What the benchmarks of dbdyno itself have in common.
//!
//! Each is a program of its own: `overhead` compares the worker's hot loop with a bare loop in C,
//! `truth` compares reported differences with differences of known size, `coverage` counts how
//! often an interval contains what it should, `control` how far two servers of one kind come out
//! apart. `client` compares what dbdyno's load generator costs with what sysbench costs, and
//! `agreement` what the two say of the same servers. `insert-client` compares its client of the
//! insert benchmark with a plain one in Python, and `insert-load` checks what that benchmark loads.
//! `live-cycles` optimizes a running server again and again and checks what its clients are told;
//! `live-gain` measures what that brings, slice by slice in one and the same process.
//! All print a table, write their figures to `target/bench`, and fail when their goal is missed.

pub mod bare_loop;
pub mod figures;
pub mod insert_load;
pub mod intervals;
pub mod lab;
pub mod live_server;
pub mod meter;
pub mod mode_samples;
pub mod outcome;
pub mod private_server;
pub mod progress;
pub mod subject;
pub mod sysbench;
pub mod table;
