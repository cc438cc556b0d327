//! Logins to servers that are not available here, simulated by a thread.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use dbdyno_types::server::Address;
use rsa::pkcs8::{EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey};
use sha1::Sha1;
use tempfile::TempDir;

use super::*;

const SCRAMBLE: &[u8] = b"12345678abcdefghijkl";
const OK_PACKET: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

trait Socket: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> Socket for T {}

/// The server's side of a connection.
struct ServerSide {
    socket: Box<dyn Socket>,
    sequence: u8,
}

impl ServerSide {
    fn send(&mut self, payload: &[u8]) {
        self.try_send(payload).unwrap();
    }

    fn try_send(&mut self, payload: &[u8]) -> std::io::Result<()> {
        let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
        self.socket.write_all(&[&[a, b, c, self.sequence], payload].concat())?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    fn receive(&mut self) -> Vec<u8> {
        self.try_receive().unwrap()
    }

    fn try_receive(&mut self) -> std::io::Result<Vec<u8>> {
        let mut header = [0; 4];
        self.socket.read_exact(&mut header)?;
        let [a, b, c, sequence] = header;
        assert_eq!(sequence, self.sequence);
        self.sequence = self.sequence.wrapping_add(1);
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.socket.read_exact(&mut payload)?;
        Ok(payload)
    }

    /// Sends a greeting without TLS, with this version and default method, and returns the client's response.
    fn greet(&mut self, version: &str, plugin: &str) -> Vec<u8> {
        self.send(&greeting(version, plugin));
        let response = self.receive();
        let mut cursor = Cursor::new(&response);
        cursor.bytes(32).unwrap();
        assert_eq!(cursor.until_zero(), b"ann");
        cursor.string().unwrap().to_vec()
    }

    fn greet_with_sha2(&mut self) -> Vec<u8> {
        self.greet("8.4.3", "caching_sha2_password")
    }
}

/// A greeting without the capability 0x800 (SSL).
fn greeting(version: &str, plugin: &str) -> Vec<u8> {
    let mut greeting = vec![10];
    greeting.extend(version.as_bytes());
    greeting.extend([0, 77, 0, 0, 0]);
    greeting.extend(&SCRAMBLE[..8]);
    greeting.extend([0, 0xff, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
    greeting.extend([0; 10]);
    greeting.extend(&SCRAMBLE[8..]);
    greeting.push(0);
    greeting.extend(plugin.as_bytes());
    greeting.push(0);
    greeting
}

/// A listening simulated server.
struct FakeServer {
    target: Target,
    server: JoinHandle<()>,
    directory: TempDir,
}

impl FakeServer {
    fn on_socket(serve: impl FnOnce(ServerSide) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            serve(ServerSide { socket: Box::new(socket), sequence: 0 });
        });
        Self { target: target(Address::Socket(path)), server, directory }
    }

    fn on_tcp(serve: impl FnOnce(ServerSide) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            serve(ServerSide { socket: Box::new(socket), sequence: 0 });
        });
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        Self { target: target(address), server, directory: tempfile::tempdir().unwrap() }
    }

    fn log_in(self, password: &str) -> Result<LoginResult, Error> {
        let outcome = log_in_with(&self.target, Some(Password::of(password)));
        self.server.join().unwrap();
        outcome
    }

    fn refused(self) -> String {
        let error = self.log_in("secret").err().expect("a refusal");
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(!error.to_string().contains("secret"));
        error.message
    }
}

fn target(address: Address) -> Target {
    Target {
        address,
        user: "ann".to_owned(),
        database: None,
        tls: Tls::Off,
        server_public_key: None,
        password: true,
    }
}

fn proof(password: &str, scramble: &[u8]) -> Vec<u8> {
    let request = AuthRequest::Response(Method::CachingSha2);
    auth::respond(request, password, scramble, Transport::PlainTcp, None).unwrap()
}

#[test]
fn cached_password_is_proved_with_one_response() {
    let fake = FakeServer::on_tcp(|mut server| {
        assert_eq!(server.greet_with_sha2(), proof("secret", SCRAMBLE));
        server.send(&[AUTH_MORE_DATA, 3]);
        server.send(OK_PACKET);
    });
    let login = fake.log_in("secret").unwrap();
    assert_eq!((login.version.as_str(), login.status), ("8.4.3", 2));
}

#[test]
fn password_is_sent_over_a_unix_socket_on_request() {
    let fake = FakeServer::on_socket(|mut server| {
        server.greet_with_sha2();
        server.send(&[AUTH_MORE_DATA, 4]);
        assert_eq!(server.receive(), b"secret\0");
        server.send(OK_PACKET);
    });
    fake.log_in("secret").unwrap();
}

