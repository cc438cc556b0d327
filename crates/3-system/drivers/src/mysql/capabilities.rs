//! Protocol capabilities of client and server, one bit each
//! (<https://dev.mysql.com/doc/dev/mysql-server/latest/group__group__cs__capabilities__flags.html>).

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
    /// MariaDB's extended capabilities.
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
