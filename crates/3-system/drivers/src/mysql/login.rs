use dbdyno_types::server::{Target, Tls};

use super::auth::{self, AuthError, Method, PublicKey, Request as AuthRequest};
use super::greeting::{CONNECT_WITH_DB, Capabilities, PLUGIN_AUTH_LENGTH, SSL};
use super::greeting::{Greeting, GreetingError};
use super::reply::{ERR, ErrPacket, OK, OkPacket};
use super::request::Request;
use super::wire::{Cursor, HEADER, frame, put_lenenc_string};
use crate::error::{connection_lost, server_text};
use crate::net::credentials::{self, Password};
use crate::net::{MAX_MESSAGE, ReadBuffer, SSL_REQUEST, Stream, Transport, describe_server};
use crate::{Error, ErrorKind};

const AUTH_MORE_DATA: u8 = 0x01;
const AUTH_SWITCH: u8 = 0xfe;

/// `utf8mb4_general_ci`, supported by all versions.
const UTF8MB4: u8 = 45;
/// Maximum length of a packet during login. Longer ones are not from a MySQL server.
const MAX_LOGIN_PACKET: usize = 64 << 10;

/// Maximum number of packets after the client's first response. A server asks for one method after the other
/// if a user has several.
const MAX_LOGIN_PACKETS: usize = 32;

/// Data of `caching_sha2_password` after [`AUTH_MORE_DATA`].
const SHA2_FAST_AUTH_OK: &[u8] = &[3];
const SHA2_FULL_AUTH: &[u8] = &[4];

pub(super) struct LoginResult {
    pub(super) stream: Stream,
    pub(super) capabilities: Capabilities,
    /// The session's status flags.
    pub(super) status: u16,
    pub(super) version: String,
    pub(super) connection_id: u32,
}

pub(super) fn log_in(target: &Target) -> Result<LoginResult, Error> {
    log_in_with(target, credentials::for_mysql(target)?)
}

fn log_in_with(target: &Target, password: Option<Password>) -> Result<LoginResult, Error> {
    let public_key = match &target.server_public_key {
        Some(file) => {
            Some(PublicKey::read(file).map_err(|error| refused(target, error.to_string()))?)
        }
        None => None,
    };
    let stream = Stream::connect(target)?;
    let login = LoginExchange {
        target,
        password,
        public_key,
        stream,
        buffer: ReadBuffer::new(),
        request: Request::default(),
        sequence: 0,
    };
    login.run()
}

struct LoginExchange<'a> {
    target: &'a Target,
    password: Option<Password>,
    public_key: Option<PublicKey>,
    stream: Stream,
    buffer: ReadBuffer,
    request: Request,
    /// The next packet's sequence number.
    sequence: u8,
}

