//! The worker: a process that holds an instance's connections and runs slices on it.

mod client;
mod clients;
mod delay;
mod handle;
mod serve;

pub use client::{Client, ClientSetup};
pub use handle::{WorkerError, WorkerHandle};
pub use serve::serve;
