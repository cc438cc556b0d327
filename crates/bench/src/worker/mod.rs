//! The worker: a process that holds the connections to one instance and runs slices on it.

mod client;
mod client_driver;
mod clients;
mod deadline;
mod delay;
mod error;
mod handle;
mod insert;
mod meter;
mod own_data;
mod prepared;
mod readings;
mod serve;
mod server_monitor;
mod statement_check;
mod tally;

pub use client::{Client, ClientSetup};
pub use error::{RequestError, ServeError};
pub use handle::{WorkerError, WorkerHandle};
pub use serve::serve;
