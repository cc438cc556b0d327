//! What servers store of a password, to create an account without sending the password itself.

use dbdyno_types::server::ServerSystem;
use postgres_protocol::password::scram_sha_256;
use rsa::rand_core::{OsRng, RngCore as _};
use sha1::{Digest as _, Sha1};

use crate::sha256_crypt::sha256_crypt;

/// Bytes of a salt of `caching_sha2_password`.
const SALT_LENGTH: usize = 20;

/// What a server stores of this password: for PostgreSQL of SCRAM-SHA-256, for MariaDB of
/// `mysql_native_password`, for MySQL of `caching_sha2_password`.
///
/// It has no quotes and no backslashes, so that it can be part of a statement.
#[must_use]
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
}
