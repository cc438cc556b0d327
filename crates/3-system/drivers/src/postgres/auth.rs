//! Authentication
//! (<https://www.postgresql.org/docs/current/protocol-flow.html#PROTOCOL-FLOW-START-UP>): what a server can ask
//! for, and the response, if [`decide`] allows one.

use std::mem;

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{
    ChannelBinding, SCRAM_SHA_256, SCRAM_SHA_256_PLUS, ScramSha256,
};

use super::channel::{Fields, Malformed, put_text};
use crate::Error;
use crate::error::server_text;
use crate::net::{Transport, VERIFY_THE_SERVER};

/// A method that needs the password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    /// `password`: the plain-text password.
    Plain,
    Md5,
    /// `scram-sha-256`.
    Scram,
}

/// Whether a method is used over this connection; the error is the reason why not. No other code decides it.
///
/// The password itself is for the intended server only. The other methods send a proof that does not contain it.
fn decide(method: Method, transport: Transport) -> Result<(), &'static str> {
    match (method, transport.risk()) {
        (Method::Md5 | Method::Scram, _) | (Method::Plain, None) => Ok(()),
        (Method::Plain, Some(risk)) => Err(risk),
    }
}

/// Why a request is not answered.
#[derive(Debug)]
pub(super) enum AuthError {
    /// With a message.
    Refused(String),
    Malformed(Malformed),
    /// There is no password.
    Password(Error),
}

impl From<Malformed> for AuthError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// The client's side of authentication.
pub(super) struct Authentication<'a> {
    user: &'a str,
    transport: Transport,
    /// The hash of the server's certificate.
    end_point: Option<Vec<u8>>,
    stage: Stage,
}

enum Stage {
    /// The server has not requested anything.
    Start,
    /// The password or its MD5 hash was sent.
    Answered,
    /// SCRAM has started.
    Scram(ScramSha256),
    /// The server has proved by SCRAM that it knows the password.
    ServerProved,
    /// The server has accepted the user.
    Complete,
    /// A request was not answered.
    Failed,
}

impl<'a> Authentication<'a> {
    pub(super) fn new(user: &'a str, transport: Transport, end_point: Option<Vec<u8>>) -> Self {
        Self { user, transport, end_point, stage: Stage::Start }
    }

    /// Processes the body of an authentication request and returns the response, if there is one.
    pub(super) fn respond(
        &mut self,
        body: &[u8],
        password: &dyn Fn() -> Result<String, Error>,
    ) -> Result<Option<Vec<u8>>, AuthError> {
        let mut fields = Fields(body);
        let request = fields.number()?;
        let password = || password().map_err(AuthError::Password);
        let mut response = Vec::new();
        self.stage = match (request, mem::replace(&mut self.stage, Stage::Failed)) {
            (0, Stage::Scram(_)) => return Err(no_proof()),
            (0, Stage::Start | Stage::Answered | Stage::ServerProved) => {
                self.stage = Stage::Complete;
                return Ok(None);
            }
            (3, Stage::Start) => {
                self.check(Method::Plain)?;
                put_text(&mut response, &password()?);
                Stage::Answered
            }
            (5, Stage::Start) => {
                self.check(Method::Md5)?;
                let salt = fields.bytes(4)?.try_into().unwrap_or_default();
                let hash = md5_hash(self.user.as_bytes(), password()?.as_bytes(), salt);
                put_text(&mut response, &hash);
                Stage::Answered
            }
            (10, Stage::Start) => {
                let (mechanism, binding) = bind(fields, self.end_point.take())?;
                self.check(Method::Scram)?;
                let scram = ScramSha256::new(password()?.as_bytes(), binding);
                put_text(&mut response, mechanism);
                response.extend_from_slice(&(scram.message().len() as u32).to_be_bytes());
                response.extend_from_slice(scram.message());
                Stage::Scram(scram)
            }
            (11, Stage::Scram(mut scram)) => {
                scram.update(fields.0).map_err(scram_failed)?;
                response.extend_from_slice(scram.message());
                Stage::Scram(scram)
            }
            (12, Stage::Scram(mut scram)) => {
                scram.finish(fields.0).map_err(scram_failed)?;
                self.stage = Stage::ServerProved;
                return Ok(None);
            }
            (11 | 12, _) => return Err(Malformed::new("an unexpected SCRAM message").into()),
            (0 | 3 | 5 | 10, _) => {
                let what = "a second authentication request";
                return Err(Malformed::new(what).into());
            }
            (other, _) => return Err(unsupported(other)),
        };
        Ok(Some(response))
    }

