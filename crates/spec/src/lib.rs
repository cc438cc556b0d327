//! The experiment file: parsing, defaults and validation.
//!
//! [`parse`] turns the text of an experiment into an [`Experiment`](experiment::Experiment) in
//! which every default is filled in and every name was checked, or into all the problems of the
//! file with the lines they are in. Each section of the file has a module that knows its keys.

mod build;
mod candidate;
mod configuration;
mod cpus;
mod existing;
pub mod experiment;
mod insert;
mod live;
mod names;
mod parse;
mod schedule;
mod schema;
mod server;
mod source;
mod sqlite;
mod target;
mod training;
mod variant;
mod workload;

pub use parse::{parse, parse_with_warnings};
