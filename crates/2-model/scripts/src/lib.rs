//! sysbench scripts: Lua states with sysbench's functions and random numbers.
//!
//! A script sends SQL to a [`Host`], which is a connection to a server or a [`Recorder`]. This crate
//! knows no protocol.

mod calls;
mod client;
mod data;
mod error;
mod files;
mod host;
mod inspect;
mod options;
mod random;
mod source;
mod text;

pub use calls::{Progress, START_TIME};
pub use client::{Client, Setup, init, prepare, take_turns};
pub use data::{DataKey, FirstStatements, data_key};
pub use error::ScriptError;
pub use files::RecordedFiles;
pub use host::{
    Driver, Host, Outcome, ParameterType, Recorder, Rows, Sent, SqlError, SqlErrorKind, Value,
    replace_placeholders, seems_to_return_rows, with_values,
};
pub use inspect::{check_in_run, inspect, only_reads};
pub use options::{
    Access, Declared, IgnoredErrors, OptionKind, OptionProblem, OptionValue, Options, check_option,
    replaced_on_command_line,
};
pub use random::{Distribution, Random, RandomOptions, Seed, UniquePosition};
pub use source::{MissingModule, Module, Source, SourceError, Version};
pub use text::text_of;
