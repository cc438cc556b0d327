use std::fmt;

use serde::{Deserialize, Serialize};

/// A database program that dbdyno can compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum System {
    /// SQLite, as a shared library.
    Sqlite,
    /// PostgreSQL's server.
    PostgreSql,
    /// MariaDB's server.
    MariaDb,
    /// The servers of MySQL and of its forks with the same build system.
    MySql,
}

impl System {
    /// The name used in experiment files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::PostgreSql => "postgresql",
            Self::MariaDb => "mariadb",
            Self::MySql => "mysql",
        }
    }

    /// The official name.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::PostgreSql => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// Whether it is a server, installed into a directory, rather than a library.
    #[must_use]
    pub const fn is_server(self) -> bool {
        !matches!(self, Self::Sqlite)
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
