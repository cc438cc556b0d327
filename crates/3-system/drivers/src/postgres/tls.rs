use dbdyno_types::server::{Address, Target};

use super::channel::Channel;
use crate::net::{Source as _, Stream};
use crate::{Error, ErrorKind};

/// SSLRequest: its length and its request code.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Requests encryption and starts TLS.
///
/// # Errors
/// The server offers no encryption, its certificate is refused, or the connection is lost.
pub(super) fn encrypt(mut stream: Stream, target: &Target) -> Result<Channel, Error> {
    let doing = || format!("requesting encryption from {}", target.address);
    let refused =
        |message: String| Error { doing: doing(), message, code: None, kind: ErrorKind::Refused };
    let answer = match request_tls(&mut stream) {
        Ok(answer) => answer,
        Err(error) => return Err(Channel::new(stream).fail(error.into(), None, doing())),
    };
    match answer {
        b'S' => {
            stream.start_tls(target)?;
            Ok(Channel::new(stream))
        }
        b'N' => Err(refused(match target.address {
            Address::Socket(_) => "PostgreSQL offers no encryption on a Unix socket; connect \
                                   without it, or over TCP"
                .to_owned(),
            Address::Tcp { .. } => {
                "the server offers no encryption; enable it there (ssl = on), or \
                                    connect without it"
                    .to_owned()
            }
        })),
        other => Err(refused(format!(
            "the server sent the invalid response '{}'; check that it is a PostgreSQL server",
            other.escape_ascii()
        ))),
    }
}

/// Reads exactly one byte: bytes after it are unencrypted, may be injected by anyone, and must not be
/// mistaken for encrypted ones.
fn request_tls(stream: &mut Stream) -> std::io::Result<u8> {
    stream.write_all(&REQUEST)?;
    let mut answer = [0];
    match stream.receive(&mut answer, true)? {
        Some(1) => Ok(answer[0]),
        _ => Err(std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            "the server closed the connection",
        )),
    }
}
