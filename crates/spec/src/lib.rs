//! The experiment file: parsing, defaults and validation.

pub mod experiment;
