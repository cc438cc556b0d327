//! Debian's package lists, read with apt.
//!
//! apt uses separate package lists, state and cache: the system's sources and lists are not
//! changed. The mirror, proxies and keys are those of the system's configuration, and apt verifies
//! signatures as for the system's own packages.

use std::fs;
use std::path::Path;

use crate::BuildError;
use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::trusted_tree::open_folder;

pub(crate) const GET: Tool = Tool { program: "apt-get", package: "apt" };
pub(crate) const CACHE: Tool = Tool { program: "apt-cache", package: "apt" };
pub(crate) const DPKG: Tool = Tool { program: "dpkg", package: "dpkg" };

const MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY: &str = "http://deb.debian.org/debian-security";
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Releases without a separate archive for security updates.
const ROLLING: [&str; 5] = ["sid", "unstable", "experimental", "testing", "rc-buggy"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    Sources,
    /// Compiled packages of this machine's architecture.
    Packages,
    /// The same without security updates, which a mirror may have in its lists only.
    OriginalPackages,
}

impl Lists {
    /// The name of the directory of a suite's lists.
    pub(crate) fn name(self, suite: &str) -> String {
        match self {
            Self::Sources => suite.to_owned(),
            Self::Packages | Self::OriginalPackages => format!("{suite}-packages"),
        }
    }
}

/// What apt prints about a file that a mirror does not have.
pub(crate) const NOT_FOUND: &str = " 404 ";

/// apt with lists of its own of one suite.
pub(crate) struct Apt<'a> {
    pub(crate) fetching: &'a Fetching<'a>,
    config: String,
}

impl<'a> Apt<'a> {
    /// Updates the lists in a directory below `home`.
    pub(crate) fn prepare(
        fetching: &'a Fetching<'a>,
        lists: Lists,
        suite: &str,
        home: &Path,
    ) -> Result<Self, BuildError> {
        let looking = "looking up the mirror";
        let targets = ["indextargets", "--format", "$(REPO_URI)|$(RELEASE)|$(ORIGIN)"];
        let mut targets = fetching.run(GET, looking, fetching.part, &targets)?;
        let is_debian = |text: String| text.lines().any(|line| line == "ID=debian");
        // Images of containers have no lists.
        if targets.trim().is_empty() && fs::read_to_string("/etc/os-release").is_ok_and(is_debian) {
            let addresses = ["update", "--print-uris"];
            targets = targets_of(&fetching.run(GET, looking, fetching.part, &addresses)?);
        }
        Self::with_targets(fetching, lists, suite, home, &targets)
    }

    /// The same with the mirror in `targets`, as in [`sources`].
    fn with_targets(
        fetching: &'a Fetching<'a>,
        lists: Lists,
        suite: &str,
        home: &Path,
        targets: &str,
    ) -> Result<Self, BuildError> {
        let home = home.join(lists.name(suite));
        for inner in ["parts", "preferences", "state/lists/partial", "cache/archives/partial"] {
            let folder = home.join(inner);
            open_folder(&folder).map_err(io_error("creating", &folder))?;
        }
        let mut options = Vec::new();
        let (kind, updating) = match lists {
            Lists::Sources => ("deb-src", "updating the list of source packages"),
            Lists::Packages | Lists::OriginalPackages => {
                let asking = "asking for the architecture";
                let of = fetching.run(DPKG, asking, fetching.part, &["--print-architecture"])?;
                options.push(format!("arch={}", of.trim()));
                ("deb", "updating the list of packages")
            }
        };
        if Path::new(KEYS).is_file() {
            options.push(format!("signed-by={KEYS}"));
        }
        let write = |name: &str, text: &str| {
            let file = home.join(name);
            fs::write(&file, text).map_err(io_error("writing", &file))
        };
        let updates = lists != Lists::OriginalPackages && has_security_updates(suite);
        write("sources.list", &sources(kind, &options, (suite, updates), targets))?;
        write("apt.conf", &configuration(&home))?;
        let apt = Self { fetching, config: home.join("apt.conf").to_string_lossy().into_owned() };
        (fetching.report)(format!("querying Debian for {}", fetching.origin));
        let updated = apt.run(GET, updating, fetching.part, &["--error-on=any", "update"]);
        updated.map_err(|error| explain_suite(error, suite))?;
        Ok(apt)
    }

    pub(crate) fn run(
        &self,
        tool: Tool,
        doing: &str,
        dir: &Path,
        args: &[&str],
    ) -> Result<String, BuildError> {
        let args: Vec<&str> =
            ["--config-file", &self.config].into_iter().chain(args.iter().copied()).collect();
        self.fetching.run(tool, doing, dir, &args)
    }
}

