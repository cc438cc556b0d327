//! Which requests are answered over which connection. No other code decides it.

use super::{Method, PublicKey, Request};
use crate::net::Transport;

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Decision<'k> {
    /// With nothing: the server asks the operating system.
    Nothing,
    /// With a proof that depends on the challenge. It does not contain the password, but the server can guess
    /// passwords and compare.
    Native,
    /// As `Native`.
    Sha2,
    /// As `Native`.
    Ed25519,
    /// With the password itself.
    Password,
    /// With the password encrypted with the pinned key of the server.
    EncryptedPassword(&'k PublicKey),
    /// Not, for this reason.
    Refuse(&'static str),
}

/// The password itself is for the intended server only: the connection must exclude others, or the server's
/// key must be pinned. A proof may be sent on every connection.
pub(super) fn decide(
    request: Request,
    transport: Transport,
    public_key: Option<&PublicKey>,
) -> Decision<'_> {
    match request {
        Request::Response(Method::Socket) => Decision::Nothing,
        Request::Response(Method::Native) => Decision::Native,
        Request::Response(Method::CachingSha2) => Decision::Sha2,
        Request::Response(Method::Ed25519) => Decision::Ed25519,
        Request::Response(Method::Clear) | Request::Sha2Password => {
            match (transport.risk(), request, transport, public_key) {
                (None, ..) => Decision::Password,
                // Servers expect an encrypted password on unencrypted connections only.
                (Some(_), Request::Sha2Password, Transport::PlainTcp, Some(key)) => {
                    Decision::EncryptedPassword(key)
                }
                (Some(risk), ..) => Decision::Refuse(risk),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Method; 5] =
        [Method::Native, Method::CachingSha2, Method::Ed25519, Method::Clear, Method::Socket];

    /// A letter per combination: `p` password, `e` encrypted with the pinned key, `h` proof from a hash,
    /// `n` nothing, `-` refused.
    fn letter(decision: Decision<'_>) -> char {
        match decision {
            Decision::Nothing => 'n',
            Decision::Native | Decision::Sha2 | Decision::Ed25519 => 'h',
            Decision::Password => 'p',
            Decision::EncryptedPassword(_) => 'e',
            Decision::Refuse(_) => '-',
        }
    }

    #[test]
    fn every_combination_of_request_connection_and_key() {
        let key = PublicKey::for_tests();
        let requests = METHODS.map(Request::Response).into_iter().chain([Request::Sha2Password]);
        let table: Vec<String> = requests
            .map(|request| {
                let mut row = format!("{request}:");
                for transport in Transport::ALL {
                    row.push(' ');
                    row.push(letter(decide(request, transport, None)));
                    row.push(letter(decide(request, transport, Some(&key))));
                }
                row
            })
            .collect();
        // Without and with a pinned key, on a Unix socket, verified TLS, unverified TLS, plain TCP.
        assert_eq!(
            table,
            [
                "mysql_native_password: hh hh hh hh",
                "caching_sha2_password: hh hh hh hh",
                "client_ed25519: hh hh hh hh",
                "mysql_clear_password: pp pp -- --",
                "auth_socket: nn nn nn nn",
                "full authentication of caching_sha2_password: pp pp -- -e",
            ]
        );
    }
}
