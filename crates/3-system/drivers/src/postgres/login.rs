use dbdyno_types::server::{Address, Target, Tls};

use super::auth::{AuthError, Authentication};
use super::channel::{Channel, ConnectionLost, Fields, Malformed, put, put_text, put_untagged};
use super::reply::{ServerError, Transaction};
use crate::error::server_text;
use crate::net::{SSL_REQUEST, Source as _, Stream, Transport, credentials, describe_server};
use crate::{Error, ErrorKind};

/// Protocol version 3.0.
const PROTOCOL: u32 = 3 << 16;

/// The oldest supported version.
const OLDEST: u32 = 10;

/// Maximum number of messages from a server during login; there are about twenty.
const MAX_LOGIN_MESSAGES: usize = 1000;

pub(super) struct LoginResult {
    pub(super) channel: Channel,
    pub(super) server_version: String,
    /// The process id that the server sent with the key to cancel requests.
    pub(super) backend: Option<u32>,
}

pub(super) fn log_in(target: &Target) -> Result<LoginResult, Error> {
    let stream = Stream::connect(target)?;
    let channel = match target.tls {
        Tls::Off => Channel::new(stream),
        Tls::Required | Tls::Verified { .. } | Tls::Pinned { .. } => encrypt(stream, target)?,
    };
    let (transport, end_point) = (channel.stream.transport(), channel.stream.end_point());
    let authentication = Authentication::new(&target.user, transport, end_point);
    let version = String::new();
    let mut login = LoginExchange { target, channel, authentication, version, backend: None };
    match login.run() {
        Ok(()) => {}
        Err(Failure::Error(error)) => return Err(error),
        Err(Failure::Lost(lost)) => {
            let error = login.channel.fail(lost, None, doing(target));
            return Err(error);
        }
    }
    let LoginExchange { mut channel, version, backend, .. } = login;
    // It contained the password.
    channel.out = Vec::new();
    check_version(target, &version)?;
    Ok(LoginResult { channel, server_version: version, backend })
}

/// Why a step failed.
enum Failure {
    Error(Error),
    Lost(ConnectionLost),
}

impl<T: Into<ConnectionLost>> From<T> for Failure {
    fn from(lost: T) -> Self {
        Self::Lost(lost.into())
    }
}

struct LoginExchange<'a> {
    target: &'a Target,
    channel: Channel,
    authentication: Authentication<'a>,
    version: String,
    backend: Option<u32>,
}

impl LoginExchange<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        self.send_startup()?;
        self.channel.fill()?;
        let answer = self.channel.received.unread();
        if !is_postgres(answer) {
            return Err(Failure::Error(not_postgres(self.target, answer)));
        }
        for _ in 0..MAX_LOGIN_MESSAGES {
            let (tag, body) = self.channel.message()?;
            let mut fields = Fields(&body);
            match tag {
                b'R' => self.authenticate(&body)?,
                b'S' => {
                    if fields.text()? == b"server_version" {
                        self.version = server_text(fields.text()?);
                    }
                }
                b'E' => return Err(Failure::Error(self.server_error(&body))),
                b'K' => self.backend = fields.number().ok(),
                // Notices.
                b'N' => {}
                b'Z' => {
                    Transaction::read(&body)?;
                    self.authentication.check_complete().map_err(|error| self.not_let_in(error))?;
                    return Ok(self.channel.stream.disable_timeout()?);
                }
                tag => return Err(Malformed::unexpected(tag).into()),
            }
        }
        Err(Malformed::new("too many messages").into())
    }

    fn send_startup(&mut self) -> Result<(), Failure> {
        let Target { user, database, .. } = self.target;
        let database = database.as_deref().unwrap_or(user);
        if user.contains('\0') || database.contains('\0') {
            return Err(self.refused("the user or database name contains a zero byte"));
        }
        self.channel.out.clear();
        put_untagged(&mut self.channel.out, |out| {
            out.extend_from_slice(&PROTOCOL.to_be_bytes());
            for (name, value) in [
                ("user", user.as_str()),
                ("database", database),
                ("application_name", "dbdyno"),
                ("client_encoding", "UTF8"),
                // Literals in text mode depend on it.
                ("standard_conforming_strings", "on"),
            ] {
                put_text(out, name);
                put_text(out, value);
            }
            out.push(0);
        });
        Ok(self.channel.send()?)
    }

    /// Answers an authentication request.
    fn authenticate(&mut self, body: &[u8]) -> Result<(), Failure> {
        let target = self.target;
        let response = self.authentication.respond(body, &|| password(target));
        let Some(response) = response.map_err(|error| self.not_let_in(error))? else {
            return Ok(());
        };
        self.channel.out.clear();
        put(&mut self.channel.out, b'p', |out| out.extend_from_slice(&response));
        Ok(self.channel.send()?)
    }

    fn not_let_in(&self, error: AuthError) -> Failure {
        match error {
            AuthError::Refused(message) => self.refused(message),
            AuthError::Malformed(malformed) => malformed.into(),
            AuthError::Password(error) => Failure::Error(error),
        }
    }

    fn server_error(&self, body: &[u8]) -> Error {
        let error = ServerError::read(body);
        let kind = error.kind_at_login();
        // The server's message mentions encryption only in some versions and languages.
        let suggest_tls =
            error.state == "28000" && self.channel.stream.transport() == Transport::PlainTcp;
        let mut error = error.into_error(doing(self.target), kind);
        if suggest_tls {
            error.message.push_str(
                "; the connection is not encrypted: if the server requires encryption, use TLS",
            );
        }
        error
    }

    fn refused(&self, message: impl Into<String>) -> Failure {
        Failure::Error(refused(self.target, message))
    }
}

