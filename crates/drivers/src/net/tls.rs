use std::path::{Path, PathBuf};
use std::sync::Arc;

use dbdyno_record::server::{Address, Target, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::{Error, ErrorKind};

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
enum TlsError {
    #[error("reading the authorities' certificates in {}: {source}", file.display())]
    Authorities { file: PathBuf, source: pem::Error },
    #[error("the certificates in {} cannot be used: {source}", file.display())]
    Certificate { file: PathBuf, source: rustls::Error },
    #[error("{} contains no certificate", .0.display())]
    NoCertificate(PathBuf),
    #[error(
        "this system has no certificates of authorities ({0}); install ca-certificates, or set a \
         file with them"
    )]
    NoSystemCertificates(String),
    #[error("{0} cannot be the name in a certificate: {1}")]
    HostName(String, InvalidDnsNameError),
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// The client side of a TLS connection to the target, before the handshake.
pub(super) fn client(target: &Target) -> Result<ClientConnection, Error> {
    try_client(target).map_err(|error| Error {
        doing: format!("encrypting the connection to {}", target.address),
        message: error.to_string(),
        code: 0,
        kind: ErrorKind::Refused,
    })
}

fn try_client(target: &Target) -> Result<ClientConnection, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let config = match &target.tls {
        Tls::Off | Tls::Required => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
            .with_no_client_auth(),
        Tls::Verified { authorities } => {
            let roots = match authorities {
                Some(file) => roots_in(file),
                None => system_roots(),
            };
            builder.with_root_certificates(roots?).with_no_client_auth()
        }
    };
    let host = match &target.address {
        Address::Socket(_) => "localhost",
        Address::Tcp { host, .. } => host.as_str(),
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| TlsError::HostName(host.to_owned(), error))?;
    Ok(ClientConnection::new(Arc::new(config), name)?)
}

fn roots_in(file: &Path) -> Result<RootCertStore, TlsError> {
    let unreadable = |source| TlsError::Authorities { file: file.to_owned(), source };
    let unusable = |source| TlsError::Certificate { file: file.to_owned(), source };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
        roots.add(certificate.map_err(unreadable)?).map_err(unusable)?;
    }
    if roots.is_empty() { Err(TlsError::NoCertificate(file.to_owned())) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, TlsError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // rustls does not support the format of some of them.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(TlsError::NoSystemCertificates(reasons.join("; ")));
    }
    Ok(roots)
}

/// Accepts any certificate, for encryption without authentication of the server. Signatures made with
/// the certificate prove nothing then and are not checked: servers generate certificates in a format
/// too old for the verifier.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
