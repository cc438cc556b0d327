use dbdyno_types::server::{Target, Tls};

use super::auth::{self, AuthError, Method, PublicKey, Request as AuthRequest};
use super::capabilities::{CONNECT_WITH_DB, Capabilities, PLUGIN_AUTH_LENGTH, SSL};
use super::err_packet::{ERR, ErrPacket};
use super::greeting::{Greeting, GreetingError};
use super::reply::{OK, OkPacket};
use super::request::Request;
use super::wire::{Cursor, HEADER, frame, put_lenenc_string};
use crate::error_text::{connection_lost, server_text};
use crate::net::credentials::{self, Password};
use crate::net::{MAX_MESSAGE, ReadBuffer, Stream, Transport};
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

/// A logged-in connection.
pub(super) struct LoginResult {
    pub(super) stream: Stream,
    pub(super) capabilities: Capabilities,
    /// The session's status flags.
    pub(super) status: u16,
    pub(super) version: String,
}

/// Connects and logs in.
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
        let packet = self.receive()?;
        let greeting = Greeting::parse(&packet).map_err(|error| match error {
            GreetingError::Malformed => self.not_mysql(),
            GreetingError::Unsupported(words) => self.refused(words),
        })?;
        let Some(mut capabilities) = Capabilities::negotiate(greeting.offered) else {
            return Err(
                self.refused("the server does not support the protocol of MySQL 5.6".to_owned())
            );
        };
        if self.target.database.is_some() {
            capabilities.basic |= CONNECT_WITH_DB;
        }
        if self.target.tls != Tls::Off {
            if !greeting.offered.has(SSL) {
                let words = "the server does not offer TLS; configure a certificate there, or \
                             connect without encryption";
                return Err(self.refused(words.to_owned()));
            }
            capabilities.basic |= SSL;
            put_ssl_request(self.request.start_login(), capabilities);
            self.send()?;
            // What has arrived before encryption may be from anybody, and must not be taken for a part of
            // the encrypted stream.
            if !self.buffer.unread().is_empty() {
                return Err(self.refused(
                    "the server sent unencrypted data after its greeting, although TLS follows; \
                     somebody may be changing the connection"
                        .to_owned(),
                ));
            }
            self.stream.start_tls(self.target)?;
        }
        let status = self.authenticate(&greeting, capabilities)?;
        self.stream.disable_timeout().map_err(|error| connection_lost(self.doing(), &error))?;
        Ok(LoginResult { stream: self.stream, capabilities, status, version: greeting.version })
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

    fn refused(&self, message: String) -> Error {
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
        self.refused(
            "the response is not from a MySQL or MariaDB server; check the address".to_owned(),
        )
    }
}

fn doing(target: &Target) -> String {
    format!("logging in to {} as {}", target.address, target.user)
}

fn refused(target: &Target, message: String) -> Error {
    Error { doing: doing(target), message, code: None, kind: ErrorKind::Refused }
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
mod tests;
