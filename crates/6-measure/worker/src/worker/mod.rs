//! The worker: a process that holds the connections to one instance and runs slices on it.

mod client;
mod client_driver;
mod clients;
mod deadline;
mod delay;
mod error;
#[cfg(test)]
mod fake_server;
mod handle;
mod insert;
mod meter;
mod own_data;
mod prepared;
mod readings;
mod script_client;
mod script_data;
mod script_host;
mod script_time;
mod serve;
mod server_monitor;
mod statement_check;
mod step_link;
mod step_meter;
mod tally;
mod waiting;

pub use client::{Client, ClientSetup};
pub use error::{RequestError, ServeError};
pub use handle::{WorkerError, WorkerHandle};
pub use serve::serve;
pub use server_monitor::{ServerMonitor, TimedPart};
pub use step_meter::StepMeter;