/// The password for the target.
fn password(target: &Target) -> Result<String, Error> {
    let Some(password) = credentials::for_postgres(target)? else {
        return Err(refused(
            target,
            if target.password {
                "the server requests a password, but none was found; set DBDYNO_PASSWORD or \
                 PGPASSWORD, or add a line to ~/.pgpass (mode 0600)"
            } else {
                "the server requests a password, but this connection uses none"
            },
        ));
    };
    let password = password.reveal();
    if password.contains('\0') {
        return Err(refused(target, "the password contains a zero byte"));
    }
    Ok(password.to_owned())
}

fn check_version(target: &Target, version: &str) -> Result<(), Error> {
    let digits = version.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    match digits.parse::<u32>() {
        Ok(major) if major >= OLDEST => Ok(()),
        _ => Err(refused(
            target,
            format!(
                "the server's version is '{version}'; dbdyno requires PostgreSQL {OLDEST} or later"
            ),
        )),
    }
}

fn refused(target: &Target, message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Refused, doing(target), message)
}

/// Whether the start of the first answer is that of a message: its tag, and its length, which is that of no greeting of
/// MySQL.
fn is_postgres(answer: &[u8]) -> bool {
    let length =
        answer.get(1..5).and_then(|length| Some(u32::from_be_bytes(length.try_into().ok()?)));
    matches!(answer.first(), Some(b'R' | b'E' | b'N' | b'v' | b'S' | b'K' | b'Z'))
        && length.is_none_or(|length| length < 1 << 16 && length != 10)
}

fn not_postgres(target: &Target, answer: &[u8]) -> Error {
    let server = describe_server(answer);
    refused(
        target,
        format!("not a PostgreSQL server listens there, but {server}; check the address"),
    )
}

fn doing(target: &Target) -> String {
    let Target { address, user, database, .. } = target;
    format!("logging in at {address} as {user}, database {}", database.as_ref().unwrap_or(user))
}

/// Requests encryption and starts TLS.
pub(super) fn encrypt(mut stream: Stream, target: &Target) -> Result<Channel, Error> {
    let doing = || format!("requesting encryption from {}", target.address);
    let refused = |message: &str| Error::new(ErrorKind::Refused, doing(), message);
    let answer = match request_tls(&mut stream) {
        Ok(answer) => answer,
        Err(error) => return Err(Channel::new(stream).fail(error.into(), None, doing())),
    };
    match answer {
        b'S' => {
            stream.start_tls(target)?;
            Ok(Channel::new(stream))
        }
        b'N' => Err(refused(match target.address {
            Address::Socket(_) => {
                "PostgreSQL offers no encryption on a Unix socket; connect \
                                   without it, or over TCP"
            }
            Address::Tcp { .. } => {
                "the server offers no encryption; enable it there (ssl = on), or connect without it"
            }
        })),
        other => {
            let mut start = [other; 64];
            let more = stream.receive(&mut start[1..], false).ok().flatten().unwrap_or(0);
            Err(not_postgres(target, &start[..1 + more]))
        }
    }
}

/// Reads exactly one byte: bytes after it are unencrypted, may be injected by anyone, and must not be
/// mistaken for encrypted ones.
fn request_tls(stream: &mut Stream) -> std::io::Result<u8> {
    stream.write_all(&SSL_REQUEST)?;
    let mut answer = [0];
    match stream.receive(&mut answer, true)? {
        Some(1) => Ok(answer[0]),
        _ => Err(std::io::Error::new(
            std::io::ErrorKind::UnexpectedEof,
            "the server closed the connection",
        )),
    }
}

#[cfg(test)]
mod tests {
    use dbdyno_types::server::Address;

    use super::*;

    #[test]
    fn old_versions_are_refused() {
        let target = Target {
            address: Address::Socket("/run/s".into()),
            user: "ann".to_owned(),
            database: None,
            tls: Tls::Off,
            server_public_key: None,
            password: false,
        };
        for good in ["10.0", "15.13 (Debian 15.13-0+deb12u1)", "18beta1", "100"] {
            check_version(&target, good).unwrap();
        }
        for bad in ["9.6.24", "9.2", "", "unknown"] {
            let error = check_version(&target, bad).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused);
            assert!(error.message.contains(&format!("'{bad}'")), "{error}");
            assert!(error.message.contains("PostgreSQL 10"), "{error}");
        }
    }
}
