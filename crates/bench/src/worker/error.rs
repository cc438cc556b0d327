//! Errors of the worker.

/// An error of a request. Only a message, because it is only sent to dbdyno, and because the hot
/// loop returns it and needs a small type.
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

/// An error that ends a worker.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// A request could not be read.
    #[error("reading a request: {0}")]
    Read(std::io::Error),
    /// A response could not be sent.
    #[error("sending a response: {0}")]
    Send(std::io::Error),
    /// A line was not a request, or a response could not be encoded.
    #[error("not a request of this version: {0}")]
    Format(#[from] serde_json::Error),
    /// The first request did not open an instance.
    #[error("the first request must open an instance")]
    NotOpened,
}
