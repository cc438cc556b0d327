//! The parameters of `url` for encryption, and for how the server is verified.

use std::net::IpAddr;
use std::path::PathBuf;

use dbdyno_document::did_you_mean;
use dbdyno_types::server::{Address, Protocol, Tls};

use super::{Pair, Reader, find};

pub(super) const TLS: &str = "tls";
pub(super) const AUTHORITIES: &str = "tls_authorities";
pub(super) const FINGERPRINT: &str = "tls_fingerprint";
/// The name of the option in MySQL's clients.
pub(super) const PUBLIC_KEY: &str = "server_public_key_path";

/// What to use instead of an option of the systems' own clients, such as `sslmode` or `ssl-ca`.
pub(super) fn help_for_client_option(key: &str) -> String {
    let instead = match key {
        "sslrootcert" | "ssl-ca" | "ssl_ca" | "ssl-capath" | "ssl_capath" => AUTHORITIES,
        "ssl-fp" | "ssl_fp" => FINGERPRINT,
        _ => TLS,
    };
    format!("use `{instead}` for encryption")
}

impl Reader<'_> {
    pub(super) fn tls(self, address: &Address, query: &[Pair<'_>]) -> Option<Tls> {
        let tls = find(query, TLS);
        let chosen = match tls.map(|pair| pair.value.as_str()) {
            None if is_of_this_machine(address) => Tls::Off,
            None | Some("required") => Tls::Required,
            Some("off") => Tls::Off,
            Some("verified") => self.verified(query)?,
            Some(other) => {
                let place = tls.map_or(0..0, |pair| pair.place.clone());
                return self.report(place, "unknown `tls` in `url`", help_for_value(other));
            }
        };
        let unverified = matches!(chosen, Tls::Off | Tls::Required);
        if let Some(pair) = find(query, AUTHORITIES).or_else(|| find(query, FINGERPRINT))
            && unverified
        {
            let message = format!("`{}` verifies nothing here", pair.key);
            return self.report(pair.place.clone(), message, "add `tls=verified`".to_owned());
        }
        if let (Address::Socket(_), Protocol::PostgreSql, Some(pair)) =
            (address, self.system.facts().protocol, tls)
            && chosen != Tls::Off
        {
            let help = "leave `tls` out: nothing leaves this machine".to_owned();
            let message = "PostgreSQL does not encrypt what goes through a socket";
            return self.report(pair.place.clone(), message, help);
        }
        Some(chosen)
    }

    /// `tls=verified`, with what the server's certificate is compared to.
    fn verified(self, query: &[Pair<'_>]) -> Option<Tls> {
        let authorities = find(query, AUTHORITIES);
        let Some(pair) = find(query, FINGERPRINT) else {
            let authorities = match authorities {
                Some(pair) => Some(self.absolute(pair, AUTHORITIES)?),
                None => None,
            };
            return Some(Tls::Verified { authorities });
        };
        if authorities.is_some() {
            let help = format!("remove one: with `{FINGERPRINT}` only that certificate is valid");
            let message = "`url` has authorities and a fingerprint";
            return self.report(pair.place.clone(), message, help);
        }
        match pair.value.parse() {
            Ok(fingerprint) => Some(Tls::Pinned { fingerprint }),
            Err(error) => {
                let help = format!(
                    "{error}; print it on the server with `openssl x509 -noout -fingerprint \
                     -sha256 -in FILE`"
                );
                let message = format!("`{FINGERPRINT}` is not a fingerprint");
                self.report(pair.place.clone(), message, help)
            }
        }
    }

    /// The file with the server's public key.
    pub(super) fn server_public_key(
        self,
        address: &Address,
        tls: &Tls,
        query: &[Pair<'_>],
    ) -> Option<Option<PathBuf>> {
        let Some(pair) = find(query, PUBLIC_KEY) else { return Some(None) };
        let help = match (address, tls) {
            (Address::Tcp { .. }, Tls::Off) => return self.absolute(pair, PUBLIC_KEY).map(Some),
            (Address::Socket(_), _) => "remove it: passwords are safe on a socket",
            (Address::Tcp { .. }, Tls::Required) => "add `tls=off`, or verify with `tls=verified`",
            (Address::Tcp { .. }, Tls::Verified { .. } | Tls::Pinned { .. }) => {
                "remove it: passwords are safe with `tls=verified`"
            }
        };
        let message = format!("`{PUBLIC_KEY}` is for TCP without TLS");
        self.report(pair.place.clone(), message, help.to_owned())
    }
}

/// Help for an unknown value of `tls`. The systems' own clients have these names for verification.
fn help_for_value(value: &str) -> String {
    let name = value.to_ascii_lowercase().replace('_', "-");
    match name.as_str() {
        "verify-ca" | "verify-full" | "verify-identity" => "write `tls=verified`".to_owned(),
        _ => did_you_mean(value, &["off", "required", "verified"]),
    }
}

/// Whether traffic to this address stays on this machine.
fn is_of_this_machine(address: &Address) -> bool {
    match address {
        Address::Socket(_) => true,
        Address::Tcp { host, .. } => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
        }
    }
}
