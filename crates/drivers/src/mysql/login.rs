use dbdyno_record::server::{Target, Tls};

use super::auth::{self, Method};
use super::capabilities::{CONNECT_WITH_DB, Capabilities, PLUGIN_AUTH_LENGTH, SSL};
use super::failure::{FAILED, ServerFailure};
use super::greeting::{Greeting, Unfit};
use super::reply::{AllWell, OK};
use super::request::Request;
use super::wire::{Cursor, HEADER, frame, put_string};
use crate::net::credentials::{self, Password};
use crate::net::{ReadBuffer, Stream};
use crate::words::lost;
use crate::{Error, ErrorKind};

const MORE: u8 = 0x01;
const SWITCH: u8 = 0xfe;

/// The largest packet that we take.
const LARGEST: u32 = 1 << 30;
/// `utf8mb4_general_ci`, which every version has.
const UTF8MB4: u8 = 45;
/// No packet of a login is longer. Who sends more is no MySQL server.
const LONGEST_IN_LOGIN: usize = 64 << 10;

/// The method's own words after [`MORE`].
const SHA2_DONE: &[u8] = &[3];
const SHA2_TELL_ME: &[u8] = &[4];
const SHA2_GIVE_ME_YOUR_KEY: u8 = 2;

/// A connection that the server has let in.
pub(super) struct LoggedIn {
    pub(super) stream: Stream,
    pub(super) capabilities: Capabilities,
    /// What the server said of the session.
    pub(super) status: u16,
    pub(super) version: String,
    pub(super) connection: u32,
}

/// Connects and proves who we are.
pub(super) fn log_in(target: &Target) -> Result<LoggedIn, Error> {
    log_in_with(target, credentials::for_mysql(target)?)
}

fn log_in_with(target: &Target, password: Option<Password>) -> Result<LoggedIn, Error> {
    let stream = Stream::connect(target)?;
    let login = Login {
        target,
        password,
        stream,
        buffer: ReadBuffer::new(),
        request: Request::default(),
        sequence: 0,
    };
    login.run()
}

struct Login<'a> {
    target: &'a Target,
    password: Option<Password>,
    stream: Stream,
    buffer: ReadBuffer,
    request: Request,
    /// The number of the next packet.
    sequence: u8,
}

