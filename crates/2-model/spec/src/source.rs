//! `source = { … }`: the origin of a system's source.
//!
//! `release = …`: a compiled release of a server, by name, from Debian, from an archive or from a registry.

use std::path::{Path, PathBuf};

use dbdyno_document::{Problem, Spanned, Table, did_you_mean, nearest};
use dbdyno_types::build::SourceOrigin;
use dbdyno_types::server::ServerSystem;
use dbdyno_types::{
    MavenArtifact, NpmPackage, PACKAGINGS, PublishedRelease, ReleaseOrigin, SUITES, Sha256, suites,
};

/// The keys of a location, of which exactly one must be set.
const KINDS: [&str; 5] = ["bundled", "path", "tarball", "git", "debian"];

/// Releases of Debian whose packages do not compile on current releases.
const TOO_OLD: [&str; 6] = ["wheezy", "jessie", "stretch", "buster", "bullseye", "oldoldstable"];

pub fn read(mut table: Table<'_>) -> Option<SourceOrigin> {
    let source = match location(&table, "source", &KINDS)? {
        "bundled" => read_bundled(&mut table),
        "path" => {
            let path = word(&mut table, "path");
            path.and_then(|path| whole_path(&table, path, "source")).map(SourceOrigin::Path)
        }
        "tarball" => read_archive(&mut table, "source")
            .map(|(location, sha256)| SourceOrigin::Tarball { location, sha256 }),
        "git" => read_git(&mut table),
        _ => read_debian(&mut table),
    };
    table.finish();
    source
}

/// The key of a location that is set.
fn location(table: &Table<'_>, of: &str, kinds: &[&'static str]) -> Option<&'static str> {
    let named: Vec<_> = kinds.iter().copied().filter(|kind| table.has(kind)).collect();
    let message = match named[..] {
        [kind] => return Some(kind),
        [] => format!("`{of}` has no location"),
        _ => format!("`{of}` has {}", named.join(" and ")),
    };
    table.reject(table.span(), message, format!("set exactly one of {}", kinds.join(", ")))
}

fn read_bundled(table: &mut Table<'_>) -> Option<SourceOrigin> {
    let bundled = table.bool("bundled")?;
    if !bundled.value {
        let help = "remove `source` or set another location";
        return table.reject(bundled.span, "`bundled` must be true", help);
    }
    Some(SourceOrigin::Bundled)
}

/// Reads `tarball` and `sha256`: the location of an archive of a source or release, and its checksum,
/// which a download must have.
fn read_archive(table: &mut Table<'_>, of: &str) -> Option<(String, Option<Sha256>)> {
    // All keys are read before a problem is reported: others would be unknown.
    let (location, sha256) = (word(table, "tarball"), read_sha256(table));
    let location = location?;
    let is_url = location.value.contains("://");
    refuse_password(table, location, "download the archive and write its path")?;
    let sha256 = sha256?;
    if is_url && sha256.is_none() {
        return table.reject(
            location.span,
            "missing `sha256` of a download",
            "add the checksum that the project publishes",
        );
    }
    if !is_url {
        whole_path(table, location, of)?;
    }
    Some((location.value.to_owned(), sha256))
}

/// Reads `sha256`, which may be missing; the outer `None` after a problem.
fn read_sha256(table: &mut Table<'_>) -> Option<Option<Sha256>> {
    if !table.has("sha256") {
        return Some(None);
    }
    let sha256 = table.string("sha256")?;
    let Ok(checksum) = sha256.value.parse::<Sha256>() else {
        let message = format!("invalid `sha256` `{}`", sha256.value);
        let help = "it must have 64 digits from 0 to 9 and a to f";
        return table.reject(sha256.span, message, help);
    };
    Some(Some(checksum))
}

