//! Shared by the drivers of servers: byte streams over a Unix socket, TCP or TLS, the receive buffer,
//! and password lookup.

mod buffer;
pub(crate) mod credentials;
mod stream;
mod tls;

#[cfg(test)]
pub(crate) use buffer::ChunkedSource;
pub(crate) use buffer::{MAX_MESSAGE, ReadBuffer, Source};
pub(crate) use stream::Stream;

/// What a connection guarantees about who can read what is sent on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    UnixSocket,
    /// TLS, and the server's certificate was verified or is pinned.
    VerifiedTls,
    /// TLS with any certificate.
    UnverifiedTls,
    /// TCP without encryption.
    PlainTcp,
}

impl Transport {
    /// Every case, for tests.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 4] =
        [Self::UnixSocket, Self::VerifiedTls, Self::UnverifiedTls, Self::PlainTcp];

    /// Why a password is not sent; `None` if only the intended server can read it.
    pub(crate) const fn risk(self) -> Option<&'static str> {
        match self {
            Self::UnixSocket | Self::VerifiedTls => None,
            Self::UnverifiedTls => Some(
                "the server's certificate was not verified, so that any server could have asked \
                 for the password",
            ),
            Self::PlainTcp => Some(
                "the connection is not encrypted, so that any server could have asked for the \
                 password and others could read it",
            ),
        }
    }
}

/// What to change in an experiment whose server asks for a password on a connection with a risk.
pub(crate) const VERIFY_THE_SERVER: &str = "verify the server in the candidate's `url`: tls=verified for a certificate of a public \
     authority, tls=verified&tls_authorities=FILE for one of your own authority, \
     tls=verified&tls_fingerprint=SHA256 for this certificate only; or connect through its Unix \
     socket";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_and_a_verified_server_have_no_risk() {
        let safe: Vec<Transport> =
            Transport::ALL.into_iter().filter(|transport| transport.risk().is_none()).collect();
        assert_eq!(safe, [Transport::UnixSocket, Transport::VerifiedTls]);
    }
}
