//! Fetching of sources without a network: from local directories, archives and repositories.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use dbdyno_builds::{
    BuildError, Cache, CacheEntryKind, Sha256, Source, SourceOrigin, Sources, System,
};
use tempfile::TempDir;

use crate::common::{cache_in, write_source};

struct Bench {
    dir: TempDir,
    sources: Sources,
}

impl Bench {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        write_source(dir.path(), &dir.path().join("go"));
        let cache = cache_in(dir.path(), "cache");
        let sources = Sources::new(&cache, Arc::new(AtomicBool::new(false)));
        Self { dir, sources }
    }

    fn obtain(&self, origin: &SourceOrigin) -> Result<Source, BuildError> {
        self.sources.obtain(System::PostgreSql, origin, &|_| {})
    }

    fn text(&self, source: &Source) -> String {
        let folder = source.unpack(&self.dir.path().join("cache/sources")).unwrap();
        fs::read_to_string(folder.join("src/backend/a.c")).unwrap()
    }

    /// Runs a program in the directory that contains the source.
    fn run(&self, program: &str, args: &[&str]) {
        self.run_in(self.dir.path(), program, args);
    }

    fn run_in(&self, folder: &Path, program: &str, args: &[&str]) {
        let output = Command::new(program)
            .args(args)
            .current_dir(folder)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(output.status.success(), "{program}: {output:?}");
    }

    fn tarball(&self) -> (String, Sha256) {
        self.run("tar", &["-czf", "source.tar.gz", "postgresql-99.1"]);
        let path = self.dir.path().join("source.tar.gz");
        (path.to_string_lossy().into_owned(), Sha256::of_file(&path).unwrap())
    }
}

#[test]
fn directory_is_used_in_place() {
    let bench = Bench::new();
    let origin = SourceOrigin::Path(bench.dir.path().join("postgresql-99.1"));
    let first = bench.obtain(&origin).unwrap();
    assert_eq!(first.version(), "99.1");
    fs::write(bench.dir.path().join("postgresql-99.1/src/backend/a.c"), "int x;").unwrap();
    let second = bench.obtain(&origin).unwrap();
    assert_ne!(first.sha256(), second.sha256());
}

#[test]
fn archive_is_verified_unpacked_and_cached() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let origin = SourceOrigin::Tarball {
        location: format!("file://{location}"),
        sha256: Some(sha256.to_string()),
    };
    let source = bench.obtain(&origin).unwrap();
    assert_eq!((source.version(), *source.sha256()), ("99.1", sha256));
    assert!(bench.text(&source).contains("int a(void)"));
    // Once fetched, the archive is no longer needed.
    fs::remove_file(&location).unwrap();
    bench.obtain(&origin).unwrap();
}

#[test]
fn source_in_use_is_kept_and_removed_one_is_fetched_again() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let origin = SourceOrigin::Tarball {
        location: format!("file://{location}"),
        sha256: Some(sha256.to_string()),
    };
    let (first, second) = (bench.obtain(&origin).unwrap(), bench.obtain(&origin).unwrap());
    let folder = first.unpack(bench.dir.path()).unwrap();
    let root = folder.parent().unwrap().parent().unwrap();
    let cache = Cache::new(&cache_in(root, ""));
    let remove = || {
        let all = cache.inventory();
        let source = all.iter().find(|entry| matches!(entry.kind, CacheEntryKind::Source)).unwrap();
        cache.remove(source).unwrap()
    };
    assert!(!remove());
    drop(first);
    assert!(!remove());
    drop(second);
    assert!(remove());
    assert!(!folder.exists() && !folder.with_extension("json").exists());
    // A directory without its description is incomplete.
    fs::create_dir(&folder).unwrap();
    let again = bench.obtain(&origin).unwrap();
    assert!(bench.text(&again).contains("int a(void)"));
}

#[test]
fn archive_with_wrong_checksum_is_rejected() {
    let bench = Bench::new();
    let (location, sha256) = bench.tarball();
    let expected = Sha256::of(b"another");
    for location in [location.clone(), format!("file://{location}")] {
        let origin = SourceOrigin::Tarball { location, sha256: Some(expected.to_string()) };
        let error = bench.obtain(&origin).unwrap_err().to_string();
        assert!(error.contains(&format!("its checksum is {sha256}, and {expected} was expected")));
    }
    let origin = SourceOrigin::Tarball { location: format!("file://{location}"), sha256: None };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("add its `sha256`"), "{error}");
}

#[test]
fn unreachable_server_error_has_advice() {
    let bench = Bench::new();
    // No server listens on this port.
    let location = "http://127.0.0.1:1/source.tar.gz".to_owned();
    let origin = SourceOrigin::Tarball { location, sha256: Some(Sha256::of(b"x").to_string()) };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("downloading it failed for the source of PostgreSQL"), "{error}");
    assert!(error.contains("no network connection?"), "{error}");
    let url = "http://127.0.0.1:1/source.git".to_owned();
    let origin = SourceOrigin::Git { url, revision: "v1".to_owned() };
    let error = bench.obtain(&origin).unwrap_err().to_string();
    assert!(error.contains("no network connection?"), "{error}");
}

#[test]
fn git_revision_is_fetched_once() {
    let bench = Bench::new();
    let folder = bench.dir.path().join("postgresql-99.1");
    bench.run_in(&folder, "git", &["init", "--quiet"]);
    bench.run_in(&folder, "git", &["add", "--all"]);
    let who = ["-c", "user.name=a", "-c", "user.email=a@example.org"];
    bench.run_in(&folder, "git", &[&who[..], &["commit", "--quiet", "-m", "first"]].concat());
    bench.run_in(&folder, "git", &["tag", "v1"]);
    let url = format!("file://{}", folder.display());
    let origin = SourceOrigin::Git { url: url.clone(), revision: "v1".to_owned() };
    let source = bench.obtain(&origin).unwrap();
    assert_eq!(source.revision().map(str::len), Some(40));
    assert!(bench.text(&source).contains("int a(void)"));
    fs::rename(&folder, bench.dir.path().join("gone")).unwrap();
    assert_eq!(bench.obtain(&origin).unwrap().revision(), source.revision());
    let other = SourceOrigin::Git { url, revision: "v2".to_owned() };
    let error = bench.obtain(&other).unwrap_err().to_string();
    assert!(error.contains("fetching it failed"), "{error}");
}

#[test]
fn source_of_another_system_is_rejected() {
    let bench = Bench::new();
    let origin = SourceOrigin::Path(bench.dir.path().join("postgresql-99.1"));
    let outcome = bench.sources.obtain(System::MariaDb, &origin, &|_| {});
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("detecting the version of MariaDB failed"), "{error}");
    let outcome = bench.sources.obtain(System::MySql, &SourceOrigin::Bundled, &|_| {});
    assert!(outcome.unwrap_err().to_string().contains("only the source of SQLite is bundled"));
}
