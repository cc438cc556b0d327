//! The experiment file: parsing, defaults and validation.
//!
//! [`parse`] turns the text of an experiment into an [`Experiment`](experiment::Experiment) with
//! all defaults filled in and all names checked, or into the list of all problems of the file with
//! their lines. Each section of the file has its own module. [`compare`] writes the text of an
//! experiment from the words of a command line.

mod build;
mod candidate;
pub mod compare;
mod existing;
pub mod experiment;
mod insert;
mod live;
mod machines;
mod names;
mod parse;
mod schedule;
mod server;
mod source;
mod workload;

pub use names::CONTROL;
pub use parse::{parse, parse_with_files, valid_keys};
pub use workload::ReadFile;
