//! The first packet of a server, and what client and server can do.

use super::wire::{Cursor, Malformed};
use crate::error::server_text;

/// The protocol version in use since 1999.
const PROTOCOL: u8 = 10;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) version: String,
    /// The lower half of the connection's id.
    pub(super) connection_id: u32,
    pub(super) offered: Capabilities,
    pub(super) plugin: String,
    /// Random bytes to mix with the password.
    pub(super) scramble: Vec<u8>,
}

/// Why a greeting cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum GreetingError {
    Malformed,
    /// The server's version and the supported versions, for messages.
    Unsupported(String),
}

impl From<Malformed> for GreetingError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl Greeting {
    pub(super) fn parse(packet: &[u8]) -> Result<Self, GreetingError> {
        let mut cursor = Cursor::new(packet);
        let protocol = cursor.u8()?;
        let version = real_version(&server_text(cursor.until_zero())).to_owned();
        if protocol != PROTOCOL {
            return Err(GreetingError::Unsupported(format!(
                "the server has protocol {protocol} and version {version}; {SUPPORTED}"
            )));
        }
        if is_too_old(&version) {
            return Err(GreetingError::Unsupported(format!(
                "the server's version is {version}; {SUPPORTED}"
            )));
        }
        let connection_id = cursor.u32()?;
        let mut scramble = cursor.bytes(8)?.to_vec();
        cursor.u8()?;
        let low = cursor.u16()?;
        // Character set and status.
        cursor.bytes(3)?;
        let high = cursor.u16()?;
        let length = usize::from(cursor.u8()?);
        cursor.bytes(6)?;
        let extended = cursor.u32()?;
        let second = cursor.bytes(length.saturating_sub(8).max(13))?;
        scramble.extend_from_slice(second.strip_suffix(&[0]).unwrap_or(second));
        let plugin = server_text(cursor.until_zero());
        let basic = u32::from(low) | u32::from(high) << 16;
        let extended = if basic & MYSQL == 0 { extended } else { 0 };
        let offered = Capabilities { basic, extended };
        Ok(Self { version, connection_id, offered, plugin, scramble })
    }
}

const SUPPORTED: &str = "dbdyno requires MariaDB 10.2 or MySQL 5.6, or later";

/// Removes the prefix 5.5.5, which MariaDB sends for old replicas.
fn real_version(version: &str) -> &str {
    match version.strip_prefix("5.5.5-") {
        Some(real) if is_mariadb(version) => real,
        _ => version,
    }
}

pub(super) fn is_mariadb(version: &str) -> bool {
    version.to_ascii_lowercase().contains("mariadb")
}

fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split(|character: char| !character.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    let least = if is_mariadb(version) { (10, 2) } else { (5, 6) };
    // Other version strings are of proxies or forks, which may speak the protocol.
    matches!((next(), next()), (Some(major), Some(minor)) if (major, minor) < least)
}

/// Set by MySQL. MariaDB clears it to announce [`Capabilities::extended`].
pub(super) const MYSQL: u32 = 1;
/// An UPDATE reports matched rows, not only changed ones.
pub(super) const FOUND_ROWS: u32 = 1 << 1;
pub(super) const LONG_FLAG: u32 = 1 << 2;
pub(super) const CONNECT_WITH_DB: u32 = 1 << 3;
pub(super) const PROTOCOL_41: u32 = 1 << 9;
pub(super) const SSL: u32 = 1 << 11;
pub(super) const TRANSACTIONS: u32 = 1 << 13;
pub(super) const SECURE_CONNECTION: u32 = 1 << 15;
pub(super) const MULTI_STATEMENTS: u32 = 1 << 16;
pub(super) const MULTI_RESULTS: u32 = 1 << 17;
pub(super) const PS_MULTI_RESULTS: u32 = 1 << 18;
pub(super) const PLUGIN_AUTH: u32 = 1 << 19;
pub(super) const PLUGIN_AUTH_LENGTH: u32 = 1 << 21;
/// Rows end with an OK packet, and no EOF packet follows the columns.
pub(super) const DEPRECATE_EOF: u32 = 1 << 24;
/// MariaDB: columns that are known from the preparation are not sent again.
pub(super) const CACHE_METADATA: u32 = 1 << 4;

/// Capabilities that the driver requires.
const REQUIRED: u32 = PROTOCOL_41 | SECURE_CONNECTION | PLUGIN_AUTH;
const REQUESTED: u32 = REQUIRED
    | MYSQL
    | FOUND_ROWS
    | LONG_FLAG
    | TRANSACTIONS
    | MULTI_STATEMENTS
    | MULTI_RESULTS
    | PS_MULTI_RESULTS
    | PLUGIN_AUTH_LENGTH
    | DEPRECATE_EOF;

/// Capabilities of one side, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capabilities {
    pub(super) basic: u32,
    pub(super) extended: u32,
}

impl Capabilities {
    /// The capabilities to use with a server that offers these; `None` if a required one is missing.
    pub(super) fn negotiate(offered: Self) -> Option<Self> {
        if offered.basic & REQUIRED != REQUIRED {
            return None;
        }
        Some(Self { basic: offered.basic & REQUESTED, extended: offered.extended & CACHE_METADATA })
    }

    pub(super) fn has(self, basic: u32) -> bool {
        self.basic & basic != 0
    }

    pub(super) fn caches_metadata(self) -> bool {
        self.extended & CACHE_METADATA != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(protocol: u8, version: &str) -> Vec<u8> {
        let mut packet = vec![protocol];
        packet.extend(version.as_bytes());
        packet.extend([0, 9, 1, 0, 0]);
        packet.extend(b"12345678\0");
        packet.extend([0xfe, 0xf7, 45, 2, 0, 0xff, 0x81, 21]);
        packet.extend([0; 6]);
        packet.extend([0x1d, 0, 0, 0]);
        packet.extend(b"abcdefghijkl\0mysql_native_password\0");
        packet
    }

    #[test]
    fn greeting_is_parsed() {
        let greeting = Greeting::parse(&packet(10, "5.5.5-10.11.6-MariaDB-0+deb12u1")).unwrap();
        assert_eq!(greeting.version, "10.11.6-MariaDB-0+deb12u1");
        assert_eq!(greeting.connection_id, 0x109);
        assert_eq!(greeting.scramble, b"12345678abcdefghijkl");
        assert_eq!(greeting.plugin, "mysql_native_password");
        assert_eq!(greeting.offered, Capabilities { basic: 0x81ff_f7fe, extended: 0x1d });
        for cut in 0..51 {
            assert!(Greeting::parse(&packet(10, "8.0.1")[..cut]).is_err());
        }
    }

    #[test]
    fn old_versions_are_named() {
        for (protocol, version) in
            [(9, "3.20.1"), (10, "5.5.62"), (10, "5.5.5-10.1.48-MariaDB-log"), (10, "5.1.73")]
        {
            let Err(GreetingError::Unsupported(words)) =
                Greeting::parse(&packet(protocol, version))
            else {
                panic!("{version} was accepted");
            };
            assert!(words.contains(version.trim_start_matches("5.5.5-")), "{words}");
        }
    }

    #[test]
    fn newer_and_unknown_versions_are_accepted() {
        for version in
            ["5.6.51", "5.7.44-log", "8.4.3", "9.1.0", "10.2.11-MariaDB", "11.8.2-MariaDB", "Proxy"]
        {
            assert!(Greeting::parse(&packet(10, version)).is_ok(), "{version}");
        }
    }
}
