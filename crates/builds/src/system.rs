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
    /// MySQL's server, and those of its forks that kept its build.
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

    /// The name as its makers write it.
    #[must_use]
    pub const fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::PostgreSql => "PostgreSQL",
            Self::MariaDb => "MariaDB",
            Self::MySql => "MySQL",
        }
    }

    /// Whether it is a program of its own, installed into a directory, rather than a library.
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
