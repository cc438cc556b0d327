use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Sha256;

/// Where a source comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Inside this program: SQLite alone.
    Bundled,
    /// A folder of the user's, used where it is and never changed.
    Path {
        /// The folder.
        path: PathBuf,
    },
    /// A packed archive with one folder in it.
    Tarball {
        /// A URL, or the path of a file.
        location: String,
        /// What its checksum must be; needed for a URL.
        sha256: Option<Sha256>,
    },
    /// A git repository.
    Git {
        /// Its URL, or a path.
        url: String,
        /// A tag or a whole commit number.
        revision: String,
    },
    /// A Debian source package.
    Debian {
        /// The name of the source package.
        package: String,
        /// The release of Debian: `bookworm` or a newer one.
        suite: String,
        /// The package's version; the newest that there is, where none is named.
        version: Option<String>,
    },
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("inside dbdyno"),
            Self::Path { path } => write!(f, "{}", path.display()),
            Self::Tarball { location, .. } => f.write_str(location),
            Self::Git { url, revision } => write!(f, "{url} at {revision}"),
            Self::Debian { package, suite, version: None } => {
                write!(f, "Debian's source package {package} in {suite}")
            }
            Self::Debian { package, suite, version: Some(version) } => {
                write!(f, "Debian's source package {package} {version} in {suite}")
            }
        }
    }
}
