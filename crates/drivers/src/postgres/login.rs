use dbdyno_record::server::{Target, Tls};
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};

use super::channel::{Channel, ConnectionLost};
use super::reply::Transaction;
use super::server_error::ServerError;
use super::tls;
use super::wire::{Fields, Malformed, lossy_string, put, put_text, put_untagged};
use crate::net::{Stream, credentials};
use crate::{Error, ErrorKind};

/// Protocol version 3.0.
const PROTOCOL: u32 = 3 << 16;

/// The oldest supported version.
const OLDEST: u32 = 12;

/// The result of a login.
pub(super) struct LoginResult {
    pub(super) channel: Channel,
    pub(super) server_version: String,
}

/// Connects and logs in.
///
/// # Errors
/// The server does not listen, refuses the login, or is too old.
pub(super) fn log_in(target: &Target) -> Result<LoginResult, Error> {
    let stream = Stream::connect(target)?;
    let channel = match target.tls {
        Tls::Off => Channel::new(stream),
        Tls::Required | Tls::Verified { .. } => tls::encrypt(stream, target)?,
    };
    let mut login = LoginExchange { target, channel, scram: Scram::None, version: String::new() };
    match login.run() {
        Ok(()) => {}
        Err(Failure::Error(error)) => return Err(error),
        Err(Failure::Lost(lost)) => {
            let error = login.channel.fail(lost, None, doing(target));
            return Err(error);
        }
    }
    let LoginExchange { mut channel, version, .. } = login;
    // It contained the password.
    channel.out = Vec::new();
    check_version(target, &version)?;
    Ok(LoginResult { channel, server_version: version })
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

/// State of the SCRAM exchange.
enum Scram {
    None,
    Started(ScramSha256),
    /// The server has proved that it knows the password.
    Proved,
}

struct LoginExchange<'a> {
    target: &'a Target,
    channel: Channel,
    scram: Scram,
    version: String,
}

