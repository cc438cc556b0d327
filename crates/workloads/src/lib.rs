//! Microbenchmarks as data, key distributions and row generators. No input or output.

pub mod definition;
