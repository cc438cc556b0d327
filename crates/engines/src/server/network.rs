//! Servers that are reached over the network: who may log in, from where.

use std::net::IpAddr;

use dbdyno_record::server::{Address, Target, Tls};
use serde::{Deserialize, Serialize};

/// The name of the only account that may log in over the network.
pub(crate) const ACCOUNT: &str = "dbdyno";

/// Where a private server listens, in addition to its socket, and who may log in there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Network {
    /// The only address that the server listens at, one of this machine.
    pub address: IpAddr,
    /// Its port.
    pub port: u16,
    /// The only address that may log in.
    pub client: IpAddr,
    /// What the server stores of the account's password: see
    /// [`dbdyno_drivers::verifier`]. It is not sufficient to log in.
    pub verifier: String,
}

impl Network {
    /// How the client reaches the server. It has to know the password.
    pub(crate) fn target(&self, database: Option<&str>) -> Target {
        Target {
            address: Address::Tcp { host: self.address.to_string(), port: self.port },
            user: ACCOUNT.to_owned(),
            database: database.map(str::to_owned),
            tls: Tls::Off,
            server_public_key: None,
            password: true,
        }
    }
}
