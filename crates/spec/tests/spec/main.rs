//! Experiment files as people write them: what they mean, and how mistakes in them are shown.

mod arbitrary;
mod builds;
mod experiments;
mod inserts;
mod live;
mod problems;
mod server_problems;
mod servers;
mod valid;