fn read_git(table: &mut Table<'_>) -> Option<SourceOrigin> {
    require(table, "revision", "add a tag or a commit, such as `revision = \"v1.0\"`");
    let (url, revision) = (word(table, "git"), word(table, "revision"));
    let (url, revision) = (url?, revision?);
    refuse_password(table, url, "use a credential helper of git, see gitcredentials(7)")?;
    if !is_git_url(url.value) {
        whole_path(table, url, "repository")?;
    }
    // git would parse it as an option.
    if revision.value.starts_with('-') {
        let message = format!("invalid revision `{}`", revision.value);
        return table.reject(revision.span, message, "use a tag or a commit");
    }
    Some(SourceOrigin::Git { url: url.value.to_owned(), revision: revision.value.to_owned() })
}

/// Reports a missing key of a source.
fn require(table: &Table<'_>, key: &str, help: &str) {
    if !table.has(key) {
        table.problem(table.span(), format!("missing key `{key}` in `source`"), help);
    }
}

/// Whether git takes a location for a URL or for `HOST:PATH`, not for a path.
fn is_git_url(location: &str) -> bool {
    location.contains("://") || location.split('/').next().is_some_and(|host| host.contains(':'))
}

/// Reports a URL with a password, or with a user by http, which may be a token: runs store where a source is from, and
/// reports show it.
fn refuse_password(table: &Table<'_>, url: Spanned<&str>, instead: &str) -> Option<()> {
    let (scheme, rest) = url.value.split_once("://").unwrap_or_default();
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let Some((user, _)) = authority.rsplit_once('@') else { return Some(()) };
    let has_password = user.contains(':');
    if !has_password && !scheme.to_ascii_lowercase().starts_with("http") {
        return Some(());
    }
    table.reject(
        url.span,
        if has_password { "the URL contains a password" } else { "the URL contains a user" },
        format!("the experiment is stored with each run: {instead}"),
    )
}

fn read_debian(table: &mut Table<'_>) -> Option<SourceOrigin> {
    require(table, "suite", "add a release of Debian, such as `suite = \"bookworm\"`");
    let (package, suite) = (word(table, "debian"), word(table, "suite"));
    let version = word(table, "version");
    if version.is_none() && table.has("version") {
        return None;
    }
    let (package, suite) = (package?, suite?);
    check_debian_name(table, package)?;
    let compilable: Vec<&str> =
        SUITES.into_iter().filter(|suite| !TOO_OLD.contains(suite)).collect();
    check_suite(table, suite, &compilable)?;
    if TOO_OLD.contains(&suite.value) {
        let message = format!("unsupported suite `{}`", suite.value);
        return table.reject(suite.span, message, "use bookworm or newer");
    }
    Some(SourceOrigin::Debian {
        package: package.value.to_owned(),
        suite: suite.value.to_owned(),
        version: version.map(|version| version.value.to_owned()),
    })
}

/// Checks the name of a suite of Debian; `None` after a problem. Names that are near a known suite are
/// misspelt; others may be suites of another mirror.
fn check_suite(table: &Table<'_>, suite: Spanned<&str>, valid: &[&str]) -> Option<()> {
    check_debian_name(table, suite)?;
    if SUITES.contains(&suite.value) || nearest(suite.value, SUITES).is_none() {
        return Some(());
    }
    let message = format!("unknown suite `{}`", suite.value);
    table.reject(suite.span, message, did_you_mean(suite.value, valid))
}

/// Checks the name of a package or suite of Debian; `None` after a problem.
fn check_debian_name(table: &Table<'_>, name: Spanned<&str>) -> Option<()> {
    let valid = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c);
    if !name.value.chars().all(valid)
        || !name.value.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let message = format!("invalid Debian name `{}`", name.value);
        let help = "names consist of lowercase letters, digits and + - .";
        return table.reject(name.span, message, help);
    }
    Some(())
}

/// A non-empty string without line breaks.
fn word<'d>(table: &mut Table<'d>, key: &'static str) -> Option<Spanned<&'d str>> {
    let word = table.string(key)?;
    if word.value.is_empty() || word.value.contains(char::is_control) {
        let problem =
            Problem::new(word.span, format!("`{key}` is empty or has control characters"));
        table.report(problem);
        return None;
    }
    Some(word)
}

