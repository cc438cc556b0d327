//! Shared by the drivers of servers: byte streams over a Unix socket, TCP or TLS, the receive buffer,
//! rows as text, and password lookup.

pub(crate) mod credentials;
mod stream;
mod tls;

use crate::{Error, ErrorKind};

#[cfg(test)]
pub(crate) use stream::ChunkedSource;
pub(crate) use stream::{MAX_MESSAGE, ReadBuffer, Source, Stream};

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

/// PostgreSQL's request for encryption, which its servers answer with one byte: its length and its code.
pub(crate) const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// What a server is, by the first bytes of its answer.
pub(crate) fn describe_server(answer: &[u8]) -> String {
    match answer {
        // The length of a packet, its number, the version of the protocol.
        [_, _, 0, 0, 10, version @ ..] => {
            let version = version.split(|byte| *byte == 0).next().unwrap_or_default();
            format!("a MySQL or MariaDB server, version {}", version.escape_ascii())
        }
        [b'S' | b'N'] => "a PostgreSQL server".to_owned(),
        // An error that names its severity.
        [b'E', 0, 0, _, _, b'S', ..] => "a PostgreSQL server".to_owned(),
        [0x15, 3, ..] => "a server that expects TLS".to_owned(),
        _ => {
            let line =
                answer.split(|byte| matches!(byte, b'\r' | b'\n')).next().unwrap_or_default();
            let excerpt = &line[..line.len().min(40)];
            format!("a server whose answer starts with `{}`", excerpt.escape_ascii())
        }
    }
}

/// What to change in an experiment whose server asks for a password on a connection with a risk.
pub(crate) const VERIFY_THE_SERVER: &str = "verify the server in the candidate's `url`: tls=verified for a certificate of a public \
     authority, tls=verified&tls_authorities=FILE for one of your own authority, \
     tls=verified&tls_fingerprint=SHA256 for this certificate only; or connect through its Unix \
     socket";

/// The rows of a query as text, up to a size that no query of dbdyno reaches: a server could send rows until
/// the memory is full.
#[derive(Default)]
pub(crate) struct TextRows {
    rows: Vec<Vec<Option<String>>>,
    size: usize,
}

impl TextRows {
    pub(crate) const MAX_SIZE: usize = 64 << 20;

    /// Appends a row. False if there are too many.
    pub(crate) fn push(&mut self, row: Vec<Option<String>>) -> bool {
        let texts: usize = row.iter().flatten().map(String::capacity).sum();
        self.size += texts + size_of_val(&*row) + size_of_val(&row);
        if self.is_full() {
            return false;
        }
        self.rows.push(row);
        true
    }

    fn is_full(&self) -> bool {
        self.size > Self::MAX_SIZE
    }

    /// The rows, or the error for too many, or else `failure`.
    pub(crate) fn finish(
        self,
        outcome: Result<(), Error>,
    ) -> Result<Vec<Vec<Option<String>>>, Error> {
        match outcome {
            Ok(()) => Ok(self.rows),
            Err(error) if self.is_full() => Err(Error {
                message: format!(
                    "the server sent more than {} MiB in response; the connection is closed",
                    Self::MAX_SIZE >> 20
                ),
                kind: ErrorKind::Connection,
                ..error
            }),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_and_a_verified_server_have_no_risk() {
        let safe: Vec<Transport> =
            Transport::ALL.into_iter().filter(|transport| transport.risk().is_none()).collect();
        assert_eq!(safe, [Transport::UnixSocket, Transport::VerifiedTls]);
    }

    #[test]
    fn servers_are_described_by_their_answers() {
        let of = describe_server;
        assert_eq!(of(b"J\0\0\0\x0a8.0.36\0\x08"), "a MySQL or MariaDB server, version 8.0.36");
        assert_eq!(of(b"N"), "a PostgreSQL server");
        assert_eq!(of(b"E\0\0\0\x85SFATAL\0"), "a PostgreSQL server");
        assert_eq!(of(b"\x15\x03\x01\0\x02\x02"), "a server that expects TLS");
        let text = "a server whose answer starts with `SSH-2.0-OpenSSH_9.2`";
        assert_eq!(of(b"SSH-2.0-OpenSSH_9.2\r\n"), text);
        assert!(of(&[0xff; 99]).len() < 250);
    }

    fn failure() -> Error {
        Error {
            doing: "executing SELECT 1".to_owned(),
            message: "invalid".to_owned(),
            code: None,
            kind: ErrorKind::Statement,
        }
    }

    #[test]
    fn rows_are_limited_by_size_and_number() {
        for row in [vec![Some("x".repeat(1 << 20))], vec![None; 60_000], Vec::new()] {
            let mut rows = TextRows::default();
            let accepted = (0..4_000_000).take_while(|_| rows.push(row.clone())).count();
            assert!((40..4_000_000).contains(&accepted), "{accepted}");
            let error = rows.finish(Err(failure())).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Connection);
            assert!(error.message.contains("more than 64 MiB"), "{error}");
        }
    }

    #[test]
    fn other_errors_are_kept() {
        let mut rows = TextRows::default();
        assert!(rows.push(vec![Some("a".to_owned()), None]));
        assert_eq!(rows.finish(Err(failure())), Err(failure()));
    }
}
