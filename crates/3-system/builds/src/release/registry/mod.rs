//! Releases from registries of packages: Maven repositories and npm registries.
//!
//! The user's settings for Maven and npm name the registry, which may be a mirror, and passwords. Neither program is
//! needed, and no script of a package runs.

mod maven;
mod npm;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use dbdyno_types::{ReleaseFile, ReleaseOrigin};

use super::{loader, server_program};
use crate::archive::{self, TAR};
use crate::download::{Access, CURL, Checksum, Download};
use crate::error::io_error;
use crate::fetching::{Fetching, Tool};
use crate::store::{listed, remove};
use crate::{BuildError, Cache, System, trusted_tree};

/// tar calls xz.
const XZ: Tool = Tool { program: "xz", package: "xz-utils" };

pub(super) const TOOLS: [Tool; 4] = [CURL, TAR, XZ, loader::PATCHELF];

/// Where a file of a registry is, and what it must be.
struct Remote {
    url: String,
    access: Access,
    checksum: Checksum,
    name: String,
    version: String,
}

/// Downloads and unpacks a release. Returns the directory, the program in it and what was downloaded.
pub(super) fn fetch(
    fetching: &Fetching<'_>,
    system: System,
    origin: &ReleaseOrigin,
    cache: &Cache,
) -> Result<(PathBuf, PathBuf, ReleaseFile), BuildError> {
    let Remote { url, access, checksum, name, version } = match origin {
        ReleaseOrigin::Maven { artifact, sha256 } => {
            maven::locate(fetching, artifact, sha256.map(Checksum::from))?
        }
        ReleaseOrigin::Npm { package, sha256 } => {
            npm::locate(fetching, package, sha256.map(Checksum::from))?
        }
        _ => unreachable!("it is of no registry"),
    };
    let download = Download { url: &url, checksum: &checksum, access: &access };
    let (file, sha256) = download.obtain(fetching, cache)?;
    (fetching.report)(format!("unpacking {name}"));
    let (folder, program) = unpack(fetching, system, &file)?;
    for inner in UNUSED {
        let path = folder.join(inner);
        remove(&path).map_err(io_error("removing", &path))?;
    }
    Ok((folder, program, ReleaseFile { name, version, sha256: sha256.to_string() }))
}

/// What a server does not need, to save space: tests, documentation, and programs with checks.
const UNUSED: [&str; 8] = [
    "mysql-test",
    "sql-bench",
    "docs",
    "man",
    "include",
    "bin/mysqld-debug",
    "bin/mysql_client_test_embedded",
    "lib/plugin/debug",
];

/// How deep the directory of a server may be in an archive. Archives of Java have one for each part of a name.
const DEEPEST: usize = 8;

/// The directory of the server in an archive, or in the one archive that it contains, and the program in it.
fn unpack(
    fetching: &Fetching<'_>,
    system: System,
    file: &Path,
) -> Result<(PathBuf, PathBuf), BuildError> {
    let outer = fetching.part.join("outer");
    unpack_safely(fetching, file, &outer)?;
    if let Some(found) = find(system, &outer) {
        return Ok(found);
    }
    if let [inner] = &archives_in(&outer)[..] {
        let inside = fetching.part.join("inside");
        unpack_safely(fetching, inner, &inside)?;
        if let Some(found) = find(system, &inside) {
            return Ok(found);
        }
    }
    let names = system.recipe().programs.join(" or ");
    Err(fetching.failed(
        "looking for the program",
        format!("it has no program {names} in bin or sbin"),
        "name an artifact with the compiled programs of this system for Linux, and its classifier if it has one",
    ))
}

/// Unpacks an archive without links that lead out: programs are changed and libraries added in it before it is an entry of
/// the cache.
fn unpack_safely(fetching: &Fetching<'_>, file: &Path, into: &Path) -> Result<(), BuildError> {
    archive::unpack(fetching, file, into)?;
    let discarded = trusted_tree::discard_permissions(into);
    discarded.map(drop).map_err(io_error("setting permissions in", into))
}

/// The directory with the server, the uppermost one, and the program in it.
fn find(system: System, tree: &Path) -> Option<(PathBuf, PathBuf)> {
    let mut level = vec![tree.to_owned()];
    for _ in 0..=DEEPEST {
        let found =
            level.iter().find_map(|folder| Some((folder.clone(), server_program(system, folder)?)));
        if found.is_some() {
            return found;
        }
        level =
            level.iter().flat_map(|folder| listed(folder)).filter(|path| is_folder(path)).collect();
        level.sort();
    }
    None
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}

/// The archives at the top of a directory.
fn archives_in(folder: &Path) -> Vec<PathBuf> {
    let endings = [".txz", ".tar.xz", ".tgz", ".tar.gz", ".zip"];
    let is_archive = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        endings.iter().any(|ending| name.ends_with(ending))
            && fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file())
    };
    listed(folder).filter(is_archive).collect()
}

/// Looks up an environment variable.
type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

