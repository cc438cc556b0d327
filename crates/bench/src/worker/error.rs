//! Errors of the worker.

/// Why a worker could not do what a request asked. A message, since it is only sent to dbdyno; and
/// no larger than one, since the hot loop returns it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RequestError(String);

impl From<String> for RequestError {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for RequestError {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

impl From<dbdyno_drivers::Error> for RequestError {
    fn from(error: dbdyno_drivers::Error) -> Self {
        Self(error.to_string())
    }
}

impl From<super::prepared::PrepareError> for RequestError {
    fn from(error: super::prepared::PrepareError) -> Self {
        Self(error.to_string())
    }
}

/// Why a worker stopped serving requests.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A request could not be read.
    #[error("reading a request: {0}")]
    Read(std::io::Error),
    /// A response could not be sent.
    #[error("sending a response: {0}")]
    Send(std::io::Error),
    /// A line was no request, or a response could not be encoded.
    #[error("not a request of this version: {0}")]
    Format(#[from] serde_json::Error),
    /// The first request did not open an instance.
    #[error("the first request must open an instance")]
    NotOpened,
}
