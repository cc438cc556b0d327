//! Microbenchmarks as data, key distributions and row generators. No input or output.

pub mod answers;
pub mod catalog;
pub mod decode;
pub mod definition;
pub mod effect;
pub mod events;
pub mod insert;
pub mod keys;
pub mod normalized;
pub mod program;
pub mod rows;
pub mod schema;
pub mod seeds;
pub mod setup;
pub mod shape;
pub mod sql;
