use std::fmt;

use serde::{Deserialize, Serialize};

use crate::registry::{MavenArtifact, NpmPackage};
use crate::server::ServerSystem;
use crate::sha256::Sha256;

/// Debian's suites with servers that can run here, the oldest first.
pub const SUITES: [&str; 5] = ["bullseye", "bookworm", "trixie", "forky", "sid"];

/// The suites with packages of a system's server, the oldest first.
pub const fn suites(system: ServerSystem) -> &'static [&'static str] {
    system.facts().suites
}

/// Where the program of a compiled release is from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReleaseOrigin {
    /// A release in a directory that has its name, such as `8.0.37`.
    Installed {
        /// The name of the directory.
        name: String,
    },
    /// The packages of a suite of Debian, unpacked into the cache.
    Debian {
        /// The suite, such as `sid`.
        suite: String,
    },
    /// An archive with the compiled programs, unpacked into the cache.
    Tarball {
        /// A URL or file path.
        location: String,
        /// The SHA-256 of the archive; required for a URL.
        sha256: Option<Sha256>,
    },
    /// An artifact of a Maven repository, unpacked into the cache.
    Maven {
        artifact: Box<MavenArtifact>,
        /// The SHA-256 that it must have; `None` for the checksum that the repository publishes.
        sha256: Option<Sha256>,
    },
    /// A package of an npm registry, unpacked into the cache.
    Npm {
        package: NpmPackage,
        /// The SHA-256 that it must have; `None` for the checksum that the registry publishes.
        sha256: Option<Sha256>,
    },
}

impl fmt::Display for ReleaseOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed { name } => f.write_str(name),
            Self::Debian { suite } => write!(f, "Debian {suite}"),
            Self::Tarball { location, .. } => f.write_str(location),
            Self::Maven { artifact, .. } => write!(f, "Maven {artifact}"),
            Self::Npm { package, .. } => write!(f, "npm {package}"),
        }
    }
}

/// A file that a release consists of: a package, or an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseFile {
    /// The package's name, or the archive's.
    pub name: String,
    /// The package's version; empty for an archive.
    pub version: String,
    /// SHA-256, 64 hexadecimal digits.
    pub sha256: String,
}

impl fmt::Display for ReleaseFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(format!("{} {}", self.name, self.version).trim_end())
    }
}