/// The content of those files that exist, each with its name.
fn read_existing(files: Vec<PathBuf>) -> Result<Vec<(PathBuf, String)>, BuildError> {
    let mut all = Vec::new();
    for file in files {
        match fs::read_to_string(&file) {
            Ok(text) => all.push((file, text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(BuildError::io("reading", &file, &error)),
        }
    }
    Ok(all)
}

/// Replaces `${NAME}` by the environment variable, where NAME starts with `prefix`; others stay.
fn expanded(text: &str, prefix: &str, variable: Variable<'_>) -> String {
    let (mut result, mut rest) = (String::new(), text);
    while let Some(start) = rest.find("${") {
        let Some(length) = rest[start..].find('}') else { break };
        let end = start + length;
        let value = rest[start + 2..end].strip_prefix(prefix).and_then(variable);
        result.push_str(&rest[..start]);
        result.push_str(value.as_deref().unwrap_or(&rest[start..=end]));
        rest = &rest[end + 1..];
    }
    result + rest
}

/// The address of a registry as it is used: without a slash at the end. The error says what is wrong with it.
fn address(url: &str) -> Result<&str, String> {
    let url = url.trim().trim_end_matches('/');
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url.trim_start_matches('/')));
    // It would be shown in messages.
    if rest.split('/').next().unwrap_or_default().contains('@') {
        return Err("the URL contains a user: set it beside the URL".to_owned());
    }
    match scheme {
        "https" | "http" | "file" => Ok(url),
        "" => Err(format!("`{url}` is not a URL")),
        _ => Err(format!("`{scheme}` of `{url}` is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::process::Command;
    use std::sync::atomic::AtomicBool;

    use zip::ZipWriter;
    use zip::write::SimpleFileOptions;

    use super::*;
    use crate::store::Lock;

    #[test]
    fn archive_in_an_archive_of_java_is_unpacked() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("bin")).unwrap();
        fs::write(path("bin/postgres"), "").unwrap();
        symlink("../..", path("libraries-of-debian")).unwrap();
        let args = ["--create", "--xz", "--file", "postgres.txz", "bin", "libraries-of-debian"];
        let packed = Command::new("tar").args(args).current_dir(dir.path()).status().unwrap();
        assert!(packed.success());
        let mut jar = ZipWriter::new(File::create(path("a.jar")).unwrap());
        for (name, content) in [
            ("META-INF/MANIFEST.MF", b"Manifest-Version: 1.0".to_vec()),
            ("postgres-linux-x86_64.txz", fs::read(path("postgres.txz")).unwrap()),
        ] {
            jar.start_file(name, SimpleFileOptions::default()).unwrap();
            jar.write_all(&content).unwrap();
        }
        jar.finish().unwrap();
        let lock = Lock::try_now(&path("lock")).unwrap().unwrap();
        let unpacked = |system, part: &str| {
            fs::create_dir(path(part)).unwrap();
            let fetching = Fetching {
                what: "the release",
                origin: "",
                part: &path(part),
                lock: &lock,
                cancel: &AtomicBool::new(false),
                report: &|_| {},
            };
            unpack(&fetching, system, &path("a.jar"))
        };
        let (folder, program) = unpacked(System::PostgreSql, "part").unwrap();
        assert_eq!((folder, program), (path("part/inside"), PathBuf::from("bin/postgres")));
        // Libraries would be written to where it leads.
        assert!(fs::symlink_metadata(path("part/inside/libraries-of-debian")).is_err());
        let error = unpacked(System::MySql, "other").unwrap_err().to_string();
        assert!(error.contains("no program mysqld in bin or sbin"), "{error}");
    }

    #[test]
    fn variables_in_settings_are_replaced() {
        let variable = |name: &str| (name == "TOKEN").then(|| "secret".to_owned());
        assert_eq!(expanded("a ${TOKEN} b ${OTHER} ${", "", &variable), "a secret b ${OTHER} ${");
        assert_eq!(expanded("${env.TOKEN}${TOKEN}", "env.", &variable), "secret${TOKEN}");
    }

    #[test]
    fn address_shows_no_password() {
        assert_eq!(address(" https://mirror.example/npm/ "), Ok("https://mirror.example/npm"));
        for wrong in [
            "mirror.example",
            "ftp://mirror.example",
            "https://me:secret@mirror.example/",
            "ftp://me:secret@mirror.example",
            "//me:secret@mirror.example",
        ] {
            let error = address(wrong).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn server_is_found_below_the_directories_of_a_name() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("ch/example/mariadb-10.11.5/linux");
        fs::create_dir_all(inner.join("bin")).unwrap();
        fs::create_dir_all(dir.path().join("META-INF")).unwrap();
        assert_eq!(find(System::MariaDb, dir.path()), None);
        fs::write(inner.join("bin/mariadbd"), "").unwrap();
        let found = find(System::MariaDb, dir.path());
        assert_eq!(found, Some((inner, PathBuf::from("bin/mariadbd"))));
    }
}
