//! A certificate authority and a server certificate of it, for tests.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::Tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// `authority.pem`, `server.pem` and `key.pem` in a directory that servers can read.
pub struct Certificates {
    directory: TempDir,
}

impl Certificates {
    /// New ones for a host name.
    pub fn for_host(host: &str) -> Self {
        let directory =
            tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // MySQL refuses a server certificate whose subject is its issuer.
        params.distinguished_name.push(DnType::CommonName, "authority");
        let authority_key = KeyPair::generate().unwrap();
        let authority = params.self_signed(&authority_key).unwrap();
        let issuer = Issuer::new(params, authority_key);
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let server = server.signed_by(&key, &issuer).unwrap();
        for (name, text) in [
            ("authority.pem", authority.pem()),
            ("server.pem", server.pem()),
            ("key.pem", key.serialize_pem()),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        Self { directory }
    }

    /// The path of one of the files.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A connection to a server with this certificate only.
    pub fn pinned(&self) -> Tls {
        let certificate = CertificateDer::from_pem_file(self.path("server.pem")).unwrap();
        let digest = Sha256::digest(&certificate);
        Tls::Pinned { fingerprint: CertificateFingerprint::from_digest(digest.into()) }
    }

    /// A connection to a server with a certificate of this authority for its host name.
    pub fn verified(&self) -> Tls {
        Tls::Verified { authorities: Some(self.path("authority.pem")) }
    }
}
