//! Private servers on other machines.
//!
//! dbdyno copies itself to a host and starts itself there as an agent, with the system's ssh. A
//! [`HostConnection`] is dbdyno's side; [`HostDir`] and [`HostServer`] stand for the directory of a server
//! and a running server there, a [`HostMonitor`] reads the usage of a server that somebody else started.
//! The agent ([`agent::serve`]) does on the host what `engines` does on
//! this machine, and ends all of it when the connection is lost. [`guard::guard`] is a second process
//! there that cleans up after a killed agent.
//!
//! No password is sent to a host: servers get what they store of it.

pub mod agent;
mod agent_dir;
mod connection;
mod copy;
mod error;
pub mod guard;
mod host_monitor;
mod host_server;
mod network_path;
mod password;
mod program_tree;
pub mod protocol;
mod ssh;

pub use connection::{HostConnection, HostOptions};
pub use error::HostError;
pub use host_monitor::HostMonitor;
pub use host_server::{HostDir, HostServer};
pub use network_path::{NetworkPath, Timing};
pub use program_tree::{CopyProgress, ProgramTree};
