//! Debian source packages, fetched with apt.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use crate::apt::{Apt, CACHE, GET, Lists};
use crate::fetching::{Fetching, Tool};
use crate::{BuildError, Sha256};

const DPKG: Tool = Tool { program: "dpkg", package: "dpkg" };
const UNPACK: Tool = Tool { program: "dpkg-source", package: "dpkg-dev" };

/// Fetches a source package and applies Debian's patches. Returns the directory, the checksum of
/// the `.dsc` file, and the version.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    package: &str,
    suite: &str,
    version: Option<&str>,
    home: &Path,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let apt = Apt::prepare(fetching, Lists::Sources, suite, home)?;
    let mut versions = versions(&apt, package)?;
    if versions.is_empty() {
        return Err(fetching.failed(
            "looking for it",
            format!("{suite} has no source package {package}"),
            "`apt-cache showsrc NAME` shows the source package of a package",
        ));
    }
    if let Some(version) = version {
        if !versions.iter().any(|known| known == version) {
            return Err(fetching.failed(
                "looking for it",
                format!("{suite} has {} and not {version}", versions.join(" and ")),
                "name one of these, or leave `version` out",
            ));
        }
        versions.retain(|known| known == version);
    }
    let files = fetching.part.join("files");
    fs::create_dir(&files).map_err(Fetching::io("creating", &files))?;
    let version = download(&apt, package, &versions, &files)?;
    let description = description(&files)
        .ok_or_else(|| fetching.failed("downloading it", "no .dsc file came", "try again"))?;
    let sha256 = Sha256::of_file(&description).map_err(Fetching::io("reading", &description))?;
    let inside = fetching.part.join("inside");
    // apt has already verified all files against the signed lists. The `.dsc` file is signed by a
    // developer, whose key is not available here.
    let args = ["--no-check", "--extract", &description.to_string_lossy(), "inside"];
    fetching.run(UNPACK, "unpacking it", fetching.part, &args)?;
    Ok((inside, sha256, version))
}

/// The versions of a source package, the newest first.
fn versions(apt: &Apt<'_>, package: &str) -> Result<Vec<String>, BuildError> {
    let args = ["showsrc", "--only-source", package];
    // apt fails for an unknown package.
    let text = match apt.run(CACHE, "looking for it", apt.fetching.part, &args) {
        Err(BuildError::Fetching { reason, .. }) if reason.contains("Unable to locate") => {
            String::new()
        }
        other => other?,
    };
    let mut versions = versions_in(&text);
    let mut failed = None;
    versions.sort_by(|a, b| match is_newer(apt.fetching, a, b) {
        Ok(true) => Ordering::Less,
        Ok(false) => Ordering::Greater,
        Err(error) => {
            failed = Some(error);
            Ordering::Equal
        }
    });
    failed.map_or(Ok(versions), Err)
}

fn is_newer(fetching: &Fetching<'_>, a: &str, b: &str) -> Result<bool, BuildError> {
    let args = ["--compare-versions", a, "gt", b];
    match fetching.run(DPKG, "comparing versions", fetching.part, &args) {
        Ok(_) => Ok(true),
        Err(BuildError::Fetching { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Downloads the newest available version: a mirror may not yet have the versions in its lists.
fn download(
    apt: &Apt<'_>,
    package: &str,
    versions: &[String],
    files: &Path,
) -> Result<String, BuildError> {
    let fetching = apt.fetching;
    let mut first_error = None;
    for version in versions {
        (fetching.report)(format!("downloading {package} {version}"));
        let package_version = format!("{package}={version}");
        let args = ["source", "--download-only", "--only-source", &package_version];
        match apt.run(GET, "downloading it", files, &args) {
            Ok(_) => return Ok(version.clone()),
            Err(error @ BuildError::Fetching { .. }) => {
                (fetching.report)(format!("the mirror does not have {package} {version}"));
                first_error.get_or_insert(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(first_error.unwrap_or_else(|| {
        fetching.failed("downloading it", "there is no version of it", "name another")
    }))
}

/// The versions in the output of `showsrc`, without duplicates.
fn versions_in(text: &str) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for version in text.lines().filter_map(|line| line.strip_prefix("Version: ")) {
        if !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
        }
    }
    versions
}

fn description(files: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(files).ok()?.flatten().map(|entry| entry.path());
    entries.find(|path| path.extension().is_some_and(|end| end == "dsc"))
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;

    #[test]
    fn damaged_versions_of_apt_are_read() {
        let versions = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n";
        let samples = vec![versions.into()];
        Fuzz::new(samples).words(&["\n", "\r", "Version: "]).run(|text| {
            let text = String::from_utf8_lossy(text);
            assert!(versions_in(&text).len() <= text.lines().count());
        });
    }

    #[test]
    fn version_in_two_archives_counts_once() {
        let text = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n\nVersion: 1.0-1\n";
        assert_eq!(versions_in(text), ["1.0-1", "1.0-2"]);
    }
}
