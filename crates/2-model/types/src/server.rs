//! Database servers: systems, storage engines, settings and addresses.

use std::fmt;
use std::path::PathBuf;

use dbdyno_units::Nanos;
use serde::{Deserialize, Serialize};

use crate::CertificateFingerprint;
use crate::release::SUITES;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerSystem {
    MariaDb,
    /// MySQL, and forks with the same variables and initialization of the data directory.
    MySql,
    PostgreSql,
}

impl ServerSystem {
    /// Whether each session has a process of its own, instead of a thread.
    pub const fn has_process_per_session(self) -> bool {
        matches!(self, Self::PostgreSql)
    }

    pub const ALL: [Self; 3] = [Self::MariaDb, Self::MySql, Self::PostgreSql];

    /// What is known of the system without its program.
    pub const fn facts(self) -> &'static SystemFacts {
        match self {
            Self::MariaDb => &MARIADB,
            Self::MySql => &MYSQL,
            Self::PostgreSql => &POSTGRESQL,
        }
    }

    /// The name in experiments and exports.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    pub const fn title(self) -> &'static str {
        self.facts().title
    }

    /// The system with this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.name() == name)
    }

    /// The system that a server with this version is. MariaDB and MySQL are reached by the same URLs, so that
    /// one may be named where the other runs.
    pub fn of_version(self, version: &str) -> Self {
        match self {
            Self::MariaDb | Self::MySql if version.to_ascii_lowercase().contains("mariadb") => {
                Self::MariaDb
            }
            Self::MariaDb if version.starts_with(|c: char| c.is_ascii_digit()) => Self::MySql,
            other => other,
        }
    }

    /// The series of the server in a suite of Debian, such as 10.5; `None` if the suite still changes.
    pub fn series_in(self, suite: &str) -> Option<&'static str> {
        let mut all = self.facts().series.iter();
        all.find(|(name, _)| *name == suite).map(|(_, version)| *version)
    }

    /// The suite of Debian with this series of the server, or if the suite still changes, at least this one.
    pub fn suite_with(self, series: &str) -> Option<&'static str> {
        let facts = self.facts();
        let mut all = facts.series.iter().chain(facts.least_series);
        all.find(|(_, version)| *version == series).map(|(name, _)| *name)
    }

    /// The series of the server in a suite of Debian in words, such as `10.5` or `9.7 or newer`; `None` if unknown.
    pub fn describe_series_in(self, suite: &str) -> Option<String> {
        let mut changing = self.facts().least_series.iter();
        let least = changing.find(|(name, _)| *name == suite);
        let or_newer = || Some(format!("{} or newer", least?.1));
        self.series_in(suite).map(str::to_owned).or_else(or_newer)
    }

    /// The storage engines that can be selected; empty if there is no choice.
    pub const fn storage_engines(self) -> &'static [StorageEngine] {
        self.facts().storage_engines
    }
}

/// The protocol between clients and servers, with the SQL that is sent in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    MySql,
    PostgreSql,
}

/// What is known of a system without its program.
#[derive(Debug)]
pub struct SystemFacts {
    /// The name in experiments and exports.
    name: &'static str,
    title: &'static str,
    pub protocol: Protocol,
    /// The schemes of URLs of each protocol, and an example.
    pub schemes: [&'static str; 2],
    pub example_url: &'static str,
    /// Where clients find a password: an environment variable and a file.
    pub password_in: (&'static str, &'static str),
    storage_engines: &'static [StorageEngine],
    /// The suites of Debian with packages of the server, the oldest first.
    pub suites: &'static [&'static str],
    /// The series of the server in each suite that has been released: suite and version.
    series: &'static [(&'static str, &'static str)],
    /// The series that suites which still change have at least, where it matters: suite and version.
    least_series: &'static [(&'static str, &'static str)],
    /// An example of `source` in an experiment.
    pub example_source: &'static str,
    /// How the values false and true are written in its configuration file.
    pub booleans: [&'static str; 2],
    /// The groups of an option file that the server reads, and those that it reads with a version, as in
    /// `[mysqld-8.0]`; none if the file has no groups.
    pub option_groups: [&'static [&'static str]; 2],
    pub typical_times: TypicalTimes,
    /// Whether it is configured by its own script, with options of the user, and compiled without TLS.
    pub has_configure: bool,
}

/// Typical times on an idle machine with an SSD.
#[derive(Clone, Copy, Debug)]
pub struct TypicalTimes {
    /// To stop a server that has only read, and to start it.
    pub restart: Nanos,
    /// The same after writes, which are flushed before.
    pub restart_after_writes: Nanos,
    /// To create an empty server and start it for loading.
    pub create: Nanos,
}

