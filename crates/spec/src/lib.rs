//! The experiment file: parsing, defaults and validation.
//!
//! [`parse`] turns the text of an experiment into an [`Experiment`](experiment::Experiment) in
//! which every default is filled in and every name was checked, or into all the problems of the
//! file with the lines they are in. Each section of the file has a module that knows its keys.

mod candidate;
mod cpus;
pub mod experiment;
mod names;
mod parse;
mod schedule;
mod sqlite;
mod workload;

pub use parse::{Known, parse};
