//! What the benchmarks of dbdyno itself have in common.
//!
//! Each is a program of its own: `overhead` compares the worker's hot loop with a bare loop in C,
//! `truth` compares reported differences with differences of known size, `coverage` counts how
//! often an interval contains what it should. All print a table, write their figures to
//! `target/bench`, and fail when their goal is missed.

pub mod bare_loop;
pub mod figures;
pub mod lab;
pub mod outcome;
pub mod progress;
pub mod subject;
pub mod table;
