//! The worker: a process that holds an instance's connections and runs slices on it.

mod client;
mod clients;
mod crew;
mod deadline;
mod delay;
mod handle;
mod insert;
mod meter;
mod prepared;
mod readings;
mod serve;
mod tally;
mod watch;

pub use client::{Client, ClientSetup};
pub use handle::{WorkerError, WorkerHandle};
pub use serve::serve;
