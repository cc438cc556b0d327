//! Tests of experiment files: valid settings, and problems in invalid ones.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod arbitrary;
mod builds;
mod candidates;
mod compare;
mod experiments;
mod hosts;
mod inserts;
mod microbenchmark_problems;
mod problems;
mod scripts;
mod server_problems;
mod servers;
mod valid;