impl Login<'_> {
    fn run(mut self) -> Result<LoggedIn, Error> {
        let packet = self.receive()?;
        let greeting = Greeting::of_packet(&packet).map_err(|unfit| match unfit {
            Unfit::Malformed => self.not_ours(),
            Unfit::Unsupported(words) => self.refused(words),
        })?;
        let Some(mut capabilities) = Capabilities::used_with(greeting.offered) else {
            return Err(self.refused("the server lacks the protocol of MySQL 5.6".to_owned()));
        };
        if self.target.database.is_some() {
            capabilities.basic |= CONNECT_WITH_DB;
        }
        if self.target.tls != Tls::Off {
            if !greeting.offered.has(SSL) {
                let words = "the server does not offer TLS; give it a certificate, or connect \
                             without encryption";
                return Err(self.refused(words.to_owned()));
            }
            capabilities.basic |= SSL;
            put_start(self.request.start_bare(), capabilities);
            self.send()?;
            self.stream.start_tls(self.target)?;
        }
        let status = self.authenticate(&greeting, capabilities)?;
        self.stream.wait_forever().map_err(|error| lost(self.doing(), &error))?;
        Ok(LoggedIn {
            stream: self.stream,
            capabilities,
            status,
            version: greeting.version,
            connection: greeting.connection,
        })
    }

    /// Proves who we are, and returns what the server then says of the session.
    fn authenticate(
        &mut self,
        greeting: &Greeting,
        capabilities: Capabilities,
    ) -> Result<u16, Error> {
        // The server's favourite method. It names another one where this user's is not the same;
        // so does it where we have not got its favourite, or would not send a password like this.
        let private = self.stream.is_private();
        let mut method = Method::by_name(&greeting.plugin)
            .filter(|method| *method != Method::Clear || private)
            .unwrap_or(Method::Native);
        let mut scramble = greeting.scramble.clone();
        let answer = self.answer(method, &scramble)?;
        let bytes = self.request.start_bare();
        put_start(bytes, capabilities);
        bytes.extend_from_slice(self.target.user.as_bytes());
        bytes.push(0);
        if capabilities.has(PLUGIN_AUTH_LENGTH) {
            put_string(bytes, &answer);
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
                    let all_well = AllWell::of_packet(&packet).map_err(|_| self.not_ours())?;
                    return Ok(all_well.status);
                }
                Some((&SWITCH, rest)) if !rest.is_empty() => {
                    let mut cursor = Cursor::new(rest);
                    let name = String::from_utf8_lossy(cursor.until_zero()).into_owned();
                    method = Method::by_name(&name).ok_or_else(|| self.unknown(&name))?;
                    let data = cursor.rest();
                    scramble = data.strip_suffix(&[0]).unwrap_or(data).to_vec();
                    let answer = self.answer(method, &scramble)?;
                    self.send_bare(&answer)?;
                }
                Some((&SWITCH, _)) => return Err(self.unknown("mysql_old_password")),
                Some((&MORE, rest)) if method == Method::CachingSha2 => {
                    self.go_on_with_sha2(rest, &scramble)?;
                }
                _ => return Err(self.not_ours()),
            }
        }
    }

    /// The server had not the password's hash at hand, and must see the password itself.
    fn go_on_with_sha2(&mut self, words: &[u8], scramble: &[u8]) -> Result<(), Error> {
        match words {
            SHA2_DONE => Ok(()),
            SHA2_TELL_ME if self.stream.is_private() => {
                let password = auth::clear(self.password());
                self.send_bare(&password)
            }
            SHA2_TELL_ME => self.send_bare(&[SHA2_GIVE_ME_YOUR_KEY]),
            key => match auth::encrypted(self.password(), scramble, key) {
                Some(password) => self.send_bare(&password),
                None => Err(self.refused(
                    "the password cannot be encrypted with the server's key; connect with TLS"
                        .to_owned(),
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
                "the server wants the password as it is, which is not sent over a connection \
                 that others can read; connect with TLS"
                    .to_owned(),
            )
        })
    }

    fn send_bare(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.request.start_bare().extend_from_slice(payload);
        self.send()
    }

    fn send(&mut self) -> Result<(), Error> {
        self.request
            .send(&mut self.stream, self.sequence)
            .map_err(|error| lost(self.doing(), &error))?;
        self.sequence = self.sequence.wrapping_add(1);
        Ok(())
    }

    /// The next packet. A refusal is an error at once.
    fn receive(&mut self) -> Result<Vec<u8>, Error> {
        let mut joined = Vec::new();
        loop {
            let unread = self.buffer.unread();
            if let Some(&[a, b, c, sequence]) = unread.first_chunk::<HEADER>() {
                if u32::from_le_bytes([a, b, c, 0]) as usize > LONGEST_IN_LOGIN {
                    return Err(self.not_ours());
                }
                if let Some(framed) = frame(unread, &mut joined) {
                    let (packet, taken) = (framed.payload.to_vec(), framed.taken);
                    self.buffer.consume(taken);
                    self.sequence = sequence.wrapping_add(1);
                    return self.unless_refused(packet);
                }
            }
            self.buffer.fill(&mut self.stream).map_err(|error| lost(self.doing(), &error))?;
        }
    }

    fn unless_refused(&self, packet: Vec<u8>) -> Result<Vec<u8>, Error> {
        if packet.first() != Some(&FAILED) {
            return Ok(packet);
        }
        let failure = ServerFailure::of_packet(&packet).map_err(|_| self.not_ours())?;
        let advice = match (failure.code, &self.password) {
            (1045 | 1698, None) if self.target.password => {
                "; no password was found: set DBDYNO_PASSWORD, or put it into ~/.my.cnf"
            }
            // MariaDB has no other words for this.
            (1045 | 1698, _) if self.target.tls == Tls::Off && !self.stream.is_private() => {
                "; where the password is right, the server may demand TLS"
            }
            (3159, _) => "; connect with TLS",
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
            "the server asks {} to prove who it is by {method}; dbdyno knows {}",
            self.target.user,
            auth::KNOWN
        ))
    }

    fn not_ours(&self) -> Error {
        self.refused(
            "what answers does not speak the protocol of MySQL and MariaDB; is the address right?"
                .to_owned(),
        )
    }
}

/// The part of our first packet that a request for encryption has, too.
fn put_start(bytes: &mut Vec<u8>, capabilities: Capabilities) {
    bytes.extend_from_slice(&capabilities.basic.to_le_bytes());
    bytes.extend_from_slice(&LARGEST.to_le_bytes());
    bytes.push(UTF8MB4);
    bytes.extend_from_slice(&[0; 19]);
    bytes.extend_from_slice(&capabilities.extended.to_le_bytes());
}

#[cfg(test)]
mod tests;
