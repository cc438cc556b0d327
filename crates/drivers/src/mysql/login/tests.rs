//! Logins to servers that we cannot have here, played by a thread.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::thread::{self, JoinHandle};

use dbdyno_record::server::Address;
use rsa::pkcs8::{EncodePublicKey as _, LineEnding};
use rsa::rand_core::OsRng;
use rsa::{Oaep, RsaPrivateKey};
use sha1::Sha1;
use tempfile::TempDir;

use super::*;

const SCRAMBLE: &[u8] = b"12345678abcdefghijkl";
const ALL_WELL: &[u8] = &[0, 0, 0, 2, 0, 0, 0];

trait Socket: std::io::Read + std::io::Write {}
impl<T: std::io::Read + std::io::Write> Socket for T {}

/// The server's side of one connection.
struct Played {
    socket: Box<dyn Socket>,
    sequence: u8,
}

impl Played {
    fn send(&mut self, payload: &[u8]) {
        let [a, b, c, _] = (payload.len() as u32).to_le_bytes();
        self.socket.write_all(&[a, b, c, self.sequence]).unwrap();
        self.socket.write_all(payload).unwrap();
        self.sequence += 1;
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut header = [0; 4];
        self.socket.read_exact(&mut header).unwrap();
        let [a, b, c, sequence] = header;
        assert_eq!(sequence, self.sequence);
        self.sequence += 1;
        let mut payload = vec![0; u32::from_le_bytes([a, b, c, 0]) as usize];
        self.socket.read_exact(&mut payload).unwrap();
        payload
    }

    /// Greets with this version and favourite method, and returns the proof that comes back.
    fn greet(&mut self, version: &str, plugin: &str) -> Vec<u8> {
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
        self.send(&greeting);
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

/// A place where a played server listens.
struct Stage {
    target: Target,
    server: JoinHandle<()>,
    _directory: TempDir,
}

impl Stage {
    fn on_socket(play: impl FnOnce(Played) + Send + 'static) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let server = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            play(Played { socket: Box::new(socket), sequence: 0 });
        });
        Self { target: target(Address::Socket(path)), server, _directory: directory }
    }

    fn on_tcp(play: impl FnOnce(Played) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            play(Played { socket: Box::new(socket), sequence: 0 });
        });
        let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
        Self { target: target(address), server, _directory: tempfile::tempdir().unwrap() }
    }

    fn log_in(self, password: &str) -> Result<LoggedIn, Error> {
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
    Target { address, user: "ann".to_owned(), database: None, tls: Tls::Off, password: true }
}

fn proof(password: &str, scramble: &[u8]) -> Vec<u8> {
    Method::CachingSha2.answer(password, scramble, false).unwrap()
}

#[test]
fn a_password_that_the_server_has_at_hand_is_proved_at_once() {
    let stage = Stage::on_tcp(|mut played| {
        assert_eq!(played.greet_with_sha2(), proof("secret", SCRAMBLE));
        played.send(&[MORE, 3]);
        played.send(ALL_WELL);
    });
    let login = stage.log_in("secret").unwrap();
    assert_eq!((login.version.as_str(), login.connection, login.status), ("8.4.3", 77, 2));
}

#[test]
fn over_a_unix_socket_the_password_is_told_where_the_server_asks() {
    let stage = Stage::on_socket(|mut played| {
        played.greet_with_sha2();
        played.send(&[MORE, 4]);
        assert_eq!(played.receive(), b"secret\0");
        played.send(ALL_WELL);
    });
    stage.log_in("secret").unwrap();
}

