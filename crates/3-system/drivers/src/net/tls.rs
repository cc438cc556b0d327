use std::io;
use std::path::Path;
use std::sync::Arc;

use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::{Address, Target, Tls};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, OtherError, RootCertStore,
    SignatureScheme,
};
use sha2::{Digest as _, Sha256, Sha384, Sha512};

use super::Transport;
use crate::{Error, ErrorCode, ErrorKind};

/// The server has another certificate than the pinned one.
#[derive(Debug, thiserror::Error)]
#[error(
    "the server's certificate has the SHA-256 fingerprint {found}, but `tls_fingerprint` is \
     {expected}; if the server has a new certificate, set its fingerprint"
)]
struct OtherCertificate {
    expected: CertificateFingerprint,
    found: CertificateFingerprint,
}

/// The client side of a TLS connection to the target, before the handshake, and what the connection
/// guarantees once the handshake has succeeded.
pub(super) fn client(target: &Target) -> Result<(ClientConnection, Transport), Error> {
    try_client(target)
        .map_err(|error| Error::new(ErrorKind::Refused, doing(target), error.to_string()))
}

/// The error for a failed handshake.
pub(super) fn handshake_failed(target: &Target, error: &io::Error) -> Error {
    // rustls' errors, which come wrapped, are refusals; others are network errors.
    let refusal = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let mut message = match refusal {
        Some(rustls::Error::Other(own)) => own.to_string(),
        _ => error.to_string(),
    };
    if let Some(rustls::Error::InvalidCertificate(_)) = refusal {
        message.push_str(match target.tls {
            Tls::Verified { .. } => {
                "; in the candidate's `url`, set tls_authorities=FILE for a certificate of your own \
                 authority, or tls_fingerprint=SHA256 to accept this certificate only"
            }
            _ => "; create a certificate of X.509 version 3 for the server",
        });
    }
    Error {
        doing: doing(target),
        message,
        code: ErrorCode::of_io(error),
        kind: if refusal.is_some() { ErrorKind::Refused } else { ErrorKind::Connection },
    }
}

/// The hash of a server's certificate to which a login is bound (`tls-server-end-point` of RFC 5929); `None` if the
/// algorithm of its signature names no hash.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    // Object identifiers of RSA (PKCS #1) and ECDSA without their last numbers.
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
    let (whole, _) = der_value(certificate)?;
    let (_, after_content) = der_value(whole)?;
    let (algorithm, _) = der_value(after_content)?;
    let (name, _) = der_value(algorithm)?;
    match (name.strip_prefix(RSA), name.strip_prefix(ECDSA)) {
        // Instead of MD5 and SHA-1, SHA-256 is used.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => {
            Some(Sha256::digest(certificate).to_vec())
        }
        (Some([12]), _) | (_, Some([3, 3])) => Some(Sha384::digest(certificate).to_vec()),
        (Some([13]), _) | (_, Some([3, 4])) => Some(Sha512::digest(certificate).to_vec()),
        _ => None,
    }
}

/// The content of the first value in DER, and what follows it.
fn der_value(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match length {
        0..=0x7f => (length.into(), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(length - 0x80))?;
            (bytes.iter().fold(0, |number: usize, byte| number << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(length)
}

fn doing(target: &Target) -> String {
    format!("encrypting the connection to {}", target.address)
}

fn try_client(
    target: &Target,
) -> Result<(ClientConnection, Transport), Box<dyn std::error::Error>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let accepting = |pinned| {
        let verifier = CertificateVerifier { pinned, provider: provider.clone() };
        let verifier = Arc::new(verifier);
        builder.clone().dangerous().with_custom_certificate_verifier(verifier)
    };
    let (config, transport) = match &target.tls {
        Tls::Off | Tls::Required => (accepting(None), Transport::UnverifiedTls),
        Tls::Pinned { fingerprint } => (accepting(Some(*fingerprint)), Transport::VerifiedTls),
        Tls::Verified { authorities } => {
            let roots = match authorities {
                Some(file) => roots_in(file),
                None => system_roots(),
            };
            (builder.with_root_certificates(roots?), Transport::VerifiedTls)
        }
    };
    let config = config.with_no_client_auth();
    let host = match &target.address {
        Address::Socket(_) => "localhost",
        Address::Tcp { host, .. } => host.as_str(),
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| format!("{host} cannot be the name in a certificate: {error}"))?;
    Ok((ClientConnection::new(Arc::new(config), name)?, transport))
}

fn roots_in(file: &Path) -> Result<RootCertStore, String> {
    let name = file.display();
    let unreadable =
        |error: pem::Error| format!("reading the authorities' certificates in {name}: {error}");
    let unusable =
        |error: rustls::Error| format!("the certificates in {name} cannot be used: {error}");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
        roots.add(certificate.map_err(unreadable)?).map_err(unusable)?;
    }
    if roots.is_empty() { Err(format!("{name} contains no certificate")) } else { Ok(roots) }
}

fn system_roots() -> Result<RootCertStore, String> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // rustls does not support the format of some of them.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(ToString::to_string).collect();
        return Err(format!(
            "this system has no certificates of authorities ({}); install ca-certificates, or set a \
             file with them",
            reasons.join("; ")
        ));
    }
    Ok(roots)
}

/// Accepts the pinned certificate, whatever names, authority and dates are in it; the server must prove
/// with a signature that it has the certificate's key. Without a pinned one, accepts any certificate, for
/// encryption without authentication of the server. Signatures made with the certificate prove nothing
/// then and are not checked: servers generate certificates in a format too old for the verifier.
#[derive(Debug)]
struct CertificateVerifier {
    pinned: Option<CertificateFingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for CertificateVerifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(expected) = self.pinned else { return Ok(ServerCertVerified::assertion()) };
        let found = CertificateFingerprint::from_digest(Sha256::digest(certificate).into());
        if found == expected {
            return Ok(ServerCertVerified::assertion());
        }
        let error = OtherCertificate { expected, found };
        Err(rustls::Error::Other(OtherError(Arc::new(error))))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.pinned.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        if self.pinned.is_none() {
            return Ok(HandshakeSignatureValid::assertion());
        }
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_hashed_as_its_signature() {
        const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1];
        const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 4];
        const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
        let value = |content: &[u8]| {
            let length = (content.len() as u16).to_be_bytes();
            [&[0x30, 0x82][..], &length[..], content].concat()
        };
        let length = |start: &[u8], end: &[u8]| {
            let size = (start.len() + end.len()) as u8;
            let name = [&[6, size][..], start, end].concat();
            let parts = [value(&[0; 300]), value(&name), vec![3, 1, 0]];
            end_point(&value(&parts.concat())).map(|hash| hash.len())
        };
        assert_eq!([4, 5, 11].map(|last| length(RSA, &[last])), [Some(32); 3]);
        assert_eq!([10, 12, 13].map(|last| length(RSA, &[last])), [None, Some(48), Some(64)]);
        assert_eq!(length(ECDSA, &[1]), Some(32));
        let ecdsa = [2, 3, 4].map(|last| length(ECDSA, &[3, last]));
        assert_eq!(ecdsa, [Some(32), Some(48), Some(64)]);
        assert_eq!(length(ED25519, &[]), None);
        for damaged in [&[][..], &[0x30], &[0x30, 0x85, 0, 0, 0, 0, 0], &[0x30, 4, 0x30, 9, 0, 0]] {
            assert_eq!(end_point(damaged), None);
        }
    }
}
