//! The bytes that prove a password.

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::hazmat::{ExpandedSecretKey, raw_sign};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256, Sha512};

/// The password itself, terminated.
pub(super) fn plain(password: &[u8]) -> Vec<u8> {
    let mut bytes = password.to_vec();
    bytes.push(0);
    bytes
}

/// The terminated password ⊕ challenge: what `caching_sha2_password` encrypts.
pub(super) fn mixed(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let mut bytes = plain(password);
    mix(&mut bytes, challenge);
    bytes
}

/// SHA1(password) ⊕ SHA1(challenge + SHA1(SHA1(password)))
pub(super) fn native(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let once = Sha1::digest(password);
    let twice = Sha1::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha1::new().chain_update(challenge).chain_update(twice).finalize());
    response
}

/// SHA256(password) ⊕ SHA256(SHA256(SHA256(password)) + challenge)
pub(super) fn caching_sha2(password: &[u8], challenge: &[u8]) -> Vec<u8> {
    let once = Sha256::digest(password);
    let twice = Sha256::digest(once);
    let mut response = once.to_vec();
    mix(&mut response, &Sha256::new().chain_update(twice).chain_update(challenge).finalize());
    response
}

/// The challenge signed with a key derived from the password.
pub(super) fn ed25519(password: &[u8], challenge: &[u8]) -> Vec<u8> {
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
    use super::*;

    const CHALLENGE: &[u8] = b"a scramble of twenty";

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
