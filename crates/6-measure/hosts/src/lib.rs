//! Machines on which private servers run: this one and other hosts.
//!
//! [`ServerHost`] is such a machine with the data of its servers, [`RunningServer`] a server there. [`LocalHost`] is
//! this machine. For another one, dbdyno copies itself there and starts itself as an agent, with the system's ssh: a
//! [`HostConnection`] is dbdyno's side, and a [`HostMonitor`] reads the usage of a server there. The agent
//! ([`agent::serve`]) uses a [`LocalHost`], and ends everything when the connection is lost. [`agent::guard`] is a second
//! process there that cleans up after a killed agent.
//!
//! No password is sent to a host: servers get what they store of it.

pub mod agent;
mod connection;
mod local;
mod program_tree;
pub mod protocol;
mod remote;
mod server_host;
mod ssh;

pub use connection::{HostConnection, HostOptions, NetworkPath, Timing};
pub use local::{LocalHost, LocalServer};
pub use program_tree::{CopyProgress, ProgramTree};
pub use remote::HostMonitor;
pub use server_host::{HostError, RunningServer, ServerHost, ServerKey, ServerStart};
