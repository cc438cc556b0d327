//! Errors of the worker.

use dbdyno_drivers::ErrorKind;
use dbdyno_scripts::ScriptError;
use dbdyno_workloads::program::ProgramError;

/// An error of a request. Only what is sent to dbdyno, because the hot loop returns it and needs a
/// small type.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    message: Box<str>,
    /// Whether a connection is lost: it may succeed after a restart of the instance.
    pub(crate) lost_connection: bool,
}

impl From<String> for RequestError {
    fn from(message: String) -> Self {
        Self { message: message.into(), lost_connection: false }
    }
}

impl From<&str> for RequestError {
    fn from(message: &str) -> Self {
        Self { message: message.into(), lost_connection: false }
    }
}

impl From<dbdyno_drivers::Error> for RequestError {
    fn from(error: dbdyno_drivers::Error) -> Self {
        let lost_connection = error.kind == ErrorKind::Connection;
        Self { message: error.to_string().into(), lost_connection }
    }
}

impl From<ProgramError> for RequestError {
    fn from(error: ProgramError) -> Self {
        error.to_string().into()
    }
}

impl From<ScriptError> for RequestError {
    fn from(error: ScriptError) -> Self {
        Self { message: error.message.into(), lost_connection: error.lost_connection }
    }
}

/// An error that ends a worker.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("reading a request: {0}")]
    Read(std::io::Error),
    #[error("sending a response: {0}")]
    Send(std::io::Error),
    /// A line was not a request, or a response could not be encoded.
    #[error("not a request of this version: {0}")]
    Format(#[from] serde_json::Error),
    /// The first request did not open an instance.
    #[error("the first request must open an instance")]
    NotOpened,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_lost_connection_is_a_loss() {
        let lost_connection = |kind| {
            let (doing, message) = ("executing".to_owned(), "no".to_owned());
            let error = dbdyno_drivers::Error { doing, message, code: None, kind };
            let error = RequestError::from(error);
            assert_eq!(error.to_string(), "executing: no");
            error.lost_connection
        };
        assert!(lost_connection(ErrorKind::Connection));
        for kind in [ErrorKind::StorageFull, ErrorKind::Storage, ErrorKind::Statement] {
            assert!(!lost_connection(kind), "{kind:?}");
        }
        let of_script = |lost_connection| {
            RequestError::from(ScriptError { message: "no".to_owned(), lost_connection })
        };
        assert!(of_script(true).lost_connection && !of_script(false).lost_connection);
        assert!(!RequestError::from("the script has ended its client").lost_connection);
    }
}