impl TypicalTimes {
    const fn of_millis(restart: u64, restart_after_writes: u64, create: u64) -> Self {
        Self {
            restart: Nanos::from_millis(restart),
            restart_after_writes: Nanos::from_millis(restart_after_writes),
            create: Nanos::from_millis(create),
        }
    }
}

const ENGINES: &[StorageEngine] = &[StorageEngine::InnoDb, StorageEngine::MyRocks];

const MARIADB: SystemFacts = SystemFacts {
    name: "mariadb",
    title: "MariaDB",
    protocol: Protocol::MySql,
    schemes: ["mysql", "mariadb"],
    example_url: "mysql://user@host:3306/",
    password_in: ("MYSQL_PWD", "~/.my.cnf"),
    storage_engines: ENGINES,
    suites: &SUITES,
    series: &[("bullseye", "10.5"), ("bookworm", "10.11"), ("trixie", "11.8")],
    least_series: &[],
    example_source: "debian = \"mariadb\", suite = \"bookworm\"",
    booleans: ["OFF", "ON"],
    option_groups: [
        &["mysqld", "server", "mariadb", "mariadbd", "client-server", "galera"],
        &["mysqld", "mariadb", "mariadbd"],
    ],
    typical_times: TypicalTimes::of_millis(250, 800, 3000),
    has_configure: false,
};

const MYSQL: SystemFacts = SystemFacts {
    name: "mysql",
    title: "MySQL",
    suites: &["sid"],
    series: &[],
    least_series: &[("sid", "9.7")],
    example_source: "debian = \"mysql-9.7\", suite = \"sid\"",
    option_groups: [&["mysqld", "server"], &["mysqld"]],
    typical_times: TypicalTimes::of_millis(1900, 2500, 7000),
    ..MARIADB
};

const POSTGRESQL: SystemFacts = SystemFacts {
    name: "postgresql",
    title: "PostgreSQL",
    protocol: Protocol::PostgreSql,
    schemes: ["postgres", "postgresql"],
    example_url: "postgres://user@host:5432/database",
    password_in: ("PGPASSWORD", "~/.pgpass"),
    storage_engines: &[],
    suites: &SUITES,
    series: &[("bullseye", "13"), ("bookworm", "15"), ("trixie", "17")],
    least_series: &[],
    example_source: "debian = \"postgresql-15\", suite = \"bookworm\"",
    booleans: ["off", "on"],
    option_groups: [&[], &[]],
    typical_times: TypicalTimes::of_millis(200, 800, 3000),
    has_configure: true,
};

words! {
    /// A storage engine inside a server.
    StorageEngine {
        InnoDb = "innodb",
        /// MyRocks: RocksDB's log-structured merge tree.
        MyRocks = "myrocks",
    }
}

words! {
    Durability {
        /// A commit survives a crash of the server, but not a power failure: it does not wait for
        /// storage.
        Relaxed = "relaxed",
        /// A commit survives a power failure: it waits until its log is on storage.
        Strict = "strict",
    }
}

words! {
    /// Whose values a private server has for settings that its candidate does not set.
    #[derive(Default)]
    SettingDefaults {
        /// dbdyno's: data in memory, work on one CPU.
        #[default]
        Dbdyno = "dbdyno",
        /// The server's own.
        Server = "server",
    }
}

words! {
    /// How statements are sent to a server.
    StatementMode {
        /// Prepared once per connection; parameters and rows in the protocol's binary format.
        Prepared = "prepared",
        /// SQL text with literal values; rows as text.
        Text = "text",
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
    /// Always; the server's certificate must be valid for its host name.
    Verified {
        /// A PEM file with trusted certificate authorities; `None` for the system's.
        authorities: Option<PathBuf>,
    },
    /// Always; the server's certificate must be this one.
    Pinned {
        /// The certificate's fingerprint.
        fingerprint: CertificateFingerprint,
    },
}

/// The address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Address {
    /// The path of a Unix socket. For PostgreSQL also the socket itself, not its directory.
    Socket(PathBuf),
    /// A host name or address, and a port.
    Tcp {
        /// Name or address.
        host: String,
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

/// A server and the user who connects. Excludes the password, so that it is never written to files
/// or messages; it is looked up in the environment or the user's files when connecting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// The server's address.
    pub address: Address,
    /// The user to log in as.
    pub user: String,
    /// The database (in MySQL: schema) to use; `None` if it does not exist yet.
    pub database: Option<String>,
    /// Whether the connection is encrypted.
    pub tls: Tls,
    /// MySQL: a PEM file with the server's RSA public key, for passwords on connections without encryption.
    pub server_public_key: Option<PathBuf>,
    /// Whether a password may be looked up. Never for servers that dbdyno itself started.
    pub password: bool,
}
