//! How servers are reached: access of a worker, servers on the network, and their certificates.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dbdyno_types::server::{Address, ServerSystem, StatementMode, StorageEngine, Target, Tls};
use dbdyno_types::{CertificateFingerprint, RunIdentity};
use rcgen::{CertificateParams, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::systems::server_program;
use super::user::{ServerUser, remove_file_if_exists};

/// How a worker reaches a server and where its tables are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerAccess {
    pub system: ServerSystem,
    /// Storage engine for new tables; `None` for the server's default.
    pub engine: Option<StorageEngine>,
    /// Address, user and database.
    pub target: Target,
    /// Schema for dbdyno's tables.
    pub schema: String,
    pub statements: StatementMode,
    /// The run that owns the schema; `None` on a private server, which belongs to the run as a whole.
    pub owner: Option<RunIdentity>,
}

impl ServerAccess {
    /// Whether it is a private server. Global settings are changed only on those.
    pub const fn is_private(&self) -> bool {
        self.owner.is_none()
    }
}

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
    pub fn target(
        &self,
        system: ServerSystem,
        certificate: Option<CertificateFingerprint>,
    ) -> Target {
        Target {
            address: Address::Tcp { host: self.address.to_string(), port: self.port },
            user: ACCOUNT.to_owned(),
            database: server_program(system).facts().database.map(str::to_owned),
            tls: certificate.map_or(Tls::Off, |fingerprint| Tls::Pinned { fingerprint }),
            server_public_key: None,
            password: true,
        }
    }
}

/// A new certificate with its key, in files of the server. The client pins the certificate, so nobody signs
/// it, and it does not expire.
#[derive(Clone, Debug)]
pub(crate) struct ServerCertificate {
    pub(crate) certificate: PathBuf,
    /// The private key, which only the server's user can read.
    pub(crate) key: PathBuf,
    pub(crate) fingerprint: CertificateFingerprint,
}

impl ServerCertificate {
    /// Makes a certificate for this address, with files in `directory`.
    pub(crate) fn make(
        directory: &Path,
        address: IpAddr,
        user: Option<&ServerUser>,
    ) -> io::Result<Self> {
        let key = KeyPair::generate().map_err(io::Error::other)?;
        let made = CertificateParams::new(vec![address.to_string()])
            .and_then(|params| params.self_signed(&key))
            .map_err(io::Error::other)?;
        let digest = Sha256::digest(made.der());
        let fingerprint = CertificateFingerprint::from_digest(digest.into());
        let own = Self {
            certificate: directory.join("tls-certificate.pem"),
            key: directory.join("tls-key.pem"),
            fingerprint,
        };
        replace_file(&own.certificate, &made.pem(), 0o644, None)?;
        replace_file(&own.key, &key.serialize_pem(), 0o600, user)?;
        Ok(own)
    }
}

/// Replaces a file. What a link of this name leads to is not changed.
pub(super) fn replace_file(
    file: &Path,
    text: &str,
    mode: u32,
    owner: Option<&ServerUser>,
) -> io::Result<()> {
    remove_file_if_exists(file)?;
    let mut new = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    if let Some(owner) = owner {
        owner.own(file)?;
    }
    new.write_all(text.as_bytes())?;
    new.set_permissions(Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn each_certificate_has_a_key_of_its_own_that_others_cannot_read() {
        let dir = tempfile::tempdir().unwrap();
        let make =
            || ServerCertificate::make(dir.path(), "10.0.0.2".parse().unwrap(), None).unwrap();
        let (first, second) = (make(), make());
        assert_ne!(first.fingerprint, second.fingerprint);
        let text = |path: &Path| fs::read_to_string(path).unwrap();
        assert!(text(&second.certificate).starts_with("-----BEGIN CERTIFICATE-----"));
        assert!(text(&second.key).starts_with("-----BEGIN PRIVATE KEY-----"));
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&second.certificate), mode(&second.key)), (0o644, 0o600));
    }
}
