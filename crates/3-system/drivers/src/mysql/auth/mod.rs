//! Authentication (<https://mariadb.com/kb/en/authentication-plugins/>): what a server can ask for, and the
//! response, if [`policy`] allows one.

mod policy;
mod public_key;
mod responses;

use std::fmt;

use self::policy::Decision;
pub(super) use self::public_key::{PublicKey, PublicKeyError};
use crate::net::{Transport, VERIFY_THE_SERVER};

/// An authentication method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// `mysql_native_password`.
    Native,
    /// MySQL's default since 8.0.
    CachingSha2,
    /// MariaDB's `ed25519`.
    Ed25519,
    /// The plain-text password.
    Clear,
    /// The server gets the client's user from the operating system.
    Socket,
}

/// The methods that [`Method::by_name`] accepts, for error messages.
pub(super) const KNOWN: &str = "mysql_native_password, caching_sha2_password, client_ed25519, \
                                mysql_clear_password and unix_socket";

impl Method {
    pub(super) fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "mysql_native_password" => Self::Native,
            "caching_sha2_password" => Self::CachingSha2,
            "client_ed25519" => Self::Ed25519,
            "mysql_clear_password" => Self::Clear,
            "auth_socket" | "unix_socket" => Self::Socket,
            _ => return None,
        })
    }

    /// The name to send to the server.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Native => "mysql_native_password",
            Self::CachingSha2 => "caching_sha2_password",
            Self::Ed25519 => "client_ed25519",
            Self::Clear => "mysql_clear_password",
            Self::Socket => "auth_socket",
        }
    }

    /// Length of the server's challenge; 0 if the method has none.
    const fn challenge_length(self) -> usize {
        match self {
            Self::Native | Self::CachingSha2 => 20,
            Self::Ed25519 => 32,
            Self::Clear | Self::Socket => 0,
        }
    }
}

/// What a server asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Response(Method),
    /// The password itself, as full authentication of `caching_sha2_password`: the server has no hash of it in
    /// its cache.
    Sha2Password,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Response(method) => f.write_str(method.name()),
            Self::Sha2Password => f.write_str("full authentication of caching_sha2_password"),
        }
    }
}

/// Why a request is not answered.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuthError {
    #[error(
        "the server requests the plain-text password ({request}), which is not sent: {risk}; {}",
        advice(*.request, *.transport)
    )]
    Risk { request: Request, transport: Transport, risk: &'static str },
    #[error(
        "the server sent an invalid challenge for {}; check that it is a MySQL or MariaDB server",
        .0.name()
    )]
    Challenge(Method),
    #[error(transparent)]
    PublicKey(#[from] PublicKeyError),
}

/// What to change so that the request can be answered.
fn advice(request: Request, transport: Transport) -> String {
    match (request, transport) {
        (Request::Sha2Password, Transport::PlainTcp) => format!(
            "{VERIFY_THE_SERVER}; or pin the server's public key with server_public_key_path=FILE"
        ),
        _ => VERIFY_THE_SERVER.to_owned(),
    }
}

/// The response to a request, to be sent over `transport`. `challenge` is what the server sent for it.
///
/// This is the only way to a response that depends on the password.
///
/// # Errors
/// The response would reveal the password to others than the intended server, or the challenge is not valid.
pub(super) fn respond(
    request: Request,
    password: &str,
    challenge: &[u8],
    transport: Transport,
    public_key: Option<&PublicKey>,
) -> Result<Vec<u8>, AuthError> {
    let method = match request {
        Request::Response(method) => method,
        Request::Sha2Password => Method::CachingSha2,
    };
    let challenge = checked(method, challenge)?;
    let bytes = password.as_bytes();
    Ok(match policy::decide(request, transport, public_key) {
        Decision::Refuse(risk) => return Err(AuthError::Risk { request, transport, risk }),
        Decision::Nothing => Vec::new(),
        Decision::Password => responses::plain(bytes),
        Decision::EncryptedPassword(key) => key.encrypt(&responses::mixed(bytes, challenge))?,
        // An empty password is proved by an empty response.
        Decision::Native | Decision::Sha2 if bytes.is_empty() => Vec::new(),
        Decision::Native => responses::native(bytes, challenge),
        Decision::Sha2 => responses::caching_sha2(bytes, challenge),
        Decision::Ed25519 => responses::ed25519(bytes, challenge),
    })
}

/// The challenge without the zero byte that some servers append. With a shorter one, responses could be
/// compared with tables that were computed before.
fn checked(method: Method, challenge: &[u8]) -> Result<&[u8], AuthError> {
    let (start, end) = challenge
        .split_at_checked(method.challenge_length())
        .ok_or(AuthError::Challenge(method))?;
    match end {
        _ if start.is_empty() => Ok(start),
        [] | [0] => Ok(start),
        _ => Err(AuthError::Challenge(method)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &[u8] = b"a scramble of twenty";

    fn response(method: Method, password: &str, challenge: &[u8]) -> Result<Vec<u8>, AuthError> {
        respond(Request::Response(method), password, challenge, Transport::PlainTcp, None)
    }

    #[test]
    fn empty_password_gives_empty_response() {
        for method in [Method::Native, Method::CachingSha2] {
            assert_eq!(response(method, "", CHALLENGE).unwrap(), b"");
        }
    }

    #[test]
    fn challenge_of_another_length_is_refused() {
        let nonce = [7; 33];
        for (method, length) in
            [(Method::Native, 20), (Method::CachingSha2, 20), (Method::Ed25519, 32)]
        {
            let expected = response(method, "secret", &nonce[..length]).unwrap();
            let terminated = [&nonce[..length], &[0]].concat();
            assert_eq!(response(method, "secret", &terminated).unwrap(), expected);
            for wrong in [&[][..], &nonce[..8], &nonce[..length - 1], &nonce[..=length]] {
                let error = response(method, "secret", wrong).unwrap_err().to_string();
                assert!(error.contains(method.name()), "{error}");
            }
        }
        // The last byte of a challenge can be zero.
        let zero_at_end = [&nonce[..31], &[0]].concat();
        response(Method::Ed25519, "secret", &zero_at_end).unwrap();
    }

    #[test]
    fn refusal_has_the_request_the_risk_and_the_remedy() {
        let clear = Request::Response(Method::Clear);
        for (request, name) in
            [(clear, "mysql_clear_password"), (Request::Sha2Password, "caching_sha2_password")]
        {
            for transport in [Transport::PlainTcp, Transport::UnverifiedTls] {
                let error = respond(request, "secret", CHALLENGE, transport, None).unwrap_err();
                let words = error.to_string();
                assert!(!words.contains("secret"), "{words}");
                for part in [name, transport.risk().unwrap(), "tls=verified", "Unix socket"] {
                    assert!(words.contains(part), "{words}");
                }
                let pinnable = (request, transport) == (Request::Sha2Password, Transport::PlainTcp);
                assert_eq!(words.contains("server_public_key_path"), pinnable, "{words}");
            }
        }
    }
}
