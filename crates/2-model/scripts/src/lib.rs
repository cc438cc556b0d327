//! sysbench scripts: Lua states with sysbench's functions and random numbers.
//!
//! A script sends SQL to a [`Host`], which is a connection to a server or a [`Recorder`]. This crate
//! knows no protocol.

mod calls;
mod client;
mod command;
mod error;
mod host;
mod inspect;
mod options;
mod placeholders;
mod random;
mod recorder;
mod required;
mod source;
mod state;
mod version;
mod zipfian;

pub use client::{Client, Progress, START_TIME};
pub use command::{init, prepare};
pub use error::ScriptError;
pub use host::{Host, Outcome, Rows, Sent, SqlError, SqlErrorKind, Value};
pub use inspect::{Declared, OptionKind, inspect, only_reads};
pub use options::{OptionProblem, OptionValue, Options, check_option, replaced_on_command_line};
pub use placeholders::replace_placeholders;
pub use random::{Distribution, Random, RandomOptions, Seed, UniquePosition};
pub use recorder::{Recorder, with_values};
pub use source::{MissingModule, Module, Source, SourceError};
pub use state::{Driver, Setup};
pub use version::Version;