    /// Checks that the server has accepted the user, and has kept to the method that it requested.
    pub(super) fn check_complete(&self) -> Result<(), AuthError> {
        match self.stage {
            Stage::Complete => Ok(()),
            Stage::Scram(_) => Err(no_proof()),
            Stage::Start | Stage::Answered | Stage::ServerProved | Stage::Failed => {
                Err(Malformed::new("the end of the login before that of authentication").into())
            }
        }
    }

    fn check(&self, method: Method) -> Result<(), AuthError> {
        decide(method, self.transport).map_err(|risk| {
            AuthError::Refused(format!(
                "the server requests the plain-text password (method `password`), which is not \
                 sent: {risk}; {VERIFY_THE_SERVER}; or configure scram-sha-256 in pg_hba.conf"
            ))
        })
    }
}

/// Chooses a mechanism of those that are offered. With TLS, the proof is bound to the server's certificate, so that whoever
/// is between cannot pass it on. A server that can bind it, and whose offer of that was removed, refuses the unbound proof.
fn bind(
    mut fields: Fields<'_>,
    end_point: Option<Vec<u8>>,
) -> Result<(&'static str, ChannelBinding), AuthError> {
    let mut offered = Vec::new();
    while !matches!(fields.0, [] | [0]) {
        offered.push(fields.text()?);
    }
    let offers = |mechanism: &str| offered.contains(&mechanism.as_bytes());
    match end_point {
        Some(hash) if offers(SCRAM_SHA_256_PLUS) => {
            Ok((SCRAM_SHA_256_PLUS, ChannelBinding::tls_server_end_point(hash)))
        }
        Some(_) if offers(SCRAM_SHA_256) => Ok((SCRAM_SHA_256, ChannelBinding::unrequested())),
        None if offers(SCRAM_SHA_256) => Ok((SCRAM_SHA_256, ChannelBinding::unsupported())),
        _ => Err(AuthError::Refused(format!(
            "the server requests {}; dbdyno supports only {SCRAM_SHA_256}, and \
             {SCRAM_SHA_256_PLUS} over TLS",
            server_text(&offered.join(&b" or "[..]))
        ))),
    }
}

/// A server that does not know the password could skip the proof.
fn no_proof() -> AuthError {
    AuthError::Refused(
        "the server ended SCRAM without proving that it knows the password; check that it is the \
         right server"
            .to_owned(),
    )
}

fn scram_failed(error: std::io::Error) -> AuthError {
    let error = server_text(error.to_string().as_bytes());
    AuthError::Refused(format!("SCRAM authentication: {error}"))
}

