//! Shared by the drivers of servers: byte streams over a Unix socket, TCP or TLS, the receive buffer,
//! and password lookup.

mod buffer;
pub(crate) mod credentials;
mod password_files;
mod stream;
mod tls;
mod transport;

#[cfg(test)]
pub(crate) use buffer::ChunkedSource;
pub(crate) use buffer::{MAX_MESSAGE, ReadBuffer, Source};
pub(crate) use stream::Stream;
pub(crate) use transport::{Transport, VERIFY_THE_SERVER};
