//! Servers that try to get the password, a file or the memory of the client.

mod arbitrary;
mod mysql;
pub mod postgres;

use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dbdyno_drivers::{Error, ErrorKind};
use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::{Address, Target, Tls};
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ALL_VERSIONS, ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

use crate::support::set_password_in_environment;

/// A fake server for one connection over TCP.
pub struct FakeServer<T> {
    port: u16,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> FakeServer<T> {
    /// A server that does this with the connection.
    pub fn start(serve: impl FnOnce(TcpStream) -> T + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = thread::spawn(move || serve(listener.accept().unwrap().0));
        Self { port, thread }
    }

    /// Its address, for a user who has a password.
    pub fn target(&self, tls: Tls) -> Target {
        set_password_in_environment();
        Target {
            address: Address::Tcp { host: "127.0.0.1".to_owned(), port: self.port },
            user: "ann".to_owned(),
            database: None,
            tls,
            server_public_key: None,
            password: true,
        }
    }

    /// What it learned.
    pub fn finish(self) -> T {
        self.thread.join().unwrap()
    }
}

/// The bytes that have arrived, after waiting a short time for the first; empty at the end of the connection.
pub fn read_some(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 16];
    let count = stream.read(&mut bytes).unwrap_or(0);
    bytes.truncate(count);
    bytes
}

/// All bytes until the end of the connection.
pub fn read_all(stream: &mut impl Read) -> Vec<u8> {
    let mut bytes = Vec::new();
    // The client may close the connection without saying so in TLS.
    let _ = stream.read_to_end(&mut bytes);
    bytes
}

/// Sends a chunk for each request, or when none comes, and then ends the connection. Returns what the client
/// sent.
pub fn answer_with(mut stream: TcpStream, chunks: &[Vec<u8>]) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut received = Vec::new();
    for chunk in chunks {
        received.extend(read_some(&mut stream));
        if stream.write_all(chunk).is_err() {
            return received;
        }
    }
    let _ = stream.shutdown(std::net::Shutdown::Write);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    received.extend(read_all(&mut stream));
    received
}

/// A self-signed certificate for 127.0.0.1, as anybody can make one.
pub struct Certificate {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
    directory: TempDir,
}

impl Certificate {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Self {
            certificate: certificate.der().clone(),
            pem: certificate.pem(),
            key,
            directory: tempfile::tempdir().unwrap(),
        }
    }

    pub fn pinned(&self) -> Tls {
        let digest = Sha256::digest(&self.certificate);
        Tls::Pinned { fingerprint: CertificateFingerprint::from_digest(digest.into()) }
    }

    /// Verified by this certificate as authority.
    pub fn verified(&self) -> Tls {
        let file: PathBuf = self.directory.path().join("certificate.pem");
        fs::write(&file, &self.pem).unwrap();
        Tls::Verified { authorities: Some(file) }
    }

    /// For the server's side of TLS.
    pub fn server_config(&self) -> Arc<ServerConfig> {
        self.server_config_with(&self.key, ALL_VERSIONS)
    }

    /// For a server that has a copy of this certificate, but not its key.
    pub fn server_config_without_key(
        &self,
        version: &'static SupportedProtocolVersion,
    ) -> Arc<ServerConfig> {
        self.server_config_with(&KeyPair::generate().unwrap(), &[version])
    }

    fn server_config_with(
        &self,
        key: &KeyPair,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Arc<ServerConfig> {
        let provider = ring::default_provider();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let key = provider.key_provider.load_private_key(key).unwrap();
        // Without a check that the key belongs to the certificate.
        let certified = CertifiedKey::new(vec![self.certificate.clone()], key);
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        Arc::new(config)
    }
}

/// The server's side of TLS, after the handshake.
///
/// # Errors
/// The client refuses the certificate.
pub fn accept_tls(
    config: Arc<ServerConfig>,
    mut stream: TcpStream,
) -> io::Result<StreamOwned<ServerConnection, TcpStream>> {
    let mut tls = ServerConnection::new(config).unwrap();
    while tls.is_handshaking() {
        tls.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(tls, stream))
}

/// Sends bytes to a client that may have closed the connection.
pub fn send(stream: &mut impl Write, bytes: &[u8]) {
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

/// What a server with `certificate` learns from a client, and why the login fails.
pub fn learned_over_tls<C>(
    certificate: &Certificate,
    tls: Tls,
    serve: fn(TcpStream, Arc<ServerConfig>) -> Vec<u8>,
    connect: fn(&Target) -> Result<C, Error>,
) -> (Vec<u8>, Error) {
    let config = certificate.server_config();
    let fake = FakeServer::start(move |stream| serve(stream, config));
    let error = connect(&fake.target(tls)).err().expect("a refusal");
    assert_eq!(error.kind, ErrorKind::Refused, "{error}");
    (fake.finish(), error)
}