impl LoginExchange<'_> {
    fn run(&mut self) -> Result<(), Failure> {
        self.send_startup()?;
        loop {
            let (tag, body) = self.channel.message()?;
            let mut fields = Fields(&body);
            match tag {
                b'R' => {
                    let request = fields.number()?;
                    self.authenticate(request, fields)?;
                }
                b'S' => {
                    if fields.text()? == b"server_version" {
                        self.version = lossy_string(fields.text()?);
                    }
                }
                b'E' => return Err(Failure::Error(self.server_error(&body))),
                // Keys to cancel requests, and notices.
                b'K' | b'N' => {}
                b'Z' => {
                    Transaction::read(&body)?;
                    break;
                }
                tag => return Err(Malformed::unexpected(tag).into()),
            }
        }
        self.channel.stream.disable_timeout()?;
        Ok(())
    }

    fn send_startup(&mut self) -> Result<(), Failure> {
        let Target { user, database, .. } = self.target;
        let database = database.as_deref().unwrap_or(user);
        if user.contains('\0') || database.contains('\0') {
            return Err(self.refused("the user or database name contains a zero byte".to_owned()));
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

    /// Answers an authentication request; `request` is its number in the protocol.
    fn authenticate(&mut self, request: u32, mut fields: Fields<'_>) -> Result<(), Failure> {
        match request {
            0 => match self.scram {
                // A server that does not know the password could skip the proof.
                Scram::Started(_) => Err(self.refused(
                    "the server ended SCRAM without proving that it knows the password".to_owned(),
                )),
                Scram::None | Scram::Proved => Ok(()),
            },
            3 => {
                if !self.channel.stream.is_private() {
                    return Err(self.refused(
                        "the server requests the plain-text password over an unencrypted \
                         connection; use TLS, or configure scram-sha-256"
                            .to_owned(),
                    ));
                }
                let password = self.password()?;
                self.answer(|out| put_text(out, &password))
            }
            5 => {
                let salt = fields.bytes(4)?.try_into().unwrap_or_default();
                let password = self.password()?;
                let hash = md5_hash(self.target.user.as_bytes(), password.as_bytes(), salt);
                self.answer(|out| put_text(out, &hash))
            }
            10 => self.start_scram(fields),
            11 | 12 => self.continue_scram(request == 12, fields.0),
            other => Err(self.refused(format!(
                "the server requests {}, which dbdyno does not support; configure \
                 scram-sha-256, md5, password, peer or trust in pg_hba.conf",
                match other {
                    2 => "Kerberos".to_owned(),
                    7 | 8 => "GSSAPI".to_owned(),
                    9 => "SSPI".to_owned(),
                    other => format!("authentication method {other}"),
                }
            ))),
        }
    }

    fn start_scram(&mut self, mut fields: Fields<'_>) -> Result<(), Failure> {
        let mut offered = Vec::new();
        while !matches!(fields.0, [] | [0]) {
            offered.push(lossy_string(fields.text()?));
        }
        if !offered.iter().any(|name| name == SCRAM_SHA_256) {
            return Err(self.refused(format!(
                "the server requests {}; dbdyno supports only {SCRAM_SHA_256}",
                offered.join(" or ")
            )));
        }
        let password = self.password()?;
        let scram = ScramSha256::new(password.as_bytes(), ChannelBinding::unsupported());
        self.answer(|out| {
            put_text(out, SCRAM_SHA_256);
            out.extend_from_slice(&(scram.message().len() as u32).to_be_bytes());
            out.extend_from_slice(scram.message());
        })?;
        self.scram = Scram::Started(scram);
        Ok(())
    }

    fn continue_scram(&mut self, last: bool, message: &[u8]) -> Result<(), Failure> {
        let Scram::Started(mut scram) = std::mem::replace(&mut self.scram, Scram::None) else {
            return Err(Malformed::new("an unexpected SCRAM message").into());
        };
        let step = if last { scram.finish(message) } else { scram.update(message) };
        if let Err(error) = step {
            return Err(self.refused(format!("SCRAM authentication: {error}")));
        }
        if last {
            self.scram = Scram::Proved;
            return Ok(());
        }
        self.answer(|out| out.extend_from_slice(scram.message()))?;
        self.scram = Scram::Started(scram);
        Ok(())
    }

    fn answer(&mut self, body: impl FnOnce(&mut Vec<u8>)) -> Result<(), Failure> {
        self.channel.out.clear();
        put(&mut self.channel.out, b'p', body);
        Ok(self.channel.send()?)
    }

    fn password(&self) -> Result<String, Failure> {
        let found = credentials::for_postgres(self.target).map_err(Failure::Error)?;
        let Some(password) = found else {
            return Err(self.refused(if self.target.password {
                "the server requests a password, but none was found; set DBDYNO_PASSWORD or \
                 PGPASSWORD, or add a line to ~/.pgpass (mode 0600)"
                    .to_owned()
            } else {
                "the server requests a password, but this connection uses none".to_owned()
            }));
        };
        let password = password.reveal();
        if password.contains('\0') {
            return Err(self.refused("the password contains a zero byte".to_owned()));
        }
        Ok(password.to_owned())
    }

    fn server_error(&self, body: &[u8]) -> Error {
        let error = ServerError::read(body);
        let kind = error.kind_at_login();
        // The server's message mentions encryption only in some versions and languages.
        let suggest_tls = error.state == "28000"
            && self.target.tls == Tls::Off
            && !self.channel.stream.is_private();
        let mut error = error.into_error(doing(self.target), kind);
        if suggest_tls {
            error.message.push_str(
                "; the connection is not encrypted: if the server requires encryption, use TLS",
            );
        }
        error
    }

    fn refused(&self, message: String) -> Failure {
        Failure::Error(refused(self.target, message))
    }
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

fn refused(target: &Target, message: String) -> Error {
    Error { doing: doing(target), message, code: 0, kind: ErrorKind::Refused }
}

fn doing(target: &Target) -> String {
    let Target { address, user, database, .. } = target;
    format!("logging in at {address} as {user}, database {}", database.as_ref().unwrap_or(user))
}

#[cfg(test)]
mod tests {
    use dbdyno_record::server::Address;

    use super::*;

    #[test]
    fn old_versions_are_refused() {
        let target = Target {
            address: Address::Socket("/run/s".into()),
            user: "ann".to_owned(),
            database: None,
            tls: Tls::Off,
            password: false,
        };
        for good in ["12.0", "15.13 (Debian 15.13-0+deb12u1)", "18beta1", "100"] {
            check_version(&target, good).unwrap();
        }
        for bad in ["11.22", "9.6.24", "", "unknown"] {
            let error = check_version(&target, bad).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Refused);
            assert!(error.message.contains(&format!("'{bad}'")), "{error}");
            assert!(error.message.contains("PostgreSQL 12"), "{error}");
        }
    }
}