#[test]
fn over_plain_tcp_the_password_goes_encrypted() {
    let stage = Stage::on_tcp(|mut played| {
        played.greet_with_sha2();
        played.send(&[MORE, 4]);
        assert_eq!(played.receive(), [2]);
        let key = RsaPrivateKey::new(&mut OsRng, 1024).unwrap();
        let pem = key.to_public_key().to_public_key_pem(LineEnding::LF).unwrap();
        played.send(&[&[MORE], pem.as_bytes()].concat());
        let opened = key.decrypt(Oaep::new::<Sha1>(), &played.receive()).unwrap();
        let plain: Vec<u8> =
            opened.iter().zip(SCRAMBLE).map(|(byte, scramble)| byte ^ scramble).collect();
        assert_eq!(plain, b"secret\0");
        played.send(ALL_WELL);
    });
    stage.log_in("secret").unwrap();
}

#[test]
fn the_server_may_ask_for_another_method_with_another_scramble() {
    let stage = Stage::on_tcp(|mut played| {
        played.greet("9.1.0", "some_new_plugin");
        let other = b"another 20 byte text";
        played.send(&[&[SWITCH], &b"caching_sha2_password\0"[..], other, &[0]].concat());
        assert_eq!(played.receive(), proof("secret", other));
        played.send(&[MORE, 3]);
        played.send(ALL_WELL);
    });
    stage.log_in("secret").unwrap();
}

#[test]
fn the_password_itself_is_not_sent_where_others_can_read() {
    let ask = |mut played: Played| {
        played.greet("8.0.30", "mysql_native_password");
        played.send(&[&[SWITCH], &b"mysql_clear_password\0"[..]].concat());
        // Over TCP nothing comes.
        let mut rest = Vec::new();
        let _ = played.socket.read_to_end(&mut rest);
        assert!(!rest.windows(6).any(|window| window == b"secret"));
    };
    assert!(Stage::on_tcp(ask).refused().contains("connect with TLS"));
    let stage = Stage::on_socket(|mut played| {
        played.greet("8.0.30", "mysql_clear_password");
        played.send(ALL_WELL);
    });
    stage.log_in("secret").unwrap();
}

#[test]
fn unknown_methods_are_named() {
    let stage = Stage::on_tcp(|mut played| {
        played.greet("8.0.30", "mysql_native_password");
        played.send(&[&[SWITCH], &b"authentication_kerberos_client\0x\0"[..]].concat());
    });
    assert!(stage.refused().contains("authentication_kerberos_client"));
}

#[test]
fn an_old_server_is_named_with_what_is_supported() {
    let stage = Stage::on_tcp(|mut played| {
        played.send(b"\x0a5.5.5-10.1.48-MariaDB\0\x01\0\0\0 and more that does not matter");
    });
    let words = stage.refused();
    assert!(words.contains("10.1.48-MariaDB") && words.contains("10.3"), "{words}");
}

#[test]
fn what_is_no_mysql_server_is_noticed() {
    let stage = Stage::on_tcp(|mut played| {
        played.socket.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").unwrap();
    });
    assert!(stage.refused().contains("does not speak the protocol"));
}

#[test]
fn a_server_that_is_full_refuses_before_it_greets() {
    let stage = Stage::on_tcp(|mut played| played.send(b"\xff\x10\x04Too many connections"));
    assert_eq!(stage.refused(), "Too many connections");
}

#[test]
fn a_server_that_hangs_up_is_a_lost_connection() {
    let stage = Stage::on_tcp(|mut played| drop(played.greet_with_sha2()));
    let error = stage.log_in("secret").err().expect("a failure");
    assert_eq!(error.kind, ErrorKind::Connection);
}

#[test]
fn tls_is_asked_for_and_not_there() {
    let mut stage = Stage::on_tcp(|mut played| {
        // 0x800 is not among what is offered.
        let mut greeting =
            b"\x0a8.0.30\0\x01\0\0\x0012345678\0\xff\xf7\x2d\x02\0\xff\x81\x15".to_vec();
        greeting.extend([0; 10]);
        greeting.extend(b"abcdefghijkl\0mysql_native_password\0");
        played.send(&greeting);
    });
    stage.target.tls = Tls::Required;
    assert!(stage.refused().contains("does not offer TLS"));
}
