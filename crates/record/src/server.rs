//! Words for database servers, shared by those who read them from an experiment, those who act on
//! them and those who report them.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A database server program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerSystem {
    /// MariaDB.
    MariaDb,
    /// MySQL, and forks that kept its variables and its way to make a data directory.
    MySql,
    /// PostgreSQL.
    PostgreSql,
}

impl ServerSystem {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::MariaDb, Self::MySql, Self::PostgreSql];

    /// The vocabulary's name, as in experiments and exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
            Self::PostgreSql => "postgresql",
        }
    }

    /// The name as its makers write it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
            Self::PostgreSql => "PostgreSQL",
        }
    }

    /// The storage engines that can be asked for; empty where the system has only its own.
    #[must_use]
    pub const fn storage_engines(self) -> &'static [StorageEngine] {
        match self {
            Self::MariaDb | Self::MySql => &[StorageEngine::InnoDb, StorageEngine::MyRocks],
            Self::PostgreSql => &[],
        }
    }
}

/// A storage engine inside a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StorageEngine {
    /// InnoDB: a B-tree.
    InnoDb,
    /// MyRocks: RocksDB's log-structured merge tree.
    MyRocks,
}

impl StorageEngine {
    /// The vocabulary's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InnoDb => "innodb",
            Self::MyRocks => "myrocks",
        }
    }
}

/// What a commit promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A commit survives the death of the server, not a power cut: nothing waits for storage.
    Relaxed,
    /// A commit survives a power cut: it waits until its log is on storage.
    Strict,
}

impl Durability {
    /// The word in experiments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relaxed => "relaxed",
            Self::Strict => "strict",
        }
    }
}

/// How statements go to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementMode {
    /// Prepared once per connection; parameters and rows in the protocol's binary form.
    Prepared,
    /// As SQL text with the values written into it; rows as text.
    Text,
}

impl StatementMode {
    /// The word in experiments and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Text => "text",
        }
    }
}

/// Whether a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tls {
    /// Never.
    Off,
    /// Always; the server's certificate is not checked.
    Required,
    /// Always; the server's certificate must be good for its host name.
    Verified {
        /// Certificates of authorities to trust, a PEM file; the system's where there is none.
        authorities: Option<PathBuf>,
    },
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// A Unix socket's path. For PostgreSQL, too, the socket itself and not its directory.
    Socket(PathBuf),
    /// A host's name or address, and a port.
    Tcp {
        /// Name or address.
        host: String,
        /// Port.
        port: u16,
    },
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => write!(f, "{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
        }
    }
}

/// A server and who asks it. A password is not among this: whoever connects looks it up in its
/// environment or in the user's own files, so that it never gets into a file or a message of ours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Where it listens.
    pub address: Address,
    /// The user to log in as.
    pub user: String,
    /// The database (in MySQL's words: schema) to use; none yet where there is none.
    pub database: Option<String>,
    /// Whether the connection is encrypted.
    pub tls: Tls,
    /// Whether a password may be looked up. Never for servers that dbdyno itself started.
    pub password: bool,
}