fn unsupported(request: u32) -> AuthError {
    let name = match request {
        2 => "Kerberos".to_owned(),
        7 | 8 => "GSSAPI".to_owned(),
        9 => "SSPI".to_owned(),
        other => format!("authentication method {other}"),
    };
    AuthError::Refused(format!(
        "the server requests {name}, which dbdyno does not support; configure scram-sha-256, md5, \
         password, peer or trust in pg_hba.conf"
    ))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::check_cases;
    use proptest::prelude::*;

    use super::*;

    fn request(number: u32, rest: &[u8]) -> Vec<u8> {
        [&number.to_be_bytes(), rest].concat()
    }

    fn secret() -> Result<String, Error> {
        Ok("secret".to_owned())
    }

    /// The outcome of these requests one after the other: of the first that fails, or of the last.
    fn outcome(transport: Transport, requests: &[Vec<u8>]) -> Result<Option<Vec<u8>>, AuthError> {
        let mut authentication = Authentication::new("ann", transport, None);
        let mut last = Ok(None);
        for request in requests {
            last = authentication.respond(request, &secret);
            if last.is_err() {
                break;
            }
        }
        last
    }

    #[test]
    fn every_combination_of_method_and_connection() {
        let table: Vec<String> = [Method::Plain, Method::Md5, Method::Scram]
            .into_iter()
            .map(|method| {
                let allowed = Transport::ALL.map(|transport| match decide(method, transport) {
                    Ok(()) => "yes",
                    Err(_) => "no",
                });
                format!("{method:?}: {}", allowed.join(" "))
            })
            .collect();
        // On a Unix socket, verified TLS, unverified TLS, plain TCP.
        assert_eq!(
            table,
            ["Plain: yes yes no no", "Md5: yes yes yes yes", "Scram: yes yes yes yes"]
        );
    }

    #[test]
    fn refusal_has_the_request_the_risk_and_the_remedy() {
        for transport in [Transport::UnverifiedTls, Transport::PlainTcp] {
            let error = outcome(transport, &[request(3, b"")]).unwrap_err();
            let AuthError::Refused(words) = error else { panic!("{error:?}") };
            assert!(!words.contains("secret"), "{words}");
            for part in
                ["`password`", transport.risk().unwrap(), "tls=verified", "Unix socket", "scram"]
            {
                assert!(words.contains(part), "{words}");
            }
        }
    }

    #[test]
    fn no_second_method_is_answered() {
        let mechanisms = b"SCRAM-SHA-256\0\0";
        let methods = [request(3, b""), request(5, b"salt"), request(10, mechanisms)];
        for first in &methods {
            for second in &methods {
                let both = [first.clone(), second.clone()];
                let error = outcome(Transport::UnixSocket, &both).unwrap_err();
                assert!(matches!(error, AuthError::Malformed(_)), "{error:?}");
            }
            let after_ok = [request(0, b""), first.clone()];
            outcome(Transport::UnixSocket, &after_ok).unwrap_err();
        }
    }

    #[test]
    fn proof_is_bound_to_the_certificate() {
        let (both, unbound) =
            (&b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"[..], &b"SCRAM-SHA-256\0\0"[..]);
        let header = |offered: &[u8], end_point: Option<&[u8]>| {
            let end_point = end_point.map(<[u8]>::to_vec);
            let mut authentication =
                Authentication::new("ann", Transport::UnverifiedTls, end_point);
            let response = authentication.respond(&request(10, offered), &secret).unwrap().unwrap();
            let (mechanism, rest) =
                response.split_at(response.iter().position(|b| *b == 0).unwrap());
            let end = rest.windows(2).position(|two| two == b",,").unwrap();
            let flag = rest[5..end].escape_ascii().to_string();
            (mechanism.escape_ascii().to_string(), flag)
        };
        let expected = |mechanism: &str, flag: &str| (mechanism.to_owned(), flag.to_owned());
        let bound = expected("SCRAM-SHA-256-PLUS", "p=tls-server-end-point");
        assert_eq!(header(both, Some(b"hash")), bound);
        assert_eq!(header(unbound, Some(b"hash")), expected("SCRAM-SHA-256", "y"));
        assert_eq!(header(both, None), expected("SCRAM-SHA-256", "n"));
        let only = request(10, b"SCRAM-SHA-256-PLUS\0\0");
        let error = outcome(Transport::PlainTcp, &[only]).unwrap_err();
        assert!(matches!(&error, AuthError::Refused(words) if words.contains("over TLS")));
    }

    #[test]
    fn scram_does_not_end_without_the_servers_proof() {
        let start = request(10, b"SCRAM-SHA-256\0\0");
        for transport in Transport::ALL {
            let error = outcome(transport, &[start.clone(), request(0, b"")]).unwrap_err();
            assert!(matches!(&error, AuthError::Refused(words) if words.contains("proving")));
            let mut authentication = Authentication::new("ann", transport, None);
            assert!(authentication.check_complete().is_err());
            let first = authentication.respond(&start, &secret).unwrap().unwrap();
            let error = authentication.check_complete().unwrap_err();
            assert!(matches!(&error, AuthError::Refused(words) if words.contains("proving")));
            // The server's first message is valid, its proof is not.
            let nonce = String::from_utf8(first).unwrap();
            let nonce = nonce.rsplit("r=").next().unwrap();
            let challenge = request(11, format!("r={nonce}x,s=c2FsdA==,i=4096").as_bytes());
            let answer = authentication.respond(&challenge, &secret).unwrap().unwrap();
            assert!(String::from_utf8(answer).unwrap().contains(",p="));
            assert!(authentication.check_complete().is_err());
            let forged = request(12, b"v=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=");
            let error = authentication.respond(&forged, &secret).unwrap_err();
            assert!(matches!(&error, AuthError::Refused(words) if words.contains("verification")));
            assert!(authentication.check_complete().is_err());
        }
    }

    #[test]
    fn arbitrary_requests_reveal_no_password_on_a_connection_with_a_risk() {
        let number = prop_oneof![0_u32..14, any::<u32>()];
        let request_parts = (number, prop::collection::vec(any::<u8>(), 0..40));
        check_cases(&prop::collection::vec(request_parts, 1..6), 256, |requests| {
            for transport in Transport::ALL {
                let mut authentication = Authentication::new("ann", transport, None);
                for (number, rest) in &requests {
                    let Ok(response) = authentication.respond(&request(*number, rest), &secret)
                    else {
                        break;
                    };
                    let response = response.unwrap_or_default();
                    let revealed = response.windows(6).any(|window| window == b"secret");
                    prop_assert!(!revealed || transport.risk().is_none());
                }
            }
            Ok(())
        });
    }
}
