//! The worker: a process that holds an instance's connections and runs slices on it.

mod client;
mod client_driver;
mod clients;
mod deadline;
mod delay;
mod handle;
mod insert;
mod meter;
mod prepared;
mod readings;
mod serve;
mod server_monitor;
mod tally;

pub use client::{Client, ClientSetup};
pub use handle::{WorkerError, WorkerHandle};
pub use serve::serve;
