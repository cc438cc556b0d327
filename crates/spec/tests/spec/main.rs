//! Experiment files as people write them: what they mean, and how mistakes in them are shown.
#![allow(clippy::unwrap_used, reason = "as in tests, for their helpers")]

mod arbitrary;
mod builds;
mod experiments;
mod former_names;
mod inserts;
mod live;
mod microbenchmark_problems;
mod problems;
mod server_problems;
mod servers;
mod url_problems;
mod valid;
