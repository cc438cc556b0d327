//! The compiled packages of a server in a suite of Debian, with everything that they depend on.
//!
//! They are unpacked, not installed: no script of a package runs, and the system's packages do not
//! change.

use std::fs;
use std::path::{Path, PathBuf};

use dbdyno_types::ReleaseFile;
use dbdyno_units::Bytes;

use super::{linked_programs, loader, server_program};
use crate::apt::{self, Apt, CACHE, GET, Lists, NOT_FOUND};
use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::store::{listed, remove};
use crate::{BuildError, Cache, Sha256, System};

pub(super) const UNPACK: Tool = Tool { program: "dpkg-deb", package: "dpkg" };

pub(super) const TOOLS: [Tool; 5] = [GET, CACHE, apt::DPKG, UNPACK, loader::PATCHELF];

/// What a server does not read, to save space.
const UNUSED: [&str; 6] = ["doc", "man", "locale", "info", "perl", "icons"];

/// The suites with packages of a system's server, the oldest first.
pub fn suites(system: System) -> &'static [&'static str] {
    system.recipe().server.map_or(&[], dbdyno_types::suites)
}

/// A package to download.
#[derive(Debug, PartialEq, Eq)]
struct Package {
    name: String,
    version: String,
    size: Bytes,
}

/// Unpacks the newest packages into a directory, for use in `folder`. Returns the directory, the
/// program in it and the packages, that with the program first.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    system: System,
    suite: &str,
    cache: &Cache,
    folder: &Path,
) -> Result<(PathBuf, PathBuf, Vec<ReleaseFile>), BuildError> {
    let home = &cache.root().join("apt");
    // The lists are shared by all systems of the suite.
    let name = Lists::Packages.name(suite);
    let _lists = fetching.lock_lists(cache, &name, &format!("packages of {suite}"))?;
    let apt = Apt::prepare(fetching, Lists::Packages, suite, home)?;
    let files = fetching.part.join("files");
    let all = match download(&apt, system, suite, &files) {
        Err(error) if error.is_fetching(NOT_FOUND) && apt::has_security_updates(suite) => {
            (fetching.report)(format!(
                "the mirror does not have all security updates of {suite} that are in its lists: using \
                 the packages without them"
            ));
            let apt = Apt::prepare(fetching, Lists::OriginalPackages, suite, home)?;
            fs::remove_dir_all(&files).map_err(io_error("removing", &files))?;
            download(&apt, system, suite, &files)?
        }
        downloaded => downloaded?,
    };
    (fetching.report)(format!("unpacking {} packages", all.len()));
    unpack(fetching, system, &files, &all, folder)
}

fn download(
    apt: &Apt<'_>,
    system: System,
    suite: &str,
    files: &Path,
) -> Result<Vec<Package>, BuildError> {
    let all = closure(apt, system, suite)?;
    fs::create_dir(files).map_err(io_error("creating", files))?;
    let size = Bytes::from_bytes(all.iter().map(|package| package.size.as_bytes()).sum());
    (apt.fetching.report)(format!("downloading {} packages of Debian {suite}, {size}", all.len()));
    let named: Vec<String> = all.iter().map(|p| format!("{}={}", p.name, p.version)).collect();
    let mut args = vec!["--quiet=2", "download"];
    args.extend(named.iter().map(String::as_str));
    // apt verifies each file against the signed lists.
    let downloaded = apt.run(GET, "downloading it", files, &args);
    downloaded.map_err(|error| explain_missing_file(error, suite))?;
    Ok(all)
}

/// Says why a mirror does not have a file that is in its lists.
fn explain_missing_file(error: BuildError, suite: &str) -> BuildError {
    error.with_advice(NOT_FOUND, || {
        format!(
            "the mirror does not have all packages that are in its lists of {suite}, probably \
             because it is being updated: try again later"
        )
    })
}

/// The packages to unpack.
fn closure(apt: &Apt<'_>, system: System, suite: &str) -> Result<Vec<Package>, BuildError> {
    let mut wanted = Vec::new();
    for choice in system.recipe().packages {
        for name in *choice {
            if exists(apt, name)? {
                wanted.push(*name);
                break;
            }
        }
        if wanted.is_empty() {
            return Err(apt.fetching.failed(
                "looking for it",
                format!("{suite} has no package {}", choice.join(" or ")),
                format!("{} is in {}", system.title(), suites(system).join(", ")),
            ));
        }
    }
    let mut args = vec!["--quiet=2", "--no-install-recommends", "--print-uris", "install"];
    args.extend(&wanted);
    let text = apt.run(GET, "resolving its dependencies", apt.fetching.part, &args)?;
    Ok(text.lines().filter_map(package).collect())
}

/// Whether a package has a version.
fn exists(apt: &Apt<'_>, name: &str) -> Result<bool, BuildError> {
    let text = apt.run(CACHE, "looking for it", apt.fetching.part, &["policy", name])?;
    Ok(text.lines().any(|line| {
        line.trim_start().strip_prefix("Candidate: ").is_some_and(|version| version != "(none)")
    }))
}

