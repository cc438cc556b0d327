//! Shared code of the benchmarks of dbdyno itself.
//!
//! - `overhead` compares the worker's hot loop with a loop in C.
//! - `truth` compares what is reported with what is known: `delays` differences with injected delays, `coverage`
//!   intervals with the true value, `control` two equal servers, `gate` rules with slower and equal candidates,
//!   `planted` functions with one that was made slower, `samples` sampled time with that of a known loop.
//! - `load-generator` has two subcommands: `client` compares the CPU cost with sysbench, `agent` measures readings
//!   on another host.
//! - `live` has two subcommands: `cycles` optimizes a running server repeatedly and checks all query results,
//!   `gain` measures the gain within one process.
//!
//! All print a table, write their figures to `target/bench`, and fail if their goal is missed.

pub mod harness;
pub mod meter;
pub mod output;
pub mod private_server;

/// The smallest value that at least `share` of the sorted values do not exceed; `None` if empty.
pub fn nearest_rank<T: Copy>(sorted: &[T], share: f64) -> Option<T> {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).or(sorted.last()).copied()
}
