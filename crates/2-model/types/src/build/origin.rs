use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer, Serialize};

/// The location of a system's source.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceOrigin {
    /// Part of this program: SQLite only.
    #[default]
    Bundled,
    /// A directory of the user, used in place and never modified.
    Path(#[serde(deserialize_with = "path")] PathBuf),
    /// A compressed archive that contains one directory.
    Tarball {
        /// A URL or file path.
        location: String,
        /// The SHA-256 of the archive, 64 hexadecimal digits; required for a URL.
        sha256: Option<String>,
    },
    /// A git repository.
    Git {
        /// A URL or path.
        url: String,
        /// A tag or a full commit hash.
        revision: String,
    },
    /// A Debian source package.
    Debian {
        /// The name of the source package.
        package: String,
        /// The Debian release: `bookworm` or newer.
        suite: String,
        /// The package's version; `None` for the newest.
        version: Option<String>,
    },
}

/// Reads a path. Earlier versions stored it in a table.
fn path<'d, D: Deserializer<'d>>(deserializer: D) -> Result<PathBuf, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Stored {
        Plain(PathBuf),
        Table { path: PathBuf },
    }
    let (Stored::Plain(path) | Stored::Table { path }) = Stored::deserialize(deserializer)?;
    Ok(path)
}

impl fmt::Display for SourceOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled => f.write_str("bundled with dbdyno"),
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Tarball { location, .. } => f.write_str(location),
            Self::Git { url, revision } => write!(f, "{url} at {revision}"),
            Self::Debian { package, suite, version: None } => {
                write!(f, "Debian source package {package} in {suite}")
            }
            Self::Debian { package, suite, version: Some(version) } => {
                write!(f, "Debian source package {package} {version} in {suite}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_read_in_both_stored_forms() {
        let path = SourceOrigin::Path(PathBuf::from("/s"));
        for text in [r#"{"path":"/s"}"#, r#"{"path":{"path":"/s"}}"#] {
            assert_eq!(serde_json::from_str::<SourceOrigin>(text).unwrap(), path);
        }
        assert_eq!(serde_json::to_string(&path).unwrap(), r#"{"path":"/s"}"#);
    }
}
