//! Debian source packages, fetched with apt.
//!
//! apt uses separate package lists, state and cache: the system's sources and lists are not
//! changed. The mirror, proxies and keys are those of the system's configuration.

use std::cmp::Ordering;
use std::fs;
use std::path::{Path, PathBuf};

use super::fetching::{Fetching, Tool};
use crate::build_dir::open_folder;
use crate::{BuildError, Sha256};

const GET: Tool = Tool { program: "apt-get", package: "apt" };
const CACHE: Tool = Tool { program: "apt-cache", package: "apt" };
const DPKG: Tool = Tool { program: "dpkg", package: "dpkg" };
const UNPACK: Tool = Tool { program: "dpkg-source", package: "dpkg-dev" };

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Releases without a separate archive for security updates.
const ROLLING: [&str; 5] = ["sid", "unstable", "experimental", "testing", "rc-buggy"];

/// Fetches a source package and applies Debian's patches. Returns the directory, the checksum of
/// the `.dsc` file, and the version.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    package: &str,
    suite: &str,
    version: Option<&str>,
    home: &Path,
) -> Result<(PathBuf, Sha256, String), BuildError> {
    let apt = Apt::prepare(fetching, suite, home)?;
    let mut versions = apt.versions(package)?;
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
    let version = apt.download(package, &versions, &files)?;
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

struct Apt<'a> {
    fetching: &'a Fetching<'a>,
    config: String,
}

impl<'a> Apt<'a> {
    fn prepare(fetching: &'a Fetching<'a>, suite: &str, home: &Path) -> Result<Self, BuildError> {
        let home = home.join(suite);
        for inner in ["parts", "preferences", "state/lists/partial", "cache/archives/partial"] {
            let folder = home.join(inner);
            open_folder(&folder).map_err(Fetching::io("creating", &folder))?;
        }
        let targets = ["indextargets", "--format", "$(REPO_URI)|$(RELEASE)"];
        let targets = fetching.run(GET, "looking up the mirror", fetching.part, &targets)?;
        let write = |name: &str, text: &str| {
            let file = home.join(name);
            fs::write(&file, text).map_err(Fetching::io("writing", &file))
        };
        write("sources.list", &sources(suite, &targets, Path::new(KEYS).is_file()))?;
        write("apt.conf", &configuration(&home))?;
        let apt = Self { fetching, config: home.join("apt.conf").to_string_lossy().into_owned() };
        (fetching.report)(format!("querying Debian for {}", fetching.origin));
        let update = ["--config-file", &apt.config, "--error-on=any", "update"];
        fetching.run(GET, "updating the list of source packages", fetching.part, &update)?;
        Ok(apt)
    }

    /// The versions of a source package, the newest first.
    fn versions(&self, package: &str) -> Result<Vec<String>, BuildError> {
        let args = ["--config-file", &self.config, "showsrc", "--only-source", package];
        // apt fails for an unknown package.
        let text = self.fetching.run(CACHE, "looking for it", self.fetching.part, &args);
        let text = match text {
            Err(BuildError::Source { reason, .. }) if reason.contains("Unable to locate") => {
                String::new()
            }
            other => other?,
        };
        let mut versions = versions_in(&text);
        let mut failed = None;
        versions.sort_by(|a, b| match self.is_newer(a, b) {
            Ok(true) => Ordering::Less,
            Ok(false) => Ordering::Greater,
            Err(error) => {
                failed = Some(error);
                Ordering::Equal
            }
        });
        failed.map_or(Ok(versions), Err)
    }

