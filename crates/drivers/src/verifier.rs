//! What servers store of a password, to create an account without sending the password itself.

use dbdyno_record::server::ServerSystem;
use postgres_protocol::password::scram_sha_256;
use sha1::{Digest as _, Sha1};

/// What a server stores of this password: for PostgreSQL of SCRAM-SHA-256, for MariaDB of
/// `mysql_native_password`; `None` for MySQL, whose accounts need an encrypted login.
///
/// It has no quotes and no backslashes, so that it can be part of a statement.
#[must_use]
pub fn verifier(system: ServerSystem, password: &str) -> Option<String> {
    match system {
        ServerSystem::PostgreSql => Some(scram_sha_256(password.as_bytes())),
        ServerSystem::MariaDb => {
            let twice = Sha1::digest(Sha1::digest(password.as_bytes()));
            let hex: String = twice.iter().map(|byte| format!("{byte:02X}")).collect();
            Some(format!("*{hex}"))
        }
        ServerSystem::MySql => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mariadb_stores_the_hash_of_a_hash() {
        // `SELECT PASSWORD('secret')`
        let expected = "*14E65567ABDB5135D0CFD9A70B3032C179A49EE7";
        assert_eq!(verifier(ServerSystem::MariaDb, "secret").as_deref(), Some(expected));
        assert_eq!(verifier(ServerSystem::MySql, "secret"), None);
    }

    #[test]
    fn postgresql_stores_a_salted_key() {
        let of = || verifier(ServerSystem::PostgreSql, "secret").unwrap();
        let (one, other) = (of(), of());
        assert!(one.starts_with("SCRAM-SHA-256$4096:") && one != other, "{one} {other}");
        assert!(!one.contains("secret") && !one.contains(['\'', '\\']), "{one}");
    }
}
