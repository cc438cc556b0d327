use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rsa::pkcs8::DecodePublicKey as _;
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPublicKey};
use sha1::Sha1;

/// The pinned public key of a server.
#[derive(Debug, PartialEq)]
pub(in crate::mysql) struct PublicKey {
    key: RsaPublicKey,
    file: PathBuf,
}

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub(in crate::mysql) enum PublicKeyError {
    #[error("reading the server's public key in {}: {error}", .file.display())]
    Unreadable { file: PathBuf, error: io::Error },
    #[error(
        "{} contains no RSA public key in PEM format; use public_key.pem of the server's data \
         directory",
        .0.display()
    )]
    Invalid(PathBuf),
    #[error("the password is too long for the server's public key in {}", .0.display())]
    TooLong(PathBuf),
}

impl PublicKey {
    pub(in crate::mysql) fn read(file: &Path) -> Result<Self, PublicKeyError> {
        let text = fs::read_to_string(file)
            .map_err(|error| PublicKeyError::Unreadable { file: file.to_owned(), error })?;
        // MySQL 9 writes a zero byte at the end of the file.
        let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
        match RsaPublicKey::from_public_key_pem(text) {
            Ok(key) => Ok(Self { key, file: file.to_owned() }),
            Err(_) => Err(PublicKeyError::Invalid(file.to_owned())),
        }
    }

    /// Encrypts a message.
    pub(super) fn encrypt(&self, message: &[u8]) -> Result<Vec<u8>, PublicKeyError> {
        self.key
            .encrypt(&mut OsRng, Oaep::new::<Sha1>(), message)
            .map_err(|_| PublicKeyError::TooLong(self.file.clone()))
    }

    #[cfg(test)]
    pub(in crate::mysql) fn for_tests() -> Self {
        let private = rsa::RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        Self { key: private.to_public_key(), file: "key.pem".into() }
    }
}

#[cfg(test)]
mod tests {
    use rsa::RsaPrivateKey;
    use rsa::pkcs8::{EncodePublicKey as _, LineEnding};

    use super::*;

    #[test]
    fn message_is_encrypted_for_the_key_in_the_file() {
        let private = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("public_key.pem");
        let pem = private.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        // As MySQL 9 writes it.
        fs::write(&file, format!("{pem}\0")).unwrap();
        let key = PublicKey::read(&file).unwrap();
        let encrypted = key.encrypt(b"message").unwrap();
        assert_eq!(private.decrypt(Oaep::new::<Sha1>(), &encrypted).unwrap(), b"message");
        let error = key.encrypt(&[b'x'; 128]).unwrap_err().to_string();
        assert!(error.contains("too long") && error.contains("public_key.pem"), "{error}");
    }

    #[test]
    fn unusable_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("other.pem");
        assert!(PublicKey::read(&file).unwrap_err().to_string().contains("other.pem"));
        fs::write(&file, "no key").unwrap();
        assert!(PublicKey::read(&file).unwrap_err().to_string().contains("other.pem"));
    }
}