/// Says so if a suite does not exist. The archive of its security updates may be missing, too.
fn explain_suite(error: BuildError, suite: &str) -> BuildError {
    error.with_advice(&format!(" {suite} Release' does not have a Release file"), || {
        format!(
            "Debian has no suite {suite}: name one that its archive has, such as bookworm, trixie \
             or sid"
        )
    })
}

/// Whether a suite has a separate archive for security updates. Those that complement another suite,
/// such as `bookworm-backports`, have none.
pub(crate) fn has_security_updates(suite: &str) -> bool {
    !ROLLING.contains(&suite) && !suite.contains('-')
}

/// The lines of `sources.list` for a suite, maybe with its security updates, with the system's Debian mirror if it has one.
/// `targets` has a line `URI|RELEASE|ORIGIN` for each list of the system, which may be Ubuntu.
fn sources(
    kind: &str,
    options: &[String],
    (suite, updates): (&str, bool),
    targets: &str,
) -> String {
    let debians = targets.lines().filter_map(|line| line.strip_suffix("|Debian"));
    let repositories = || debians.clone().filter_map(|line| line.split_once('|'));
    let is_named = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    let is_security = |release: &str| release.ends_with("-security");
    // A proxy of the archive may have another path.
    let mirror = repositories()
        .find(|(uri, _)| is_named(uri))
        .or_else(|| repositories().find(|(_, release)| !is_security(release)))
        .map_or(MIRROR, |(uri, _)| uri);
    let security =
        repositories().find(|(_, release)| is_security(release)).map_or(SECURITY, |(uri, _)| uri);
    let options = match options {
        [] => String::new(),
        options => format!(" [{}]", options.join(" ")),
    };
    let mut text = format!("{kind}{options} {mirror} {suite} main\n");
    if updates {
        text.push_str(&format!("{kind}{options} {security} {suite}-security main\n"));
    }
    text
}

/// The same for the addresses that apt would update on a Debian without lists: `'URI/dists/RELEASE/InRelease' …`. Other
/// repositories do not have a release with its updates.
fn targets_of(addresses: &str) -> String {
    let lists: Vec<(&str, &str)> = addresses
        .lines()
        .filter_map(|line| line.strip_prefix('\'')?.split_once("/InRelease'"))
        .filter_map(|(list, _)| list.split_once("/dists/"))
        .collect();
    let releases: Vec<&str> =
        lists.iter().filter_map(|(_, it)| it.strip_suffix("-updates")).collect();
    let is_debian = |release: &str| {
        let release = release.strip_suffix("-security").unwrap_or(release);
        releases.contains(&release)
    };
    let debians = lists.iter().filter(|(_, release)| is_debian(release));
    debians.map(|(uri, release)| format!("{uri}|{release}|Debian\n")).collect()
}

