//! SHA-256-crypt, with which MySQL stores passwords of `caching_sha2_password`.
//!
//! Source: Ulrich Drepper, "Unix crypt using SHA-256 and SHA-512", version 0.6, whose names of steps are
//! used here. MySQL uses salts of 20 bytes, where Unix uses up to 16.

use sha2::{Digest as _, Sha256};

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The digest of a password, in the alphabet of crypt(3).
pub(crate) fn sha256_crypt(password: &[u8], salt: &[u8], rounds: u32) -> String {
    let digest_b = Sha256::new().chain_update(password).chain_update(salt).chain_update(password);
    let digest_b = digest_b.finalize();
    let mut digest_a = Sha256::new().chain_update(password).chain_update(salt);
    digest_a.update(repeated(&digest_b, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        if bits & 1 == 1 {
            digest_a.update(digest_b)
        } else {
            digest_a.update(password)
        }
        bits >>= 1;
    }
    let mut digest = digest_a.finalize();
    let digest_p = Sha256::digest(password.repeat(password.len()));
    let bytes_p = repeated(&digest_p, password.len());
    let digest_s = Sha256::digest(salt.repeat(16 + usize::from(digest[0])));
    let bytes_s = repeated(&digest_s, salt.len());
    for round in 0..rounds {
        let mut next = Sha256::new();
        let is_odd = round % 2 == 1;
        if is_odd {
            next.update(&bytes_p)
        } else {
            next.update(digest)
        }
        if round % 3 != 0 {
            next.update(&bytes_s);
        }
        if round % 7 != 0 {
            next.update(&bytes_p);
        }
        if is_odd {
            next.update(digest)
        } else {
            next.update(&bytes_p)
        }
        digest = next.finalize();
    }
    encode(&digest)
}

/// The first `length` bytes of the endless repetition of `digest`.
fn repeated(digest: &[u8], length: usize) -> Vec<u8> {
    digest.iter().copied().cycle().take(length).collect()
}

/// The bytes in the order of crypt(3): three become four digits.
fn encode(digest: &[u8]) -> String {
    let mut text = String::new();
    let mut add = |bytes: [u8; 3], digits: u32| {
        let word = u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
        for digit in 0..digits {
            text.push(char::from(DIGITS[(word >> (6 * digit) & 63) as usize]));
        }
    };
    let (mut a, mut b, mut c) = (0, 10, 20);
    for _ in 0..10 {
        add([digest[a], digest[b], digest[c]], 4);
        (a, b, c) = ((c + 1) % 30, (a + 1) % 30, (b + 1) % 30);
    }
    add([0, digest[31], digest[30]], 3);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_specification() {
        let crypt = |password: &str, salt: &str, rounds| {
            sha256_crypt(password.as_bytes(), salt.as_bytes(), rounds)
        };
        let expected = "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5";
        assert_eq!(crypt("Hello world!", "saltstring", 5_000), expected);
        let expected = "3xv.VbSHBb41AL9AvLeujZkZRBAwqFMz2.opqey6IcA";
        assert_eq!(crypt("Hello world!", "saltstringsaltst", 10_000), expected);
    }
}
