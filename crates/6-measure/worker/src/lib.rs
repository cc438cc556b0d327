//! The schedule of slices, and the worker that runs them.
//!
//! A worker is a process that holds the connections to one instance and runs slices on request: see [`serve`], and
//! [`WorkerHandle`] for dbdyno's side. A [`schedule`] determines the order and length of the slices: each block
//! contains one slice of every candidate, in random order. It does no I/O. This crate does not compute estimates or
//! write to the run directory.

mod client;
mod client_context;
mod client_driver;
mod clients;
mod delay;
mod error;
#[cfg(test)]
mod fake_server;
mod handle;
mod insert;
mod latency;
mod meter;
mod own_data;
mod prepared;
mod profiler;
pub mod protocol;
pub mod schedule;
mod script;
mod serve;
mod server_monitor;
mod statement_log;
mod waiting;
mod waits;

pub use client::{Client, ClientSetup};
pub use error::{RequestError, ServeError};
pub use handle::{STOP_TIME, WorkerError, WorkerHandle};
pub use profiler::Profiler;
pub use serve::serve;
pub use server_monitor::{ServerMonitor, StepMeter, TimedPart};
