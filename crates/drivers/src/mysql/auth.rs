//! Authentication methods (<https://mariadb.com/kb/en/authentication-plugins/>).

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use rsa::pkcs8::DecodePublicKey as _;
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPublicKey};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256, Sha512};

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

    /// The first response; `None` if it would reveal the password on a connection that is not `private`.
    pub(super) fn answer(self, password: &str, scramble: &[u8], private: bool) -> Option<Vec<u8>> {
        let bytes = password.as_bytes();
        match self {
            Self::Socket => Some(Vec::new()),
            Self::Clear => private.then(|| clear(password)),
            Self::Ed25519 => Some(ed25519(bytes, scramble)),
            // An empty password is proved by an empty response.
            Self::Native | Self::CachingSha2 if bytes.is_empty() => Some(Vec::new()),
            Self::Native => Some(native(bytes, scramble)),
            Self::CachingSha2 => Some(caching_sha2(bytes, scramble)),
        }
    }
}

/// The plain-text password, for private connections only.
pub(super) fn clear(password: &str) -> Vec<u8> {
    let mut bytes = password.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

/// The password encrypted with a public key in PEM format. `None` if the key is not valid or the password
/// is too long for it.
pub(super) fn encrypted(password: &str, scramble: &[u8], key: &[u8]) -> Option<Vec<u8>> {
    let key = RsaPublicKey::from_public_key_pem(std::str::from_utf8(key).ok()?.trim()).ok()?;
    let mut mixed = clear(password);
    mix(&mut mixed, scramble);
    key.encrypt(&mut OsRng, Oaep::new::<Sha1>(), &mixed).ok()
}

/// SHA1(password) ⊕ SHA1(scramble + SHA1(SHA1(password)))
fn native(password: &[u8], scramble: &[u8]) -> Vec<u8> {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha1::new().chain_update(scramble).chain_update(twice).finalize());
    response
}

/// SHA256(password) ⊕ SHA256(SHA256(SHA256(password)) + scramble)
fn caching_sha2(password: &[u8], scramble: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha256::new().chain_update(twice).chain_update(scramble).finalize());
    response
}

/// The scramble signed with a key derived from the password.
fn ed25519(password: &[u8], scramble: &[u8]) -> Vec<u8> {
    let secret = ExpandedSecretKey::from_bytes(&Sha512::digest(password).into());
    let public = VerifyingKey::from(&secret);
    raw_sign::<Sha512>(&secret, scramble, &public).to_bytes().to_vec()
}

fn mix(bytes: &mut [u8], with: &[u8]) {
    for (byte, other) in bytes.iter_mut().zip(with.iter().cycle()) {
        *byte ^= other;
    }
}

#[cfg(test)]
mod tests {
    use rsa::pkcs8::{EncodePublicKey as _, LineEnding};
    use rsa::{RsaPrivateKey, traits::PublicKeyParts as _};

    use super::*;

    const SCRAMBLE: &[u8] = b"a scramble of twenty";

    /// Verifies as the server does, which stores SHA1(SHA1(password)) only.
    #[test]
    fn native_response_is_verified_with_the_double_hash() {
        let stored = Sha1::digest(Sha1::digest(b"secret"));
        let mut response = Method::Native.answer("secret", SCRAMBLE, false).unwrap();
        mix(&mut response, &Sha1::new().chain_update(SCRAMBLE).chain_update(stored).finalize());
        assert_eq!(Sha1::digest(&response), stored);
    }

    #[test]
    fn sha2_response_is_verified_with_the_double_hash() {
        let stored = Sha256::digest(Sha256::digest(b"secret"));
        let mut response = Method::CachingSha2.answer("secret", SCRAMBLE, false).unwrap();
        mix(&mut response, &Sha256::new().chain_update(stored).chain_update(SCRAMBLE).finalize());
        assert_eq!(Sha256::digest(&response), stored);
    }

    #[test]
    fn encrypted_password_can_be_decrypted() {
        let private = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        let sent = encrypted("a password longer than the scramble", SCRAMBLE, pem.as_bytes());
        let mut opened = private.decrypt(Oaep::new::<Sha1>(), &sent.unwrap()).unwrap();
        mix(&mut opened, SCRAMBLE);
        assert_eq!(opened, b"a password longer than the scramble\0");
        assert_eq!(encrypted("x", SCRAMBLE, b"no key"), None);
        assert_eq!(encrypted(&"x".repeat(private.size()), SCRAMBLE, pem.as_bytes()), None);
    }

    #[test]
    fn plain_text_password_needs_a_private_connection() {
        assert_eq!(Method::Clear.answer("secret", SCRAMBLE, false), None);
        assert_eq!(Method::Clear.answer("secret", SCRAMBLE, true).unwrap(), b"secret\0");
    }

    #[test]
    fn empty_password_gives_empty_response() {
        assert_eq!(Method::Native.answer("", SCRAMBLE, false).unwrap(), b"");
        assert_eq!(Method::CachingSha2.answer("", SCRAMBLE, false).unwrap(), b"");
    }
}
