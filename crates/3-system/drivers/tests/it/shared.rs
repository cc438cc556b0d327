//! Values shared by all tests of a program, and certificates for servers.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use dbdyno_types::CertificateFingerprint;
use dbdyno_types::server::Tls;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;

/// A value that is created by the first test that needs it, in a thread that lives as long as the
/// program, and dropped when the program exits: statics are not dropped otherwise.
pub struct Shared<T: 'static>(Mutex<Option<&'static T>>);

static DROPS: Mutex<Vec<Box<dyn FnOnce() + Send>>> = Mutex::new(Vec::new());

impl<T: Send + Sync> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// The value, created by `create` if there is none yet.
    pub fn get(&'static self, create: impl FnOnce() -> T + Send + 'static) -> &'static T {
        let mut value = lock(&self.0);
        value.get_or_insert_with(|| {
            let (sender, receiver) = std::sync::mpsc::channel();
            // The kernel ends a program with the thread that started it; a thread of a test is short-lived.
            thread::spawn(move || {
                sender.send(create()).unwrap();
                loop {
                    thread::park();
                }
            });
            let created = Box::into_raw(Box::new(receiver.recv().expect("the value was created")));
            let address = created as usize;
            // SAFETY: made from a box just now, and dropped only when the program exits and all tests
            // have ended.
            drop_at_exit(move || drop(unsafe { Box::from_raw(address as *mut T) }));
            // SAFETY: as above.
            unsafe { &*created }
        })
    }
}

fn drop_at_exit(drop: impl FnOnce() + Send + 'static) {
    extern "C" fn run() {
        for drop in lock(&DROPS).drain(..) {
            drop();
        }
    }
    let mut drops = lock(&DROPS);
    if drops.is_empty() {
        // SAFETY: the function is valid for the whole life of the program.
        unsafe { libc::atexit(run) };
    }
    drops.push(Box::new(drop));
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A certificate authority and a server certificate of it: `authority.pem`, `server.pem` and `key.pem` in a
/// directory that servers can read.
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