#[test]
fn password_is_encrypted_with_the_pinned_key_only() {
    let key = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
    let pem = key.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
    let mut fake = FakeServer::on_tcp(move |mut server| {
        server.greet_with_sha2();
        server.send(&[AUTH_MORE_DATA, 4]);
        let opened = key.decrypt(Oaep::new::<Sha1>(), &server.receive()).unwrap();
        let plain: Vec<u8> =
            opened.iter().zip(SCRAMBLE).map(|(byte, scramble)| byte ^ scramble).collect();
        assert_eq!(plain, b"secret\0");
        server.send(OK_PACKET);
    });
    let file = fake.directory.path().join("public_key.pem");
    std::fs::write(&file, pem).unwrap();
    fake.target.server_public_key = Some(file);
    fake.log_in("secret").unwrap();

    let mut target = target(Address::Socket("/nowhere/socket".into()));
    target.server_public_key = Some("/nowhere/public_key.pem".into());
    let error = log_in_with(&target, None).err().expect("a refusal");
    assert!(error.message.contains("/nowhere/public_key.pem"), "{error}");
}

#[test]
fn endless_login_ends() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.greet_with_sha2();
        for _ in 0..100 {
            let request = [&[AUTH_SWITCH], &b"mysql_native_password\0"[..], SCRAMBLE].concat();
            if server.try_send(&request).is_err() || server.try_receive().is_err() {
                return;
            }
        }
        panic!("the client has answered 100 requests");
    });
    assert!(fake.refused().contains("not from a MySQL"));
}

#[test]
fn server_can_switch_the_authentication_method() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.greet("9.1.0", "some_new_plugin");
        let other = b"another 20 byte text";
        server.send(&[&[AUTH_SWITCH], &b"caching_sha2_password\0"[..], other, &[0]].concat());
        assert_eq!(server.receive(), proof("secret", other));
        server.send(&[AUTH_MORE_DATA, 3]);
        server.send(OK_PACKET);
    });
    fake.log_in("secret").unwrap();
}

#[test]
fn plain_text_password_is_not_sent_over_tcp() {
    let ask = |mut server: ServerSide| {
        server.greet("8.0.30", "mysql_native_password");
        server.send(&[&[AUTH_SWITCH], &b"mysql_clear_password\0"[..]].concat());
        // Over TCP nothing is sent.
        let mut rest = Vec::new();
        let _ = server.socket.read_to_end(&mut rest);
        assert!(!rest.windows(6).any(|window| window == b"secret"));
    };
    assert!(FakeServer::on_tcp(ask).refused().contains("tls=verified"));
    let fake = FakeServer::on_socket(|mut server| {
        server.greet("8.0.30", "mysql_clear_password");
        server.send(OK_PACKET);
    });
    fake.log_in("secret").unwrap();
}

#[test]
fn unsupported_method_is_named() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.greet("8.0.30", "mysql_native_password");
        server.send(&[&[AUTH_SWITCH], &b"authentication_kerberos_client\0x\0"[..]].concat());
    });
    assert!(fake.refused().contains("authentication_kerberos_client"));
}

#[test]
fn method_of_missing_users_is_explained() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.greet_with_sha2();
        server.send(&[&[AUTH_SWITCH], &b"sha256_password\0"[..], SCRAMBLE].concat());
    });
    let words = fake.refused();
    assert!(words.contains("sha256_password;") && words.contains("no such user"), "{words}");
}

#[test]
fn old_server_is_refused_with_supported_versions() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.send(b"\x0a5.5.5-10.1.48-MariaDB\0\x01\0\0\0 and more that does not matter");
    });
    let words = fake.refused();
    assert!(words.contains("10.1.48-MariaDB") && words.contains("10.3"), "{words}");
}

#[test]
fn other_protocols_are_detected() {
    let fake = FakeServer::on_tcp(|mut server| {
        server.socket.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").unwrap();
    });
    assert!(fake.refused().contains("not from a MySQL"));
}

#[test]
fn error_before_the_greeting_is_reported() {
    let fake = FakeServer::on_tcp(|mut server| server.send(b"\xff\x10\x04Too many connections"));
    assert_eq!(fake.refused(), "Too many connections");
}

#[test]
fn closed_connection_during_login_is_lost() {
    let fake = FakeServer::on_tcp(|mut server| drop(server.greet_with_sha2()));
    let error = fake.log_in("secret").err().expect("a failure");
    assert_eq!(error.kind, ErrorKind::Connection);
}

#[test]
fn missing_tls_is_refused() {
    let mut fake = FakeServer::on_tcp(|mut server| {
        server.send(&greeting("8.0.30", "mysql_native_password"));
    });
    fake.target.tls = Tls::Required;
    assert!(fake.refused().contains("does not offer TLS"));
}
