use dbdyno_record::server::{Target, Tls};

use super::auth::{self, Method};
use super::capabilities::{CONNECT_WITH_DB, Capabilities, PLUGIN_AUTH_LENGTH, SSL};
use super::err_packet::{ERR, ErrPacket};
use super::greeting::{Greeting, GreetingError};
use super::reply::{OK, OkPacket};
use super::request::Request;
use super::wire::{Cursor, HEADER, frame, put_lenenc_string};
use crate::error_text::connection_lost;
use crate::net::credentials::{self, Password};
use crate::net::{ReadBuffer, Stream};
use crate::{Error, ErrorKind};

const AUTH_MORE_DATA: u8 = 0x01;
const AUTH_SWITCH: u8 = 0xfe;

/// Maximum packet size to announce.
const MAX_PACKET_SIZE: u32 = 1 << 30;
/// `utf8mb4_general_ci`, supported by all versions.
const UTF8MB4: u8 = 45;
/// Maximum length of a packet during login. Longer ones are not from a MySQL server.
const MAX_LOGIN_PACKET: usize = 64 << 10;

/// Data of `caching_sha2_password` after [`AUTH_MORE_DATA`].
const SHA2_FAST_AUTH_OK: &[u8] = &[3];
const SHA2_FULL_AUTH: &[u8] = &[4];
const SHA2_REQUEST_PUBLIC_KEY: u8 = 2;

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
    let stream = Stream::connect(target)?;
    let login = LoginExchange {
        target,
        password,
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
        // differs, or if the default is not supported here or not safe on this connection.
        let private = self.stream.is_private();
        let mut method = Method::by_name(&greeting.plugin)
            .filter(|method| *method != Method::Clear || private)
            .unwrap_or(Method::Native);
        let mut scramble = greeting.scramble.clone();
        let answer = self.answer(method, &scramble)?;
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
        loop {
            let packet = self.receive()?;
            match packet.split_first() {
                Some((&OK, _)) => {
                    let ok = OkPacket::parse(&packet).map_err(|_| self.not_mysql())?;
                    return Ok(ok.status);
                }
                Some((&AUTH_SWITCH, rest)) if !rest.is_empty() => {
                    let mut cursor = Cursor::new(rest);
                    let name = String::from_utf8_lossy(cursor.until_zero()).into_owned();
                    method = Method::by_name(&name).ok_or_else(|| self.unknown(&name))?;
                    let data = cursor.rest();
                    scramble = data.strip_suffix(&[0]).unwrap_or(data).to_vec();
                    let answer = self.answer(method, &scramble)?;
                    self.send_login(&answer)?;
                }
                Some((&AUTH_SWITCH, _)) => return Err(self.unknown("mysql_old_password")),
                Some((&AUTH_MORE_DATA, rest)) if method == Method::CachingSha2 => {
                    self.continue_sha2(rest, &scramble)?;
                }
                _ => return Err(self.not_mysql()),
            }
        }
    }

    /// The server has not cached the password's hash and requests the password.
    fn continue_sha2(&mut self, words: &[u8], scramble: &[u8]) -> Result<(), Error> {
        match words {
            SHA2_FAST_AUTH_OK => Ok(()),
            SHA2_FULL_AUTH if self.stream.is_private() => {
                let password = auth::clear(self.password());
                self.send_login(&password)
            }
            SHA2_FULL_AUTH => self.send_login(&[SHA2_REQUEST_PUBLIC_KEY]),
            key => match auth::encrypted(self.password(), scramble, key) {
                Some(password) => self.send_login(&password),
                None => Err(self.refused(
                    "the password cannot be encrypted with the server's key; use TLS".to_owned(),
                )),
            },
        }
    }

    fn password(&self) -> &str {
        self.password.as_ref().map_or("", Password::reveal)
    }

    fn answer(&self, method: Method, scramble: &[u8]) -> Result<Vec<u8>, Error> {
        method.answer(self.password(), scramble, self.stream.is_private()).ok_or_else(|| {
            self.refused(
                "the server requests the plain-text password, which is not sent over an \
                 unencrypted connection; use TLS"
                    .to_owned(),
            )
        })
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
            (1045 | 1698, _) if self.target.tls == Tls::Off && !self.stream.is_private() => {
                "; if the password is right, the server may require TLS"
            }
            (3159, _) => "; use TLS",
            _ => "",
        };
        Err(failure.refusal(self.doing(), advice))
    }

    fn doing(&self) -> String {
        format!("logging in to {} as {}", self.target.address, self.target.user)
    }

    fn refused(&self, message: String) -> Error {
        Error { doing: self.doing(), message, code: 0, kind: ErrorKind::Refused }
    }

    fn unknown(&self, method: &str) -> Error {
        self.refused(format!(
            "the server requests authentication of {} with {method}; dbdyno supports {}",
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

/// Appends the start of the handshake response, which is also the SSL request.
fn put_ssl_request(bytes: &mut Vec<u8>, capabilities: Capabilities) {
    bytes.extend_from_slice(&capabilities.basic.to_le_bytes());
    bytes.extend_from_slice(&MAX_PACKET_SIZE.to_le_bytes());
    bytes.push(UTF8MB4);
    bytes.extend_from_slice(&[0; 19]);
    bytes.extend_from_slice(&capabilities.extended.to_le_bytes());
}

#[cfg(test)]
mod tests;