/// An absolute path, because compilers and servers run in another directory.
fn whole_path(table: &Table<'_>, path: Spanned<&str>, of: &str) -> Option<PathBuf> {
    if Path::new(path.value).is_absolute() {
        return Some(PathBuf::from(path.value));
    }
    table.reject(
        path.span,
        format!("the path of a {of} must be absolute"),
        "write the full path, starting with /",
    )
}

/// The keys of a location, of which exactly one must be set.
const RELEASE_KINDS: [&str; 4] = ["debian", "tarball", "maven", "npm"];

/// Reads the key of a candidate; `None` if it is missing, or after a problem.
pub fn read_release(table: &mut Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    if table.is_table("release") {
        read_release_location(table.table("release")?, system)
    } else {
        read_release_name(table, system)
    }
}

/// The name of a release that is known to work, such as `mysql-8.0.33`, or of one that is installed.
fn read_release_name(table: &mut Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    let name = table.string("release")?;
    let valid = |c: char| c.is_ascii_alphanumeric() || "+-._~".contains(c);
    if !name.value.chars().all(valid)
        || !name.value.starts_with(|c: char| c.is_ascii_alphanumeric())
    {
        let message = format!("invalid release `{}`", name.value);
        let help = "use the name of its directory, such as \"8.0.37\" for ~/opt/mysql/8.0.37, or \
                    { debian = \"sid\" }, or { tarball = \"…\", sha256 = \"…\" }; `dbdyno list releases` \
                    shows those that can be fetched";
        return table.reject(name.span, message, help);
    }
    let installed = || ReleaseOrigin::Installed { name: name.value.to_owned() };
    let published = PublishedRelease::by_name(system, name.value);
    Some(published.map_or_else(installed, |release| release.origin))
}

fn read_release_location(mut table: Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    let release = match location(&table, "release", &RELEASE_KINDS)? {
        "debian" => read_debian_release(&mut table, system),
        "maven" => read_maven_release(&mut table),
        "npm" => read_npm_release(&mut table),
        _ => read_archive(&mut table, "release")
            .map(|(location, sha256)| ReleaseOrigin::Tarball { location, sha256 }),
    };
    table.finish();
    release
}

fn read_debian_release(table: &mut Table<'_>, system: ServerSystem) -> Option<ReleaseOrigin> {
    let suite = word(table, "debian")?;
    check_suite(table, suite, suites(system))?;
    Some(ReleaseOrigin::Debian { suite: suite.value.to_owned() })
}

fn read_maven_release(table: &mut Table<'_>) -> Option<ReleaseOrigin> {
    let coordinates = word(table, "maven");
    let packaging = if table.has("type") { word(table, "type").map(Some) } else { Some(None) };
    let sha256 = read_sha256(table);
    let (coordinates, packaging) = (coordinates?, packaging?);
    if let Some(packaging) = packaging.filter(|one| !PACKAGINGS.contains(&one.value)) {
        let message = format!("unknown type `{}` of an artifact", packaging.value);
        return table.reject(packaging.span, message, did_you_mean(packaging.value, &PACKAGINGS));
    }
    let packaging = packaging.map_or(PACKAGINGS[0], |packaging| packaging.value);
    let sha256 = sha256?;
    match MavenArtifact::parse(coordinates.value, packaging) {
        Ok(artifact) => Some(ReleaseOrigin::Maven { artifact: Box::new(artifact), sha256 }),
        Err(help) => {
            let message = format!("`{}` is no artifact of Maven", coordinates.value);
            table.reject(coordinates.span, message, help)
        }
    }
}

fn read_npm_release(table: &mut Table<'_>) -> Option<ReleaseOrigin> {
    let (name, sha256) = (word(table, "npm"), read_sha256(table));
    let (name, sha256) = (name?, sha256?);
    match NpmPackage::parse(name.value) {
        Ok(package) => Some(ReleaseOrigin::Npm { package, sha256 }),
        Err(help) => {
            table.reject(name.span, format!("`{}` is no package of npm", name.value), help)
        }
    }
}