impl LoginExchange<'_> {
    fn run(mut self) -> Result<LoginResult, Error> {
        let packet = match self.receive() {
            Ok(packet) => packet,
            Err(error) => return Err(self.without_greeting(error)),
        };
        let greeting = Greeting::parse(&packet).map_err(|error| match error {
            GreetingError::Malformed => self.not_mysql(),
            GreetingError::Unsupported(words) => self.refused(words),
        })?;
        let Some(mut capabilities) = Capabilities::negotiate(greeting.offered) else {
            return Err(self.refused("the server does not support the protocol of MySQL 5.6"));
        };
        if self.target.database.is_some() {
            capabilities.basic |= CONNECT_WITH_DB;
        }
        if self.target.tls != Tls::Off {
            if !greeting.offered.has(SSL) {
                let words = "the server does not offer TLS; configure a certificate there, or \
                             connect without encryption";
                return Err(self.refused(words));
            }
            capabilities.basic |= SSL;
            put_ssl_request(self.request.start_login(), capabilities);
            self.send()?;
            // What has arrived before encryption may be from anybody, and must not be taken for a part of
            // the encrypted stream.
            if !self.buffer.unread().is_empty() {
                return Err(self.refused(
                    "the server sent unencrypted data after its greeting, although TLS follows; \
                     somebody may be changing the connection",
                ));
            }
            self.stream.start_tls(self.target)?;
        }
        let status = self.authenticate(&greeting, capabilities)?;
        self.stream.disable_timeout().map_err(|error| connection_lost(self.doing(), &error))?;
        let (stream, Greeting { version, connection_id, .. }) = (self.stream, greeting);
        Ok(LoginResult { stream, capabilities, status, version, connection_id })
    }

    /// Authenticates and returns the session's status flags.
    fn authenticate(
        &mut self,
        greeting: &Greeting,
        capabilities: Capabilities,
    ) -> Result<u16, Error> {
        // Starts with the server's default method. The server requests another one if the user's method
        // differs, or if the default is not supported here or not answered on this connection.
        let default = Method::by_name(&greeting.plugin).and_then(|method| {
            let answer = self.respond(AuthRequest::Response(method), &greeting.scramble);
            Some((method, answer.ok()?))
        });
        let (mut method, answer) = match default {
            Some(start) => start,
            None => {
                let request = AuthRequest::Response(Method::Native);
                (Method::Native, self.respond(request, &greeting.scramble)?)
            }
        };
        let mut challenge = greeting.scramble.clone();
        let bytes = self.request.start_login();
        put_ssl_request(bytes, capabilities);
        bytes.extend_from_slice(self.target.user.as_bytes());
        bytes.push(0);
        if capabilities.has(PLUGIN_AUTH_LENGTH) {
            put_lenenc_string(bytes, &answer);
        } else {
            bytes.push(answer.len() as u8);
            bytes.extend_from_slice(&answer);
        }
        if let Some(database) = &self.target.database {
            bytes.extend_from_slice(database.as_bytes());
            bytes.push(0);
        }
        bytes.extend_from_slice(method.name().as_bytes());
        bytes.push(0);
        self.send()?;
        for _ in 0..MAX_LOGIN_PACKETS {
            let packet = self.receive()?;
            match packet.split_first() {
                Some((&OK, _)) => {
                    let ok = OkPacket::parse(&packet).map_err(|_| self.not_mysql())?;
                    return Ok(ok.status);
                }
                Some((&AUTH_SWITCH, rest)) if !rest.is_empty() => {
                    let mut cursor = Cursor::new(rest);
                    let name = server_text(cursor.until_zero());
                    method = Method::by_name(&name).ok_or_else(|| self.unknown(&name))?;
                    challenge = cursor.rest().to_vec();
                    let answer = self.respond(AuthRequest::Response(method), &challenge)?;
                    self.send_login(&answer)?;
                }
                Some((&AUTH_SWITCH, _)) => return Err(self.unknown("mysql_old_password")),
                Some((&AUTH_MORE_DATA, SHA2_FAST_AUTH_OK)) if method == Method::CachingSha2 => {}
                Some((&AUTH_MORE_DATA, SHA2_FULL_AUTH)) if method == Method::CachingSha2 => {
                    let answer = self.respond(AuthRequest::Sha2Password, &challenge)?;
                    self.send_login(&answer)?;
                }
                _ => return Err(self.not_mysql()),
            }
        }
        Err(self.not_mysql())
    }

    fn password(&self) -> &str {
        self.password.as_ref().map_or("", Password::reveal)
    }

    /// The response to a request.
    fn respond(&self, request: AuthRequest, challenge: &[u8]) -> Result<Vec<u8>, Error> {
        let transport = self.stream.transport();
        auth::respond(request, self.password(), challenge, transport, self.public_key.as_ref())
            .map_err(|error: AuthError| self.refused(error.to_string()))
    }

    fn send_login(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.request.start_login().extend_from_slice(payload);
        self.send()
    }

    fn send(&mut self) -> Result<(), Error> {
        self.request
            .send(&mut self.stream, self.sequence)
            .map_err(|error| connection_lost(self.doing(), &error))?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// The next packet; an ERR packet is returned as an error.
    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let mut joined = Vec::new();
        loop {
            let unread = self.buffer.unread();
            if let Some(&[a, b, c, sequence]) = unread.first_chunk::<HEADER>() {
                if u32::from_le_bytes([a, b, c, 0]) as usize > MAX_LOGIN_PACKET {
                    return Err(self.not_mysql());
                }
                if let Some(framed) = frame(unread, &mut joined) {
                    let (packet, taken) = (framed.payload.to_vec(), framed.taken);
                    self.buffer.consume(taken);
                    self.sequence = sequence.wrapping_add(1);
                    return self.check_err_packet(packet);
                }
            }
            self.buffer
                .fill(&mut self.stream)
                .map_err(|error| connection_lost(self.doing(), &error))?;
        }
    }

    fn check_err_packet(&self, packet: Vec<u8>) -> Result<Vec<u8>, Error> {
        if packet.first() != Some(&ERR) {
            return Ok(packet);
        }
        let failure = ErrPacket::parse(&packet).map_err(|_| self.not_mysql())?;
        let advice = match (failure.code, &self.password) {
            (1045 | 1698, None) if self.target.password => {
                "; no password was found: set DBDYNO_PASSWORD, or add it to ~/.my.cnf"
            }
            // MariaDB reports missing encryption with the same message.
            (1045 | 1698, _) if self.stream.transport() == Transport::PlainTcp => {
                "; if the password is right, the server may require TLS"
            }
            (3159, _) => "; use TLS (tls=verified in the candidate's `url`)",
            _ => "",
        };
        Err(failure.refusal(self.doing(), advice))
    }

    fn doing(&self) -> String {
        doing(self.target)
    }

    fn refused(&self, message: impl Into<String>) -> Error {
        refused(self.target, message)
    }

    fn unknown(&self, method: &str) -> Error {
        // MySQL draws the method of a user who does not exist, to hide that (`decoy_user` in its
        // sql_authentication.cc).
        let advice = match method {
            "sha256_password" => "; MySQL may also request it if there is no such user",
            _ => "",
        };
        self.refused(format!(
            "the server requests authentication of {} with {method}; dbdyno supports {}{advice}",
            self.target.user,
            auth::KNOWN
        ))
    }

    fn not_mysql(&self) -> Error {
        let from = match self.buffer.unread() {
            [] => String::new(),
            answer => format!(", but from {}", describe_server(answer)),
        };
        self.refused(format!(
            "the response is not from a MySQL or MariaDB server{from}; check the address"
        ))
    }

    /// The error if the server has sent no greeting, with what it is if it waits for a client of PostgreSQL or of the web.
    fn without_greeting(&mut self, error: Error) -> Error {
        let sent = self.buffer.unread().to_vec();
        let sent = if sent.is_empty() { self.stream.probe(&SSL_REQUEST) } else { sent };
        if error.kind != ErrorKind::Connection || sent.is_empty() {
            return error;
        }
        let server = describe_server(&sent);
        self.refused(format!(
            "{}; not a MySQL or MariaDB server listens there, but {server}; check the address",
            error.message
        ))
    }
}

