//! Servers that are reached over the network: who may log in, from where.

use std::net::IpAddr;

use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::{Address, ServerSystem, Target, Tls};
use serde::{Deserialize, Serialize};

/// The name of the only account that may log in over the network.
pub(crate) const ACCOUNT: &str = "dbdyno";

/// Where a private server listens, in addition to its socket, and who may log in there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The only address that the server listens at, one of this machine.
    pub address: IpAddr,
    pub port: u16,
    /// The only address that may log in.
    pub client: IpAddr,
    /// What the server stores of the account's password: see
    /// [`dbdyno_drivers::verifier`]. It is not sufficient to log in.
    pub verifier: String,
    /// Whether the server accepts encrypted connections only, with a certificate that it gets at its start.
    pub tls: bool,
}

impl Network {
    /// How the client reaches a server of this system with this certificate; `None` without encryption. It has
    /// to know the password.
    #[must_use]
    pub fn target(
        &self,
        system: ServerSystem,
        certificate: Option<CertificateFingerprint>,
    ) -> Target {
        Target {
            address: Address::Tcp { host: self.address.to_string(), port: self.port },
            user: ACCOUNT.to_owned(),
            // The one that every PostgreSQL server has.
            database: (system == ServerSystem::PostgreSql).then(|| "postgres".to_owned()),
            tls: certificate.map_or(Tls::Off, |fingerprint| Tls::Pinned { fingerprint }),
            server_public_key: None,
            password: true,
        }
    }
}