    fn is_newer(&self, a: &str, b: &str) -> Result<bool, BuildError> {
        let args = ["--compare-versions", a, "gt", b];
        match self.fetching.run(DPKG, "comparing versions", self.fetching.part, &args) {
            Ok(_) => Ok(true),
            Err(BuildError::Source { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Downloads the newest available version: a mirror may not yet have the versions in its lists.
    fn download(
        &self,
        package: &str,
        versions: &[String],
        files: &Path,
    ) -> Result<String, BuildError> {
        let mut first_error = None;
        for version in versions {
            (self.fetching.report)(format!("downloading {package} {version}"));
            let package_version = format!("{package}={version}");
            let args = [
                "--config-file",
                &self.config,
                "source",
                "--download-only",
                "--only-source",
                &package_version,
            ];
            match self.fetching.run(GET, "downloading it", files, &args) {
                Ok(_) => return Ok(version.clone()),
                Err(error @ BuildError::Source { .. }) => {
                    (self.fetching.report)(format!("the mirror does not have {package} {version}"));
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(first_error.unwrap_or_else(|| {
            self.fetching.failed("downloading it", "there is no version of it", "name another")
        }))
    }
}

/// The lines of `sources.list`, with the system's Debian mirror if it has one.
fn sources(suite: &str, targets: &str, keys: bool) -> String {
    let repositories = || targets.lines().filter_map(|line| line.split_once('|'));
    let is_debian = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    let mirror = repositories().map(|(uri, _)| uri).find(|uri| is_debian(uri)).unwrap_or(MIRROR);
    let security = repositories()
        .find(|(_, release)| release.ends_with("-security"))
        .map_or(SECURITY, |(uri, _)| uri);
    let signed = if keys { format!(" [signed-by={KEYS}]") } else { String::new() };
    let mut text = format!("deb-src{signed} {mirror} {suite} main\n");
    if !ROLLING.contains(&suite) {
        text.push_str(&format!("deb-src{signed} {security} {suite}-security main\n"));
    }
    text
}

/// The settings that override the system's configuration, which apt reads first.
fn configuration(home: &Path) -> String {
    let path = |inner: &str| home.join(inner).to_string_lossy().into_owned();
    format!(
        "// The update hooks of the system are for its own package lists.\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         Dir::Etc::SourceList \"{}\";\n\
         Dir::Etc::SourceParts \"{}\";\n\
         Dir::Etc::PreferencesParts \"{}\";\n\
         Dir::State \"{}\";\n\
         Dir::State::Status \"/dev/null\";\n\
         Dir::Cache \"{}\";\n\
         APT::Sandbox::User \"root\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"2\";\n",
        path("sources.list"),
        path("parts"),
        path("preferences"),
        path("state"),
        path("cache"),
    )
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

    const TARGETS: &str = "https://packages.example/apt/|cloud-sdk|\n\
                           http://mirror.example/debian-security/|bookworm-security\n\
                           http://mirror.example/debian/|bookworm\n";

    #[test]
    fn system_mirror_is_used_for_any_suite() {
        assert_eq!(
            sources("trixie", TARGETS, false),
            "deb-src http://mirror.example/debian/ trixie main\n\
             deb-src http://mirror.example/debian-security/ trixie-security main\n"
        );
        let sid = sources("sid", "", true);
        assert_eq!(sid, format!("deb-src [signed-by={KEYS}] {MIRROR} sid main\n"));
    }

    #[test]
    fn damaged_lists_of_apt_are_read() {
        let versions = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n";
        let samples = vec![TARGETS.into(), versions.into()];
        Fuzz::new(samples).words(&["|", "\n", "\r", "/debian", "-security", "Version: "]).run(
            |text| {
                let text = String::from_utf8_lossy(text);
                assert_eq!(sources("bookworm", &text, true).lines().count(), 2);
                assert!(versions_in(&text).len() <= text.lines().count());
            },
        );
    }

    #[test]
    fn configured_directories_are_in_the_cache() {
        let text = configuration(Path::new("/cache/apt/bookworm"));
        for line in text.lines().filter(|line| line.starts_with("Dir::")) {
            assert!(
                line.contains("\"/cache/apt/bookworm/") || line.contains("/dev/null"),
                "{line}"
            );
        }
    }

    #[test]
    fn version_in_two_archives_counts_once() {
        let text = "Package: a\nVersion: 1.0-1\n\nPackage: a\nVersion: 1.0-2\n\nVersion: 1.0-1\n";
        assert_eq!(versions_in(text), ["1.0-1", "1.0-2"]);
    }
}
