//! What the drivers of servers share: a stream of bytes over a Unix socket, TCP or TLS, a buffer
//! for what arrives, and the search for a password.

mod buffer;
pub(crate) mod credentials;
mod files;
mod stream;
mod tls;

#[cfg(test)]
pub(crate) use buffer::Pieces;
pub(crate) use buffer::{ReadBuffer, Source};
pub(crate) use stream::Stream;