fn doing(target: &Target) -> String {
    format!("logging in to {} as {}", target.address, target.user)
}

fn refused(target: &Target, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, doing(target), message)
}

/// Appends the start of the handshake response, which is also the SSL request.
fn put_ssl_request(bytes: &mut Vec<u8>, capabilities: Capabilities) {
    bytes.extend_from_slice(&capabilities.basic.to_le_bytes());
    bytes.extend_from_slice(&(MAX_MESSAGE as u32).to_le_bytes());
    bytes.push(UTF8MB4);
    bytes.extend_from_slice(&[0; 19]);
    bytes.extend_from_slice(&capabilities.extended.to_le_bytes());
}

#[cfg(test)]
mod tests {
    // Logins to servers that are not available here, simulated by a thread.

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
        assert!(words.contains("10.1.48-MariaDB") && words.contains("10.2"), "{words}");
    }

    #[test]
    fn other_protocols_are_detected() {
        let fake = FakeServer::on_tcp(|mut server| {
            server.socket.write_all(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n").unwrap();
        });
        let words = fake.refused();
        assert!(
            words.contains("not from a MySQL") && words.contains("`SSH-2.0-OpenSSH"),
            "{words}"
        );
    }

    #[test]
    fn error_before_the_greeting_is_reported() {
        let fake =
            FakeServer::on_tcp(|mut server| server.send(b"\xff\x10\x04Too many connections"));
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
}
