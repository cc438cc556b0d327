//! The private server of an instance, on this machine or on another host.

use std::fmt::Display;

use dbdyno_engines::server::{Server, ServerError};
use dbdyno_hosts::{HostError, HostServer};
use dbdyno_types::server::Target;
use dbdyno_worker::WorkerError;

/// A running private server. Dropping it kills the server.
pub(super) enum RunningServer {
    /// On this machine.
    Here(Server),
    /// On another host.
    OnHost(HostServer),
}

impl RunningServer {
    /// Its main process; `None` on another host.
    pub fn pid(&self) -> Option<u32> {
        match self {
            Self::Here(server) => Some(server.pid()),
            Self::OnHost(_) => None,
        }
    }

    /// How the worker reaches it.
    pub fn target(&self) -> Target {
        match self {
            Self::Here(server) => server.target(),
            Self::OnHost(server) => server.target(),
        }
    }

    /// How it exited, or that its host is lost; `None` while it runs.
    pub fn ended(&mut self) -> Option<WorkerError> {
        match self {
            Self::Here(server) => server.ended().map(server_failed),
            Self::OnHost(server) => server.ended().map(host_failed),
        }
    }

    /// Shuts it down cleanly.
    ///
    /// # Errors
    /// It was killed, or exited with an error.
    pub fn stop(self) -> Result<(), WorkerError> {
        match self {
            Self::Here(server) => server.stop().map_err(server_failed),
            Self::OnHost(server) => server.stop().map_err(host_failed),
        }
    }
}

pub(super) fn server_failed(error: ServerError) -> WorkerError {
    failed(error.brief(), error)
}

pub(super) fn host_failed(error: HostError) -> WorkerError {
    failed(error.brief(), error)
}

fn failed(brief: String, whole: impl Display) -> WorkerError {
    WorkerError::Server { brief, whole: whole.to_string() }
}
