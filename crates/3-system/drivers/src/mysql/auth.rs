//! Authentication (<https://mariadb.com/kb/en/authentication-plugins/>): what a server can ask for, which requests
//! are answered over which connection ([`decide`]), and the bytes that prove a password.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rsa::pkcs8::DecodePublicKey as _;
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPublicKey};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256, Sha512};

use crate::net::{Transport, VERIFY_THE_SERVER};

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
    Ok(match decide(request, transport, public_key) {
        Decision::Refuse(risk) => return Err(AuthError::Risk { request, transport, risk }),
        Decision::Nothing => Vec::new(),
        Decision::Password => plain(bytes),
        Decision::EncryptedPassword(key) => key.encrypt(&mixed(bytes, challenge))?,
        // An empty password is proved by an empty response.
        Decision::Native | Decision::Sha2 if bytes.is_empty() => Vec::new(),
        Decision::Native => native(bytes, challenge),
        Decision::Sha2 => caching_sha2(bytes, challenge),
        Decision::Ed25519 => ed25519(bytes, challenge),
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

/// How a request is answered.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decision<'k> {
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
fn decide(request: Request, transport: Transport, public_key: Option<&PublicKey>) -> Decision<'_> {
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

/// The pinned public key of a server.
#[derive(Debug, PartialEq)]
pub(in crate::mysql) struct PublicKey {
    key: RsaPublicKey,
    file: PathBuf,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::mysql) enum PublicKeyError {
    #[error("reading the server's public key in {}: {error}", .file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error(
        "{} contains no RSA public key in PEM format; use public_key.pem of the server's data \
         directory",
        .0.display()
    )]
    Invalid(PathBuf),
    #[error("the password is too long for the server's public key in {}", .0.display())]
    TooLong(PathBuf),
}

impl PublicKey {
    pub(in crate::mysql) fn read(file: &Path) -> Result<Self, PublicKeyError> {
        let text = fs::read_to_string(file)
            .map_err(|error| PublicKeyError::Unreadable { file: file.to_owned(), error })?;
        // MySQL 9 writes a zero byte at the end of the file.
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        match RsaPublicKey::from_public_key_pem(text) {
            Ok(key) => Ok(Self { key, file: file.to_owned() }),
            Err(_) => Err(PublicKeyError::Invalid(file.to_owned())),
        }
    }

    fn encrypt(&self, message: &[u8]) -> Result<Vec<u8>, PublicKeyError> {
        self.key
            .encrypt(&mut OsRng, Oaep::new::<Sha1>(), message)
            .map_err(|_| PublicKeyError::TooLong(self.file.clone()))
    }

    #[cfg(test)]
    pub(in crate::mysql) fn for_tests() -> Self {
        let private = rsa::RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        Self { key: private.to_public_key(), file: "key.pem".into() }
    }
}

/// The password itself, terminated.
fn plain(password: &[u8]) -> Vec<u8> {
    let mut bytes = password.to_vec();
    bytes.push(0);
    bytes
}

/// The terminated password ⊕ challenge: what `caching_sha2_password` encrypts.
fn mixed(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let mut bytes = plain(password);
    mix(&mut bytes, challenge);
    bytes
}

/// SHA1(password) ⊕ SHA1(challenge + SHA1(SHA1(password)))
fn native(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha1::new().chain_update(challenge).chain_update(twice).finalize());
    response
}

/// SHA256(password) ⊕ SHA256(SHA256(SHA256(password)) + challenge)
fn caching_sha2(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha256::new().chain_update(twice).chain_update(challenge).finalize());
    response
}

/// The challenge signed with a key derived from the password.
fn ed25519(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
    let public = VerifyingKey::from(&secret);
    raw_sign::<Sha512>(&secret, challenge, &public).to_bytes().to_vec()
}

fn mix(bytes: &mut [u8], with: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(with.iter().cycle()) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use rsa::RsaPrivateKey;
    use rsa::pkcs8::{EncodePublicKey as _, LineEnding};

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

    #[test]
    fn message_is_encrypted_for_the_key_in_the_file() {
        let private = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("public_key.pem");
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        // As MySQL 9 writes it.
        fs::write(&file, format!("{pem}\0")).unwrap();
        let key = PublicKey::read(&file).unwrap();
        let encrypted = key.encrypt(b"message").unwrap();
        assert_eq!(private.decrypt(Oaep::new::<Sha1>(), &encrypted).unwrap(), b"message");
        let error = key.encrypt(&[b'x'; 128]).unwrap_err().to_string();
        assert!(error.contains("too long") && error.contains("public_key.pem"), "{error}");
    }

    #[test]
    fn unusable_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("other.pem");
        assert!(PublicKey::read(&file).unwrap_err().to_string().contains("other.pem"));
        fs::write(&file, "no key").unwrap();
        assert!(PublicKey::read(&file).unwrap_err().to_string().contains("other.pem"));
    }

    /// Verifies as the server does, which stores SHA1(SHA1(password)) only.
    #[test]
    fn native_response_is_verified_with_the_double_hash() {
        let stored = Sha1::digest(Sha1::digest(b"secret"));
        let mut response = native(b"secret", CHALLENGE);
        mix(&mut response, &Sha1::new().chain_update(CHALLENGE).chain_update(stored).finalize());
        assert_eq!(Sha1::digest(&response), stored);
    }

    #[test]
    fn sha2_response_is_verified_with_the_double_hash() {
        let stored = Sha256::digest(Sha256::digest(b"secret"));
        let mut response = caching_sha2(b"secret", CHALLENGE);
        mix(&mut response, &Sha256::new().chain_update(stored).chain_update(CHALLENGE).finalize());
        assert_eq!(Sha256::digest(&response), stored);
    }

    #[test]
    fn mixed_password_is_restored_with_the_challenge() {
        let password = b"a password longer than the challenge";
        let mut bytes = mixed(password, CHALLENGE);
        mix(&mut bytes, CHALLENGE);
        assert_eq!(bytes, plain(password));
    }
}
