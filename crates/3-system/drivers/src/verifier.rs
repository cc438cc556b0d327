//! What servers store of a password, to create an account without sending the password itself.

use dbdyno_types::server::ServerSystem;
use postgres_protocol::password::scram_sha_256;
use rsa::rand_core::{OsRng, RngCore as _};
use sha1::{Digest as _, Sha1};
use sha2::{Digest as _, Sha256};

/// Bytes of a salt of `caching_sha2_password`.
const SALT_LENGTH: usize = 20;

/// What a server stores of this password: for PostgreSQL of SCRAM-SHA-256, for MariaDB of
/// `mysql_native_password`, for MySQL of `caching_sha2_password`.
///
/// It has no quotes and no backslashes, so that it can be part of a statement.
pub fn verifier(system: ServerSystem, password: &str) -> String {
    match system {
        ServerSystem::PostgreSql => scram_sha_256(password.as_bytes()),
        ServerSystem::MariaDb => {
            let twice = Sha1::digest(Sha1::digest(password.as_bytes()));
            let hex: String = twice.iter().map(|byte| format!("{byte:02X}")).collect();
            format!("*{hex}")
        }
        ServerSystem::MySql => caching_sha2(password),
    }
}

/// `$A$`, the number of rounds in thousands, `$`, the salt, the digest.
fn caching_sha2(password: &str) -> String {
    let mut random = [0; SALT_LENGTH / 2];
    OsRng.fill_bytes(&mut random);
    let salt: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let digest = sha256_crypt(password.as_bytes(), salt.as_bytes(), 5_000);
    format!("$A$005${salt}{digest}")
}

const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The digest of a password, in the alphabet of crypt(3).
pub(crate) fn sha256_crypt(password: &[u8], salt: &[u8], rounds: u32) -> String {
    let digest_b = Sha256::new().chain_update(password).chain_update(salt).chain_update(password);
    let digest_b = digest_b.finalize();
    let mut digest_a = Sha256::new().chain_update(password).chain_update(salt);
    digest_a.update(repeated(&digest_b, password.len()));
    let mut bits = password.len();
    while bits > 0 {
        digest_a.update(if bits & 1 == 1 { &digest_b[..] } else { password });
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
        next.update(if is_odd { &bytes_p[..] } else { &digest[..] });
        if round % 3 != 0 {
            next.update(&bytes_s);
        }
        if round % 7 != 0 {
            next.update(&bytes_p);
        }
        next.update(if is_odd { &digest[..] } else { &bytes_p[..] });
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
    fn mariadb_stores_the_hash_of_a_hash() {
        // `SELECT PASSWORD('secret')`
        let expected = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
        assert_eq!(verifier(ServerSystem::MariaDb, "secret"), expected);
    }

    #[test]
    fn mysql_stores_a_salted_hash() {
        let of = || verifier(ServerSystem::MySql, "secret");
        let (one, other) = (of(), of());
        assert!(one.starts_with("$A$005$") && one.len() == 70 && one != other, "{one} {other}");
        assert!(!one.contains(['\'', '\\']), "{one}");
    }

    #[test]
    fn postgresql_stores_a_salted_key() {
        let of = || verifier(ServerSystem::PostgreSql, "secret");
        let (one, other) = (of(), of());
        assert!(one.starts_with("SCRAM-SHA-256$4096:") && one != other, "{one} {other}");
        assert!(!one.contains("secret") && !one.contains(['\'', '\\']), "{one}");
    }

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
