//! The certificate of a private server that is reached over the network with TLS.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use dbdyno_types::CertificateFingerprint;
use rcgen::{CertificateParams, KeyPair};
use sha2::{Digest as _, Sha256};

use super::private_dir::remove_file_if_exists;
use super::user::ServerUser;

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
        write(&own.certificate, &made.pem(), 0o644, None)?;
        write(&own.key, &key.serialize_pem(), 0o600, user)?;
        Ok(own)
    }
}

/// Replaces a file. What a link of this name leads to is not changed.
fn write(file: &Path, text: &str, mode: u32, owner: Option<&ServerUser>) -> io::Result<()> {
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