/// The settings that override the system's configuration, which apt reads first.
fn configuration(home: &Path) -> String {
    let path = |inner: &str| home.join(inner).to_string_lossy().into_owned();
    format!(
        "// The update hooks of the system are for its own package lists.\n\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         // It may name a suite that these lists do not have.\n\
         #clear APT::Default-Release;\n\
         Dir::Etc::SourceList \"{}\";\n\
         Dir::Etc::SourceParts \"{}\";\n\
         Dir::Etc::Preferences \"/dev/null\";\n\
         Dir::Etc::PreferencesParts \"{}\";\n\
         Dir::State \"{}\";\n\
         Dir::State::Status \"/dev/null\";\n\
         Dir::Cache \"{}\";\n\
         APT::Sandbox::User \"root\";\n\
         // What is fetched is executed.\n\
         APT::Get::AllowUnauthenticated \"false\";\n\
         Acquire::AllowInsecureRepositories \"false\";\n\
         Acquire::AllowWeakRepositories \"false\";\n\
         // Lists for graphical package managers.\n\
         Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"2\";\n",
        path("sources.list"),
        path("parts"),
        path("preferences"),
        path("state"),
        path("cache"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use dbdyno_fuzz::Fuzz;

    use super::*;
    use crate::ProblemKind;
    use crate::store::Lock;

    const TARGETS: &str = "https://packages.example/apt/|cloud-sdk|\n\
                           https://apt.example/debian|stable|Example\n\
                           http://mirror.example/debian-security/|bookworm-security|Debian\n\
                           http://mirror.example/debian/|bookworm|Debian\n";

    #[test]
    fn system_mirror_is_used_for_any_suite() {
        assert_eq!(
            sources("deb-src", &[], ("trixie", true), TARGETS),
            "deb-src http://mirror.example/debian/ trixie main\n\
             deb-src http://mirror.example/debian-security/ trixie-security main\n"
        );
        let options = ["arch=arm64".to_owned(), "signed-by=/k".to_owned()];
        let sid = sources("deb", &options, ("sid", has_security_updates("sid")), "");
        assert_eq!(sid, format!("deb [arch=arm64 signed-by=/k] {MIRROR} sid main\n"));
    }

    #[test]
    fn mirror_with_another_path_is_used() {
        let addresses = "'https://apt.example/x/dists/stable/InRelease' apt.example_x 0 \n\
                         'https://a.example/debian-12/dists/bookworm/InRelease' a.example_d 0 \n\
                         'https://a.example/debian-12/dists/bookworm-updates/InRelease' a.example_u 0 \n\
                         'https://a.example/sec/dists/bookworm-security/InRelease' a.example_s 0 \n";
        let targets = targets_of(addresses);
        assert_eq!(
            sources("deb", &[], ("bookworm", true), &targets),
            "deb https://a.example/debian-12 bookworm main\n\
             deb https://a.example/sec bookworm-security main\n"
        );
        assert_eq!(targets_of("'https://apt.example/x/dists/stable/InRelease' x 0\n"), "");
    }

    #[test]
    fn mirror_and_security_updates_of_ubuntu_are_not_used() {
        let targets = "http://archive.ubuntu.com/ubuntu/|noble|Ubuntu\n\
                       http://security.ubuntu.com/ubuntu/|noble-security|Ubuntu\n";
        assert_eq!(
            sources("deb", &[], ("bookworm", true), targets),
            format!("deb {MIRROR} bookworm main\ndeb {SECURITY} bookworm-security main\n")
        );
    }

    #[test]
    fn only_whole_stable_suites_have_security_updates() {
        assert!(has_security_updates("bookworm"));
        for suite in ["bookworm-backports", "bookworm-updates", "sid"] {
            assert!(!has_security_updates(suite), "{suite}");
        }
    }

    #[test]
    fn damaged_lists_of_apt_are_read() {
        let samples = vec![TARGETS.into()];
        Fuzz::new(samples).words(&["|", "\n", "\r", "/debian", "-security", "|Debian"]).run(
            |text| {
                let text = String::from_utf8_lossy(text);
                assert_eq!(sources("deb-src", &[], ("bookworm", true), &text).lines().count(), 2);
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
    fn mirror_without_a_signature_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let lists = dir.path().join("debian/dists/sid");
        fs::create_dir_all(&lists).unwrap();
        let release = "Origin: Debian\nCodename: sid\nDate: Thu, 01 Jan 2026 00:00:00 UTC\n\
                       Architectures: amd64 arm64\nComponents: main\nSHA256:\n";
        fs::write(lists.join("Release"), release).unwrap();
        let lock = Lock::try_now(&dir.path().join("lock")).unwrap().unwrap();
        let fetching = Fetching {
            what: "the release of MySQL, Debian sid",
            origin: "Debian sid",
            part: dir.path(),
            lock: &lock,
            cancel: &AtomicBool::new(false),
            report: &|_| {},
        };
        let targets = format!("file://{}/debian/|sid|Debian\n", dir.path().display());
        let home = dir.path().join("apt");
        let apt = Apt::with_targets(&fetching, Lists::Packages, "sid", &home, &targets);
        match apt.err().unwrap() {
            error if error.kind() == Some(ProblemKind::Machine) => {
                dbdyno_fuzz::skip(&error.to_string())
            }
            error => {
                // An error, not a warning, after which apt would miss the list of packages.
                let text = error.to_string();
                let is_refused =
                    text.contains("E: The repository") && text.contains("is not signed");
                assert!(is_refused, "{text}");
            }
        }
    }

    #[test]
    fn unknown_suite_is_explained() {
        let error = |missing: &str| {
            let what =
                format!("E: The repository 'x {missing} Release' does not have a Release file.");
            BuildError::new(ProblemKind::Fetching, what, "")
        };
        let text = explain_suite(error("sids"), "sids").to_string();
        assert!(
            text.ends_with("such as bookworm, trixie or sid") && text.contains("no suite sids")
        );
        let text = explain_suite(error("sids-security"), "sids").to_string();
        assert!(!text.contains("no suite"), "{text}");
    }
}