/// A line of `--print-uris`: `'URI' NAME_VERSION_ARCHITECTURE.deb SIZE CHECKSUM`.
fn package(line: &str) -> Option<Package> {
    let mut words = line.strip_prefix('\'')?.split_once("' ")?.1.split_whitespace();
    let (name, version) = name_and_version(words.next()?)?;
    let size = Bytes::from_bytes(words.next()?.parse().ok()?);
    Some(Package { name, version, size })
}

/// The name and version of the package in a file `NAME_VERSION_ARCHITECTURE.deb`.
fn name_and_version(file: &str) -> Option<(String, String)> {
    let mut parts = file.strip_suffix(".deb")?.splitn(3, '_');
    let (name, version) = (parts.next()?, parts.next()?);
    parts.next()?;
    let valid = |word: &str| {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || "+-.:~".contains(c);
        word.starts_with(|c: char| c.is_ascii_alphanumeric()) && word.chars().all(is_valid)
    };
    let version = version.replace("%3a", ":");
    (valid(name) && valid(&version)).then(|| (name.to_owned(), version))
}

fn unpack(
    fetching: &Fetching<'_>,
    system: System,
    files: &Path,
    all: &[Package],
    folder: &Path,
) -> Result<(PathBuf, PathBuf, Vec<ReleaseFile>), BuildError> {
    let tree = fetching.part.join("inside");
    fs::create_dir(&tree).map_err(io_error("creating", &tree))?;
    let mut found: Option<PathBuf> = None;
    let mut records = Vec::new();
    for package in all {
        let start = format!("{}_", package.name);
        let file = listed(files)
            .find(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&start)))
            .ok_or_else(|| {
                fetching.failed(
                    "downloading it",
                    format!("{} did not come", package.name),
                    "try again",
                )
            })?;
        let record = unpack_package(fetching, &file, fetching.part)?;
        let program = server_program(system, &tree).filter(|_| found.is_none());
        if program.is_some() {
            found = program;
            records.insert(0, record);
        } else {
            records.push(record);
        }
    }
    let found = found.ok_or_else(|| {
        let names = system.recipe().programs.join(" or ");
        let reason = format!("its packages do not have the program {names}");
        fetching.failed("unpacking it", reason, "use another release")
    })?;
    for inner in UNUSED {
        let path = tree.join("usr/share").join(inner);
        remove(&path).map_err(io_error("removing", &path))?;
    }
    loader::set(fetching, &linked_programs(system, &tree, &found), &tree, folder)?;
    Ok((tree, found, records))
}

/// Unpacks a downloaded package into `inside` in a directory.
pub(super) fn unpack_package(
    fetching: &Fetching<'_>,
    file: &Path,
    dir: &Path,
) -> Result<ReleaseFile, BuildError> {
    let args = ["--extract", &file.to_string_lossy(), "inside"];
    fetching.run(UNPACK, "unpacking it", dir, &args)?;
    let sha256 = Sha256::of_file(file).map_err(io_error("reading", file))?.to_string();
    let file_name = file.file_name().unwrap_or_default().to_string_lossy();
    let (name, version) = name_and_version(&file_name).unwrap_or_default();
    Ok(ReleaseFile { name, version, sha256 })
}

#[cfg(test)]
mod tests {
    use dbdyno_fuzz::Fuzz;

    use super::*;
    use crate::ProblemKind;

    #[test]
    fn each_suite_that_is_named_as_advice_is_known() {
        for system in [System::MariaDb, System::MySql, System::PostgreSql] {
            assert!(!suites(system).is_empty(), "{system}");
            assert!(
                suites(system).iter().all(|suite| dbdyno_types::SUITES.contains(suite)),
                "{system}"
            );
            assert!(!system.recipe().packages.is_empty(), "{system}");
        }
    }

    const LINE: &str = "'http://mirror.example/pool/main/m/mariadb/x_1%3a11.8.6-0%2bdeb13u1_amd64.deb' \
                        mariadb-server-core_1%3a11.8.6-0+deb13u1_amd64.deb 7800000 MD5Sum:0a";

    #[test]
    fn package_is_read_from_a_line_of_apt() {
        let package = package(LINE).unwrap();
        assert_eq!(package.name, "mariadb-server-core");
        assert_eq!(package.version, "1:11.8.6-0+deb13u1");
        assert_eq!(package.size, Bytes::from_bytes(7_800_000));
    }

    #[test]
    fn mirror_that_is_being_updated_is_explained() {
        let shown = |reason: &str| {
            let kind = ProblemKind::Fetching;
            let error = BuildError::new(kind, reason, "run the command manually");
            explain_missing_file(error, "sid").to_string()
        };
        let missing = shown("E: Failed to fetch http://x/y.deb  404  Not Found [IP: 192.0.2.1]");
        assert!(missing.ends_with("is being updated: try again later"), "{missing}");
        let other = shown("command: apt-get download x=1.404 y=2\nE: Hash Sum mismatch");
        assert!(other.ends_with("run the command manually"), "{other}");
    }

    #[test]
    fn damaged_lines_of_apt_name_no_options() {
        Fuzz::new(vec![LINE.into()]).words(&["'", "' ", "_", ".deb", "%3a", "--"]).run(|line| {
            if let Some(package) = package(&String::from_utf8_lossy(line)) {
                assert!(!package.name.starts_with('-') && !package.name.contains('='));
                assert!(!package.version.contains([' ', '=']));
            }
        });
    }
}
