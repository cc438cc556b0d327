use std::path::Path;
use std::sync::Arc;

use dbdyno_record::server::{Address, Target, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
};

use crate::{Error, ErrorKind};

/// The client's side of TLS, ready to shake hands with the target.
pub(super) fn client(target: &Target) -> Result<ClientConnection, Error> {
    let refused = |message: String| Error {
        doing: format!("encrypting the connection to {}", target.address),
        message,
        code: 0,
        kind: ErrorKind::Refused,
    };
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| refused(error.to_string()))?;
    let config = match &target.tls {
        Tls::Off | Tls::Required => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth(),
        Tls::Verified { authorities } => {
            let roots = match authorities {
                Some(file) => roots_in(file),
                None => system_roots(),
            };
            builder.with_root_certificates(roots.map_err(refused)?).with_no_client_auth()
        }
    };
    let host = match &target.address {
        Address::Socket(_) => "localhost",
        Address::Tcp { host, .. } => host.as_str(),
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| refused(format!("{host} cannot be in a certificate: {error}")))?;
    ClientConnection::new(Arc::new(config), name).map_err(|error| refused(error.to_string()))
}

fn roots_in(file: &Path) -> Result<RootCertStore, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("reading the authorities' certificates in {}: {error}", file.display())
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(&error))? {
        let certificate = certificate.map_err(|error| failed(&error))?;
        roots.add(certificate).map_err(|error| failed(&error))?;
    }
    if roots.is_empty() {
        return Err(failed(&"there is none in it"));
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // Some of the hundred are in forms that rustls does not know; the others will do.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "this system has no certificates of authorities ({}); install ca-certificates, or \
             name a file of them",
            reasons.join("; ")
        ));
    }
    Ok(roots)
}

/// Takes any certificate: encryption was asked for, not proof of who answers. Signatures made
/// with the certificate prove nothing then, and are not checked either: servers make certificates
/// for themselves in a form too old for the checker.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
